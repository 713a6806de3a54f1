"""Outputs are arrays of their own, whatever they are made from; odd sizes and all dtypes work."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiler.models import LEVELS, agree, floats

import weft
from weft import symbol as sym


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def odd_outputs():
    """Outputs that are an input, views of it, one entry twice, a constant, a view of a constant."""
    x, c = sym.Variable("x", shape=(2, 6)), sym.Variable("c", shape=(2, 3))
    y = sym.relu(x, name="y")
    flat = sym.reshape(y, shape=(12,))
    return sym.Group(
        [
            x,
            sym.reshape(x, shape=(3, 4)),
            y,
            y,
            flat,
            sym.reshape(flat, shape=(4, 3)),
            c,
            sym.reshape(c, shape=(6,)),
            sym.expand_dims(x, axis=0),
            x,
        ]
    )


@pytest.mark.parametrize("level", LEVELS)
def test_outputs_never_share_memory(rng, level):
    x, c = floats(rng, (2, 6)), floats(rng, (2, 3))
    model = weft.compile((odd_outputs(), {"c": c}), opt_level=level)
    first = model(x)
    agree(first, odd_outputs(), {"x": x, "c": c}, 0)
    everything = [*first, x, c, *model.program.constants]
    executor = model._whole.executors[model.specialisations[0]]
    everything += [arena.memory.numpy() for arena in executor._loaded.arenas._idle]
    everything += [array.numpy() for array in executor._loaded.constants]
    for position, one in enumerate(first):
        for number, other in enumerate(everything):
            assert number == position or not np.shares_memory(one, other), (position, number)
    kept = [value.copy() for value in first]
    for value in first:
        value.fill(77)
    second = model(x)
    for value, expected in zip(second, kept):
        np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(c, model.program.constants[0].reshape(c.shape))


def test_a_view_at_the_end_costs_no_copy():
    x = sym.Variable("x", shape=(4, 6))
    model = weft.compile(sym.reshape(sym.exp(x), shape=(24,)))
    assert len(model.program.kernels) == 1
    assert model.program.plan.arena_bytes == 0


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4, 5), (2, 0, 3), ()])
@pytest.mark.parametrize("level", LEVELS)
def test_no_elements_and_no_dimensions(rng, shape, level):
    x = sym.Variable("x", shape=shape)
    y = sym.exp(x) * 2 + x
    outputs = [y, sym.reshape(y, shape=(-1,)) if 0 not in shape else y]
    if shape:
        outputs += [sym.sum(x, axis=0), sym.sum(y), sym.concatenate(x, y, axis=0)]
    symbol = sym.Group(outputs)
    value = floats(rng, shape)
    model = weft.compile(symbol, opt_level=level, shape={"x": shape})
    agree(model(value), symbol, {"x": value})


def test_an_empty_batch_goes_through_a_network(rng):
    x = sym.Variable("x", shape=("n", 3, 8, 8))
    y = sym.conv2d(x, channels=4, kernel_size=(3, 3), padding=(1, 1), name="c")
    y = sym.dense(sym.flatten(sym.max_pool2d(sym.relu(y), pool_size=(2, 2))), units=5, name="d")
    shapes = {"c_weight": (4, 3, 3, 3), "c_bias": (4,), "d_weight": (5, 196), "d_bias": (5,)}
    params = {name: floats(rng, shape) for name, shape in shapes.items()}
    model = weft.compile((y, params))
    assert model(np.zeros((0, 3, 8, 8), "float32"))[0].shape == (0, 5)
    value = floats(rng, (2, 3, 8, 8))
    agree(model(value), y, {**params, "x": value})


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("level", LEVELS)
def test_integer_models(rng, dtype, level):
    x, y = (sym.Variable(name, shape=(3, 5), dtype=dtype) for name in "xy")
    symbol = sym.Group([x * 3 + 1, sym.elemwise_add(x, y), sym.sum(x, axis=1), sym.max(y, axis=0)])
    values = {name: rng.integers(0, 9, (3, 5)).astype(dtype) for name in "xy"}
    agree(weft.compile(symbol, opt_level=level).run(values), symbol, values, 0)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float16", 2e-3), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("level", LEVELS)
def test_floating_models(rng, dtype, tolerance, level):
    x = sym.Variable("x", shape=(3, 40), dtype=dtype)
    w = sym.Variable("w", shape=(7, 40), dtype=dtype)
    symbol = sym.Group([sym.exp(x), sym.softmax(sym.dense(x, w, units=7, use_bias=False))])
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    values = {"x": floats(rng, (3, 40), kind), "w": floats(rng, (7, 40), kind)}
    agree(weft.compile(symbol, opt_level=level).run(values), symbol, values, tolerance)


def test_boolean_models(rng):
    x, y = (sym.Variable(name, shape=(4, 5), dtype="bool") for name in "xy")
    symbol = sym.Group([sym.cast(x, dtype="float32"), sym.concatenate(x, y, axis=0)])
    values = {name: rng.integers(0, 2, (4, 5)).astype(bool) for name in "xy"}
    got = weft.compile(symbol).run(values)
    assert got[1].dtype == bool
    agree(
        [value.astype("float32") for value in got],
        sym.Group([sym.cast(symbol[i], dtype="float32") for i in range(2)]),
        values,
        0,
    )


def test_nan_and_infinity_keep_their_meaning():
    x = sym.Variable("x", shape=(6,))
    value = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40], "float32")
    symbol = sym.Group([sym.relu(x), x * 2, sym.exp(x), sym.max(x, axis=0), sym.sum(x, axis=0)])
    relu, twice, exponential, largest, total = weft.compile(symbol)(value)
    assert np.isnan(relu[0])
    assert relu[1:].tolist() == [np.inf, 0, 0, 0, np.float32(1e-40)]
    np.testing.assert_array_equal(twice, value * 2)
    assert np.isnan(exponential[0])
    assert exponential[1:5].tolist() == [np.inf, 0, 1, 1]
    assert np.isnan(largest)
    assert np.isnan(total)
