"""Call: one ONNX node as its converter sees it, and what it builds the answer with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from ...base.errors import FormatError, Unsupported
from ..building import Building
from ..emitter import Emitter, Value
from .tensors import attribute_value

_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


class Call(Building):
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
        name = node.name or next(filter(None, node.output), node.op_type)
        super().__init__(emitter, node.op_type, name)
        self.inputs = list(inputs)
        self.outputs = [bool(name) for name in node.output]
        self.opset = opset
        self._schema = schema
        self._attrs = {item.name: attribute_value(item, label) for item in node.attribute}
        self._read: set[str | int] = set()
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
                f"{len(self.inputs)} inputs", why=f"{node.op_type} takes {schema.min_input} to {schema.max_input}"
            )
        for index, (value, known) in enumerate(zip(self.inputs, schema.inputs)):
            if value is None and known.option == _SINGLE:
                raise FormatError(f"input {index} ({known.name}) is missing")
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
            raise self.undetermined(
                f"{what} is only known when the model runs",
                f"it comes from {value.name!r}, which does not follow from constants",
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

    def named(self, results: list[Value | None]) -> list[Value | None]:
        """Gives the node that makes the first result the name that the ONNX node has, and a
        constant that of the ONNX tensor."""
        first = results[0] if results else None
        if any(first is value for value in self._made):
            folded = first.constant is not None
            self.emitter.rename(first, self._result_name if folded else self.name)
        return results
