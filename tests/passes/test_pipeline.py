"""The pipeline, passes in random orders on random graphs, and graphs of many nodes."""

import itertools

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from passes.graphs import F, Graph, Group, Variable, agree, op_names, typed, values

from weft.base.cpu_target import host
from weft.base.errors import NotFound
from weft.compiler.backends.cpu import CPU
from weft.core.interpret import evaluate
from weft.core.op import Op
from weft.core.passes import get_pass, list_passes
from weft.passes.fold_constants import constant_part
from weft.passes.fuse import fusible_groups
from weft.passes.gradient import gradients
from weft.passes.pipeline import OPT_PASS_LEVEL, PIPELINE, optimize, pass_enabled

RULES = CPU.layout_rules_for(host())


def small_net():
    """Two normalised convolutions, a pool and a classifier."""
    y = Variable("x")
    for number, channels in enumerate((4, 8)):
        y = F.conv2d(y, channels=channels, kernel_size=(3, 3), padding=(1, 1), use_bias=number == 0, name=f"c{number}")
        y = F.relu(F.batch_norm(y, name=f"bn{number}")[0])
    y = F.flatten(F.max_pool2d(y, pool_size=(2, 2), strides=(2, 2)))
    return F.softmax(F.dense(F.dropout(y), units=5, name="fc"))


@pytest.mark.parametrize("level", range(4))
def test_levels_agree_on_a_network(level):
    graph = typed(small_net(), x=(2, 3, 8, 8))
    done = optimize(graph, level, layout_rules=RULES)
    assert "batch_norm" not in op_names(done)
    assert "dropout" not in op_names(done)
    agree(graph, done, rtol=1e-4, atol=1e-5)
    scales = [node for node in done.indexed.nodes if node.name.endswith("_a_mul_data")]
    assert len(scales) == (0 if level == 3 else 2)


def test_an_optimised_network_has_a_kernel_for_each_anchor():
    graph = typed(small_net(), x=(2, 3, 8, 8))
    params = [name for name in graph.symbol.list_input_names() if name != "x"]
    main, _ = constant_part(optimize(graph, 3), params)
    found = [[node.op_name for node in group.nodes] for group in fusible_groups(main)]
    block = ["conv2d", "broadcast_add", "relu"]
    assert found == [block, block, ["max_pool2d"], ["flatten"], ["dense"], ["softmax"]]


@pytest.mark.parametrize("symmetric", [True, False])
def test_graphs_that_compute_by_position_keep_their_layout(symmetric, monkeypatch):
    """x + transpose(x) must not become a sum of like axes."""
    rule = lambda params, inputs, facts: None
    monkeypatch.setitem(Op.alter_layout._rows, Op.get("conv2d"), (rule, 1000))
    y = F.conv2d(Variable("x"), channels=4, kernel_size=(1, 1), name="c")
    turned = F.transpose(y, axes=(0, 2, 3, 1)) if symmetric else y
    graph = typed(y + turned, x=(1, 3, 4, 4))
    done = optimize(graph, 3, layout_rules=RULES)
    assert op_names(done) == op_names(graph)
    agree(graph, done)


def test_levels_are_those_of_the_original():
    wanted = {"SimplifyInference": 0, "OpFusion": 1, "PrecomputePrune": 2, "FoldScaleAxis": 3, "AlterOpLayout": 3}
    assert {name: OPT_PASS_LEVEL[name] for name in wanted} == wanted
    assert pass_enabled("FoldScaleAxis", 0, ("FoldScaleAxis",))
    assert not pass_enabled("FoldScaleAxis", 2)


def test_every_step_has_a_reason_and_known_passes():
    for step in PIPELINE:
        assert step.reason
        assert step.name in OPT_PASS_LEVEL
        assert all(get_pass(name).doc for name in step.passes)
    with pytest.raises(NotFound, match="FoldScaleAxis"):
        get_pass("FoldScaleAxes")
    assert len(list_passes()) >= 17


def test_gradient_graphs_optimise():
    x, w = Variable("x"), Variable("w")
    loss = F.sum(F.tanh(F.matmul(x, w)))
    graph = typed(Group([loss, *gradients(loss, [x, w])]), "float64", x=(3, 4), w=(4, 2))
    done = optimize(graph, 3, layout_rules=RULES)
    assert len(done.indexed.nodes) < len(graph.indexed.nodes)
    agree(graph, done, rtol=1e-12)


UNARY = [F.exp, F.relu, F.tanh, F.negative, F.copy, F.sigmoid, F.flatten, F.zeros_like]
OTHER_RESULTS = {"SaveJSON", "LoadJSON", "PrintGraphIR", "Gradient", "PlaceDevice", "GraphCompile"}
KEEPING = [step for step in list_passes() if step.run.__module__.startswith("weft.") and step.name not in OTHER_RESULTS]


@st.composite
def random_symbols(draw):
    """A graph of element-wise, injective and reducing operators on (2, 3, 4) tensors."""
    entries = [Variable("x"), Variable("y")]
    for _ in range(draw(st.integers(1, 14))):
        a, b = (entries[draw(st.integers(0, len(entries) - 1))] for _ in range(2))
        kind = draw(st.integers(0, 7))
        if kind <= 1:
            made = draw(st.sampled_from(UNARY[:6]))(a)
        elif kind == 2:
            made = draw(st.sampled_from([F.broadcast_add, F.broadcast_mul, F.broadcast_sub]))(a, b)
        elif kind == 3:
            made = draw(st.sampled_from([a + 0, a * 1, a * 2, a - 1]))
        elif kind == 4:
            made = F.reshape(F.flatten(a), shape=(2, 3, 4))
        elif kind == 5:
            axes = draw(st.sampled_from([(0, 1, 2), (2, 1, 0)]))
            made = F.transpose(F.transpose(a, axes=axes), axes=axes)
        elif kind == 6:
            made = a + F.sum(b, axis=(1,), keepdims=True)
        else:
            made = F.clip(F.clip(a, a_min=-2, a_max=3), a_min=-1, a_max=4)
        entries.append(made)
    count = draw(st.integers(1, 3))
    return Group([*entries[-count:], entries[0], entries[1]])


def applied(graph, steps):
    """The graph after those passes whose declared needs are met when their turn comes."""
    names = []
    for step in steps:
        if all(graph.attr(key) is not None for key in step.requires):
            graph = graph.apply(step.name)
            names.append(step.name)
    return graph, names


def test_the_passes_that_keep_the_values_are_most():
    names = {step.name for step in KEEPING}
    assert len(names) >= 12
    assert {"InferShape", "PlanMemory", "GraphFuse", "AlterOpLayout", "CommonSubexpr"} <= names


@settings(max_examples=100)
@given(random_symbols(), st.lists(st.sampled_from(KEEPING), min_size=1, max_size=8), st.data())
def test_passes_in_any_order_keep_the_values(symbol, steps, data):
    graph = typed(symbol, "float64", x=(2, 3, 4), y=(2, 3, 4))
    given_values = values(graph, seed=data.draw(st.integers(0, 9)))
    with np.errstate(all="ignore"):
        before = evaluate(graph, given_values)
        done, names = applied(graph, steps)
        after = evaluate(done, given_values)
    note(f"ran {names}")
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12)
    for entry in done.outputs:
        assert done.fact(entry)[:2] == ((2, 3, 4), np.dtype("float64"))
    assert set(done.facts) == set(done.indexed.nodes)


@settings(max_examples=40)
@given(random_symbols())
def test_groups_of_random_graphs_can_run_in_order(symbol):
    graph = typed(symbol, x=(2, 3, 4), y=(2, 3, 4))
    seen = {graph.indexed.nodes[n] for n in graph.indexed.variables}
    for group in fusible_groups(graph):
        assert {entry.node for entry in group.inputs} <= seen
        seen.update(group.nodes)
        inside = set(group.nodes)
        readers = [n for n in graph.indexed.nodes if n not in inside]
        read = {e for n in readers for e in n.inputs if e.node in inside}
        read |= {e for e in graph.outputs if e.node in inside}
        assert read <= set(group.outputs)
    assert seen == set(graph.indexed.nodes)


@settings(max_examples=30)
@given(random_symbols(), st.integers(0, 3))
def test_pruning_and_optimising_random_graphs(symbol, level):
    graph = typed(symbol, "float64", x=(2, 3, 4), y=(2, 3, 4))
    given_values = values(graph)
    graph._set_json_attr("param_name_list", ["y"], "list_str")
    pruned = graph.apply("PrecomputePrune")
    part = pruned.attr("precompute_graph")
    known = dict(given_values)
    with np.errstate(all="ignore"):
        if part is not None:
            known.update(zip(part.json_attr("output_names"), evaluate(part, given_values)))
        after = evaluate(optimize(pruned, level, layout_rules=RULES), known)
        before = evaluate(graph, given_values)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12)


LONG = 20_000


def long_chain():
    y = Variable("x")
    for op in itertools.islice(itertools.cycle([F.negative, F.relu, F.sigmoid]), LONG):
        y = op(y)
    return y


def wide():
    x = Variable("x")
    return F.elemwise_sum(*[F.exp(x * (i % 7)) for i in range(LONG // 2)], num_args=LONG // 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [long_chain, wide])
@pytest.mark.parametrize(
    "steps",
    [
        ["InferShape", "InferType"],
        ["SaveJSON", "LoadJSON"],
        ["PrintGraphIR"],
        ["OrderMutation"],
        ["PlanMemory"],
        ["SimplifyInference"],
        ["FoldScaleAxis"],
        ["CorrectLayout"],
        ["CommonSubexpr"],
        ["SimplifyAlgebra"],
        ["PrecomputePrune"],
        ["SettleInitialisers"],
        ["GraphFindFusibleGroups", "GraphFuse"],
        ["AlterOpLayout"],
    ],
    ids=lambda steps: steps[0],
)
def test_graphs_of_many_nodes(make, steps):
    graph = typed(make(), x=(4,))
    graph._set_json_attr("param_name_list", ["x"], "list_str")
    done = graph.apply(steps)
    assert done.outputs or done.attrs


def test_gradients_of_many_nodes():
    x = Variable("x")
    y = x
    for _ in range(LONG):
        y = F.sigmoid(y)
    (grad,) = gradients(y, x)
    assert len(Graph(grad.outputs).indexed.nodes) > 2 * LONG


def test_placing_many_nodes():
    graph = typed(long_chain(), x=(4,))
    for number, node in enumerate(graph.indexed.nodes):
        node.attrs["__group__"] = "ab"[number // 100 % 2]
    graph._set_json_attr("device_group_attr_key", "__group__", "str")
    graph._set_json_attr("device_assign_map", {"a": 0, "b": 1}, "dict_str_int")
    graph._set_json_attr("device_copy_op", "copy", "str")
    placed = graph.apply("PlaceDevice")
    assert op_names(placed).count("copy") == LONG // 100
