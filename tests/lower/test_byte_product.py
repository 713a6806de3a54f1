"""The template of products of bytes at guard pages, for every instruction set, and what builds put in place of integer
products; against numpy and PyTorch."""

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.accuracy import targets
from oracles import oracle

import weft
from weft.base.cpu_target import CpuTarget
from weft.core.op import Op
from weft.testing.op_check import Sample, run_lowered

rng = np.random.default_rng(23)
TARGETS = [*targets(), CpuTarget.create()]  # the last with all that the machine has
BYTE_PAIRS = [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]


def levels(shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def panels_of(w, lanes):
    """(depth, units) in panels, as a build makes them."""
    depth, units = w.shape
    wide = np.zeros((-(-depth // 4) * 4, -(-units // lanes) * lanes), np.int8)
    wide[:depth, :units] = w
    return np.ascontiguousarray(wide.reshape(-1, 4, wide.shape[1] // lanes, lanes).transpose(2, 0, 3, 1))


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 9), min_size=0, max_size=3),
    st.sampled_from([4, 8, 12, 16, 20, 36, 64, 132]),
    st.sampled_from([1, 3, 4, 15, 16, 17, 40, 48, 64, 97, 130]),
    st.sampled_from(TARGETS),
    st.booleans(),
    st.booleans(),
)
def test_any_product_between_guard_pages(leading, depth, units, target, zeros, front):
    x, w = levels((*leading, depth), "uint8"), levels((depth, units), "int8")
    vectors = [rng.integers(-9999, 9999, units).astype(np.int32) for _ in range(1 + zeros)]
    inputs = [x, panels_of(w, target.lanes("int32")), *vectors]
    sample = Sample(inputs, {"units": units, "use_zeros": zeros}, None)
    (found,) = run_lowered(Op.get("_byte_matmul"), sample, target, lambda a: guarded(a, front))
    zero = vectors[1] if zeros else 0
    np.testing.assert_array_equal(found, x.astype(np.int32) @ (w.astype(np.int32) - zero) + vectors[0])


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.isa)
@pytest.mark.parametrize("kinds", BYTE_PAIRS, ids="-".join)
def test_products_that_are_built(target, kinds):
    """Extreme levels, weights that are known and not, and a sum that wraps nowhere but at 32 bits."""
    sym, (a, b) = weft.symbol, kinds
    x, w = levels((9, 70), a), levels((70, 35), b)
    x[0], w[:, 0] = np.iinfo(a).max, np.iinfo(b).min
    values = {"w": w, "a": levels((), a), "b": levels((35,), b)}
    y = sym.integer_matmul(*map(sym.Variable, ("x", "w", "a", "b")))
    wanted = (x.astype(np.int32) - values["a"]) @ (w.astype(np.int32) - values["b"])
    for given_later in ((), ("w",), ("w", "a", "b")):
        known = {name: value for name, value in values.items() if name not in given_later}
        inputs = {"x": x, **{name: values[name] for name in given_later}}
        shapes, dtypes = ({n: getattr(v, k) for n, v in inputs.items()} for k in ("shape", "dtype"))
        model = weft.compile((y, known), shape=shapes, dtype=dtypes, target=target)
        assert any("byte_matmul" in kernel.name for kernel in model.report().kernels)
        np.testing.assert_array_equal(model.run(inputs)[0], wanted)


CONVOLUTIONS = [  # data, weight, strides, padding, dilation
    ((2, 6, 9, 8), (20, 6, 3, 2), (2, 1), (1, 0, 2, 1), (1, 2)),
    ((1, 18, 7, 9), (18, 1, 3, 3), (2, 1), (1, 1, 1, 1), (1, 1)),
    ((2, 6, 7, 7), (6, 1, 3, 2), (1, 1), (0, 0, 0, 0), (1, 2)),
    ((1, 8, 6, 7), (16, 8, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((1, 16, 5, 5), (33, 16, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((1, 3, 9, 9), (5, 3, 5, 5), (2, 2), (2, 2, 2, 2), (1, 1)),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.isa)
@pytest.mark.parametrize(("case", "kinds"), list(zip(CONVOLUTIONS, BYTE_PAIRS * 2)))
def test_convolutions_that_are_built(target, case, kinds):
    """With what follows: a bias, and levels of another scale."""
    torch = oracle("torch")
    data, weight, strides, padding, dilation = case
    sym, (a, b) = weft.symbol, kinds
    x, channels = levels(data, a), weight[0]
    values = {
        "w": levels(weight, b),
        "a": levels((), a),
        "b": levels((channels,), b),
        "bias": rng.integers(-5000, 5000, (channels, 1, 1)).astype(np.int32),
        "m": rng.uniform(1e-4, 1e-3, (channels, 1, 1)).astype(np.float32),
        "z": levels((), a),
    }
    groups = data[1] // weight[1]
    attrs = {"channels": channels, "kernel_size": weight[2:], "strides": strides, "dilation": dilation}
    attrs["groups"] = groups
    y = sym.integer_conv(*map(sym.Variable, ("x", "w", "a", "b")), padding=padding, **attrs)
    y = sym.requantize(sym.broadcast_add(y, sym.Variable("bias")), sym.Variable("m"), sym.Variable("z"))
    top, left, bottom, right = padding
    image = torch.nn.functional.pad(torch.tensor(x.astype("d") - values["a"]), (left, right, top, bottom))
    filters = torch.tensor(values["w"].astype("d") - values["b"].astype("d").reshape(-1, 1, 1, 1))
    sums = torch.nn.functional.conv2d(image, filters, stride=strides, dilation=dilation, groups=groups)
    sums = sums.numpy() + values["bias"]
    limits = np.iinfo(a)
    level = np.rint(sums.astype(np.float32) * values["m"]) + values["z"]
    model = weft.compile((y, values), shape={"x": data}, dtype={"x": a}, target=target)
    assert any(("byte_depthwise" if groups > 1 else "byte_conv2d") in k.name for k in model.report().kernels)
    np.testing.assert_array_equal(model.run({"x": x})[0], np.clip(level, limits.min, limits.max).astype(a))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_pools_between_convolutions_keep_channels_side_by_side(kind):
    """And a padding that is never the largest."""
    sym, x = weft.symbol, levels((1, 16, 9, 7), kind)
    values = {"w": levels((32, 16, 1, 1), "int8"), "v": levels((16, 32, 1, 1), "int8")}
    values |= {"m": np.float32(1e-4), "z": np.zeros((), kind)}
    attrs = {"kernel_size": (1, 1), "strides": (1, 1), "padding": (0,) * 4, "dilation": (1, 1)}
    attrs |= {"use_data_zero": False, "use_weight_zero": False}
    y = sym.integer_conv(sym.Variable("x"), sym.Variable("w"), channels=32, **attrs)
    y = sym.requantize(y, sym.Variable("m"), sym.Variable("z"))
    y = sym.max_pool2d(y, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    y = sym.integer_conv(y, sym.Variable("v"), channels=16, **attrs)
    sums = np.einsum("oi,nihw->nohw", values["w"][..., 0, 0].astype(np.int32), x.astype(np.int32))
    limits = np.iinfo(kind)
    between = np.clip(np.rint(sums.astype(np.float32) * values["m"]), limits.min, limits.max)
    padded = np.pad(between, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=limits.min)
    pooled = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2].max((-1, -2))
    model = weft.compile((y, values), shape={"x": x.shape}, dtype={"x": kind})
    moves = [kernel.name for kernel in model.report().kernels if "layout_transform" in kernel.name]
    assert len(moves) <= 2  # of what comes in, and of what goes out
    wanted = np.einsum("oi,nihw->nohw", values["v"][..., 0, 0].astype(np.int32), pooled.astype(np.int32))
    np.testing.assert_array_equal(model.run({"x": x})[0], wanted)
