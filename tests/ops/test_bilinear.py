"""Bilinear resizing as compiled models run it, against PyTorch in float64."""

import numpy as np
import pytest
from oracles import oracle

import weft

rng = np.random.default_rng(11)
CLOSE = 5e-5  # of the largest magnitude
# channels, height and width, those of the result
SIZES = [
    (21, (9, 7), (31, 40)),
    (5, (1, 6), (17, 1)),
    (32, (7, 5), (14, 23)),
    (48, (13, 11), (6, 5)),
    (16, (8, 8), (8, 19)),
    (3, (33, 18), (9, 70)),
]


def resized(channels, size, out, corners, layout="NCHW", around=lambda x: x):
    shape = (2, channels, *size) if layout == "NCHW" else (2, *size, channels)
    mode = "align_corners" if corners else "half_pixel"
    symbol = weft.symbol.resize(around(weft.symbol.Variable("x")), size=out, coordinate_mode=mode, layout=layout)
    return around(symbol), shape


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize(("channels", "size", "out"), SIZES)
def test_values_are_those_of_pytorch(channels, size, out, corners):
    torch = oracle("torch")
    symbol, shape = resized(channels, size, out, corners)
    x = rng.standard_normal(shape).astype("f")
    model = weft.compile(symbol, shape={"x": shape}, threads=1)
    assert any("_bilinear" in kernel.operators for kernel in model.report().kernels)
    wide = torch.tensor(x, dtype=torch.float64)
    expected = torch.nn.functional.interpolate(wide, out, mode="bilinear", align_corners=corners).numpy()
    found = model.run({"x": x})[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * np.abs(expected).max())
    twice = weft.compile(symbol, shape={"x": shape}, threads=2)
    np.testing.assert_array_equal(found, twice.run({"x": x})[0])


def test_channels_last():
    torch = oracle("torch")
    symbol, shape = resized(19, (6, 5), (13, 22), False, "NHWC")
    x = rng.standard_normal(shape).astype("f")
    found = weft.compile(symbol, shape={"x": shape}).run({"x": x})[0]
    wide = torch.tensor(x, dtype=torch.float64).permute(0, 3, 1, 2)
    expected = torch.nn.functional.interpolate(wide, (13, 22), mode="bilinear").permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * np.abs(expected).max())


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_elements_that_do_not_count_may_be_infinite(value):
    """numpy's reference: where a place stands on an element, its neighbours have no weight."""
    symbol, shape = resized(2, (3, 3), (5, 5), True)
    x = rng.standard_normal(shape).astype("f")
    x[:, 0, 1, 1] = value
    found = weft.compile(symbol, shape={"x": shape}).run({"x": x})[0]
    corners = found[:, 0, ::4, ::4]
    np.testing.assert_array_equal(corners, x[:, 0, ::2, ::2])
    np.testing.assert_array_equal(found[:, 0, 0, ::2], x[:, 0, 0])
    assert not np.isfinite(found[:, 0, 1:4, 1:4]).any()
    assert np.isfinite(found[:, 1]).all()


def test_parts_of_different_storage_are_joined_in_blocks():
    """One part comes from a resize in blocks of channels, the other is as it was written."""
    torch = oracle("torch")
    sym = weft.symbol
    weight = rng.standard_normal((32, 48, 1, 1)).astype("f")
    small, large = sym.Variable("small"), sym.Variable("large")
    joined = sym.concatenate(sym.relu(large), sym.resize(small, size=(12, 12), coordinate_mode="half_pixel"), axis=1)
    made = sym.conv2d(joined, name="c", channels=32, kernel_size=(1, 1), use_bias=False)
    shapes = {"small": (1, 32, 3, 5), "large": (1, 16, 12, 12)}
    given = {name: rng.standard_normal(shape).astype("f") for name, shape in shapes.items()}
    found = weft.compile(made, params={"c_weight": weight}, shape=shapes).run(given)[0]
    wide = {name: torch.tensor(x, dtype=torch.float64) for name, x in given.items()}
    resized = torch.nn.functional.interpolate(wide["small"], (12, 12), mode="bilinear")
    expected = torch.conv2d(torch.cat([torch.relu(wide["large"]), resized], 1), torch.tensor(weight).double()).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * np.abs(expected).max())
