"""InferShape and InferType with NNVM's graph attributes."""

import pytest
from passes.graphs import F, Graph, Group, Variable

from weft.base.errors import InvalidType, InvalidValue, ShapeError


def graph_of(symbol, **attrs):
    graph = Graph(symbol.outputs)
    for key, (tag, value) in attrs.items():
        graph._set_json_attr(key, value, tag)
    return graph


def test_shapes_flow_both_ways_and_inputs_are_erased():
    x, y = Variable("x"), Variable("y")
    graph = graph_of(F.elemwise_add(x, y), shape_inputs=("list_shape", [[0, 3], [2, 0]]))
    done = graph.apply("InferShape")
    assert done.json_attr("shape") == [[2, 3], [2, 3], [2, 3]]
    assert done.json_attr("shape_num_unknown_nodes") == 0
    assert done.attr("shape_inputs") is None
    assert graph.attr("shape_inputs") is not None


def test_unknown_stays_unknown_and_is_counted():
    done = graph_of(F.exp(F.relu(Variable("x")))).apply(["InferShape", "InferType"])
    assert done.json_attr("shape") == [[], [], []]
    assert done.json_attr("shape_num_unknown_nodes") == 3
    assert done.json_attr("dtype") == [-1, -1, -1]
    assert done.json_attr("dtype_num_unknown_nodes") == 3


@pytest.mark.parametrize(("code", "name"), [(0, "float32"), (1, "float64"), (4, "int32")])
def test_dtypes(code, name):
    graph = graph_of(F.negative(F.relu(Variable("x"))), dtype_inputs=("list_int", [code]))
    done = graph.apply("InferType")
    assert done.json_attr("dtype") == [code] * 3
    assert {fact.dtype.name for facts in done.facts.values() for fact in facts} == {name}


def test_comparison_types():
    x, y = Variable("x"), Variable("y")
    graph = graph_of(F.greater(x, y), dtype_inputs=("list_int", [4, -1]))
    assert graph.apply("InferType").json_attr("dtype")[2] == 0


def test_hints_and_their_key():
    x = Variable("x", shape=(2, 3), __shape__=(4, 5))
    assert graph_of(F.exp(x)).apply("InferShape").json_attr("shape")[1] == [2, 3]
    graph = graph_of(F.exp(x), shape_attr_key=("str", "__shape__"))
    done = graph.apply("InferShape")
    assert done.json_attr("shape")[1] == [4, 5]
    assert done.attr("shape_attr_key") is None


def test_partial_facts_are_continued_and_new_inputs_replace_old_facts():
    graph = graph_of(F.exp(F.relu(Variable("x"))))
    graph._set_json_attr("shape", [[], [2, 0], [0, 5]], "list_shape")
    done = graph.apply("InferShape")
    assert done.json_attr("shape") == [[2, 5]] * 3
    done._set_json_attr("shape_inputs", [[7, 5]], "list_shape")
    assert done.apply("InferShape").json_attr("shape") == [[7, 5]] * 3


def test_contradictions_name_the_node():
    x, y = Variable("x"), Variable("y")
    both = Group([F.elemwise_add(x, y, name="sum_here")])
    graph = graph_of(both, shape_inputs=("list_shape", [[2], [3]]))
    with pytest.raises(ShapeError, match="sum_here"):
        graph.apply("InferShape")
    with pytest.raises(InvalidValue, match="2 inputs"):
        graph_of(both, shape_inputs=("list_shape", [[2]])).apply("InferShape")


def test_hints_about_inner_entries():
    h = F.relu(Variable("x"), name="h")
    graph = Graph(F.exp(h).outputs, {"shape_hints": {h.outputs[0]: (0, 3)}})
    graph.attrs["shape_hints"][Variable("elsewhere").outputs[0]] = (7,)
    graph._set_json_attr("shape_inputs", [[2, 0]], "list_shape")
    assert graph.apply("InferShape").json_attr("shape") == [[2, 3]] * 3
    typed = Graph(F.negative(h).outputs, {"dtype_hints": {h.outputs[0]: 4}}).apply("InferType")
    assert typed.json_attr("dtype") == [4] * 3


def test_wrong_hints_are_named():
    h = F.relu(Variable("x"), name="h")
    for wrong in ([1], {"h": (2,)}, {h.outputs[0]: 3}, {h.outputs[0]: ("a",)}):
        with pytest.raises(InvalidType, match="shape"):
            Graph(h.outputs, {"shape_hints": wrong}).apply("InferShape")
    graph = Graph(h.outputs, {"shape_hints": {h.outputs[0]: (2, 3)}})
    graph._set_json_attr("shape_inputs", [[4]], "list_shape")
    with pytest.raises(ShapeError):
        graph.apply("InferShape")
