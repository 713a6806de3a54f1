"""Graphs as JSON: the format, round trips, older spellings, and what hostile files get."""

import json

import numpy as np
import pytest
from bounds import ends
from core.core_ops import add, assign, fresh, parts, relu, scale, total
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.base.errors import Error, FormatError, GraphError, InvalidType
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.ir import Node, NodeEntry
from weft.core.json_load import graph_from_json
from weft.core.json_save import MAX_SUBGRAPH_DEPTH
from weft.core.symbol import Group, Symbol, Variable


def rich_graph():
    """Mutation, control dependencies, several outputs, attributes, a subgraph, facts."""
    w, x = Variable("w", shape=(2,)), Variable("x")
    a = assign()(w, scale()(x, factor=3, name="s"), name="a")
    p = parts()(relu()(w, name="r"), parts=2, name="p")
    p._add_control_deps(a)
    inner = add()(Variable("u"), Variable("v"), name="inner")
    outer = Symbol([NodeEntry(Node(total(), "outer", {}, [p.outputs[1]], subgraphs=[inner]))])
    symbol = Group([p[0], outer, a])
    graph = infer(Graph(symbol.outputs), {"x": (2,)}, {"x": np.dtype("float32")})
    graph._set_json_attr("version", "0.1.0", "str")
    graph._set_json_attr("storage_id", [0, 1], "list_int")
    graph._set_json_attr("map", {"a": 1}, "dict_str_int")
    return graph


def test_text_of_a_small_graph():
    graph = Graph(scale()(Variable("x"), factor=3, name="s").outputs)
    graph._set_json_attr("version", "1")
    assert graph.json() == (
        '{\n  "nodes": [\n    {\n      "op": "null",\n      "name": "x",\n'
        '      "inputs": []\n    },\n'
        '    {\n      "op": "t_scale",\n      "name": "s",\n      "attrs": {\n'
        '        "factor": "3"\n      },\n      "inputs": [[0, 0, 0]]\n    }\n  ],\n'
        '  "arg_nodes": [0],\n  "node_row_ptr": [0, 1, 2],\n  "heads": [[1, 0, 0]],\n'
        '  "attrs": {\n    "version": ["str", "1"]\n  }\n}\n'
    )


def test_structure_of_a_rich_graph():
    data = json.loads(rich_graph().json())
    assert list(data) == ["nodes", "arg_nodes", "node_row_ptr", "heads", "attrs"]
    assert data["arg_nodes"] == [0, 2]
    by_name = {node["name"]: node for node in data["nodes"]}
    assert by_name["a"]["inputs"] == [[0, 0, 1], [3, 0, 0]]
    assert by_name["r"]["inputs"] == [[0, 0, 1]]
    assert by_name["p"]["control_deps"] == [4]
    assert [n["name"] for n in by_name["outer"]["subgraphs"][0]["nodes"]] == ["u", "v", "inner"]
    assert data["node_row_ptr"] == [0, 1, 2, 3, 4, 5, 7, 8]
    assert data["attrs"]["shape"] == ["list_shape", [[2]] * 8]
    assert data["attrs"]["dtype"] == ["list_int", [0] * 8]


def test_round_trip_is_equal_as_text():
    text = rich_graph().json()
    loaded = graph_from_json(text)
    assert loaded.json() == text
    assert graph_from_json(text.encode()).json() == text
    assert loaded.json_attr("version") == "0.1.0"
    assert loaded.fact(loaded.outputs[0]).shape == (2,)


def test_composing_goes_on_after_the_newest_version():
    loaded = graph_from_json(rich_graph().json()).symbol
    w = loaded.list_input_variables("aux_state")
    assert assign()(w, w).outputs[0].node.inputs[0].version == 2


def test_older_spellings():
    node = {"op": "t_scale", "name": "s", "inputs": [[0, 0]], "backward_source_id": -1}
    for field in ("attr", "param", "attrs"):
        graph = {
            "nodes": [{"op": "null", "name": "x", "inputs": []}, {**node, field: {"factor": "4"}}],
            "arg_nodes": [0],
            "heads": [[1, 0]],
        }
        loaded = graph_from_json(json.dumps(graph))
        assert loaded.outputs[0].node.params.factor == 4
        assert loaded.outputs[0].node.inputs[0].version == 0
    both = {**node, "param": {"factor": "4"}, "attr": {"__hidden__": "1"}}
    graph["nodes"][1] = both
    assert graph_from_json(json.dumps(graph)).outputs[0].node.attrs == {"factor": "4", "__hidden__": "1"}


def test_nodes_may_stand_in_any_order_and_facts_follow_the_file():
    graph = {
        "nodes": [
            {"op": "t_relu", "name": "r", "inputs": [[2, 0, 0]]},
            {"op": "null", "name": "unused", "inputs": []},
            {"op": "null", "name": "x", "inputs": []},
        ],
        "arg_nodes": [1, 2],
        "heads": [[0, 0, 0]],
        "attrs": {"shape": ["list_shape", [[1], [2], [3]]]},
    }
    loaded = graph_from_json(json.dumps(graph))
    assert loaded.symbol.list_input_names() == ["x"]
    assert loaded.json_attr("shape") == [[3], [1]]


def test_without_parsing_attributes_are_kept_as_text():
    text = rich_graph().json().replace('"factor": "3"', '"factor": "what"')
    with pytest.raises(FormatError, match="'factor' cannot be 'what'"):
        graph_from_json(text)
    plain = {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "t_scale", "name": "s", "attrs": {"odd": "1"}, "inputs": [[0, 0, 0]]},
        ],
        "arg_nodes": [0],
        "heads": [[1, 0, 0]],
    }
    loaded = graph_from_json(json.dumps(plain), parse_attrs=False)
    assert loaded.outputs[0].node.attrs == {"odd": "1"}


# What does not load


def data():
    return json.loads(rich_graph().json())


def changed(path, value):
    """The rich graph's data with one place set, or removed if the value is `...`."""
    made = data()
    place = made
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return made


BAD = [
    (("heads",), ..., "missing field 'heads'", "graph"),
    (("nodes",), ..., "missing field 'nodes'", "graph"),
    (("arg_nodes",), ..., "missing field 'arg_nodes'", "graph"),
    (("zzz",), 1, "unknown field 'zzz'; fields are nodes", "graph"),
    (("nodes", 0, "zzz"), 1, "unknown field 'zzz'; fields are op", "node 0"),
    (("nodes", 3, "op"), ..., "missing field 'op'", "node 3 ('s')"),
    (("nodes", 3, "name"), ..., "missing field 'name'", "node 3"),
    (("nodes", 3, "inputs"), ..., "missing field 'inputs'", "node 3 ('s')"),
    (("nodes", 3, "op"), "t_nothing", "operator t_nothing is not registered", "node 3 ('s')"),
    (("nodes", 3, "op"), 3, "expected a string, found int", "field op"),
    (("nodes", 3, "name"), None, "expected a string, found NoneType", "field name"),
    (("nodes", 3, "attrs"), [], "expected an object, found an array", "field attrs"),
    (("nodes", 3, "attrs", "factor"), 3, "expected a string, found int", "attribute 'factor'"),
    (("nodes", 3, "attrs", "factor"), "99", "'factor' cannot be 99", "node 3 ('s')"),
    (("nodes", 3, "attrs", "fact"), "1", "unknown attribute 'fact'", "node 3 ('s')"),
    (("nodes", 3, "inputs"), {}, "expected an array, found an object", "field inputs"),
    (("nodes", 3, "inputs"), [], "takes 1 inputs, the file gives 0", "field inputs"),
    (("nodes", 3, "inputs"), [[2]], "an entry must be", "field inputs"),
    (("nodes", 3, "inputs"), [[2, 0, 0, 0]], "an entry must be", "field inputs"),
    (("nodes", 3, "inputs"), [2], "an entry must be", "field inputs"),
    (("nodes", 3, "inputs"), [[99, 0, 0]], "no entry of a graph with 7 nodes", "node 3 ('s')"),
    (("nodes", 3, "inputs"), [[-1, 0, 0]], "no entry", "field inputs"),
    (("nodes", 3, "inputs"), [[True, 0, 0]], "no entry", "field inputs"),
    (("nodes", 3, "inputs"), [[2.0, 0, 0]], "no entry", "field inputs"),
    (("nodes", 3, "inputs"), [[2, 0, 10**30]], "no entry", "field inputs"),
    (("nodes", 3, "inputs"), [[2, 5, 0]], "output 5 of node 'x' is used", "field inputs"),
    (("nodes", 3, "inputs"), [[3, 0, 0]], "cycle", "node 's'"),
    (("nodes", 3, "inputs"), [[4, 0, 0]], "cycle", "node"),
    (("nodes", 0, "inputs"), [[2, 0, 0]], "a variable cannot have inputs", "node 0 ('w')"),
    (("nodes", 3, "control_deps"), [77], "77 is not a number from 0 to 6", "field control_deps"),
    (("nodes", 3, "control_deps"), 7, "expected an array", "field control_deps"),
    (("nodes", 4, "inputs"), [[3, 0, 0], [3, 0, 0]], "would mutate", "node 4 ('a')"),
    (("nodes", 3, "subgraphs"), [3], "a graph must be an object", "subgraph 0"),
    (("nodes", 3), 3, "a node must be an object, not int", "node 3"),
    (("nodes",), {}, "expected an array", "field nodes"),
    (("arg_nodes",), [3], "node 's' is no variable", "field arg_nodes"),
    (("arg_nodes",), [99], "is not a number from 0 to 6", "field arg_nodes"),
    (("arg_nodes",), "0", "expected an array", "field arg_nodes"),
    (("heads",), [[0, 3, 0]], "output 3 of node 'w'", "field heads"),
    (("heads",), [["0", 0, 0]], "no entry", "field heads"),
    (("heads",), None, "expected an array, found NoneType", "field heads"),
    (("attrs",), [], "expected an object", "field attrs"),
    (("attrs", "version"), "1", "must be [type, value]", "attribute 'version'"),
    (("attrs", "version"), ["strange", "1"], "unknown attribute type 'strange'", "'version'"),
    (("attrs", "version"), ["int", "1"], "value is not a int", "attribute 'version'"),
    (("attrs", "version"), [[], "1"], "unknown attribute type", "attribute 'version'"),
    (("attrs", "shape"), ["list_shape", [[1]]], "has 1 values", "attribute 'shape'"),
    (("attrs", "shape"), ["str", "12345678"], "is a str, not a list_shape", "attribute 'shape'"),
    (("attrs", "shape"), ["list_shape", [[-1]] * 8], "negative dimension", "'shape'"),
    (("attrs", "dtype"), ["list_int", [77] * 8], "unknown dtype code 77", "attribute 'dtype'"),
    (("attrs", "layout"), ["list_layout", ["!"] * 8], "invalid layout", "attribute 'layout'"),
]


@pytest.mark.parametrize(("path", "value", "what", "where"), BAD, ids=lambda v: str(v)[:40])
def test_one_clear_error(path, value, what, where):
    with pytest.raises(FormatError) as caught:
        graph_from_json(json.dumps(changed(path, value)))
    assert what in str(caught.value)
    assert where in caught.value.where
    assert caught.value.where.startswith("graph")


def nested(depth):
    graph = {"nodes": [], "arg_nodes": [], "heads": []}
    for _ in range(depth):
        node = {"op": "t_total", "name": "n", "inputs": [], "subgraphs": [graph]}
        graph = {"nodes": [node], "arg_nodes": [], "heads": [[0, 0, 0]]}
    return graph


def test_depth_of_subgraphs():
    total()
    text = graph_from_json(json.dumps(nested(MAX_SUBGRAPH_DEPTH))).json()
    assert graph_from_json(text).json() == text
    for depth in (MAX_SUBGRAPH_DEPTH + 1, 150):
        with pytest.raises(FormatError, match="nested deeper than"):
            graph_from_json(json.dumps(nested(depth)))
    symbol = Variable("x")
    for _ in range(2000):
        symbol = Symbol([NodeEntry(Node(total(), "n", subgraphs=[symbol]))])
    with pytest.raises(GraphError, match="nested deeper than"):
        Graph(symbol.outputs).json()


FRAME = '{"nodes": [], "arg_nodes": [], "heads": [], "attrs": {"a": ["list_int", %s]}}'
HOSTILE = {
    "empty": "",
    "not json": "graph {",
    "other json": "[1, 2]",
    "null": "null",
    "nan": '{"nodes": NaN, "arg_nodes": [], "heads": []}',
    "nan in attribute": FRAME % "[NaN]",
    "infinity in heads": '{"nodes": [], "arg_nodes": [], "heads": [[Infinity, 0, 0]]}',
    "huge int": FRAME % ("[" + "9" * 5000 + "]"),
    "large int": FRAME % ("[" + "9" * 400 + "]"),
    "twice": '{"nodes": [], "nodes": [], "arg_nodes": [], "heads": []}',
    "twice among many": "{" + "".join(f'"f{i}": 1, ' for i in range(100_000)) + '"f99999": 1}',
    "deep": "[" * 5_000_000,
    "deep closed": "[" * 5_000_000 + "]" * 5_000_000,
    "deep objects": '{"a":' * 2_000_000,
    "deep in attribute": FRAME % ("[" * 900 + "]" * 900),
    "deep in tag": '{"nodes": [], "arg_nodes": [], "heads": [], "attrs": {"a": [%s, 1]}}' % ("[" * 900 + "]" * 900),
    "deep in heads": '{"nodes": [], "arg_nodes": [], "heads": [[%s, 0, 0]]}' % ("[" * 900 + "]" * 900),
    "bad utf-8": b'{"nodes": "\xff\xfe\xfd"}',
    "nul bytes": b"\x00" * 100,
    "ten megabytes of one string": '{"nodes": "' + "x" * 10_000_000 + '"}',
    "many unknown fields": json.dumps({f"f{i}": i for i in range(100_000)}),
    "many nodes without fields": '{"nodes": [' + "{}," * 100_000 + '{}], "arg_nodes": [], "heads": []}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_gets_an_error(name):
    with ends(), pytest.raises(FormatError) as caught:
        graph_from_json(HOSTILE[name])
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("value", [None, 3, {}, ["{}"]])
def test_what_is_no_text(value):
    with pytest.raises(InvalidType, match="loaded from text"):
        graph_from_json(value)


def test_attributes_that_ask_for_more_outputs_than_there_is_memory():
    op = fresh("greedy").set_num_outputs(lambda p: int(p["n"]))
    for count in ("1000000000000", "-1", "x"):
        node = {"op": op.name, "name": "n", "attrs": {"n": count}, "inputs": [[0, 0, 0]]}
        graph = {"nodes": [{"op": "null", "name": "x", "inputs": []}, node], "arg_nodes": [0], "heads": [[1, 0, 0]]}
        with pytest.raises(FormatError, match=r"node 1 \('n'\)"):
            graph_from_json(json.dumps(graph))


def test_a_parser_that_fails_is_an_error_of_the_file():
    op = fresh("picky").set_attr_parser(lambda attrs: int(attrs["n"]))
    node = {"op": op.name, "name": "n", "inputs": []}
    with pytest.raises(FormatError, match="cannot read its attributes"):
        graph_from_json(json.dumps({"nodes": [node], "arg_nodes": [], "heads": []}))


def test_an_empty_graph_loads():
    assert graph_from_json('{"nodes": [], "arg_nodes": [], "heads": []}').outputs == []


# Fuzzing

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 9),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-2, 9), max_size=4),
    st.lists(st.lists(st.integers(-1, 9), max_size=4)),
    st.sampled_from(["null", "t_relu", "t_parts", "t_assign", "list_int", "shape", "inputs"]),
    st.dictionaries(st.sampled_from(["op", "name", "inputs", "attrs"]), st.text(max_size=3)),
)


def places(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items if isinstance(value, (dict, list)) else ():
        yield (*path, key)
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(draw=st.data())
def test_mutated_files_load_or_raise_errors_of_weft(draw):
    made = data()
    for _ in range(draw.draw(st.integers(1, 3))):
        *path, last = draw.draw(st.sampled_from(sorted(places(made), key=str)))
        place = made
        for step in path:
            place = place[step]
        match draw.draw(st.sampled_from(["set", "delete", "duplicate"])):
            case "set":
                place[last] = draw.draw(JUNK)
            case "delete":
                del place[last]
            case "duplicate" if isinstance(place, list):
                place.append(place[last])
    try:
        graph = graph_from_json(json.dumps(made))
    except Error:
        return
    text = graph.json()
    assert graph_from_json(text).json() == text
    graph.ir()


@settings(max_examples=200)
@given(draw=st.data())
def test_text_with_changed_characters_loads_or_raises_errors_of_weft(draw):
    text = rich_graph().json()
    for _ in range(draw.draw(st.integers(1, 4))):
        position = draw.draw(st.integers(0, len(text) - 1))
        text = text[:position] + draw.draw(st.text(max_size=2)) + text[position + 1 :]
    try:
        graph = graph_from_json(text)
    except Error:
        return
    assert graph_from_json(graph.json()).json() == graph.json()
