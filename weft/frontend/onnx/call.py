"""OnnxCall: one ONNX node as its converter sees it, and what it builds the answer with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx

from ...base.errors import FormatError
from ..building import Building
from ..emitter import Emitter, Value

if TYPE_CHECKING:
    from .node import OnnxNode

_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


class OnnxCall(Building):
    """The inputs and attributes of a node."""

    node: OnnxNode

    def __init__(self, emitter: Emitter, node: OnnxNode, inputs: Sequence[Value | None]) -> None:
        super().__init__(emitter, node, inputs)
        self.count = node.num_outputs  # of which some may have no name
        self.opset = node.version
        self.constant_name = next(filter(None, node.proto.output), self.name)
        self._assumed: dict[str, Any] = {}
        if node.schema is not None:
            self._check(node.proto, node.schema)

    def _check(self, node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> None:
        for attribute in node.attribute:
            known = schema.attributes.get(attribute.name)
            if known is None:
                raise FormatError(f"unknown attribute {attribute.name!r}")
            kind = str(known.type).rpartition(".")[2]
            if onnx.AttributeProto.AttributeType.Name(attribute.type) != kind:
                raise FormatError(f"attribute {attribute.name!r} is not of type {kind}")
        missing = [name for name, known in schema.attributes.items() if known.required]
        missing = [name for name in missing if name not in self.node.attributes]
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

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as given, else as it is assumed, else as ONNX's schema has it, else `default`."""
        self._read.add(name)
        assumed = None if name in self.node.attributes else self._assumed.get(name)
        return self.node.attr(name, default) if assumed is None else assumed

    def assume(self, **defaults: Any) -> None:
        """What attributes are by default, where no schema says so, or not as precisely."""
        self._assumed.update(defaults)

    def is_default(self, name: str) -> bool:
        """As ONNX's schema has it; or a hint of the first opset, that an operator may write where it reads."""
        default = self._assumed.get(name, self.node.default(name))
        return name == "consumed_inputs" or bool(self.node.attributes[name] == default)
