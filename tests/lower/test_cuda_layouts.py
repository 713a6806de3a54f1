"""Layouts that GPUs like: graphs with them, run by the reference interpreter, compute what PyTorch does."""

import numpy as np
import pytest
from oracles import oracle

from weft.base.cuda_target import CudaTarget
from weft.base.dtype import as_dtype
from weft.compiler.backends.cuda import CUDA
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.op import Op
from weft.core.symbol import Variable
from weft.passes.pipeline import optimize

torch = oracle("torch")
rng = np.random.default_rng(0)
RULES = CUDA.layout_rules_for(CudaTarget())


def altered(symbol, dtype="float32", **given):
    shapes = {name: array.shape for name, array in given.items()}
    graph = infer(Graph(symbol.outputs), shapes, dict.fromkeys(given, as_dtype(dtype)))
    return optimize(graph, 3, layout_rules=RULES)


@pytest.mark.parametrize(
    ("shape", "channels", "size", "strides", "padding", "groups"),
    [
        ((2, 8, 6, 5), 16, (3, 3), (1, 1), (1, 1), 1),
        ((1, 3, 15, 14), 8, (7, 7), (2, 2), (3, 3), 1),  # squares of pixels
        ((2, 3, 9, 9), 8, (3, 3), (2, 2), (0, 1, 1, 0), 1),
        ((1, 4, 8, 7), 8, (4, 5), (2, 2), (1, 2, 0, 2), 1),
        ((2, 5, 6, 6), 8, (3, 3), (1, 1), (1, 1), 1),  # channels that no tensor map takes
        ((2, 8, 5, 5), 21, (1, 1), (1, 1), (0, 0), 1),  # results that none stores
        ((2, 3, 33, 32), 16, (16, 16), (16, 16), (0, 0), 1),  # windows as pixels
        ((2, 3, 11, 9), 8, (3, 2), (4, 3), (1, 0, 1, 2), 1),
        ((1, 24, 19, 19), 8, (9, 9), (9, 9), (0, 0), 1),
        ((2, 8, 6, 6), 8, (3, 3), (1, 1), (1, 1), 8),
        ((2, 8, 6, 6), 16, (3, 3), (2, 2), (1, 1), 2),
    ],
)
def test_convolutions_against_pytorch(shape, channels, size, strides, padding, groups):
    x = rng.standard_normal(shape).astype("f")
    w = rng.standard_normal((channels, shape[1] // groups, *size)).astype("f")
    b = rng.standard_normal(channels).astype("f")
    attrs = {"channels": channels, "kernel_size": size, "strides": strides, "padding": padding, "groups": groups}
    made = Op.get("relu")(Op.get("conv2d")(*map(Variable, "xwb"), **attrs))
    graph = altered(made, x=x, w=w, b=b)
    layouts = [node.params.layout for node in graph.indexed.nodes if node.op_name == "conv2d"]
    assert layouts == ["NHWC"]
    (got,) = evaluate(graph, {"x": x, "w": w, "b": b})
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)
    padded = torch.nn.functional.pad(torch.from_numpy(x).double(), (left, right, top, bottom))
    filters, bias = torch.from_numpy(w).double(), torch.from_numpy(b).double()
    wanted = torch.nn.functional.conv2d(padded, filters, bias, strides, 0, 1, groups).relu()
    np.testing.assert_allclose(np.asarray(got), wanted.numpy(), atol=1e-4)


def test_weights_across_the_sums_are_turned():
    x, w = rng.standard_normal((4, 8)).astype("f"), rng.standard_normal((8, 12)).astype("f")
    graph = altered(Op.get("matmul")(Variable("x"), Variable("w")), x=x, w=w)
    assert [node.params.transpose_b for node in graph.indexed.nodes if node.op_name == "matmul"] == [True]
    (got,) = evaluate(graph, {"x": x, "w": w})
    np.testing.assert_allclose(np.asarray(got), x @ w, atol=1e-5)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d", "global_max_pool2d", "global_avg_pool2d"])
def test_pools_between_convolutions_have_no_copies(name):
    x, w = rng.standard_normal((2, 8, 9, 7)).astype("f"), rng.standard_normal((8, 8, 3, 3)).astype("f")
    attrs = {} if "global" in name else {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0, 1, 1)}
    conv = {"channels": 8, "kernel_size": (3, 3), "padding": (1, 1), "use_bias": False}
    made = Op.get("conv2d")(
        Op.get(name)(Op.get("conv2d")(Variable("x"), Variable("w"), **conv), **attrs), Variable("w"), **conv
    )
    graph = altered(made, x=x, w=w)
    (pool,) = (node for node in graph.indexed.nodes if node.op_name == name)
    assert (pool.params.layout, pool.inputs[0].node.op_name) == ("NHWC", "conv2d")
    (got,) = evaluate(graph, {"x": x, "w": w})
    first, filters = (torch.from_numpy(a).double() for a in (x, w))
    y = torch.nn.functional.conv2d(first, filters, padding=1)
    if "global" in name:
        y = y.amax((2, 3), True) if "max" in name else y.mean((2, 3), True)
    else:
        fill = float("-inf") if "max" in name else 0.0
        windows = torch.nn.functional.pad(y, (0, 1, 1, 1), value=fill).unfold(2, 3, 2).unfold(3, 2, 1).flatten(-2)
        counts = torch.nn.functional.pad(torch.ones_like(y), (0, 1, 1, 1)).unfold(2, 3, 2).unfold(3, 2, 1).flatten(-2)
        y = windows.amax(-1) if "max" in name else windows.sum(-1) / counts.sum(-1)
    wanted = torch.nn.functional.conv2d(y, filters, padding=1)
    np.testing.assert_allclose(np.asarray(got), wanted.numpy(), atol=1e-3)
