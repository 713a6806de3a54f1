"""Chains of nodes that one operator stands for: whether nothing else needs what is inside."""

from __future__ import annotations

from collections.abc import Collection

from ..core.graph import Graph
from ..core.ir import Node, NodeEntry


class Chains:
    """Tells of chains in a graph whether they may be replaced."""

    def __init__(self, graph: Graph) -> None:
        self._indexed = graph.indexed
        self._outputs = {entry.node for entry in graph.outputs}
        self._mutable = {self._indexed.nodes[n] for n in self._indexed.mutable_inputs}

    def is_closed(self, inside: Collection[Node], end: Node, read: Collection[NodeEntry]) -> bool:
        """Whether only the chain itself, up to its end, reads the nodes inside it; and whether it
        may read what it reads when its end is computed, because nothing writes to that."""
        if end.control_deps or any(entry.node in self._mutable for entry in read):
            return False
        ids = self._indexed.node_id
        allowed = {ids[node] for node in (*inside, end)}
        return all(self._is_inner(node, allowed) for node in inside)

    def _is_inner(self, node: Node, allowed: Collection[int]) -> bool:
        entries = self._indexed.entry_range(self._indexed.node_id[node])
        readers = {reader for entry in entries for reader in self._indexed.consumers[entry]}
        return node not in self._outputs and not node.control_deps and readers <= set(allowed)
