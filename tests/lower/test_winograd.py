"""How exact Winograd's convolutions are: the errors of deep networks against float64, with the
direct form's as the measure."""

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.accuracy import agrees, targets
from oracles import oracle

import weft
from weft.core.op import Op
from weft.lower.cpu import layouts
from weft.ops.nn.winograd import TRANSFORMS
from weft.testing.op_check import Sample, run_lowered

BOUND = 2.5  # times the direct form's error
SEEDS = range(3)


def network(torch, depth, channels, activation, residual, seed):
    """3x3 convolutions one after the other: symbol, parameters, input, and the float64 result."""
    sym, functional = weft.symbol, torch.nn.functional
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, channels, 20, 20)).astype("f")
    params = {}
    made, expected = sym.Variable("x"), torch.tensor(x, dtype=torch.float64)
    gain = {"relu": 2.0, "tanh": 1.5}[activation] * (0.5 if residual else 1.0)
    for number in range(depth):
        shape = (channels, channels, 3, 3)
        weight = (rng.standard_normal(shape) * (gain / (9 * channels)) ** 0.5).astype("f")
        params[f"c{number}_weight"] = weight
        conv = sym.conv2d(made, name=f"c{number}", channels=channels, kernel_size=(3, 3), padding=1, use_bias=False)
        wide = functional.conv2d(expected, torch.tensor(weight, dtype=torch.float64), padding=1)
        made = getattr(sym, activation)(conv + made if residual else conv)
        expected = getattr(torch, activation)(wide + expected if residual else wide)
    return made, params, x, expected.numpy()


def squared_error(monkeypatch, tile, made, params, x, expected):
    """Of a build whose convolutions are all in tiles of that size, relative to the result's."""
    monkeypatch.setattr(layouts, "winograd_tile", lambda *facts: tile)
    model = weft.compile(made, params=params, shape={"x": x.shape})
    used = any("_winograd_conv2d" in kernel.operators for kernel in model.report().kernels)
    assert used == (tile is not None)
    error = model.run({"x": x})[0] - expected
    return float((error**2).mean() / (expected**2).mean())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("depth", "channels", "activation", "residual"),
    [(8, 64, "tanh", False), (40, 64, "tanh", False), (40, 64, "relu", True), (12, 256, "tanh", False)],
)
def test_errors_of_networks_stay_near_the_direct_form(monkeypatch, tile, depth, channels, activation, residual):
    torch = oracle("torch")
    errors = []
    for seed in SEEDS:
        made = network(torch, depth, channels, activation, residual, seed)
        errors.append([squared_error(monkeypatch, kind, *made) for kind in (None, tile)])
    direct, transformed = np.sqrt(np.mean(errors, axis=0))
    assert transformed <= BOUND * direct


@pytest.mark.parametrize("m", TRANSFORMS)
def test_transforms_are_convolutions_and_exact_in_float32(m):
    rng = np.random.default_rng(m)
    b, g, a = TRANSFORMS[m]
    for matrix in (a, b):
        assert (matrix.astype("float32") == matrix).all()
    data, weight = rng.standard_normal(m + 2), rng.standard_normal(3)
    found = a @ ((g @ weight) * (b @ data))
    np.testing.assert_allclose(found, np.correlate(data, weight), rtol=0, atol=1e-14)


def test_what_follows_may_have_another_dtype():
    """A convolution whose result is stored as bfloat16, against the same in float64."""
    sym, rng = weft.symbol, np.random.default_rng(3)
    x, w = (rng.standard_normal(shape).astype("f") for shape in ((1, 32, 12, 12), (32, 32, 3, 3)))
    attrs = {"channels": 32, "kernel_size": (3, 3), "padding": (1, 1), "use_bias": False}
    y = sym.conv2d(sym.Variable("x"), sym.Variable("w"), **attrs)
    model = weft.compile((sym.cast(sym.relu(y), dtype="bfloat16"), {"w": w}), shape={"x": x.shape})
    assert any("winograd" in kernel.name for kernel in model.report().kernels)
    (found,) = model(x)
    padded = np.pad(x.astype("d"), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.maximum(np.einsum("ncyxij,ocij->noyx", windows, w), 0)
    assert str(found.dtype) == "bfloat16"
    assert np.abs(found.astype("d") - wanted).max() <= 0.005 * wanted.max()


@settings(max_examples=40)
@given(
    st.sampled_from([2, 4]),
    st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 3)),
    st.tuples(st.integers(15, 50), st.integers(15, 50)),
    st.tuples(*[st.integers(0, 1)] * 4),
    st.sampled_from(targets()),
    st.booleans(),
)
def test_blocks_of_tiles_between_guard_pages(tile, counts, size, pads, target, front):
    """Where caches are small, one kernel goes from block to block; against windows by numpy in float64."""
    small = target.changed(caches=(1 << 12, 1 << 17, 1 << 20), cores=1)
    (images, inputs, outputs), lanes, rng = counts, target.lanes("float32"), np.random.default_rng(sum(size))
    depth, channels = inputs * lanes, outputs * lanes
    x, w = (rng.standard_normal(shape).astype("f") for shape in ((images, depth, *size), (channels, depth, 3, 3)))
    bias = rng.standard_normal((outputs, lanes)).astype("f")
    attrs = {"channels": channels, "padding": pads, "tile": tile, "lanes": lanes, "use_bias": True}
    blocked = x.reshape(images, inputs, lanes, *size).transpose(0, 1, 3, 4, 2)
    g = TRANSFORMS[tile][1]
    points = np.einsum("ai,ocij,bj->abco", g, w.astype("d"), g).reshape((tile + 2) ** 2, depth, outputs, lanes)
    filters = points.transpose(0, 2, 1, 3).astype("f")
    sample = Sample([np.ascontiguousarray(blocked), np.ascontiguousarray(filters), bias], attrs, None)
    (found,) = run_lowered(Op.get("_winograd_conv2d"), sample, small, lambda a: guarded(a, front))
    top, left, bottom, right = pads
    padded = np.pad(x.astype("d"), [(0, 0), (0, 0), (top, bottom), (left, right)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.einsum("ncyxij,ocij->noyx", windows, w) + bias.reshape(-1, 1, 1)
    agrees(found, wanted.reshape(images, outputs, lanes, *wanted.shape[2:]).transpose(0, 1, 3, 4, 2))


def test_large_images_go_from_block_to_block():
    kernels = []
    for size in (224, 28):
        x, w = (weft.symbol.Variable(n, shape=s) for n, s in (("x", (1, 64, size, size)), ("w", (64, 64, 3, 3))))
        y = weft.symbol.conv2d(x, w, channels=64, kernel_size=(3, 3), padding=(1, 1), use_bias=False)
        server = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v4 -caches=49152,1048576,33554432 -num-cores=2"
        report = weft.compile(y, target=server).report()
        kernels.append([kernel.name for kernel in report.kernels if "winograd" in "".join(kernel.operators)])
    large, small = kernels
    assert not any("_product" in name for name in large)
    assert any("_product" in name for name in small)
