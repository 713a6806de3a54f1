"""Questions about graphs: their shapes, dtypes, gradients, and whether two are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.dtype import dtype_name
from ..base.errors import GraphError, InvalidType
from ..core.graph import Graph
from ..core.graph_attrs import nnvm_shape
from ..core.infer import check_names
from ..core.ir import Mutations, Node, NodeEntry
from ..core.symbol import Symbol
from ..passes.gradient import get_gradient_graph, gradients
from .graph_attr import set_dtype_inputs, set_shape_inputs

__all__ = ["check_graph_equal", "get_gradient_graph", "gradients", "infer_dtype", "infer_shape"]


def __dir__() -> list[str]:
    return list(__all__)


def infer_shape(graph: Graph | Symbol, **shape: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
    """Shapes of all inputs and of all outputs; 0 and [] stand for unknown, also in what is given.

    >>> import weft
    >>> infer_shape(weft.symbol.flatten(weft.symbol.Variable("x")), x=(2, 3, 4))
    ([[2, 3, 4]], [[2, 12]])
    """
    source = _fresh(graph)
    check_names(source, shape)
    typed = set_shape_inputs(source, shape).apply("InferShape")
    return _values(typed, lambda fact: nnvm_shape(fact.shape))


def infer_dtype(graph: Graph | Symbol, **dtype: Any) -> tuple[list[str | None], list[str | None]]:
    """Names of the dtypes of all inputs and of all outputs; None stands for unknown."""
    source = _fresh(graph)
    check_names(source, dtype)
    typed = set_dtype_inputs(source, dtype).apply("InferType")
    return _values(typed, lambda fact: None if fact.dtype is None else dtype_name(fact.dtype))


def _fresh(graph: Graph | Symbol) -> Graph:
    """A graph of the same structure whose attributes may be set."""
    if not isinstance(graph, (Graph, Symbol)):
        raise InvalidType(f"a {type(graph).__name__} is no graph", hint="pass a Graph or a Symbol")
    return Graph(graph.outputs, getattr(graph, "attrs", None), getattr(graph, "facts", None))


def _values(graph: Graph, value: Any) -> tuple[list[Any], list[Any]]:
    inputs = [graph.indexed.nodes[number].entry() for number in graph.indexed.variables]
    return (
        [value(graph.fact(entry._replace(version=0))) for entry in inputs],
        [value(graph.fact(entry)) for entry in graph.outputs],
    )


def check_graph_equal(a: Graph, b: Graph, compare_variable_attrs: bool = False) -> None:
    """Raises an error that names the first difference in structure; node names do not count."""
    for graph in (a, b):
        if not isinstance(graph, Graph):
            raise InvalidType(f"a {type(graph).__name__} is no graph", hint="weft.graph.create")
    left, right = a.indexed, b.indexed
    seen = [_Numbered(graph) for graph in (a, b)]
    _equal("number of nodes", left.num_nodes, right.num_nodes)
    _equal("number of node entries", left.num_node_entries, right.num_node_entries)
    _equal("number of outputs", len(left.outputs), len(right.outputs))
    for x, y in zip(left.nodes, right.nodes):
        _check_node(x, y, compare_variable_attrs)
        inputs = [numbered.entries(node.inputs) for numbered, node in zip(seen, (x, y))]
        _equal("inputs", inputs[0], inputs[1], x, y)
        deps = [[g.node_id[n] for n in m.control_deps] for g, m in ((left, x), (right, y))]
        _equal("control_deps", deps[0], deps[1], x, y)
    outputs = [numbered.entries(graph.outputs) for numbered, graph in zip(seen, (a, b))]
    _equal("output entries", outputs[0], outputs[1])


class _Numbered:
    """Entries of a graph as (node, output, version), where a version counts the writes to a
    variable that the graph itself contains."""

    def __init__(self, graph: Graph) -> None:
        self._ids = graph.indexed.node_id
        self._mutations = Mutations(graph.indexed.nodes)

    def entries(self, entries: Sequence[NodeEntry]) -> list[tuple[int, int, int]]:
        count = self._mutations.count
        return [(self._ids[node], index, count(node, version)) for node, index, version in entries]


def _check_node(x: Node, y: Node, compare_variable_attrs: bool) -> None:
    _equal("operators", x.op_name, y.op_name, x, y)
    if x.op is None:
        if compare_variable_attrs:
            _equal("attributes", x.attrs, y.attrs, x, y)
        return
    first, second = x.op.attributes(x.params), x.op.attributes(y.params)
    for key in {*first, *second}:
        _equal(f"attribute {key!r}", first.get(key), second.get(key), x, y)


def _equal(what: str, x: Any, y: Any, left: Node | None = None, right: Node | None = None) -> None:
    if x != y:
        nodes = f"nodes {left.name!r} and {right.name!r}" if left and right else None
        raise GraphError(f"Graph compare error: {what} differ: {x} and {y}", where=nodes)
