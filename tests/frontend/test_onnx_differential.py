"""Random graphs by the reference and as machine code, against ONNX Runtime, value by value."""

import numpy as np
import pytest
from onnx_graphs import random_graph
from onnx_runs import weft_runs

ROUNDING = {"float16": (6e-3, 2e-3), "float32": (3e-5, 2e-6)}
BATCH = 50


def tolerance(graph, dtype):
    """Runtimes may keep what stands between operators of float16 in float32."""
    halves = any(x.dtype == np.float16 for x in graph.values.values())
    return ROUNDING.get("float16" if halves and dtype.kind == "f" else str(dtype), (0, 0))


def check(seed, most):
    graph = random_graph(seed, most)
    model, expected = graph.model()
    if not graph.nodes:
        return 0
    for how, made in weft_runs(model, graph.inputs):
        for (name, wanted), got in zip(expected.items(), made, strict=True):
            place = f"seed {seed}, {how}, {name}: {[node.op_type for node in graph.nodes]}"
            assert got.shape == wanted.shape, place
            assert got.dtype == wanted.dtype, place
            rtol, atol = tolerance(graph, wanted.dtype)
            np.testing.assert_allclose(
                got.astype("float64") if got.dtype.kind == "f" else got,
                wanted.astype("float64") if got.dtype.kind == "f" else wanted,
                rtol,
                atol,
                err_msg=place,
            )
    return len(graph.nodes)


@pytest.mark.parametrize("start", [0, BATCH])
def test_single_nodes(start):
    assert sum(check(seed, 1) for seed in range(start, start + BATCH)) > BATCH // 2


def test_small_graphs():
    assert sum(check(10_000 + seed, 4) for seed in range(BATCH)) > BATCH


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 3000, BATCH))
def test_many_single_nodes(start):
    assert sum(check(seed, 1) for seed in range(start, start + BATCH)) > BATCH // 2


@pytest.mark.slow
@pytest.mark.parametrize("start", range(20_000, 21_500, BATCH))
def test_many_small_graphs(start):
    assert sum(check(seed, 4) for seed in range(start, start + BATCH)) > BATCH
