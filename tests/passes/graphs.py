"""Graphs for the tests of passes: made by operator name, typed, compared, and run."""

from collections.abc import Mapping

import numpy as np

import weft.ops
import weft.passes  # noqa: F401  (registers the passes)
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.op import Op
from weft.core.symbol import Group, Symbol, Variable

__all__ = ["F", "Group", "Symbol", "Variable", "agree", "assert_same", "text", "typed", "values"]


class _ByName:
    def __getattr__(self, name):
        return Op.get(name)


F = _ByName()


def typed(symbol: Symbol, dtype="float32", **shapes) -> Graph:
    """A graph with facts; every input has one dtype, and a shape if one is given."""
    names = symbol.list_input_names()
    return infer(Graph(symbol.outputs), shapes, {name: np.dtype(dtype) for name in names})


def values(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """An array for every variable, positive so that roots and logarithms are defined."""
    random = np.random.default_rng(seed)
    found = {}
    for number in graph.indexed.variables:
        node = graph.indexed.nodes[number]
        fact = graph.node_facts(node)[0]
        found[node.name] = random.uniform(0.5, 2, fact.shape).astype(fact.dtype)
    return found


def agree(before: Graph, after: Graph, given: Mapping | None = None, **tolerance) -> None:
    """Asserts that both graphs give the same outputs on random inputs."""
    given = values(before) if given is None else given
    for old, new in zip(evaluate(before, given), evaluate(after, given), strict=True):
        assert old.dtype == new.dtype
        np.testing.assert_allclose(new, old, **{"rtol": 1e-5, "atol": 1e-5, **tolerance})


def text(graph: Graph) -> list[tuple]:
    """Structure without names of operators' nodes: op, canonical attributes, inputs."""
    indexed = graph.indexed
    rows = []
    for node in indexed.nodes:
        label = node.name if node.op is None else node.op_name
        attrs = {} if node.op is None else node.op.attributes(node.params)
        inputs = [(indexed.node_id[n], i, v) for n, i, v in node.inputs]
        deps = [indexed.node_id[n] for n in node.control_deps]
        rows.append((label, attrs, inputs, deps))
    return [*rows, [(indexed.node_id[n], i, v) for n, i, v in graph.outputs]]


def assert_same(graph: Graph, expected: Symbol) -> None:
    """Asserts that a graph has the structure of a symbol."""
    assert text(graph) == text(Graph(expected.outputs))


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.indexed.nodes]


def op_names(graph: Graph) -> list[str]:
    return [node.op_name for node in graph.indexed.nodes]
