"""SaveJSON, LoadJSON, PrintGraphIR."""

import json

import pytest
from passes.graphs import F, Graph, Variable, text, typed

from weft.base.errors import FormatError, GraphError


def test_save_gives_an_empty_graph_and_load_the_same_one():
    graph = typed(F.exp(F.relu(Variable("x"), name="r")), x=(4, 2))
    saved = graph.apply("SaveJSON")
    assert saved.outputs == []
    data = json.loads(saved.json_attr("json"))
    assert [node["op"] for node in data["nodes"]] == ["null", "relu", "exp"]
    loaded = saved.apply("LoadJSON")
    assert text(loaded) == text(graph)
    assert loaded.json() == graph.json()


def test_load_without_parsing_keeps_text():
    graph = Graph((Variable("x") * 2).outputs).apply("SaveJSON")
    graph._set_json_attr("load_json_no_parse", 1, "int")
    node = graph.apply("LoadJSON").outputs[0].node
    assert node.params == {"scalar": "2"}


def test_load_needs_json():
    with pytest.raises(GraphError, match="json"):
        Graph([]).apply("LoadJSON")
    broken = Graph([])
    broken._set_json_attr("json", "{")
    with pytest.raises(FormatError):
        broken.apply("LoadJSON")


def test_golden_ir_of_a_split():
    graph = typed(F.split(F.relu(Variable("x")), indices_or_sections=2), x=(4, 2))
    graph._set_json_attr("join_entry_attrs", ["shape"], "list_str")
    lines = graph.apply("PrintGraphIR").json_attr("graphir").splitlines()
    assert lines == [
        "Graph(%x) {",
        "  %x, shape=[4,2]",
        "  %1 = relu(%x), shape=[4,2]",
        "  %2 = split(%1, indices_or_sections='2'), shape=[[4,1], [4,1]]",
        "  ret %2.0, %2.1",
        "}",
        "graph_attr_keys = [shape, dtype]",
    ]
