"""One ONNX node as its converter sees it, with what it builds the answer with; and as a step on the host does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx

from ...base.errors import FormatError, RegistryError, Unsupported
from ...base.extents import Extent
from ..building import Building
from ..emitter import Emitter, Value
from .tensors import attribute_value

_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


class Attributes:
    """The attributes of a node, with the defaults of ONNX's own schema, which other domains do not have."""

    def __init__(self, node: onnx.NodeProto, schema: onnx.defs.OpSchema | None, label: str) -> None:
        self._schema = schema
        self.assumed: dict[str, Any] = {}  # defaults of an operator that has no schema
        self.stated = {item.name: attribute_value(item, label) for item in node.attribute}
        if len(self.stated) != len(node.attribute):
            raise FormatError("an attribute is given twice")

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute as given, else as ONNX's schema has it, else `default`."""
        if name in self.stated:
            return self.stated[name]
        known = self.default(name)
        return default if known is None else known

    def default(self, name: str) -> Any:
        if name in self.assumed:
            return self.assumed[name]
        known = self._schema.attributes.get(name) if self._schema else None
        if known is None or not known.default_value.type:
            return None
        return attribute_value(known.default_value, name)


class HostCall:
    """A node as its step on the host sees it; the values of inputs come beside it."""

    def __init__(self, node: onnx.NodeProto, schema: onnx.defs.OpSchema | None, opset: int, label: str) -> None:
        self.op_type = node.op_type
        self.opset = opset
        self.label = label
        self.wanted = frozenset(index for index, output in enumerate(node.output) if output)
        self.attr = Attributes(node, schema, label).get


class OnnxCall(Building):
    """The inputs and attributes of a node."""

    def __init__(
        self,
        emitter: Emitter,
        node: onnx.NodeProto,
        schema: onnx.defs.OpSchema | None,
        inputs: Sequence[Value | None],
        opset: int,
        label: str,
        decides: Collection[int],
    ) -> None:
        name = node.name or next(filter(None, node.output), node.op_type)
        wanted = [index for index, output in enumerate(node.output) if output]
        super().__init__(emitter, node.op_type, name, inputs, wanted)
        self.count = len(node.output)  # of outputs, of which some may have no name
        self.opset = opset
        self._decides = decides  # inputs whose values the converter may ask for
        self._attributes = Attributes(node, schema, label)
        self._result_name = next(filter(None, node.output), self.name)
        if schema is not None:
            self._check(node, schema)

    def _check(self, node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> None:
        for attribute in node.attribute:
            known = schema.attributes.get(attribute.name)
            if known is None:
                raise FormatError(f"unknown attribute {attribute.name!r}")
            kind = str(known.type).rpartition(".")[2]
            if onnx.AttributeProto.AttributeType.Name(attribute.type) != kind:
                raise FormatError(f"attribute {attribute.name!r} is not of type {kind}")
        missing = [name for name, known in schema.attributes.items() if known.required]
        missing = [name for name in missing if name not in self._attributes.stated]
        if missing:
            raise FormatError(f"attribute {missing[0]!r} is missing")
        if not schema.min_input <= len(self.inputs) <= schema.max_input:
            raise FormatError(
                f"{len(self.inputs)} inputs", why=f"{node.op_type} takes {schema.min_input} to {schema.max_input}"
            )
        for index, (value, formal) in enumerate(zip(self.inputs, schema.inputs)):
            if value is None and formal.option == _SINGLE:
                raise FormatError(f"input {index} ({formal.name}) is missing")
        if len(node.output) > schema.max_output:
            raise FormatError(f"{len(node.output)} outputs, and it has {schema.max_output}")

    # What the node says.

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as given, else as ONNX's schema has it, else `default`."""
        self._read.add(name)
        return self._attributes.get(name, default)

    def assume(self, **defaults: Any) -> None:
        """What attributes are by default, of an operator that has no schema to say so."""
        self._attributes.assumed.update(defaults)

    def check_all_read(self) -> None:
        """What the converter has not looked at must not be there: nothing is dropped in silence. But for a hint of the
        first opset, that an operator may write where it reads."""
        self.ignore("consumed_inputs")
        for name, value in self._attributes.stated.items():
            if name not in self._read and value != self._attributes.default(name):
                raise Unsupported(f"{self.op_type} with attribute {name!r} = {value!r:.80}")
        for index, value in enumerate(self.inputs):
            if index not in self._read and value is not None:
                raise Unsupported(f"{self.op_type} with input {index} ({value.name!r})")

    def constant(self, index: int, what: str) -> np.ndarray:
        """The value of an input that must be known at import."""
        value = self[index]
        if index not in self._decides:
            raise RegistryError(
                f"the converter of {self.op_type} asks for the value of input {index}",
                hint=f"register it as @converter({self.op_type!r}, decides=(..., {index}))",
            )
        known = self.emitter.computed(value)
        if known is None:
            raise self.undetermined(
                f"{what} is only known when the model runs",
                f"it comes from {value.name!r}, which does not follow from constants",
            )
        return known

    def ints(self, index: int, what: str) -> list[int]:
        """A constant input as a flat list of ints."""
        return [int(item) for item in np.ravel(self.constant(index, what))]

    def extents(self, index: int, what: str) -> list[int | Extent]:
        """An input as a flat list of ints, and of extents where they follow from the shapes of inputs."""
        symbolic = self[index].extents
        return list(symbolic.flat) if symbolic is not None else list(self.ints(index, what))

    def optional_ints(self, index: int, what: str) -> list[int] | None:
        """The same; None if it is left out."""
        return None if self.get(index) is None else self.ints(index, what)

    def number(self, index: int, what: str, default: float | None = None) -> float:
        """A constant input as one number."""
        if default is not None and self.get(index) is None:
            return default
        value = self.constant(index, what)
        if value.size != 1:
            raise FormatError(f"{what} must be one number, not {value.size}")
        number: float = value.reshape(()).item()
        return number

    def named(self, results: Sequence[Value | None]) -> Sequence[Value | None]:
        """Gives the node that makes the first result the name that the ONNX node has, and a
        constant that of the ONNX tensor."""
        first = results[0] if results else None
        if first is not None and any(first is value for value in self._results):
            folded = first.constant is not None
            self.emitter.rename(first, self._result_name if folded else self.name)
        return results
