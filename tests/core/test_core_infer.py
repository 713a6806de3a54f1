"""Inference of shapes and dtypes: both directions, to a fixed point, with errors that say where."""

import itertools

import numpy as np
import pytest
from core.core_ops import add, fresh, linear, parts, relu, total
from hypothesis import given
from hypothesis import strategies as st

from weft.base.errors import DTypeError, GraphError, InvalidType, NotFound, ShapeError
from weft.core.graph import Graph
from weft.core.infer import infer, unknown_entries
from weft.core.ir import Fact, NodeEntry
from weft.core.symbol import Group, Variable

F32 = np.dtype("float32")


def shapes_of(graph):
    return {node.name: graph.facts[node][0].shape for node in graph.indexed.nodes}


def test_forward():
    graph = infer(Graph(relu()(Variable("x"), name="r").outputs), {"x": (2, 3)}, {"x": F32})
    assert graph.fact(graph.outputs[0]) == Fact((2, 3), F32)
    assert unknown_entries(graph) == []


def test_backward_over_a_chain():
    y = Variable("x")
    for number in range(20):
        y = relu()(y, name=f"r{number}")
    given = Graph(y.outputs, facts={y.outputs[0].node: (Fact((5, None), F32),)})
    graph = infer(given)
    assert set(shapes_of(graph).values()) == {(5, None)}
    assert {facts[0].dtype for facts in graph.facts.values()} == {F32}


def test_halves_of_a_shape_meet():
    y = add()(Variable("x"), Variable("y"), name="a")
    graph = infer(Graph(y.outputs), {"x": (None, 3), "y": (2, None)})
    assert shapes_of(graph) == {"x": (2, 3), "y": (2, 3), "a": (2, 3)}


def test_facts_go_up_one_branch_and_down_another():
    x = Variable("x")
    known = Variable("known")
    left, right = add()(x, known, name="left"), relu()(relu()(x), name="right")
    graph = infer(Graph(Group([right, left]).outputs), {"known": (7,)})
    assert set(shapes_of(graph).values()) == {(7,)}


def test_a_rule_may_need_several_rounds():
    op = fresh("rounds").set_num_inputs(3)

    def rule(params, ins, outs):
        """Each shape is that of its left neighbour; only one step a call."""
        row = [*ins, *outs]
        said = [row[0], *(left if own is None else own for left, own in itertools.pairwise(row))]
        return said[:3], said[3:]

    op.shape = rule
    graph = infer(Graph(op(*map(Variable, "abc"), name="o").outputs), {"a": (4,)})
    assert set(shapes_of(graph).values()) == {(4,)}


def test_zero_and_scalars_are_real_shapes():
    for shape in ((), (0,), (2, 0)):
        graph = infer(Graph(relu()(Variable("x")).outputs), {"x": shape})
        assert graph.fact(graph.outputs[0]).shape == shape


def test_symbols_are_carried_and_numbers_win():
    y = add()(Variable("x"), Variable("y"), name="a")
    graph = infer(Graph(y.outputs), {"x": ("n", 3), "y": (None, 3)})
    assert shapes_of(graph)["a"] == ("n", 3)
    graph = infer(Graph(y.outputs), {"x": ("n", 3), "y": (5, None)})
    assert set(shapes_of(graph).values()) == {(5, 3)}


def test_hints_of_variables():
    x, y = Variable("x", shape=(2, 0), dtype="int8"), Variable("y", shape=(None, 3))
    graph = infer(Graph(add()(x, y, name="a").outputs))
    assert graph.fact(graph.outputs[0]) == Fact((2, 3), np.dtype("int8"))
    graph = infer(Graph(relu()(Variable("x", shape=(2,))).outputs), {"x": (3,)})
    assert graph.fact(graph.outputs[0]).shape == (3,)
    named = infer(Graph(Variable("x", shape=("batch", 3)).outputs))
    assert named.fact(named.outputs[0]).shape == ("batch", 3)
    with pytest.raises(Exception, match=r"variable 'x', attribute 'dtype'"):
        infer(Graph(Variable("x", dtype=99).outputs))


def test_a_hint_that_is_no_shape_says_nothing():
    graph = infer(Graph(Variable("x", shape="(-1, 2)", dtype="words").outputs))
    assert graph.fact(graph.outputs[0]) == Fact()


def test_conflicts_name_operator_and_node():
    y = add()(Variable("x"), Variable("y"), name="sum_of_both")
    with pytest.raises(ShapeError, match="operator t_add, node 'sum_of_both'"):
        infer(Graph(y.outputs), {"x": (2,), "y": (3,)})
    with pytest.raises(DTypeError, match="operator t_add, node 'sum_of_both'"):
        infer(Graph(y.outputs), None, {"x": F32, "y": np.dtype("int8")})


def test_unknown_input_names_the_known():
    with pytest.raises(NotFound, match="no input 'data'") as caught:
        infer(Graph(relu()(Variable("x")).outputs), {"data": (2,)})
    assert "its inputs: x" in str(caught.value)


@pytest.mark.parametrize("shape", [3, "23", (1.5,), [object()]])
def test_what_is_no_shape(shape):
    with pytest.raises(InvalidType, match="'x'"):
        infer(Graph(Variable("x").outputs), {"x": shape})


def test_negative_dimension():
    with pytest.raises(ShapeError, match="'x' cannot be -1"):
        infer(Graph(Variable("x").outputs), {"x": (-1,)})


def test_lists_and_numpy_numbers_are_made_plain():
    graph = infer(Graph(Variable("x").outputs), {"x": [np.int64(2), 3]}, {"x": "float32"})
    fact = graph.fact(graph.outputs[0])
    assert fact == Fact((2, 3), F32)
    assert type(fact.shape[0]) is int


def test_without_rules_shapes_stay_unknown_and_dtypes_agree():
    op = fresh("ruleless").set_num_outputs(2)
    graph = infer(Graph(op(Variable("x")).outputs), {"x": (2,)}, {"x": F32})
    assert graph.facts[graph.outputs[0].node] == (Fact(None, F32), Fact(None, F32))
    assert unknown_entries(graph) == [NodeEntry(graph.outputs[0].node, i) for i in range(2)]


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        (lambda p, i, o: 1 / 0, "ZeroDivisionError"),
        (lambda p, i, o: ([], [None]), "spoke of 0 inputs and 1 outputs"),
        (lambda p, i, o: (i, [*o, *o]), "spoke of 1 inputs and 2 outputs"),
    ],
)
def test_a_faulty_rule_is_named(rule, match):
    op = fresh("faulty")
    op.shape = rule
    with pytest.raises(GraphError, match=match) as caught:
        infer(Graph(op(Variable("x"), name="here").outputs))
    assert op.name in str(caught.value)
    assert "'here'" in str(caught.value)


def test_facts_of_the_graph_are_kept():
    x = Variable("x")
    node = x.outputs[0].node
    graph = infer(Graph(relu()(x).outputs, facts={node: (Fact((4,), F32),)}))
    assert graph.fact(graph.outputs[0]) == Fact((4,), F32)


def test_named_inputs_are_inferred_backward():
    graph = infer(Graph(linear()(Variable("x"), name="fc").outputs), {"x": (2, 3)})
    assert shapes_of(graph)["fc_weight"] == (2, 3)


def test_several_outputs():
    y = parts()(Variable("x"), parts=3, name="p")
    graph = infer(Graph(y.outputs), {"x": (2,)})
    assert [graph.fact(entry).shape for entry in graph.outputs] == [(2,)] * 3


@given(data=st.data(), count=st.integers(1, 12))
def test_order_of_nodes_and_of_what_is_given_does_not_matter(data, count):
    """Every node of a connected graph of same-shape operators ends with the one known shape."""
    symbols = [Variable("v")]
    for number in range(count):
        picked = data.draw(st.lists(st.sampled_from(symbols), min_size=1, max_size=3))
        symbols.append(total()(*picked, name=f"n{number}"))
    ends = Group(data.draw(st.permutations(symbols)))
    known = data.draw(st.sampled_from(symbols)).outputs[0].node
    graph = infer(Graph(ends.outputs, facts={known: (Fact((3, 1)),)}))
    assert set(shapes_of(graph).values()) == {(3, 1)}
