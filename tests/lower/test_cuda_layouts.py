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
