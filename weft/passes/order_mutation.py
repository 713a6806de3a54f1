"""OrderMutation: the order that versions of variables imply becomes control dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.graph import Graph
from ..core.ir import Mutations, Node, NodeEntry, topo_order
from ..core.passes import register_pass

Version = tuple[Node, int]


@register_pass("OrderMutation", op_attrs=("FMutateInputs",))
def order_mutation(graph: Graph) -> Graph:
    """A read waits for the write that makes its version, a write for the reads of the one before.

    A write that nobody reads before the next one is what that one waits for.
    """
    nodes = graph.indexed.nodes
    mutations = Mutations(nodes)
    if not mutations.writers:
        return graph
    waits = _waits(nodes, mutations, _readers(nodes, mutations))
    return _with_control_deps(graph, waits)


def _readers(nodes: Sequence[Node], mutations: Mutations) -> dict[Version, list[Node]]:
    """(variable, version that a node makes) -> the nodes that read it without making it."""
    readers: dict[Version, dict[Node, None]] = {}
    for node in nodes:
        written = set(node.op.mutates_of(node.params)) if node.op is not None else set()
        for index, (producer, _, version) in enumerate(node.inputs):
            if producer.op is None and index not in written:
                made = mutations.made_version(producer, version)
                readers.setdefault((producer, made), {})[node] = None
    return {version: list(found) for version, found in readers.items()}


def _waits(
    nodes: Sequence[Node], mutations: Mutations, readers: Mapping[Version, list[Node]]
) -> dict[Node, list[Node]]:
    waits: dict[Node, list[Node]] = {}
    for node in nodes:
        needs: dict[Node, None] = {}
        for producer, _, version in node.inputs:
            if producer.op is not None:
                continue
            own = mutations.writers.get((producer, version)) is node
            made = mutations.made_version(producer, version - own)
            writer = mutations.writers.get((producer, made))
            before = [r for r in readers.get((producer, made), ()) if r is not node] if own else []
            needs.update(dict.fromkeys(before or ([writer] if writer is not None else [])))
        if needs:
            waits[node] = list(needs)
    return waits


def _with_control_deps(graph: Graph, waits: Mapping[Node, list[Node]]) -> Graph:
    moved: dict[Node, Node] = {}
    facts, sources = dict(graph.facts), dict(graph.sources)
    for node in topo_order(graph.outputs, waits):
        inputs = [entry._replace(node=moved[entry.node]) for entry in node.inputs]
        wanted = dict.fromkeys([*node.control_deps, *waits.get(node, ())])
        deps = [moved[dep] for dep in wanted]
        if node.op is None or (inputs == node.inputs and deps == node.control_deps):
            moved[node] = node
            continue
        moved[node] = made = node.copy_with(inputs, deps)
        sources[made] = graph.sources.get(node, (node,))
        if node in graph.facts:
            facts[made] = graph.facts[node]
    outputs = [NodeEntry(moved[node], index, version) for node, index, version in graph.outputs]
    return graph.replace(outputs=outputs, attrs={}, facts=facts, sources=sources).trimmed()
