"""Moves: which new node stands for which old one, for passes that must know it while rewriting."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.ir import Node, NodeEntry
from ..core.walk import Walker


class Moves:
    """Filled by a rewrite rule that decides about every node through it."""

    def __init__(self) -> None:
        self._entries: dict[Node, Sequence[NodeEntry]] = {}

    def keep(self, walker: Walker, node: Node, inputs: Sequence[NodeEntry]) -> list[NodeEntry] | None:
        """The same operator on other inputs; None where nothing changes, as a rule returns it."""
        deps = [self.node(dep) for dep in node.control_deps]
        if node.op is None or (list(inputs) == node.inputs and deps == node.control_deps):
            self._entries[node] = [NodeEntry(node, index) for index in range(node.num_outputs)]
            return None
        made = walker.copy(node, inputs, deps)
        return self.put(node, [NodeEntry(made, index) for index in range(made.num_outputs)])

    def put(self, node: Node, entries: Sequence[NodeEntry]) -> list[NodeEntry]:
        """Says which entries stand for a node's outputs."""
        self._entries[node] = entries
        return list(entries)

    def node(self, node: Node) -> Node:
        return self._entries[node][0].node

    def entries(self, node: Node) -> Sequence[NodeEntry]:
        return self._entries[node]

    def entry(self, entry: NodeEntry) -> NodeEntry:
        """What stands for an entry; a variable keeps the version that is read."""
        found = self._entries[entry.node][entry.index]
        return found._replace(version=entry.version) if found.node is entry.node else found
