"""Graphs that write to their variables: reads and writes are put in an order in which one storage a
variable is enough."""

from __future__ import annotations

from collections.abc import Collection

from ..base.errors import GraphError
from ..core.graph import Graph
from ..core.ir import Mutations, Node, NodeEntry
from ..core.op import Op
from ..core.walk import Walker, rewrite
from ..passes.order_mutation import order_mutation


def written_variables(graph: Graph) -> dict[Node, list[Node]]:
    """The variables that a run changes, in order, and what changes each."""
    writers: dict[Node, list[Node]] = {}
    for node in graph.indexed.nodes:
        if writes(node):
            assert node.op is not None
            for place in node.op.mutates_of(node.params):
                writers.setdefault(node.inputs[place].node, []).append(node)
    return writers


def writes(node: Node) -> bool:
    """Whether a node changes a variable. (batch_norm may, and does in training only.)"""
    if node.op is None or node.op not in Op.mutates:
        return False
    return bool(node.op.mutates_of(node.params)) and node.op.effect_of(node.params) != "pure"


def ordered(graph: Graph) -> Graph:
    """The graph in which every read of a variable comes before the next write to it.

    Results that are a variable become copies of it. A version that is read after the next one has
    been written is copied in time.
    """
    changed = written_variables(graph)
    if not changed:
        return graph
    graph = _copy_results(graph, changed)
    try:
        return order_mutation(graph)
    except GraphError:  # a cycle: someone reads an old version and needs a later write
        return order_mutation(_copy_versions(graph, changed))


def _copy_results(graph: Graph, changed: Collection[Node]) -> Graph:
    walker = Walker(graph)
    outputs = [
        walker.make("copy", [entry], name=entry.node.name) if entry.node in changed else entry
        for entry in graph.outputs
    ]
    return graph.replace(outputs=outputs, facts={**graph.facts, **walker.facts})


def _copy_versions(graph: Graph, changed: Collection[Node]) -> Graph:
    """The graph where a version of a variable is read once, into a copy that others read."""
    mutations = Mutations(graph.indexed.nodes)
    copies: dict[NodeEntry, NodeEntry] = {}

    def read_copies(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        if node.op is None or not any(entry.node in changed for entry in inputs):
            return None
        written = node.op.mutates_of(node.params) if writes(node) else ()
        arrived = []
        for index, entry in enumerate(inputs):
            if entry.node in changed and index not in written:
                made = mutations.made_version(entry.node, entry.version)
                key = entry._replace(version=made)
                if key not in copies:
                    name = f"{entry.node.name}_{made}"
                    copies[key] = walker.make("copy", [key], name=name)
                entry = copies[key]
            arrived.append(entry)
        moved = walker.copy(node, arrived, node.control_deps)
        return [NodeEntry(moved, index) for index in range(node.num_outputs)]

    return rewrite(graph.replace(attrs={}), read_copies)
