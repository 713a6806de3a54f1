"""Call: one ONNX node as its converter sees it, and what it builds the answer with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from ...base.dtype import DType
from ...base.errors import FormatError, Unsupported
from ...base.shape import StaticShape, is_static, show
from ..emitter import Emitter, Value
from .tensors import attribute_value

_GIVE_SHAPES = 'give the shape of every input: from_onnx(model, shape={"input": (1, 3, 224, 224)})'


class Call:
    """The inputs and attributes of a node; attributes have the defaults of ONNX's own schema,
    which operators of other domains do not have."""

    def __init__(
        self,
        emitter: Emitter,
        node: onnx.NodeProto,
        schema: onnx.defs.OpSchema | None,
        inputs: Sequence[Value | None],
        opset: int,
        label: str,
    ) -> None:
        self.emitter = emitter
        self.op_type = node.op_type
        self.name = emitter.fresh_name(node.name or next(filter(None, node.output), node.op_type))
        self.inputs = list(inputs)
        self.outputs = [bool(name) for name in node.output]
        self.opset = opset
        self._schema = schema
        self._attrs = {item.name: attribute_value(item, label) for item in node.attribute}
        self._count = 0
        self._read: set[str | int] = set()
        self._made: list[Value] = []
        self._result_name = next(filter(None, node.output), self.name)
        if schema is not None:
            self._check(node, schema)

    def _check(self, node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> None:
        for attribute in node.attribute:
            known = schema.attributes.get(attribute.name)
            if known is None:
                raise FormatError(f"unknown attribute {attribute.name!r}")
            if attribute.type != known.type.value:
                raise FormatError(f"attribute {attribute.name!r} is not of type {known.type.name}")
        if len(self._attrs) != len(node.attribute):
            raise FormatError("an attribute is given twice")
        missing = [name for name, known in schema.attributes.items() if known.required]
        missing = [name for name in missing if name not in self._attrs]
        if missing:
            raise FormatError(f"attribute {missing[0]!r} is missing")
        if not schema.min_input <= len(self.inputs) <= schema.max_input:
            raise FormatError(
                f"{len(self.inputs)} inputs",
                why=f"{node.op_type} takes {schema.min_input} to {schema.max_input}",
            )
        if len(node.output) > schema.max_output:
            raise FormatError(f"{len(node.output)} outputs, and it has {schema.max_output}")

    # What the node says.

    def __getitem__(self, index: int) -> Value:
        """An input that must be there."""
        value = self.get(index)
        if value is None:
            raise FormatError(f"input {index} is missing")
        return value

    def get(self, index: int) -> Value | None:
        """An input, or None if it is left out."""
        self._read.add(index)
        return self.inputs[index] if index < len(self.inputs) else None

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as given, else as ONNX's schema has it, else `default`."""
        self._read.add(name)
        if name in self._attrs:
            return self._attrs[name]
        known = self._default(name)
        return default if known is None else known

    def _default(self, name: str) -> Any:
        known = self._schema.attributes.get(name) if self._schema else None
        if known is None or not known.default_value.type:
            return None
        return attribute_value(known.default_value, name)

    def ignore(self, *parts: str | int) -> None:
        """Says that attributes, or inputs by number, make no difference at inference."""
        self._read.update(parts)

    def check_all_read(self) -> None:
        """What the converter has not looked at must not be there: nothing is dropped in silence."""
        for name, value in self._attrs.items():
            if name not in self._read and value != self._default(name):
                raise Unsupported(f"{self.op_type} with attribute {name!r} = {value!r:.80}")
        for index, value in enumerate(self.inputs):
            if index not in self._read and value is not None:
                raise Unsupported(f"{self.op_type} with input {index} ({value.name!r})")

    def wants(self, output: int) -> bool:
        """Whether the graph uses an output."""
        return output < len(self.outputs) and self.outputs[output]

    def only_first_output(self) -> None:
        if any(self.outputs[1:]):
            raise Unsupported(
                f"{self.op_type} with more than its first output is not supported",
                why="the others belong to training, or have no counterpart",
            )

    def constant(self, index: int, what: str, default: Any = None) -> np.ndarray | None:
        """The value of an input that must be known at import; `default` if it is left out."""
        value = self.get(index)
        if value is None:
            return default
        if value.constant is None:
            raise Unsupported(
                f"{what} is only known when the model runs",
                why=f"it comes from {value.name!r}, which does not follow from constants",
                hint=_GIVE_SHAPES,
            )
        return value.constant

    def ints(self, index: int, what: str) -> list[int] | None:
        """A constant input as a flat list of ints; None if it is left out."""
        value = self.constant(index, what)
        return None if value is None else [int(item) for item in np.ravel(value)]

    def number(self, index: int, what: str, default: float | None = None) -> float | None:
        """A constant input as one number."""
        value = self.constant(index, what)
        if value is None:
            return default
        if value.size != 1:
            raise FormatError(f"{what} must be one number, not {value.size}")
        return value.reshape(()).item()

    def shape(self, value: Value, what: str = "the input") -> StaticShape:
        """A shape in which every dimension is a number."""
        if not is_static(value.shape):
            raise Unsupported(
                f"the shape {show(value.shape)} of {what} is not known",
                why=f"{self.op_type} is converted by it",
                hint=_GIVE_SHAPES,
            )
        return value.shape

    def rank(self, value: Value, what: str = "the input") -> int:
        if value.rank is None:
            raise Unsupported(f"the rank of {what} is not known")
        return value.rank

    def dtype(self, value: Value) -> DType:
        if value.dtype is None:
            raise Unsupported(f"the dtype of {value.name!r} is not known")
        return value.dtype

    # What the converter makes.

    def op(self, op_name: str, *inputs: Value, **attrs: Any) -> Any:
        """A weft operator on values: one value, or a list of its outputs."""
        self._count += 1
        name = f"{self.name}_{op_name.strip('_')}{self._count}"
        made = self.emitter.apply(op_name, name, list(inputs), attrs)
        self._made += made if isinstance(made, list) else [made]
        return made

    def make(self, data: Any, dtype: DType | None = None) -> Value:
        """A constant."""
        self._count += 1
        made = self.emitter.constant(f"{self.name}_const{self._count}", np.asarray(data, dtype))
        self._made.append(made)
        return made

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """A static reshape, or nothing where the shape is already that."""
        if value.shape == tuple(shape):
            return value
        if 0 in shape and is_static(value.shape):  # 0 means "keep" to the operator
            return self.op("zeros", shape=tuple(shape), dtype=self.dtype(value))
        return self.op("reshape", value, shape=tuple(int(dim) for dim in shape))

    def cast(self, value: Value, dtype: DType) -> Value:
        return value if value.dtype == dtype else self.op("cast", value, dtype=dtype)

    def broadcast_to(self, value: Value, shape: StaticShape) -> Value:
        """The value stretched to a shape of equal or larger rank."""
        known = value.constant
        if known is not None and known.size == 1 and value.shape != shape:
            fill = known.reshape(()).item()
            return self.op("full", shape=shape, dtype=self.dtype(value), fill_value=fill)
        missing = len(shape) - self.rank(value)
        if missing:
            value = self.op("expand_dims", value, axis=0, num_newaxis=missing)
        return value if value.shape == shape else self.op("broadcast_to", value, shape=shape)

    def named(self, results: list[Value | None]) -> list[Value | None]:
        """Gives the node that makes the first result the name that the ONNX node has, and a
        constant that of the ONNX tensor."""
        first = results[0] if results else None
        if any(first is value for value in self._made):
            folded = first.constant is not None
            self.emitter.rename(first, self._result_name if folded else self.name)
        return results
