"""A graph and its groups become the graph that `build` gives: variables, and for each group a node
that names the group's kernel. It describes; the library is what runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..base.dtype import dtype_name
from ..core.fused import FusedGroup
from ..core.graph import Graph
from ..core.graph_attrs import JsonAttr
from ..core.ir import Fact, Node, NodeEntry
from ..core.pattern import OpPattern
from ..lower.group import kernel_name
from ..ops.compiled_group import group_operator
from ..passes.fuse import pattern_of


def compiled_graph(graph: Graph, groups: Sequence[FusedGroup]) -> Graph:
    """One node a group, with the facts of its outputs and attributes dltype and storage_id."""
    entries: dict[NodeEntry, NodeEntry] = {}
    nodes: dict[Node, Node] = {}
    facts: dict[Node, tuple[Fact, ...]] = {}
    names: Counter[str] = Counter()
    for number in graph.indexed.variables:
        node = graph.indexed.nodes[number]
        nodes[node], facts[node] = node, graph.node_facts(node)
    for group in groups:
        made = _node(group, entries, nodes, names)
        facts[made] = tuple(graph.fact(entry) for entry in group.outputs)
        for member in group.nodes:
            nodes[member] = made
        for index, entry in enumerate(group.outputs):
            entries[entry] = NodeEntry(made, index)
    outputs = [entries.get(NodeEntry(n, i), NodeEntry(n, i, v)) for n, i, v in graph.outputs]
    return _described(Graph(outputs, facts=facts))


def _node(group: FusedGroup, entries: dict[NodeEntry, NodeEntry], nodes: dict[Node, Node], names: Counter[str]) -> Node:
    base = kernel_name(group)
    names[base] += 1
    name = base if names[base] == 1 else f"{base}_{names[base] - 1}"
    inside = set(group.nodes)
    waits = dict.fromkeys(nodes[dep] for node in group.nodes for dep in node.control_deps if dep not in inside)
    element_wise = all(pattern_of(node) == OpPattern.ELEM_WISE for node in group.nodes)
    attrs = {
        "func_name": name,
        "flatten_data": "1" if element_wise else "0",
        "num_inputs": str(len(group.inputs)),
        "num_outputs": str(len(group.outputs)),
    }
    inputs = [entries.get(entry, entry) for entry in group.inputs]
    return Node(group_operator, group.nodes[-1].name, attrs, inputs, waits)


def _described(graph: Graph) -> Graph:
    """With the attributes that NNVM's graph runtime reads; each variable has its own storage."""
    planned = graph.apply("PlanMemory")
    storage = list(planned.attr("storage_id"))
    unused = max(storage, default=-1) + 1
    for number in graph.indexed.variables:
        storage[graph.indexed.entry_ptr[number]] = unused
        unused += 1
    known = [fact for node in graph.indexed.nodes for fact in graph.node_facts(node)]
    dtypes = [dtype_name(fact.dtype) if fact.dtype is not None else "" for fact in known]
    attrs = {"dltype": JsonAttr("list_str", dtypes), "storage_id": JsonAttr("list_int", storage)}
    return graph.replace(attrs=attrs)
