"""OnnxNode: a node of an ONNX file, with the opset it is of, as it is converted, written down, or run on the host."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Self

import onnx

from ...base.errors import FormatError
from ..custom import SymbolConverter
from ..emitter import Value
from ..nodes import ImportedNode
from .call import OnnxCall
from .kinds import output_kinds
from .model import node_domain, node_label
from .registry import TABLE
from .tensors import attribute_value


class OnnxNode(ImportedNode):
    """A node at some position of a graph. A step on the host reads its attributes."""

    importer = "onnx"
    table = TABLE
    call = OnnxCall

    def __init__(self, proto: onnx.NodeProto, opset: int, position: int = 0) -> None:
        name = proto.name or next(filter(None, proto.output), proto.op_type)
        wanted = [index for index, output in enumerate(proto.output) if output]
        super().__init__(proto.op_type, name, len(proto.output), wanted, opset, node_domain(proto))
        self.proto = proto
        self._position = position
        self._attributes: Mapping[str, Any] | None = None

    def written(self) -> dict[str, Any]:
        data = base64.b64encode(self.proto.SerializeToString()).decode("ascii")
        return {"node": data, "opset": self.version}

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        return cls(onnx.NodeProto.FromString(base64.b64decode(fields["node"])), fields["opset"])

    def brought(self, converters: Mapping[str, SymbolConverter]) -> SymbolConverter | None:
        return converters.get(f"{self.proto.domain}.{self.op_type}") or super().brought(converters)

    @property
    def operator(self) -> str:
        """How reports of what is missing call the operator."""
        return f"{self.domain or 'ai.onnx'}.{self.op_type} (opset {self.version})"

    @property
    def label(self) -> str:
        return node_label(self.proto, self._position)

    def kinds(self, inputs: Sequence[Value | None]) -> list[str]:
        return output_kinds(self.proto, self.schema, inputs)

    def is_told(self, value: Value) -> bool:
        return value.shape is not None and value.dtype is not None

    # Attributes, with the defaults of ONNX's own schema, which other domains do not have.

    @property
    def schema(self) -> onnx.defs.OpSchema | None:
        """What ONNX itself says of the operator."""
        try:
            return onnx.defs.get_schema(self.op_type, self.version, self.domain)
        except onnx.defs.SchemaError:
            return None

    @property
    def attributes(self) -> Mapping[str, Any]:
        if self._attributes is None:
            self._attributes = self._read_attributes()
        return self._attributes

    def _read_attributes(self) -> Mapping[str, Any]:
        stated = {item.name: attribute_value(item, self.label) for item in self.proto.attribute}
        if len(stated) != len(self.proto.attribute):
            raise FormatError("an attribute is given twice")
        return stated

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as given, else as ONNX's schema has it, else `default`."""
        if name in self.attributes:
            return self.attributes[name]
        known = self.default(name)
        return default if known is None else known

    def default(self, name: str) -> Any:
        """An attribute by ONNX's schema; None if that says nothing."""
        known = self.schema.attributes.get(name) if self.schema else None
        if known is None or not known.default_value.type:
            return None
        return attribute_value(known.default_value, name)
