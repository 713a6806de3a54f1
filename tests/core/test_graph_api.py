"""Graph and GraphIndex as NNVM's scripts use them, graph attributes, and the text of graphs."""

import numpy as np
import pytest
from core.core_ops import add, assign, fresh, parts, relu, scale

import weft
from weft.base.errors import InvalidType, InvalidValue, NotFound, OutOfRange
from weft.base.layout import Layout
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.ir import Fact
from weft.core.naming import NameManager
from weft.core.symbol import Group, Symbol, Variable


def split_of_relu():
    with NameManager():
        return parts()(relu()(Variable("x")), parts=2)


def typed(symbol, **shapes):
    dtypes = {name: np.dtype("float32") for name in symbol.list_input_names()}
    return infer(Graph(symbol.outputs), shapes, dtypes)


def test_index():
    symbol = split_of_relu()
    graph = Graph(symbol.outputs)
    index = graph.index
    assert graph.index is index
    assert [node["op"] for node in index.nodes] == ["null", "t_relu", "t_parts"]
    assert index.nodes[2]["inputs"] == [[1, 0, 0]]
    assert index.nodes[2]["attrs"] == {"parts": "2"}
    assert index.entry_ptr == [0, 1, 2, 4]
    assert (index.num_nodes, index.num_node_entries) == (3, 4)
    assert index.input_names == ["x"]
    assert index.output_entries == [[2, 0, 0], [2, 1, 0]]
    assert (index.node_id("t_relu0"), index.entry_id("t_parts0", 1)) == (1, 3)
    assert (index.entry_id(2), index.entry_id([2, 1, 0])) == (2, 3)


def test_index_errors():
    index = Graph(split_of_relu().outputs).index
    with pytest.raises(NotFound, match="'q'"):
        index.node_id("q")
    with pytest.raises(InvalidValue, match="3 numbers"):
        index.entry_id([1, 0])
    for key, value in ((9, 0), (-1, 0), (1, 1), (1, -1), ([9, 0, 0], 0)):
        with pytest.raises(OutOfRange):
            index.entry_id(key, value)
    with pytest.raises(InvalidType):
        index.entry_id(1.5)


def test_of_several_nodes_of_a_name_the_last_is_found():
    x = Variable("x")
    graph = Graph(relu()(relu()(x, name="same"), name="same").outputs)
    assert graph.index.node_id("same") == 2


def test_symbol_of_a_graph():
    symbol = split_of_relu()
    assert Graph(symbol.outputs).symbol.list_output_names() == symbol.list_output_names()
    assert isinstance(Graph(symbol.outputs).symbol, Symbol)


def test_indexed_graph():
    w = Variable("w")
    graph = Graph(add()(assign()(w, w), Variable("x")).outputs)
    indexed = graph.indexed
    assert indexed.inputs == [[], [0, 0], [], [1, 2]]
    assert indexed.consumers == [[1, 1], [3], [3], []]
    assert indexed.variables == [0, 2]
    assert indexed.mutable_inputs == {0}
    assert indexed.outputs == [3]


def test_ghosts_are_invisible():
    ghost = fresh("ghost")
    ghost.is_ghost = True
    x = Variable("x")
    unseen = ghost(x, name="g")
    y = relu()(x, name="r")
    y._add_control_deps(unseen)
    graph = typed(Group([y, unseen]), x=(2,))
    assert [node.name for node in graph.indexed.nodes] == ["x", "r"]
    assert graph.index.nodes[1]["control_deps"] == []
    assert "ghost" not in graph.ir() + graph.json()
    assert graph.json_attr("shape") == [[2], [2]]


# Attributes


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("str", "text"),
        ("int", -3),
        ("size_t", 3),
        ("list_int", [1, -2]),
        ("list_str", ["a", "b"]),
        ("list_shape", [[1, 2], []]),
        ("list_layout", ["NCHW"]),
        ("dict_str_int", {"a": 1}),
    ],
)
def test_tags(tag, value):
    graph = Graph(split_of_relu().outputs)
    graph._set_json_attr("key", value, tag)
    assert graph.json_attr("key") == value
    assert graph.attr("key") == value


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("int", "x"),
        ("int", True),
        ("int", 2**63),
        ("size_t", -1),
        ("list_int", [1.5]),
        ("list_str", "abc"),
        ("list_shape", [1]),
        ("dict_str_int", {"a": "b"}),
        ("str", 3),
        ("nothing", 1),
        ("int", object()),
        ("int", float("nan")),
        ("list_int", {1}),
        (3, 3),
    ],
)
def test_values_that_do_not_fit_their_tag(tag, value):
    graph = Graph(split_of_relu().outputs)
    with pytest.raises(InvalidValue, match="'key'"):
        graph._set_json_attr("key", value, tag)
    assert graph.json_attr("key") is None


def test_numpy_numbers_are_numbers():
    graph = Graph(split_of_relu().outputs)
    graph._set_json_attr("key", [np.int64(1), np.int32(2)], "list_int")
    assert graph.json_attr("key") == [1, 2]


def test_type_name_is_needed_unless_text():
    graph = Graph(split_of_relu().outputs)
    graph._set_json_attr("key", "text")
    assert graph.json_attr("key") == "text"
    with pytest.raises(InvalidValue, match="needs a type_name"):
        graph._set_json_attr("key", 3)


def test_attributes_that_json_cannot_hold():
    x = Variable("x")
    graph = Graph(x.outputs, {"subgraph": Graph(x.outputs)})
    with pytest.raises(InvalidType, match="JSON cannot hold"):
        graph.json_attr("subgraph")
    graph._set_symbol_list_attr("grad_xs", [x, relu()(x)])
    assert len(graph.attr("grad_xs")) == 2
    with pytest.raises(InvalidType):
        graph._set_symbol_list_attr("grad_xs", [3])


def test_facts_are_read_and_set_in_nnvms_encoding():
    graph = Graph(split_of_relu().outputs)
    assert graph.json_attr("shape") is None
    graph._set_json_attr("shape", [[4, 0], [], [4, 1], [4, 1]], "list_shape")
    graph._set_json_attr("dtype", [0, -1, 4, 4], "list_int")
    graph._set_json_attr("layout", ["NC", "__undef__", "NC", "NC"], "list_layout")
    assert graph.json_attr("shape") == [[4, 0], [], [4, 1], [4, 1]]
    assert graph.json_attr("dtype") == [0, -1, 4, 4]
    assert graph.json_attr("layout") == ["NC", "__undef__", "NC", "NC"]
    x, _, p = graph.indexed.nodes
    assert graph.facts[x] == (Fact((4, None), np.dtype("float32"), Layout("NC")),)
    assert graph.facts[p][1] == Fact((4, 1), np.dtype("int32"), Layout("NC"))


@pytest.mark.parametrize(
    ("key", "value", "tag"),
    [
        ("shape", [[1]], "list_shape"),
        ("shape", "abcd", "str"),
        ("shape", [[-1]] * 4, "list_shape"),
        ("dtype", [99] * 4, "list_int"),
        ("layout", ["NN"] * 4, "list_layout"),
        ("dtype", [[1]] * 4, "list_shape"),
    ],
)
def test_facts_that_make_no_sense(key, value, tag):
    with pytest.raises(InvalidValue):
        Graph(split_of_relu().outputs)._set_json_attr(key, value, tag)


def test_apply_takes_a_name_or_names():
    with pytest.raises(InvalidType):
        Graph(split_of_relu().outputs).apply(3)


# Text


def test_ir_of_split_of_relu_with_shapes():
    graph = typed(split_of_relu(), x=(4, 2))
    assert graph.ir(join_entry_attrs=["shape"]) == (
        "Graph(%x) {\n"
        "  %x, shape=[4,2]\n"
        "  %1 = t_relu(%x), shape=[4,2]\n"
        "  %2 = t_parts(%1, parts='2'), shape=[[4,2], [4,2]]\n"
        "  ret %2.0, %2.1\n"
        "}\n"
        "graph_attr_keys = [shape, dtype]\n"
    )


def test_ir_without_joins():
    assert Graph(split_of_relu().outputs).ir() == (
        "Graph(%x) {\n  %1 = t_relu(%x)\n  %2 = t_parts(%1, parts='2')\n  ret %2.0, %2.1\n}\n"
    )


def test_ir_with_control_dependencies_and_node_attributes():
    x = Variable("x")
    a, b = relu()(x), scale()(x, factor=2)
    b._add_control_deps([a, x])
    graph = Graph(b.outputs)
    graph._set_json_attr("device", [5, 6, 7], "list_int")
    assert graph.ir(join_node_attrs=["device"]) == (
        "Graph(%x) {\n  %x, device=5\n  %1 = t_relu(%x), device=6\n"
        "  %2 = t_scale(%x, factor='2'), control_deps=[%1, %x], device=7\n  ret %2\n}\n"
        "graph_attr_keys = [device]\n"
    )


def test_ir_of_many_inputs_has_one_a_line():
    inputs = [Variable(name) for name in "abcd"]
    text = Graph(Group(inputs).outputs).ir()
    assert text.startswith("Graph(%a,\n      %b,\n      %c,\n      %d) {\n")
    assert Graph(Group(inputs[:3]).outputs).ir().startswith("Graph(%a, %b, %c) {\n")


def test_ir_of_unknown_or_unfit_attributes():
    graph = Graph(split_of_relu().outputs)
    with pytest.raises(NotFound, match="cannot find q in the graph's attributes"):
        graph.ir(join_entry_attrs=["q"])
    graph._set_json_attr("one", 1, "int")
    graph._set_json_attr("short", [1], "list_int")
    with pytest.raises(InvalidType, match="not a list"):
        graph.ir(join_node_attrs=["one"])
    with pytest.raises(InvalidValue, match="there are 4 entries"):
        graph.ir(join_entry_attrs=["short"])


def test_facts_are_joined_to_nodes_of_several_outputs():
    x = weft.symbol.Variable("x", shape=(4, 2))
    graph = weft.graph.create(weft.symbol.split(weft.symbol.relu(x), indices_or_sections=2))
    text = graph.apply("InferShape").ir(join_node_attrs=["shape"])
    assert "%1 = relu(%x), shape=[4,2]" in text
    assert "%2 = split(%1, indices_or_sections='2'), shape=[[4,1], [4,1]]" in text
