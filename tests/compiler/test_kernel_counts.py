"""How many kernels graphs become: NNVM's fusion results are reached or bettered."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from compiler.models import floats, with_params

import weft
from weft import symbol as sym
from weft.base.cpu_target import host
from weft.compiler.prepare import as_arrays, prepare
from weft.core.interpret import evaluate
from weft.passes.fuse import fusible_groups
from weft.testing import resnet
from weft.testing.workload import create_workload


def conv(data, name, channels=4, kernel=3, stride=1, bias=False):
    return sym.conv2d(
        data,
        channels=channels,
        kernel_size=(kernel, kernel),
        strides=(stride, stride),
        padding=(kernel // 2, kernel // 2),
        use_bias=bias,
        name=name,
    )


def chain():
    y = sym.flatten(sym.Variable("x") * 2) + 1
    return sym.exp(sym.transpose(sym.relu(y)))


def conv_chain():
    y = conv(sym.Variable("x"), "c", bias=True) + sym.Variable("b", shape=(1, 4, 1, 1))
    return sym.relu(sym.flatten(y) * 3)


def conv_bn_elu():
    y = sym.batch_norm(conv(sym.Variable("x"), "c", bias=True), name="bn")
    return -0.5 * sym.relu(1 - sym.exp(y)) + sym.relu(y)


def residual():
    first = sym.relu(sym.batch_norm(conv(sym.Variable("x"), "c1"), name="bn1"))
    second = sym.batch_norm(conv(first, "c2"), name="bn2")
    return sym.relu(second + first)


def two_residuals():
    """The second sum is read twice: by the branch, and by the sum after it."""
    y = sym.relu(conv(sym.Variable("x"), "c1"))
    for number in (2, 3):
        y = sym.relu(conv(y, f"c{number}") + y)
    return y


def projected_residual():
    x = sym.Variable("x")
    return sym.relu(conv(x, "c1") + conv(x, "c2", kernel=1))


def injective_reduce():
    return sym.sum(sym.exp(sym.transpose(sym.Variable("x") * 2, axes=(0, 2, 3, 1))), axis=(1, 3))


def reduce_then_elementwise():
    x = sym.Variable("x")
    return sym.sqrt(sym.sum(x * x, axis=(2, 3)) + 1)


def concat_conv():
    x = sym.Variable("x")
    joined = sym.concatenate(sym.relu(x), sym.tanh(x), axis=1)
    return sym.relu(conv(joined, "c"))


def conv_concat():
    x = sym.Variable("x")
    parts = [sym.relu(conv(x, name, channels=8)) for name in ("c1", "c2")]
    return sym.concatenate(*parts, axis=1)


# Kernels of NNVM: what its rules (section 5.3 of its description) give for the same graph.
GRAPHS = {
    "element-wise + injective chain": (chain, 1, 1),
    "conv + broadcast | injective chain": (conv_chain, 2, 2),
    "conv + bn + elu": (conv_bn_elu, 1, 1),
    "residual block": (residual, 2, 2),
    "two residual blocks": (two_residuals, 3, 3),
    "residual block with a projection": (projected_residual, 2, 2),
    "injective + reduce": (injective_reduce, 1, 1),
    "reduce, then element-wise": (reduce_then_elementwise, 2, 2),
    "concat + conv": (concat_conv, 2, 2),
    "conv + concat": (conv_concat, 3, 3),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_fusion_results(name):
    make, of_nnvm, ours = GRAPHS[name]
    rng = np.random.default_rng(5)
    symbol = make()
    params = with_params(symbol, rng, x=(2, 4, 6, 6))
    params.update({n: np.abs(v) + 0.5 for n, v in params.items() if n.endswith("_var")})
    with weft.compiler.build_config(opt_level=2):
        graph, lib, kept = weft.compiler.build(symbol, "llvm", {"x": (2, 4, 6, 6)}, params=params)
    kernels = [node for node in graph.index.nodes if node["op"] != "null"]
    print(f"{name}: {len(kernels)} kernels, NNVM {of_nnvm}")
    assert len(kernels) == ours <= of_nnvm
    module = weft.runtime.create(graph, lib)
    module.set_input(**kept)
    x = floats(rng, (2, 4, 6, 6))
    module.run(x=x)
    (wanted,) = evaluate(symbol, {**params, "x": x})
    found = module.get_output(0).asnumpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


# Networks


def post_activated(pool=sym.global_avg_pool2d):
    """ResNet-50 as first published: batch norm after each convolution, relu after the sum."""

    def normed(data, *arguments):
        return sym.batch_norm(conv(data, *arguments), name=f"{arguments[0]}_bn")

    y = sym.relu(normed(sym.Variable("data"), "conv0", 64, 7, 2))
    y = sym.max_pool2d(y, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for stage, units in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for unit in range(units):
            name, stride = f"s{stage}u{unit}", 2 if stage and not unit else 1
            z = sym.relu(normed(y, f"{name}a", width, 1))
            z = normed(sym.relu(normed(z, f"{name}b", width, 3, stride)), f"{name}c", 4 * width, 1)
            y = sym.relu(z + (y if unit else normed(y, f"{name}d", 4 * width, 1, stride)))
    return sym.softmax(sym.dense(sym.flatten(pool(y)), units=1000, name="fc"))


def groups_of(net, level=3):
    workload, params = create_workload(net, 1, (3, 224, 224), "float32")
    shapes = {"data": (1, 3, 224, 224)}
    made = prepare(workload, as_arrays(params), shapes, {}, level, host())
    return [group for group in fusible_groups(made.graph) if not is_place(group)]


def is_place(group):
    """A halo alone computes nothing: it is where something else is written to."""
    return [node.op_name for node in group.nodes] == ["_halo"]


def is_conv(group):
    return group.master is not None and "conv2d" in group.master.op_name


def after_anchor(group):
    """The operators that a kernel computes beside its anchor."""
    return " ".join(node.op_name for node in group.nodes if node is not group.master)


@pytest.mark.parametrize("pool", [sym.global_avg_pool2d, lambda y: sym.mean(y, axis=(2, 3))])
def test_resnet50_is_53_convolutions_and_the_edges(pool):
    groups = groups_of(post_activated(pool))
    convolutions = [group for group in groups if is_conv(group)]
    print(f"resnet50: {len(groups)} kernels, {len(convolutions)} of them convolutions")
    assert len(convolutions) == 53
    assert Counter(map(after_anchor, convolutions)) == {
        "broadcast_add relu": 33,
        "broadcast_add broadcast_add relu": 16,  # with the residual
        "broadcast_add": 4,  # the projections
    }
    others = [[node.op_name for node in group.nodes] for group in groups if not is_conv(group)]
    assert sum("max_pool2d" in nodes for nodes in others) == 1
    assert sum(bool({"global_avg_pool2d", "mean"} & set(nodes)) for nodes in others) == 1
    assert len(others) <= 5  # the pools, flatten, dense, softmax


def test_resnet50_with_pre_activation():
    """A sum is read twice: normalised by the next unit, and as it is by the next sum. So twelve
    normalisations are kernels of their own."""
    groups = groups_of(resnet.get_symbol(1000, 50))
    convolutions = [group for group in groups if is_conv(group)]
    assert len(convolutions) == 53
    others = Counter(after_anchor(group) for group in groups if not is_conv(group))
    assert others.pop("broadcast_mul broadcast_add relu") == 12 + 1  # and one after the pool
    assert len(groups) - 53 <= 12 + 6


@pytest.mark.slow
def test_resnet50_compiles_into_a_small_arena():
    net, params = create_workload(post_activated(), 1, (3, 224, 224), "float32")
    with weft.compile((net, params), shape={"data": (1, 3, 224, 224)}) as model:
        operators = Counter(" ".join(kernel.operators) for kernel in model.program.kernels)
        print(f"arena: {model.program.plan.arena_bytes / 1e6:.1f} MB, kernels: {dict(operators)}")
        assert model.program.plan.arena_bytes < 30e6
        report = model.report()
        assert report.layout_transforms <= 2
        assert report.concat_copies == 0
        assert report.pad_copies == 1  # of the input
        assert not [names for names in operators if "batch_norm" in names or names == "relu"]
