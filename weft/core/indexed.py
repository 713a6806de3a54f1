"""IndexedGraph: the dense view of a graph, for algorithms that number nodes and entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from .ir import Node, NodeEntry, topo_order
from .op import Op


class IndexedGraph:
    """Nodes and entries by number, in topological order. Ghost nodes and edges to them are left
    out."""

    def __init__(self, outputs: Sequence[NodeEntry]) -> None:
        order = topo_order(outputs)
        ghosts = {op for op in {node.op for node in order} if op is not None and op.is_ghost}
        self.nodes: list[Node] = [node for node in order if node.op not in ghosts]
        self.node_id: dict[Node, int] = {node: i for i, node in enumerate(self.nodes)}
        counts = [node.num_outputs for node in self.nodes]
        self.entry_ptr: list[int] = [0, *accumulate(counts)]
        first = dict(zip(self.nodes, self.entry_ptr))
        if ghosts:
            self.inputs: list[list[int]] = [
                [first[n] + i for n, i, _ in node.inputs if n in first] for node in self.nodes
            ]
        else:
            self.inputs = [[first[n] + i for n, i, _ in node.inputs] for node in self.nodes]
        self.outputs: list[int] = [first[n] + i for n, i, _ in outputs if n in first]
        self.variables: list[int] = [i for i, node in enumerate(self.nodes) if node.op is None]
        self._consumers: list[list[int]] | None = None
        self._mutable_inputs: set[int] | None = None

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)

    @property
    def num_node_entries(self) -> int:
        return self.entry_ptr[-1]

    def entry_id(self, entry: NodeEntry) -> int:
        return self.entry_ptr[self.node_id[entry.node]] + entry.index

    def entry_range(self, node: int) -> range:
        """The entries that a node gives."""
        return range(self.entry_ptr[node], self.entry_ptr[node + 1])

    def triples(self, entries: Iterable[NodeEntry]) -> list[list[int]]:
        """Entries as files have them: [node, output, version]."""
        ids = self.node_id
        return [[ids[n], i, v] for n, i, v in entries if n in ids]

    def numbers(self, nodes: Iterable[Node]) -> list[int]:
        """The numbers of nodes."""
        return [self.node_id[node] for node in nodes if node in self.node_id]

    @property
    def consumers(self) -> list[list[int]]:
        """Entry -> the nodes that read it, once for each time."""
        if self._consumers is None:
            result: list[list[int]] = [[] for _ in range(self.num_node_entries)]
            for node, entries in enumerate(self.inputs):
                for entry in entries:
                    result[entry].append(node)
            self._consumers = result
        return self._consumers

    @property
    def mutable_inputs(self) -> set[int]:
        """Variables that some operator mutates."""
        if self._mutable_inputs is None:
            self._mutable_inputs = {
                self.node_id[node.inputs[index].node]
                for node in self.nodes
                if node.op is not None and Op.mutates.contains(node.op)
                for index in node.op.mutates_of(node.params)
            }
        return self._mutable_inputs
