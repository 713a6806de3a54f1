"""MxnetNode: a node of a symbol file, with the outputs of it that are used, as it is converted or written down."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from ...core.schema import is_hidden
from ..emitter import Value
from ..nodes import ImportedNode
from .call import MxnetCall, OpenFill, Subgraph
from .registry import TABLE
from .symbol_file import FileNode


class MxnetNode(ImportedNode):
    """An operator of a graph, by any name it has."""

    importer = "mxnet"
    table = TABLE
    call = MxnetCall

    def __init__(self, node: FileNode, wanted: Collection[int], subgraphs: Sequence[Subgraph] = ()) -> None:
        super().__init__(node.op, node.name, max(wanted, default=0) + 1, wanted)
        self.subgraphs = subgraphs
        self._attrs = {key: text for key, text in node.attrs.items() if not is_hidden(key)}

    @property
    def attributes(self) -> Mapping[str, str]:
        return self._attrs

    def written(self) -> dict[str, Any]:
        return {"op": self.op_type, "name": self.name, "attrs": self._attrs, "wanted": sorted(self.wanted)}

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        return cls(FileNode(fields["op"], fields["name"], fields["attrs"], []), fields["wanted"])

    def may_wait(self, inputs: Sequence[Value | None]) -> bool:
        """What has subgraphs is converted at once; so is what tells the shape of a fill that is open."""
        return not self.subgraphs and not any(isinstance(value, OpenFill) for value in inputs)
