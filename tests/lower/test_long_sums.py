"""Sums over many elements: their errors against float64 do not grow with their length, 16-bit
floats are summed in float32, and any number of threads gives the same bits."""

import math

import ml_dtypes
import numpy as np
import pytest

import weft

BOUND = 4e-5  # relative; adding 2**22 equal numbers one after the other is off by some 1e-2
COUNT = 1 << 22


def compiled(made, values, threads=1):
    shapes = {name: array.shape for name, array in values.items()}
    dtypes = {name: array.dtype for name, array in values.items()}
    return weft.compile(made, shape=shapes, dtype=dtypes, threads=threads).run(values)[0]


def tenth(*shape):
    return np.full(shape, 0.1, "float32")


SUMS = {
    "all of a vector": ({}, (COUNT,)),
    "all of a vector that fills no lanes": ({}, (COUNT + 7,)),
    "all of a matrix": ({}, (1 << 10, 1 << 12)),
    "rows": ({"axis": 1}, (3, COUNT)),
    "columns": ({"axis": 0}, (COUNT >> 3, 8)),
    "wide columns": ({"axis": 0}, (1 << 15, 100)),
    "three columns": ({"axis": 0}, (COUNT, 3)),
    "one column": ({"axis": 0}, (COUNT, 1)),
    "outer and inner": ({"axis": (0, 2)}, (300, 5, 5000)),
    "outer and a few inside": ({"axis": (0, 2)}, (COUNT >> 3, 2, 3)),
}


@pytest.mark.parametrize("case", SUMS)
@pytest.mark.parametrize("operator", ["sum", "mean"])
def test_sums_do_not_drift(case, operator):
    attrs, shape = SUMS[case]
    x = {"x": tenth(*shape)}
    made = getattr(weft.symbol, operator)(weft.symbol.Variable("x"), **attrs)
    found = compiled(made, x)
    count = x["x"].size // found.size if operator == "sum" else 1
    np.testing.assert_allclose(found, count * float(np.float32(0.1)), rtol=BOUND)


def test_sums_of_random_numbers_are_near_the_exact_ones():
    x = np.random.default_rng(0).random(1 << 20, dtype="float32")
    found = compiled(weft.symbol.mean(weft.symbol.Variable("x")), {"x": x})
    exact = math.fsum(x.tolist()) / x.size
    assert abs(found.item() / exact - 1) < 1e-6


def test_infinities_stay():
    x = np.zeros(1 << 14, "float32")
    x[5000] = np.inf
    assert compiled(weft.symbol.sum(weft.symbol.Variable("x")), {"x": x}) == np.inf


def test_threads_do_not_change_bits():
    x = {"x": np.random.default_rng(1).standard_normal((40_000, 64)).astype("f")}
    made = weft.symbol.sum(weft.symbol.Variable("x"), axis=0)
    first, *others = (compiled(made, x, threads) for threads in (1, 2, 4))
    for other in others:
        assert first.tobytes() == other.tobytes()


@pytest.mark.parametrize("shape", [(1, COUNT, 1), (4, 1 << 19, 64), (200, 1 << 16, 32)])
@pytest.mark.parametrize("is_constant", [False, True])
def test_products_of_long_rows_do_not_drift(shape, is_constant):
    rows, depth, columns = shape
    sym = weft.symbol
    made = sym.matmul(sym.Variable("x"), sym.Variable("y"))
    x, y = tenth(rows, depth), tenth(depth, columns)
    params = {"y": y} if is_constant else {}
    shapes = {"x": x.shape} if is_constant else {"x": x.shape, "y": y.shape}
    model = weft.compile(made, params=params, shape=shapes, threads=1)
    found = model.run({"x": x} if is_constant else {"x": x, "y": y})[0]
    np.testing.assert_allclose(found, depth * float(np.float32(0.1)) ** 2, rtol=BOUND)


def test_filters_of_many_elements_do_not_drift():
    sym = weft.symbol
    x, w = tenth(1, 64, 64, 64), tenth(16, 64, 64, 64)
    made = sym.conv2d(sym.Variable("x"), name="c", channels=16, kernel_size=(64, 64), use_bias=False)
    found = weft.compile(made, params={"c_weight": w}, shape={"x": x.shape}).run({"x": x})[0]
    np.testing.assert_allclose(found, x[0].size * float(np.float32(0.1)) ** 2, rtol=BOUND)


def test_pools_of_many_elements_do_not_drift():
    x = {"x": tenth(1, 16, 700, 701)}
    found = compiled(weft.symbol.global_avg_pool2d(weft.symbol.Variable("x")), x)
    np.testing.assert_allclose(found, np.float32(0.1), rtol=BOUND)


def test_softmax_of_a_long_row():
    x = np.full((2, 1 << 20), np.float32(0.1))
    x[:, 0] = 0.3
    found = compiled(weft.symbol.softmax(weft.symbol.Variable("x")), {"x": x})
    wide = np.exp(x.astype("float64"))
    np.testing.assert_allclose(found, wide / wide.sum(axis=1, keepdims=True), rtol=BOUND)


MANY = 1 << 17  # more than the largest float16


def _layer_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5)


NARROW = {
    "mean": ((MANY,), {}, lambda x: x.mean()),
    "mean of columns": ((MANY, 4), {"axis": 0}, lambda x: x.mean(0)),
    "global_avg_pool2d": ((1, 2, 300, 400), {}, lambda x: x.mean((2, 3), keepdims=True)),
    "avg_pool2d": ((1, 2, 300, 400), {"pool_size": (300, 400)}, lambda x: x.mean((2, 3), keepdims=True)),
    "softmax": ((2, MANY), {}, lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    "l2_normalize": ((2, MANY), {"axis": 1, "eps": 1e-5}, lambda x: x / np.sqrt(np.square(x).sum(1, keepdims=True))),
    "layer_norm": ((2, MANY), {}, _layer_norm),
    "rms_norm": ((2, MANY), {}, lambda x: x / np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-5)),
    "instance_norm": ((1, 2, MANY), {}, _layer_norm),
}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("case", NARROW)
def test_narrow_floats_are_summed_in_float32(case, dtype):
    shape, attrs, exact = NARROW[case]
    operator = case.split()[0]
    x = (np.random.default_rng(2).standard_normal(shape) * 3 + 2).astype(dtype)
    values = {"x": x}
    if operator.endswith("_norm"):
        channels = shape[1] if operator == "instance_norm" else shape[-1]
        values["gamma"] = np.ones(channels, dtype)
        if operator != "rms_norm":
            values["beta"] = np.zeros(channels, dtype)
    made = getattr(weft.symbol, operator)(*map(weft.symbol.Variable, values), **attrs)
    wanted = exact(x.astype("float64"))
    found = compiled(made, values)
    assert found.dtype == dtype
    step = float(ml_dtypes.finfo(dtype).eps)
    scale = np.abs(wanted).max()
    assert np.abs(found.astype("float64") - wanted).max() <= step * scale


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_products_are_formed_in_float32(dtype):
    """300 * 300 is beyond float16, their sum with opposite signs is not."""
    sym = weft.symbol
    x, y = np.full((2, 64), 300, dtype), np.full((64, 3), 300, dtype)
    y[1::2] = -300
    y[:2] = 2
    found = compiled(sym.matmul(sym.Variable("x"), sym.Variable("y")), {"x": x, "y": y})
    wanted = x.astype("float64") @ y.astype("float64")
    np.testing.assert_allclose(found.astype("float64"), wanted.astype(dtype).astype("float64"))
