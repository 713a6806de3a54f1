"""The constant part of a graph: what depends on nothing but parameters and initialisers.

Comes in: a graph and names of parameters. Goes out: the graph with that part cut off, and the part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..base.shape import is_static, numel
from ..core.bulk import collector_paused
from ..core.graph import Graph
from ..core.graph_attrs import JsonAttr
from ..core.ir import Node, NodeEntry
from ..core.op import Op
from ..core.pattern import OpPattern
from ..core.symbolic import symbolic_names
from ..core.walk import Walker, rewrite

LARGE = 1 << 20  # elements


@collector_paused
def constant_part(graph: Graph, param_names: Iterable[str] = ()) -> tuple[Graph, Graph | None]:
    """The graph with computed parameters, and the graph that computes them, if there is any.

    The second graph's attribute `output_names` says which variable of the first each of its
    outputs becomes. Neither shares a changed node with the graph that came in.

    >>> from weft.core.op import Op
    >>> from weft.core.symbol import Variable
    >>> symbol = Variable("x") + Op.get("exp")(Variable("a"), name="exp_a")
    >>> main, part = constant_part(Graph(symbol.outputs), ["a"])
    >>> main.symbol.list_input_names(), part.attr("output_names")
    (['x', 'exp_a'], ['exp_a'])
    """
    constant = constant_nodes(graph, frozenset(param_names))
    cut = _cut_entries(graph, constant)
    if not cut:
        return graph, None
    names = dict(zip(cut, _names(graph, cut)))
    made: dict[NodeEntry, NodeEntry] = {}

    def cut_off(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        entries = [NodeEntry(node, index) for index in range(node.num_outputs)]
        if not any(entry in names for entry in entries):
            return None
        for entry in entries:
            if entry in names:
                made[entry] = walker.variable(names[entry], graph.fact(entry))
        return [made.get(entry, entry) for entry in entries]

    main = rewrite(graph.replace(attrs={}), cut_off)
    attrs = {"output_names": JsonAttr("list_str", list(names.values()))}
    return main, graph.replace(outputs=cut, attrs=attrs).trimmed()


def constant_nodes(graph: Graph, params: Collection[str]) -> set[Node]:
    """Nodes whose values depend on these parameters and initialisers alone."""
    mutable = {graph.indexed.nodes[number] for number in graph.indexed.mutable_inputs}
    constant: set[Node] = set()
    for node in graph.indexed.nodes:
        if node.op is None:
            known = node.name in params and node not in mutable
        else:
            known = (
                node.op.effect_of(node.params) == "pure"
                and not node.op.mutates_of(node.params)
                and all(entry.node in constant for entry in node.inputs)
                and all(dep in constant for dep in node.control_deps)
                and not symbolic_names(node.params)
                and not _grows(graph, node)
            )
        if known:
            constant.add(node)
    return constant


def _grows(graph: Graph, node: Node) -> bool:
    """Whether a node makes much out of little, as broadcasts do: reading that from memory costs
    more than making it again where it is used."""
    if Op.pattern.get(node.op, OpPattern.OPAQUE) > OpPattern.INJECTIVE:
        return False
    shapes = [fact.shape for fact in graph.node_facts(node)]
    given = [graph.fact(entry).shape for entry in node.inputs]
    made = sum(numel(shape) for shape in shapes if is_static(shape))
    return made > LARGE and made > 2 * sum(numel(shape) for shape in given if is_static(shape))


def _cut_entries(graph: Graph, constant: Collection[Node]) -> list[NodeEntry]:
    """Entries of the constant part that the rest reads, in order.

    A bare initialiser stays: making zeros anew is cheaper than keeping them.
    """
    cut: dict[NodeEntry, None] = {}
    readers = [node for node in graph.indexed.nodes if node not in constant]
    for entry in [*(entry for node in readers for entry in node.inputs), *graph.outputs]:
        if entry.node in constant and entry.node.op is not None and entry.node.inputs:
            cut[entry] = None
    return list(cut)


def _names(graph: Graph, cut: list[NodeEntry]) -> list[str]:
    """A variable's name for each entry: the node's, told apart from all names in use."""
    used = {node.name for node in graph.indexed.nodes if node.op is None}
    names = []
    for node, index, _ in cut:
        base = node.name if node.num_outputs == 1 else f"{node.name}_output{index}"
        name, number = base, 0
        while name in used:
            number += 1
            name = f"{base}_{number}"
        used.add(name)
        names.append(name)
    return names
