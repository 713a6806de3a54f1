"""The template of products with levels at guard pages, for every instruction set, and what builds and
`quantize_weights` put in place of products; against numpy in float64."""

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.accuracy import targets

import weft
from weft.base.cpu_target import CpuTarget
from weft.core.op import Op
from weft.testing.op_check import Sample, run_lowered

rng = np.random.default_rng(29)
TARGETS = [*targets(), CpuTarget.create()]  # the last with all that the machine has
CLOSE = 1e-4  # of the largest result: rows have 16 bits, sums are exact


def quantised(units, depth, bits, group, dtype="float16"):
    """Random levels as operators take them, and the matrix that they stand for."""
    levels = rng.integers(*((-128, 128), (-8, 8))[bits == 4], (units, depth))
    scale = rng.uniform(0.01, 0.1, (units, -(-depth // group))).astype(dtype)
    exact = levels * np.repeat(scale.astype("d"), group, 1)[:, :depth]
    if bits == 8:
        return levels.astype(np.int8), scale, exact
    wide = np.pad(levels, [(0, 0), (0, depth % 2)]) + 8
    return (wide[:, ::2] + 16 * wide[:, 1::2]).astype(np.uint8), scale, exact


def rows_of(shape):
    return (rng.standard_normal(shape) * np.exp(2 * rng.standard_normal((*shape[:-1], 1)))).astype(np.float32)


@settings(max_examples=16, deadline=None)
@given(
    st.integers(1, 11),
    st.sampled_from([1, 8, 31, 32, 70, 129, 300]),
    st.sampled_from([1, 5, 16, 63, 64, 65, 130]),
    st.sampled_from([8, 4]),
    st.sampled_from([8, 32, 128]),
    st.sampled_from(TARGETS),
    st.booleans(),
)
def test_any_product_between_guard_pages(rows, depth, units, bits, group, target, front):
    weight, scale, exact = quantised(units, depth, bits, group, ("float16", "float32")[rows % 2])
    x, lanes = rows_of((rows, depth)), 4 * target.lanes("float32")
    attrs = {"bits": bits, "group": group}
    run = lambda name, inputs, attrs: run_lowered(
        Op.get(name), Sample(inputs, attrs, None), target, lambda a: guarded(a, front)
    )
    (panels,) = run("_level_panels", [weight], {**attrs, "depth": depth, "lanes": lanes})
    (scales,) = run("_pack_panels", [scale], {"lanes": lanes, "transposed": True})
    rows_made = run("_row_levels", [x], {"group": group})
    (found,) = run("_level_matmul", [*rows_made, panels, scales], {**attrs, "units": units})
    wanted = x.astype("d") @ exact.T
    bound = (np.abs(x).max(1, keepdims=True).astype("d") * np.abs(exact).sum(1)).max(1, keepdims=True)
    assert (np.abs(found - wanted) <= 2**-15 * bound).all()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.isa)
@pytest.mark.parametrize("bits", [8, 4])
def test_products_that_are_built(target, bits):
    """With what follows: a bias, an activation, a sum."""
    sym, x, other = weft.symbol, rows_of((3, 70)), rows_of((3, 45))
    weight, scale, exact = quantised(45, 70, bits, 32)
    bias = rng.standard_normal(45).astype("f")
    y = sym.dense_levels(sym.Variable("x"), sym.Variable("w"), sym.Variable("s"), units=45, bits=bits, group=32)
    y = sym.relu(sym.broadcast_add(y, sym.Variable("b"))) + sym.Variable("z")
    params = {"w": weight, "s": scale, "b": bias}
    model = weft.compile((y, params), shape={"x": x.shape, "z": other.shape}, target=target)
    assert any("level_matmul" in kernel.name for kernel in model.report().kernels)
    wanted = np.maximum(x.astype("d") @ exact.T + bias, 0) + other
    np.testing.assert_allclose(model(x, other)[0], wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())


def test_numbers_that_are_not_finite_make_their_rows_nan():
    weight, scale, exact = quantised(20, 64, 4, 32)
    x = rows_of((4, 64))
    x[1, 3], x[2, 40] = np.nan, np.inf
    y = weft.symbol.dense_levels(weft.symbol.Variable("x", shape=x.shape), units=20, bits=4, group=32, name="y")
    found = weft.compile((y, {"y_weight": weight, "y_scale": scale}))(x)[0]
    assert np.isnan(found[1:3]).all()
    wanted = x[::3].astype("d") @ exact.T
    np.testing.assert_allclose(found[::3], wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())


@pytest.mark.parametrize(("bits", "error"), [(8, 0.02), (4, 0.25)])
def test_models_with_quantised_weights(bits, error):
    """Products with parameters change, those with what is computed stay; so do tables."""
    sym = weft.symbol
    params = {
        "table": rng.standard_normal((11, 48)).astype("f"),
        "a_weight": rng.standard_normal((33, 48)).astype("f"),
        "a_bias": rng.standard_normal(33).astype("f"),
        "b": rng.standard_normal((33, 7)).astype("f"),
    }
    x = sym.take(sym.Variable("table"), sym.Variable("ids", shape=(5,), dtype="int64"), axis=0)
    h = sym.dense(x, units=33, name="a")
    y = sym.Group([sym.matmul(h, sym.Variable("b")), sym.matmul(h, h, transpose_b=True)])
    symbol, stored = weft.quantize_weights((y, params), bits=bits, group=16)
    assert set(stored) == {"table", "a_weight_levels", "a_weight_scale", "a_bias", "b_turned_levels", "b_turned_scale"}
    ids = np.array([3, 1, 10, 0, 7])
    found = weft.compile((symbol, stored))(ids)
    hidden = params["table"][ids].astype("d") @ params["a_weight"].T + params["a_bias"]
    for made, wanted in zip(found, (hidden @ params["b"], hidden @ hidden.T)):
        assert 0 < np.abs(made - wanted).max() <= error * np.abs(wanted).max()


def test_small_weights_have_wide_scales():
    """Those that float16 has not enough digits for."""
    weight = (1e-9 * rng.standard_normal((6, 32))).astype("f")
    y = weft.symbol.dense(weft.symbol.Variable("x", shape=(2, 32)), units=6, use_bias=False, name="y")
    symbol, stored = weft.quantize_weights((y, {"y_weight": weight}))
    assert stored["y_weight_scale"].dtype == np.float32
    x = rows_of((2, 32))
    wanted = x.astype("d") @ weight.T
    np.testing.assert_allclose(weft.compile((symbol, stored))(x)[0], wanted, rtol=0, atol=0.02 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("options", "told"),
    [({"bits": 3}, "3 bits"), ({"group": 20}, "20 products"), ({"bits": 4, "group": 0}, "0 products")],
)
def test_errors_say_what_there_is(options, told):
    y = weft.symbol.dense(weft.symbol.Variable("x", shape=(2, 32)), units=6, use_bias=False, name="y")
    with pytest.raises(weft.Error, match=told):
        weft.quantize_weights((y, {"y_weight": np.ones((6, 32), "f")}), **options)
    with pytest.raises(weft.Error, match="not finite"):
        weft.quantize_weights((y, {"y_weight": np.full((6, 32), np.nan, "f")}))
