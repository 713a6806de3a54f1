"""The row template: softmax and normalisations over any axes, of any size, at guard pages, with
what follows them; against float64 formulas in numpy and scipy."""

import numpy as np
import pytest
import scipy.special
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.accuracy import agrees, targets

import weft
from weft.base.cpu_target import host
from weft.core.op import Op
from weft.testing.op_check import Sample, run_lowered

rng = np.random.default_rng(11)
extents = st.sampled_from([1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 48, 70])
TARGETS = targets()


def normal(shape):
    return (rng.standard_normal(shape) * 3 + 1).astype("f")


def unit(x, axes, epsilon):
    wide = x.astype("d")
    centred = wide - wide.mean(axes, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + epsilon)


def softmax(x, axis):
    return [x], {"axis": axis}, scipy.special.softmax(x.astype("d"), axis)


def log_softmax(x, axis):
    return [x], {"axis": axis}, scipy.special.log_softmax(x.astype("d"), axis)


def layer_norm(x, axis):
    gamma, beta = normal(x.shape[axis:]), normal(x.shape[axis:])
    expected = unit(x, tuple(range(axis, x.ndim)), 1e-3) * gamma + beta
    return [x, gamma, beta], {"axis": axis, "epsilon": 1e-3}, expected


def rms_norm(x, axis):
    gamma, axes = normal(x.shape[axis:]), tuple(range(axis, x.ndim))
    size = np.sqrt(np.square(x.astype("d")).mean(axes, keepdims=True) + 1e-3)
    return [x, gamma], {"axis": axis, "epsilon": 1e-3}, x / size * gamma


def l2_normalize(x, axis):
    axes = tuple({axis, x.ndim - 1})
    size = np.sqrt(np.maximum(np.square(x.astype("d")).sum(axes, keepdims=True), 0.5))
    return [x], {"axis": axes, "eps": 0.5}, x / size


def group_norm(x, axis):
    n, channels = x.shape[:2]
    groups = next(g for g in (4, 3, 2, 1) if channels % g == 0)
    split = x.reshape(n, groups, channels // groups, *x.shape[2:])
    spread = (-1, *[1] * (x.ndim - 2))
    gamma, beta = normal(channels), normal(channels)
    made = unit(split, tuple(range(2, split.ndim)), 1e-3).reshape(x.shape)
    expected = made * gamma.reshape(spread) + beta.reshape(spread)
    return [x, gamma, beta], {"num_groups": groups, "epsilon": 1e-3}, expected


def instance_norm(x, axis):
    gamma, beta = normal(x.shape[1]), normal(x.shape[1])
    spread = (-1, *[1] * (x.ndim - 2))
    made = unit(x, tuple(range(2, x.ndim)), 1e-3)
    expected = made * gamma.reshape(spread) + beta.reshape(spread)
    return [x, gamma, beta], {"epsilon": 1e-3}, expected


CASES = [softmax, log_softmax, layer_norm, rms_norm, l2_normalize, group_norm, instance_norm]


@settings(max_examples=60)
@given(
    st.sampled_from(CASES),
    st.lists(extents, min_size=2, max_size=4),
    st.integers(0, 3),
    st.sampled_from(TARGETS),
    st.booleans(),
)
def test_any_rows_between_guard_pages(case, shape, axis, target, front):
    while np.prod(shape) > 60_000:
        shape = shape[:-1]
    inputs, attrs, expected = case(normal(shape), axis % len(shape))
    sample = Sample(inputs, attrs, None)
    (found,) = run_lowered(Op.get(case.__name__), sample, target, lambda a: guarded(a, front))
    agrees(found, expected)


def compiled(symbol, values, threads=1):
    given = {name: value for name, value in values.items() if name != "x"}
    return weft.compile((symbol, given), shape={"x": values["x"].shape}, threads=threads)


@pytest.mark.parametrize("shape", [(6, 197), (3, 21, 5, 7), (2, 9, 70)])
def test_what_follows_is_in_the_same_kernel(shape):
    sym = weft.symbol
    values = {"x": normal(shape), "r": normal(shape)}
    y = sym.relu(sym.softmax(sym.Variable("x"), axis=1) * 3 - sym.Variable("r"))
    model = compiled(y, values)
    assert len(model.report().kernels) == 1
    expected = scipy.special.softmax(values["x"].astype("d"), 1) * 3 - values["r"]
    agrees(model.run({"x": values["x"]})[0], np.maximum(expected, 0))


@pytest.mark.parametrize("axis", [0, 1])
def test_special_values_keep_their_meaning(axis):
    x = np.zeros((20, 40), "f")
    x[3], x[4, 5], x[6, 7], x[8, 9] = -np.inf, np.nan, np.inf, -np.inf
    x[10] = 1e30
    x = x if axis else np.ascontiguousarray(x.T)
    model = compiled(weft.symbol.softmax(weft.symbol.Variable("x"), axis=axis), {"x": x})
    with np.errstate(invalid="ignore"):
        expected = scipy.special.softmax(x.astype("d"), axis)
    np.testing.assert_allclose(model.run({"x": x})[0], expected, rtol=1e-5, atol=1e-7)


def test_sums_of_large_numbers_are_shifted():
    x = normal((4, 300)) * 100 + 5000
    model = compiled(weft.symbol.log_softmax(weft.symbol.Variable("x")), {"x": x})
    agrees(model.run({"x": x})[0], scipy.special.log_softmax(x.astype("d"), -1))


def test_rows_have_the_same_bits_for_any_number_of_threads():
    sym = weft.symbol
    values = {"x": normal((300, 517)), "gamma": normal(517), "beta": normal(517)}
    read = [sym.Variable(name) for name in values]
    y = sym.softmax(sym.layer_norm(*read), axis=0)
    found = [compiled(y, values, n).run({"x": values["x"]})[0].tobytes() for n in (1, 2, 4)]
    assert found[0] == found[1] == found[2]


def test_rows_that_do_not_fit_the_cache_are_computed_all_the_same():
    x = normal((2, host().caches[1] // 4 + 1000))
    model = compiled(weft.symbol.softmax(weft.symbol.Variable("x")), {"x": x})
    assert len(model.report().kernels) > 1
    agrees(model.run({"x": x})[0], scipy.special.softmax(x.astype("d"), -1))
