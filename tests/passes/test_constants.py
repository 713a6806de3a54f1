"""PrecomputePrune, constant_part and CommonSubexpr."""

import numpy as np
from passes.graphs import F, Graph, Group, Variable, agree, assert_same, op_names, text, typed

from weft.core.interpret import evaluate
from weft.passes.fold_constants import constant_part


def prune(symbol, params, **shapes):
    graph = typed(symbol, **shapes)
    graph._set_json_attr("param_name_list", params, "list_str")
    return graph, graph.apply("PrecomputePrune")


def run_pruned(pruned, given):
    part = pruned.attr("precompute_graph")
    computed = dict(zip(part.json_attr("output_names"), evaluate(part, given), strict=True))
    return evaluate(pruned, {**given, **computed})


def test_golden_exponential_of_a_parameter():
    symbol = Variable("x") + F.exp(Variable("a"), name="ea")
    graph, pruned = prune(symbol, ["a"], x=(2, 3), a=(3,))
    before = text(graph)
    assert pruned.ir().splitlines()[1] == "  %2 = broadcast_add(%x, %ea)"
    part = pruned.attr("precompute_graph")
    assert_same(part, F.exp(Variable("a")))
    assert part.json_attr("output_names") == ["ea"]
    assert text(graph) == before
    assert graph.symbol.list_input_names() == ["x", "a"]
    given = {"x": np.ones((2, 3), "float32"), "a": np.array([0, 1, 2], "float32")}
    np.testing.assert_allclose(run_pruned(pruned, given)[0], 1 + np.exp(given["a"] + np.zeros((2, 3))), 1e-6)
    assert pruned.fact(pruned.outputs[0]).shape == (2, 3)


def test_nothing_to_prune_keeps_names_and_versions():
    """Only a variable would be cut: nothing is renamed, whatever its version."""
    w = Variable("w")
    symbol = Group([F._assign(w, Variable("x")), w * 2])
    graph, pruned = prune(symbol, ["w"], x=(2,))
    assert pruned.attr("precompute_graph") is None
    assert text(pruned) == text(graph)
    assert pruned.symbol.list_input_names() == ["w", "x"]


def test_mutated_parameters_are_not_constant():
    w = Variable("w")
    doubled = F.exp(w)
    _, pruned = prune(Group([F._assign(w, doubled), doubled]), ["w"], w=(2,))
    assert pruned.attr("precompute_graph") is None


def test_names_are_told_apart():
    a = Variable("a")
    symbol = Group([Variable("ea") + F.exp(a, name="ea"), Variable("y") + F.tanh(a, name="ea")])
    _, pruned = prune(symbol, ["a"], a=(2,), ea=(2,), y=(2,))
    assert pruned.attr("precompute_graph").json_attr("output_names") == ["ea_1", "ea_2"]
    found = pruned.symbol.list_input_names()
    assert sorted(found) == ["ea", "ea_1", "ea_2", "y"]


def test_several_outputs_of_a_node():
    parts = F.split(Variable("a"), indices_or_sections=2, axis=0, name="s")
    _, pruned = prune(Variable("x") * parts[1], ["a"], a=(4,), x=(2,))
    assert pruned.attr("precompute_graph").json_attr("output_names") == ["s_output1"]
    given = {"x": np.array([2, 3], "float32"), "a": np.arange(4, dtype="float32")}
    assert run_pruned(pruned, given)[0].tolist() == [4, 9]


def test_initialisers_fold_without_parameters_but_not_alone():
    table = F.exp(F.arange(start=0, stop=4, step=1))
    main, part = constant_part(typed(Variable("x") + table, x=(4,)))
    assert op_names(main) == ["null", "null", "broadcast_add"]
    assert op_names(part) == ["arange", "exp"]
    alone = typed(Variable("x") + F.zeros(shape=(4,)), x=(4,))
    assert constant_part(alone) == (alone, None)


def test_what_grows_large_is_made_where_it_is_used():
    wide = F.broadcast_to(F.exp(Variable("a"), name="ea"), shape=(1 << 12, 1 << 10))
    main, part = constant_part(typed(Variable("x") * wide, a=(1 << 10,), x=(1,)), ["a"])
    assert "broadcast_to" in op_names(main)
    assert part.json_attr("output_names") == ["ea"]


def test_a_constant_output_is_cut():
    main, part = constant_part(typed(F.exp(Variable("a"), name="out"), a=(2,)), ["a"])
    assert op_names(main) == ["null"]
    assert part.json_attr("output_names") == ["out"]


# CommonSubexpr


def test_equal_nodes_become_one():
    x = Variable("x")
    graph = typed(F.exp(x) * 2 + F.exp(x) * 2, x=(3,))
    merged = graph.apply("CommonSubexpr")
    y = F.exp(Variable("x")) * 2
    assert_same(merged, y + y)
    agree(graph, merged)


def test_attributes_count_and_defaults_are_filled_in():
    x = Variable("x")
    graph = typed(Group([F.softmax(x), F.softmax(x, axis=-1), F.softmax(x, axis=0)]), x=(3, 2))
    assert op_names(graph.apply("CommonSubexpr")) == ["null", "softmax", "softmax"]
    signs = Group([F.__mul_scalar__(x, scalar=0.0), F.__mul_scalar__(x, scalar=-0.0)])
    assert op_names(typed(signs, x=(2,)).apply("CommonSubexpr")).count("__mul_scalar__") == 2


def test_hidden_attributes_keep_nodes_apart():
    x = Variable("x")
    both = Group([F.exp(x, attr={"__group__": "a"}), F.exp(x, attr={"__group__": "b"})])
    assert op_names(typed(both, x=(2,)).apply("CommonSubexpr")).count("exp") == 2


def test_initialisers_of_other_shapes_stay_apart():
    symbol = Group([Variable("x") + F.zeros(shape=(2,)), Variable("y") + F.zeros(shape=(2,))])
    assert op_names(typed(symbol, x=(2,), y=(2,)).apply("CommonSubexpr")).count("zeros") == 1
    open_ = Group([F.elemwise_add(Variable("x"), F.zeros()), F.elemwise_add(Variable("y"), F.zeros())])
    graph = typed(open_, x=(2,), y=(3,))
    assert op_names(graph.apply("CommonSubexpr")).count("zeros") == 2


def test_mutations_and_the_versions_they_read_stay():
    w = Variable("w")
    before = w * 2
    update = F._assign(w, w + 1)
    again = F._assign(w, w + 1)
    after = w * 2
    graph = Graph(Group([before, update, again, after]).outputs)
    merged = graph.apply("CommonSubexpr")
    assert op_names(merged).count("_assign") == 2
    assert op_names(merged).count("__mul_scalar__") == 2
    given = {"w": np.array([1.0])}
    assert [v.tolist() for v in evaluate(merged, given)] == [[2], [2], [3], [6]]


def test_dead_nodes_are_gone():
    x = Variable("x")
    halves = F.split(F.exp(x), indices_or_sections=2, axis=0)
    assert op_names(typed(halves[0], x=(4,)).apply("CommonSubexpr")) == ["null", "exp", "split"]
