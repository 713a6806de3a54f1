"""The walker: what a rule returns stands in a node's place; made nodes have facts and sources."""

import numpy as np
import pytest
from core.core_ops import add, assign, linear, parts, relu, scale

from weft.base.errors import GraphError, ShapeError
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.ir import Fact, NodeEntry
from weft.core.symbol import Group, Variable
from weft.core.verify import verify
from weft.core.walk import rewrite

F32 = np.dtype("float32")


def typed(symbol, **shapes):
    names = symbol.list_input_names()
    return infer(Graph(symbol.outputs), shapes or None, dict.fromkeys(names, F32))


def doubled(walker, node, inputs):
    if node.op is relu():
        return walker.make("t_add", [walker.make("t_relu", inputs)] * 2)
    return None


def test_a_rule_that_keeps_everything_shares_everything():
    graph = typed(add()(relu()(Variable("x")), Variable("y")), x=(2,), y=(2,))
    kept = rewrite(graph, lambda walker, node, inputs: None)
    assert kept.outputs == graph.outputs
    assert kept.facts == graph.facts


def test_replaced_nodes_have_facts_sources_and_meaning():
    source = typed(scale()(relu()(Variable("x"), name="r"), factor=3, name="s"), x=(2, 3))
    made = rewrite(source, doubled)
    verify(made)
    assert [n.op_name for n in made.indexed.nodes] == ["null", "t_relu", "t_add", "t_scale"]
    by_name = {node.name: node for node in source.indexed.nodes}
    for node in made.indexed.nodes[1:]:
        assert made.facts[node] == (Fact((2, 3), F32),)
    assert [made.sources.get(n) for n in made.indexed.nodes] == [
        None,
        (by_name["r"],),
        (by_name["r"],),
        (by_name["s"],),
    ]
    x = np.array([[1, -2, 3], [4, 5, -6]], "float32")
    np.testing.assert_array_equal(evaluate(made, {"x": x})[0], np.maximum(x, 0) * 6)
    assert [n.op_name for n in source.indexed.nodes] == ["null", "t_relu", "t_scale"]


def test_sources_go_back_to_the_first_graph():
    source = typed(relu()(Variable("x"), name="r"), x=(2,))
    once = rewrite(source, doubled)
    twice = rewrite(once, doubled)
    origin = {node.name for nodes in twice.sources.values() for node in nodes}
    assert origin == {"r"}
    assert set(twice.facts) == set(twice.indexed.nodes)


def test_names_of_made_nodes():
    source = typed(relu()(Variable("x"), name="r"), x=(2,))

    def rule(walker, node, inputs):
        if node.op is None:
            return None
        return walker.make("t_scale", [walker.make("t_relu", inputs, name="own")], {"factor": 2})

    made = rewrite(source, rule)
    assert [node.name for node in made.indexed.nodes] == ["x", "own", "r_t_scale"]
    assert made.indexed.nodes[2].attrs == {"factor": "2"}


def test_control_dependencies_follow():
    x = Variable("x")
    first, last = relu()(x, name="first"), scale()(x, name="last")
    last._add_control_deps(first)
    made = rewrite(typed(last, x=(2,)), doubled)
    assert [dep.op_name for dep in made.outputs[0].node.control_deps] == ["t_add"]


def test_versions_follow():
    w = Variable("w")
    y = Group([assign()(w, relu()(w)), scale()(w, factor=2)])
    made = rewrite(typed(y, w=()), doubled)
    verify(made)
    before, after = evaluate(y, {"w": 3.0}), evaluate(made, {"w": 3.0})
    assert [float(v) for v in before] == [3, 6]
    assert [float(v) for v in after] == [6, 12]


def test_several_outputs_are_replaced_by_several():
    source = typed(parts()(Variable("x"), parts=2, name="p"), x=(2,))

    def swap(walker, node, inputs):
        if node.op is None:
            return None
        made = walker.copy(node, inputs, [])
        return [NodeEntry(made, 1), NodeEntry(made, 0)]

    assert [e.index for e in rewrite(source, swap).outputs] == [1, 0]
    with pytest.raises(GraphError, match="gave 1 outputs"):
        rewrite(source, lambda w, n, i: None if n.op is None else w.make("t_relu", i))


def test_new_variables():
    source = typed(relu()(Variable("x"), name="r"), x=(2,))
    fact = Fact((2,), F32)
    made = rewrite(source, lambda w, n, i: w.variable("new", fact) if n.op is not None else None)
    assert made.symbol.list_input_names() == ["new"]
    assert made.fact(made.outputs[0]) == fact


def test_a_made_node_whose_inputs_contradict_is_an_error():
    source = typed(add()(Variable("x"), relu()(Variable("y"))), x=(2,), y=(2,))

    def rule(walker, node, inputs):
        if node.op is not relu():
            return None
        wrong = walker.variable("wrong", Fact((3,), F32))
        return walker.make("t_linear", [*inputs, wrong, wrong])

    linear()
    with pytest.raises(ShapeError, match="operator t_linear"):
        rewrite(source, rule)
