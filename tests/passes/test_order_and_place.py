"""OrderMutation and PlaceDevice."""

import numpy as np
import pytest
from passes.graphs import F, Graph, Group, Variable, names, op_names, typed

from weft.base.errors import GraphError, NotFound
from weft.core.interpret import evaluate, final_values


def assigned():
    w = Variable("w")
    return Group([F._assign(w, w + 1), w * 2])


def test_golden_order_of_a_read_and_a_write():
    graph = Graph(assigned().outputs)
    lines = graph.apply("OrderMutation").ir().splitlines()
    assert lines[2] == "  %2 = _assign(%w, %1), control_deps=[%1]"
    assert lines[3] == "  %3 = __mul_scalar__(%w, scalar='2'), control_deps=[%2]"
    assert all(not node.control_deps for node in graph.indexed.nodes)


def test_ordered_graph_has_the_same_values():
    graph = typed(assigned(), w=(3,))
    given = {"w": np.array([1, 2, 3], "float32")}
    ordered = graph.apply("OrderMutation")
    assert evaluate(ordered, given)[1].tolist() == [4, 6, 8]
    assert final_values(ordered, given)["w"].tolist() == [2, 3, 4]
    assert ordered.fact(ordered.outputs[1]).shape == (3,)


def test_a_write_waits_for_the_write_before():
    w = Variable("w")
    first, second = F._assign(w, Variable("a"), name="a1"), F._assign(w, Variable("b"), name="a2")
    ordered = Graph(Group([second, first]).outputs).apply("OrderMutation")
    waits = {n.name: [d.name for d in n.control_deps] for n in ordered.indexed.nodes}
    assert waits["a2"] == ["a1"]
    assert waits["a1"] == []


def test_without_mutation_nothing_changes():
    graph = Graph(F.exp(Variable("x")).outputs)
    assert graph.apply("OrderMutation") is graph


def place(symbol, groups, **extra):
    graph = typed(symbol, x=(2,))
    graph._set_json_attr("device_group_attr_key", "__group__", "str")
    graph._set_json_attr("device_assign_map", groups, "dict_str_int")
    graph._set_json_attr("device_copy_op", "copy", "str")
    for key, (tag, value) in extra.items():
        graph._set_json_attr(key, value, tag)
    return graph.apply("PlaceDevice")


def two_groups():
    a = F.exp(Variable("x"), name="e", attr={"__group__": "a"})
    return F.relu(a, attr={"__group__": "b"})


def test_golden_copy_between_devices():
    placed = place(two_groups(), {"a": 1, "b": 2})
    assert op_names(placed) == ["null", "exp", "copy", "relu"]
    assert names(placed)[2] == "e_0_copy"
    assert placed.json_attr("device") == [1, 1, 2, 2]
    assert placed.fact(placed.outputs[0]).shape == (2,)


def test_one_copy_serves_all_readers_on_a_device():
    e = F.exp(Variable("x"), attr={"__group__": "a"})
    b = {"__group__": "b"}
    placed = place(Group([F.relu(e, attr=b), F.tanh(e, attr=b)]), {"a": 0, "b": 1})
    assert op_names(placed).count("copy") == 1


def test_unknown_group():
    with pytest.raises(NotFound, match="not found for group b"):
        place(two_groups(), {"a": 1})


def test_mutation_across_devices_is_refused():
    w = Variable("x", __group__="a")
    update = F._assign(w, F.exp(w), attr={"__group__": "b"})
    with pytest.raises(GraphError, match="mutates"):
        place(update, {"a": 0, "b": 1})


def test_versions_that_nobody_in_the_graph_makes():
    w = Variable("w")
    before = F.exp(w, name="before")
    F._assign(w, Variable("a"))
    between = F.exp(w, name="between")
    kept = F._assign(w, Variable("b"), name="kept")
    F._assign(w, Variable("c"))
    after = F.exp(w, name="after")
    graph = Graph(Group([after, kept, between, before]).outputs).apply("OrderMutation")
    waits = {n.name: {d.name for d in n.control_deps} for n in graph.indexed.nodes}
    assert waits["kept"] == {"before", "between"}
    assert waits["after"] == {"kept"}
