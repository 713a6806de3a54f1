"""Layouts say how tensors are stored, never what their axes mean: whatever a graph computes, it
computes in the layouts that operators prefer, too."""

import itertools

import numpy as np
import pytest
from oracles import oracle
from passes.graphs import F, Group, Variable, op_names, typed
from passes.layout_graphs import RandomGraph

import weft
from weft.base.cpu_target import host
from weft.compiler.backends.cpu import CPU
from weft.core.graph import Graph
from weft.core.interpret import evaluate
from weft.core.symbol import Symbol
from weft.passes.pipeline import PIPELINE, in_preferred_layouts, optimize

RULES = CPU.layout_rules_for(host())
LAYOUT_PASSES = next(step.passes for step in PIPELINE if step.name == "AlterOpLayout")


def values(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays for the variables; those that batch_norm takes a root of are positive."""
    rng = np.random.default_rng(seed)
    nodes = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    shapes = {node.name: graph.node_facts(node)[0].shape for node in nodes}
    return {
        name: (rng.uniform(0.5, 1.5, shape) if name.endswith("_var") else rng.normal(size=shape)).astype("float32")
        for name, shape in shapes.items()
    }


def assert_close(found, wanted):
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-4 * np.abs(wanted).max(initial=1e-3))


def check_passes(symbol: Symbol, seed: int = 0) -> Graph:
    """Asserts that the layout passes alone, which must not give up, keep what a graph computes."""
    graph = typed(symbol)
    given = values(graph, seed)
    done = in_preferred_layouts(optimize(graph, 2), LAYOUT_PASSES, RULES)
    for found, wanted in zip(evaluate(done, given), evaluate(graph, given), strict=True):
        assert_close(found, wanted)
    return done


def check_native(symbol: Symbol, seed: int = 0) -> None:
    """Asserts that native code of the highest level agrees with that of level 0 and with numpy."""
    given = values(typed(symbol), seed)
    wanted = evaluate(symbol, given)
    inputs = {name: given[name] for name in symbol.list_input_names()[:1]}
    params = {name: array for name, array in given.items() if name not in inputs}
    for level in (3, 0):
        made = weft.compile((symbol, params), opt_level=level).run(inputs)
        for found, expected in zip(made, wanted, strict=True):
            assert_close(found, expected)


def conv(x, name, channels=8, kernel=(2, 2), **attrs):
    return F.conv2d(x, channels=channels, kernel_size=kernel, use_bias=False, name=name, **attrs)


BEFORE = {
    "nothing": lambda x: x,
    "conv": lambda x: conv(x, "before", 8, (1, 1)),
    "max_pool": lambda x: F.max_pool2d(x, pool_size=(1, 2), strides=(1, 1)),
}
AFTER = {
    "conv": lambda x: conv(x, "after"),
    "max_pool": lambda x: F.max_pool2d(x, pool_size=(2, 3), strides=(2, 1)),
    "avg_pool": lambda x: F.avg_pool2d(x, pool_size=(3, 2), strides=(1, 2), padding=(1, 1)),
    "conv in NHWC": lambda x: conv(x, "after", layout="NHWC", kernel_layout="HWIO"),
}


def turned(axes, before, after):
    """A transpose between two operators, beside a convolution of what is transposed."""
    x = BEFORE[before](Variable("x", shape=(4, 8, 6, 9)))
    beside = conv(x, "beside", 16, (3, 3))
    return Group([AFTER[after](F.transpose(x, axes=axes)), beside])


TURNS = list(itertools.product(itertools.permutations(range(4)), BEFORE, AFTER))


def test_turns_are_all_there():
    assert len(TURNS) == 288


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("after", AFTER)
def test_transposes_between_operators_with_layouts(before, after):
    for axes in itertools.permutations(range(4)):
        check_passes(turned(axes, before, after))


@pytest.mark.slow
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("after", AFTER)
def test_transposes_in_native_code(before, after):
    for axes in itertools.permutations(range(4)):
        check_native(turned(axes, before, after))


@pytest.mark.parametrize("start", range(0, 300, 25))
def test_random_graphs(start):
    for seed in range(start, start + 25):
        check_passes(RandomGraph(seed).grow(8), seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 4000, 100))
def test_many_random_graphs(start):
    for seed in range(start, start + 100):
        check_passes(RandomGraph(seed).grow(12), seed)


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_in_native_code(seed):
    check_native(RandomGraph(seed).grow(8), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 150))
def test_many_random_graphs_in_native_code(seed):
    check_native(RandomGraph(seed).grow(8), seed)


@pytest.mark.parametrize(
    "shape",
    [
        (2, 1, 1, 1, 1),
        (2, 3, 1, 1, 1),
        (1, 1, 1, 1, 1),
        (2, 1, 16, 5, 8),
        (1, 16, 1, 1),
        (1, 1, 5, 8),
        (1, 16, 5, 8),
        (1, 1, 1, 1),
        (16, 1, 1),
        (1, 5, 8),
        (5, 8),
        (8,),
        (1,),
        (5, 1),
        (2, 1, 1, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("swapped", [False, True])
def test_operands_of_any_rank_beside_blocked_channels(shape, swapped):
    x = Variable("x", shape=(1, 16, 5, 8))
    pair = [conv(x, "a", 16, (1, 1)), Variable("k", shape=shape)]
    total = F.broadcast_sub(*(pair[::-1] if swapped else pair))
    check_passes(Group([total, F.relu(total)]))
    check_native(total)


def test_a_mask_of_one_channel_keeps_the_blocks_of_what_it_masks():
    x = Variable("x", shape=(1, 16, 6, 6))
    image = conv(x, "a", 32, (1, 1))
    mask = F.sigmoid(F.mean(image, axis=(1,), keepdims=True))
    done = check_passes(conv(F.broadcast_mul(image, mask), "b", 32, (1, 1)))
    moved = [n for n in done.indexed.nodes if n.op_name == "__layout_transform__"]
    images = [n for n in moved if done.fact(n.inputs[0]).shape[-2:] == (6, 6)]
    assert len([n for n in images if n.inputs[0].node.name == "x"]) == 1
    assert len([n for n in moved if n.inputs[0].node.op is not None]) <= 2


def test_a_sum_by_position_leaves_the_other_layouts_alone():
    """x + transpose(x), between convolutions that still work in blocks."""
    x = Variable("x", shape=(1, 16, 6, 6))
    y = conv(F.relu(conv(x, "a", 16, (1, 1))), "b", 16, (1, 1))
    done = check_passes(conv(y + F.transpose(y, axes=(0, 1, 3, 2)), "c", 16, (1, 1)))
    blocked = [n for n in done.indexed.nodes if n.op_name == "conv2d" and "c" in n.params.layout]
    assert len(blocked) == 3
    assert "copy" not in op_names(done)


def _bias_of_a_convolution(x, bias):
    return F.conv2d(x, Variable("w"), bias, channels=16, kernel_size=(1, 1), name="other")


@pytest.mark.parametrize("named", [False, True], ids=["flat", "named"])
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_dense_bias_that_another_operator_has_named(named, first):
    """`named`: whether the axes of what dense gives have names, which the next operator reads."""
    x, bias = Variable("x", shape=(2, 16, 6, 6)), Variable("bias", shape=(16,))
    image = F.relu(conv(x, "a", 16, (1, 1)))
    rows = F.mean(image, axis=(2, 3)) if named else F.flatten(image)
    made = F.relu(F.dense(rows, Variable("v"), bias, units=16, name="d"))
    pair = [_bias_of_a_convolution(image, bias), made]
    done = check_passes(Group(pair if first else pair[::-1]))
    assert {"_packed_matmul", "conv2d"} <= set(op_names(done))
    blocked = [n for n in done.indexed.nodes if n.op_name == "conv2d" and "c" in n.params.layout]
    assert len(blocked) == 2
    [added] = [n for n in done.indexed.nodes if n.op_name == "broadcast_add"]
    assert added.inputs[1].node.name == "bias"
    check_native(Group(pair))


def attention_branch(x, axes, name):
    """Pools over one axis, a convolution, and a gate, on axes in another order."""
    turned = F.transpose(x, axes=axes)
    pooled = F.concatenate(F.max(turned, axis=(1,), keepdims=True), F.mean(turned, axis=(1,), keepdims=True), axis=1)
    gate = F.sigmoid(conv(pooled, name, 1, (3, 3), padding=(1, 1)))
    back = tuple(int(axis) for axis in np.argsort(axes))
    return F.transpose(F.broadcast_mul(turned, gate), axes=back)


ORDERS = {"cw": (0, 2, 1, 3), "ch": (0, 3, 2, 1), "hw": (0, 1, 2, 3)}


def triplet_attention():
    x = conv(Variable("x", shape=(2, 16, 8, 8)), "stem", 16, (3, 3), padding=(1, 1))
    branches = [attention_branch(x, axes, name) for name, axes in ORDERS.items()]
    total = F.elemwise_sum(*branches, num_args=3) * (1 / 3)
    return conv(total, "head", 8, (1, 1))


def test_triplet_attention_is_what_pytorch_computes():
    torch = oracle("torch")
    net = triplet_attention()
    given = values(typed(net))
    tensors = {name: torch.tensor(array) for name, array in given.items()}
    conv2d = torch.nn.functional.conv2d
    x = conv2d(tensors["x"], tensors["stem_weight"], padding=1)
    total = torch.zeros_like(x)
    for name, axes in ORDERS.items():
        y = x.permute(*axes)
        pooled = torch.cat([y.amax(1, keepdim=True), y.mean(1, keepdim=True)], 1)
        gated = y * torch.sigmoid(conv2d(pooled, tensors[f"{name}_weight"], padding=1))
        total += gated.permute(*np.argsort(axes).tolist()) / 3
    wanted = conv2d(total, tensors["head_weight"]).numpy()
    check_passes(net)
    params = {name: array for name, array in given.items() if name != "x"}
    for level in range(4):
        [found] = weft.compile((net, params), opt_level=level).run({"x": given["x"]})
        assert_close(found, wanted)
