"""Fusion: which nodes share a kernel, and that groups run to the same values."""

import pytest
from passes.graphs import F, Graph, Group, Variable, agree, typed, values

from weft.core.interpret import evaluate
from weft.core.ir import NodeEntry
from weft.passes.fuse import MAX_GROUP_NODES, fusible_groups


def groups(graph):
    return [[node.op_name for node in group.nodes] for group in fusible_groups(graph)]


def conv(data, name, **attrs):
    attrs = {"channels": 4, "kernel_size": (3, 3), "padding": (1, 1), "use_bias": False, **attrs}
    return F.conv2d(data, name=name, **attrs)


def image(symbol):
    return typed(symbol, x=(1, 4, 8, 8))


def test_elementwise_chain_is_one_group():
    graph = typed(F.relu(F.exp(Variable("x")) + Variable("b")), x=(2, 3), b=(3,))
    (group,) = fusible_groups(graph)
    assert [node.op_name for node in group.nodes] == ["exp", "broadcast_add", "relu"]
    assert [entry.node.name for entry in group.inputs] == ["x", "b"]
    assert group.outputs == tuple(graph.outputs)
    assert group.master is None


def test_anchor_takes_what_follows_and_nothing_before():
    symbol = F.relu(conv(F.tanh(Variable("x")), "c") + Variable("b"))
    graph = typed(symbol, x=(1, 4, 8, 8), b=(4, 1, 1))
    before, anchored = fusible_groups(graph)
    assert [node.op_name for node in before.nodes] == ["tanh"]
    assert [node.op_name for node in anchored.nodes] == ["conv2d", "broadcast_add", "relu"]
    assert anchored.master.op_name == "conv2d"


def test_conv_elu_diamond_is_one_group():
    y = conv(Variable("x"), "c")
    elu = F.relu(1 - F.exp(y)) * -0.5 + F.relu(y)
    (group,) = fusible_groups(image(elu))
    assert group.master.name == "c"
    assert len(group.nodes) == 7


def test_residual_block_keeps_its_own_master():
    first = F.relu(conv(Variable("x"), "one"))
    second = F.relu(conv(first, "two") + first)
    found = fusible_groups(image(second))
    assert [[node.op_name for node in group.nodes] for group in found] == [
        ["conv2d", "relu"],
        ["conv2d", "broadcast_add", "relu"],
    ]
    assert [group.master.name for group in found] == ["one", "two"]


def test_two_anchors_do_not_share_a_group():
    found = fusible_groups(image(conv(Variable("x"), "one") + conv(Variable("x"), "two")))
    assert sorted(len(group.nodes) for group in found) == [1, 2]
    assert sorted(group.master.name for group in found) == ["one", "two"]


def test_anchor_and_injective_work_do_not_mix():
    assert groups(image(F.transpose(F.relu(conv(Variable("x"), "c"))))) == [["conv2d", "relu"], ["transpose"]]
    symbol = conv(Variable("x"), "c") + F.flip(Variable("y"), axis=1)
    mixed = groups(typed(symbol, x=(1, 4, 8, 8), y=(1, 4, 8, 8)))
    assert ["conv2d", "flip", "broadcast_add"] not in mixed
    assert len(mixed) == 2


def test_anchor_with_broadcast_output_stays_alone():
    symbol = conv(Variable("x"), "c") + Variable("big")
    assert groups(typed(symbol, x=(1, 4, 8, 8), big=(2, 4, 8, 8))) == [["conv2d"], ["broadcast_add"]]


def test_reductions_take_what_comes_before():
    graph = typed(F.exp(F.sum(F.transpose(Variable("x")) * 2, axis=0)), x=(3, 4))
    reduced, after = fusible_groups(graph)
    assert [node.op_name for node in reduced.nodes] == ["transpose", "__mul_scalar__", "sum"]
    assert reduced.master.op_name == "sum"
    assert [node.op_name for node in after.nodes] == ["exp"]


def test_softmax_written_out_computes_exp_once():
    e = F.exp(Variable("x"))
    found = groups(typed(e / F.sum(e, axis=1, keepdims=True), x=(3, 4)))
    assert found == [["exp"], ["sum"], ["broadcast_div"]]


def test_a_small_value_is_not_computed_for_every_element_of_a_large_one():
    scale = F.expand_dims(F.sqrt(Variable("v")), axis=1)
    found = groups(typed(Variable("x") * scale, x=(4, 100), v=(4,)))
    assert found == [["sqrt"], ["expand_dims", "broadcast_mul"]]
    assert len(groups(typed(Variable("x") * scale, x=(4, 10), v=(4,)))) == 1


def test_outputs_are_kept():
    e = F.exp(Variable("x"))
    assert groups(typed(Group([e, F.relu(e)]), x=(3,))) == [["exp"], ["relu"]]


def test_injective_work_with_several_outputs_joins():
    a, b = F.split(Variable("x"), indices_or_sections=2, axis=0)
    (group,) = fusible_groups(typed(a * F.sigmoid(b), x=(4, 3)))
    assert [node.op_name for node in group.nodes] == ["split", "sigmoid", "broadcast_mul"]


def test_initialisers_do_not_take_the_anchors_place():
    symbol = conv(Variable("x"), "c") + F.ones(shape=(1, 4, 8, 8))
    (group,) = fusible_groups(image(symbol))
    assert group.master.name == "c"


def test_effects_control_dependencies_and_mutated_variables_separate():
    w = Variable("w")
    graph = typed(Group([F._assign(w, F.exp(w) * 2)]), w=(3,))
    found = groups(graph)
    assert ["_assign"] in found
    assert [n for n in found if "exp" in n] == [["exp"]]
    x = Variable("x")
    e = F.exp(x)
    r, t = F.relu(e), F.tanh(x)
    t._add_control_deps(e)
    assert groups(typed(Group([r, t]), x=(2,)))[0] == ["exp"]


def test_groups_are_capped():
    y = Variable("x")
    for _ in range(MAX_GROUP_NODES * 2):
        y = F.exp(y)
    sizes = [len(group.nodes) for group in fusible_groups(typed(y, x=(2,)))]
    assert sizes == [MAX_GROUP_NODES, MAX_GROUP_NODES]


def test_attributes_of_the_pass():
    graph = image(F.relu(conv(F.tanh(Variable("x")), "c")))
    done = graph.apply("GraphFindFusibleGroups")
    order = [node.op_name for node in graph.indexed.nodes]
    assert order == ["null", "tanh", "null", "conv2d", "relu"]
    assert done.json_attr("group_root") == [0, 1, 2, 4, 4]
    assert done.json_attr("group_master") == [0, 1, 2, 3, 3]
    assert done.json_attr("pattern") == [8, 0, 8, 4, 4]


@pytest.mark.parametrize(("level", "roots"), [(0, [0, 1, 2]), (1, [0, 2, 2])])
def test_opt_level_is_read_and_erased(level, roots):
    graph = typed(F.relu(F.exp(Variable("x"))), x=(2,))
    graph._set_json_attr("opt_level", level, "int")
    done = graph.apply("GraphFindFusibleGroups")
    assert done.json_attr("group_root") == roots
    assert done.attr("opt_level") is None


def run_fused(graph, given):
    """Runs the subgraphs one after the other, each from values that others left."""
    done = graph.apply(["GraphFindFusibleGroups", "GraphFuse"])
    nodes = done.indexed.nodes
    known = {NodeEntry(nodes[n]): given[nodes[n].name] for n in done.indexed.variables}
    for root, fused in sorted(done.attr("fused_entry").items()):
        names = fused.subgraph.symbol.list_input_names()
        assert sorted(names) == sorted(f"input{i}" for i in range(len(fused.inputs)))
        inner = {f"input{i}": known[entry] for i, entry in enumerate(fused.inputs)}
        for index, value in enumerate(evaluate(fused.subgraph, inner)):
            known[NodeEntry(nodes[root], index)] = value
    return [known[entry] for entry in done.outputs]


def test_subgraphs_compute_the_graph():
    y = conv(F.tanh(Variable("x")), "c")
    a, b = F.split(F.relu(1 - F.exp(y)) + F.relu(y), indices_or_sections=2, axis=1)
    graph = image(a * F.sigmoid(b) + F.sum(b))
    given = values(graph)
    fused = run_fused(graph, given)
    for found, wanted in zip(fused, evaluate(graph, given), strict=True):
        assert found.tolist() == wanted.tolist()


def test_every_operator_is_in_one_group_after_its_inputs():
    y = conv(F.tanh(Variable("x")), "c")
    graph = image(Group([F.exp(y) * y, F.sum(y)]))
    seen = {graph.indexed.nodes[n] for n in graph.indexed.variables}
    for group in fusible_groups(graph):
        assert {entry.node for entry in group.inputs} <= seen
        assert not seen.intersection(group.nodes)
        seen.update(group.nodes)
    assert seen == set(graph.indexed.nodes)
    agree(graph, Graph(graph.outputs, facts=graph.facts))
