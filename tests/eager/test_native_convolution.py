"""Convolutions of eager arrays by native code: values against PyTorch in float64, what is infinite
or NaN, and which calls are left to the reference."""

from contextlib import suppress
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle

import weft
from weft import ops  # noqa: F401
from weft.core.op import Op
from weft.eager.dispatch import kernel_of
from weft.eager.native.calls import Declined
from weft.ops.nn.conv import Conv2DAttrs, Conv2DTransposeAttrs
from weft.runtime.cpu import pool

CONTRACT = 5e-5


def normal(*shape, dtype="float32", seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def agrees(found, expected):
    assert found.shape == tuple(expected.shape)
    expected = np.asarray(expected)
    assert np.abs(found - expected).max() <= CONTRACT * max(np.abs(expected).max(), 1e-30)


def native(name, params, *arrays):
    return kernel_of(Op.get(name)).native(params, list(arrays))


@st.composite
def calls(draw):
    """(x shape, w shape, attributes) of a convolution."""
    number = lambda low, high: draw(st.integers(low, high))
    groups = draw(st.sampled_from([1, 1, 2, 6]))
    deep, rows = draw(st.sampled_from([(1, 1), (1, 2), (3, 8), (5, 33)]))
    kernel, strides, dilation = ((number(1, n), number(1, n)) for n in (4, 3, 3))
    pads = tuple(number(0, 2) for _ in range(4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    least = [max(r - pads[i] - pads[i + 2], 1) for i, r in enumerate(reach)]
    x = (number(1, 3), groups * deep, *[n + number(0, 20) for n in least])
    attrs = {
        "channels": groups * rows,
        "kernel_size": kernel,
        "strides": strides,
        "padding": pads,
        "dilation": dilation,
        "groups": groups,
        "use_bias": draw(st.booleans()),
    }
    return x, (groups * rows, deep, *kernel), attrs


def tensors(*arrays):
    torch = oracle("torch")
    return [torch.tensor(a.astype("float64"), requires_grad=True) for a in arrays]


@given(call=calls(), dtype=st.sampled_from(["float32", "float64"]))
@settings(max_examples=40, deadline=None)
def test_convolution_and_its_gradients(call, dtype):
    torch, (x_shape, w_shape, attrs) = oracle("torch"), call
    params = Conv2DAttrs(**attrs)
    x, w, bias = (normal(*shape, dtype=dtype) for shape in (x_shape, w_shape, w_shape[:1]))
    given_bias = [bias] if params.use_bias else []
    tx, tw, tb = tensors(x, w, bias)
    top, left, bottom, right = params.padding
    padded = torch.nn.functional.pad(tx, (left, right, top, bottom))
    expected = torch.nn.functional.conv2d(
        padded, tw, tb if params.use_bias else None, params.strides, 0, params.dilation, params.groups
    )
    g = normal(*expected.shape, dtype=dtype, seed=1)
    expected.backward(torch.tensor(g.astype("float64")))
    (out,) = native("conv2d", params, x, w, *given_bias)
    agrees(out, expected.detach())
    assert out.dtype == x.dtype
    agrees(native("_conv2d_grad_data", params, g, x, w)[0], tx.grad)
    agrees(native("_conv2d_grad_weight", params, g, x)[0], tw.grad)
    wanted = [tx.grad, tw.grad, *([tb.grad] if params.use_bias else [])]
    made = native("_conv2d_grad", params, g, x, w)
    assert len(made) == len(wanted)
    for one, other in zip(made, wanted):
        agrees(one, other)


@given(call=calls(), extra=st.tuples(st.integers(0, 2), st.integers(0, 2)))
@settings(max_examples=40, deadline=None)
def test_transposed_convolution_and_its_gradients(call, extra):
    torch, (x_shape, w_shape, attrs) = oracle("torch"), call
    steps = zip(attrs["strides"], attrs["dilation"])
    attrs["output_padding"] = tuple(min(e, max(s) - 1) for e, s in zip(extra, steps))
    params = Conv2DTransposeAttrs(**attrs)
    rows = params.channels // params.groups
    x, w, bias = normal(*x_shape), normal(x_shape[1], rows, *w_shape[2:]), normal(params.channels)
    tx, tw, tb = tensors(x, w, bias)
    whole = torch.nn.functional.conv_transpose2d(tx, tw, None, params.strides, 0, 0, params.groups, params.dilation)
    top, left, bottom, right = params.padding
    whole = torch.nn.functional.pad(whole, (0, params.output_padding[1], 0, params.output_padding[0]))
    expected = whole[:, :, top : whole.shape[2] - bottom, left : whole.shape[3] - right]
    if not expected.numel():
        return
    if params.use_bias:
        expected = expected + tb[:, None, None]
    g = normal(*expected.shape, seed=1)
    expected.backward(torch.tensor(g.astype("float64")))
    (out,) = native("conv2d_transpose", params, x, w, *([bias] if params.use_bias else []))
    agrees(out, expected.detach())
    with suppress(Declined):  # output_padding beyond a stride leaves the data's extents open
        agrees(native("_conv2d_transpose_grad_data", params, g, w)[0], tx.grad)
    agrees(native("_conv2d_transpose_grad_weight", params, g, x)[0], tw.grad)


@pytest.mark.parametrize("pads", [(0, 0), (1, 0)])
@pytest.mark.parametrize("images", [1, 3])
def test_filters_of_one_tap(images, pads):
    torch = oracle("torch")
    x, w, bias = normal(images, 20, 13, 14), normal(30, 20, 1, 1), normal(30)
    params = Conv2DAttrs(channels=30, kernel_size=(1, 1), padding=pads, use_bias=False)
    tx, tw, tb = tensors(x, w, bias)
    expected = torch.nn.functional.conv2d(tx, tw, None, 1, pads)
    g = normal(*expected.shape, seed=1)
    expected.backward(torch.tensor(g.astype("float64")))
    agrees(native("conv2d", params, x, w)[0], expected.detach())
    agrees(native("_conv2d_grad_data", params, g, x, w)[0], tx.grad)
    agrees(native("_conv2d_grad_weight", params, g, x)[0], tw.grad)
    params = Conv2DAttrs(channels=30, kernel_size=(1, 1), padding=pads)
    agrees(native("conv2d", params, x, w, bias)[0], (expected + tb[:, None, None]).detach())


def test_filters_of_many_images_are_summed_in_parts():
    torch = oracle("torch")
    x, w = normal(41, 2, 20, 20), normal(40, 2, 3, 3)
    params = Conv2DAttrs(channels=40, kernel_size=(3, 3), padding=(1, 1), use_bias=False)
    tx, tw = tensors(x, w)
    expected = torch.nn.functional.conv2d(tx, tw, None, 1, 1)
    g = normal(*expected.shape, seed=1)
    expected.backward(torch.tensor(g.astype("float64")))
    agrees(native("_conv2d_grad_weight", params, g, x)[0], tw.grad)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("extent", [1, 3])
def test_results_much_larger_than_the_data(groups, extent):
    torch = oracle("torch")
    x, w, bias = normal(5, 30, extent, extent), normal(30, 24 // groups, 4, 5), normal(24)
    params = Conv2DTransposeAttrs(channels=24, kernel_size=(4, 5), groups=groups)
    tx, tw, tb = tensors(x, w, bias)
    expected = torch.nn.functional.conv_transpose2d(tx, tw, tb, groups=groups)
    agrees(native("conv2d_transpose", params, x, w, bias)[0], expected.detach())


# What is infinite or NaN. Taps outside contribute nothing at all.

BAD = [np.inf, -np.inf, np.nan]


def by_definition(x, w, pad):
    """A convolution of stride 1, tap by tap, of the taps that stand on an element."""
    extents = [n + 2 * pad - k + 1 for n, k in zip(x.shape[2:], w.shape[2:])]
    out = np.zeros((x.shape[0], w.shape[0], *extents))
    for y, z, p, q in product(range(extents[0]), range(extents[1]), *map(range, w.shape[2:])):
        row, column = y + p - pad, z + q - pad
        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
            with np.errstate(invalid="ignore"):
                out[:, :, y, z] += x[:, :, row, column] @ w[:, :, p, q].T
    return out


def same_kinds(found, expected):
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("channels", [(2, 20), (1, 1)])
def test_strange_filters_at_borders(bad, channels):
    x, w = np.abs(normal(2, channels[0], 6, 7)), np.abs(normal(channels[1], channels[0], 3, 3))
    w[0, 0, 0, 2] = bad
    params = Conv2DAttrs(channels=channels[1], kernel_size=(3, 3), padding=(1, 1), use_bias=False)
    expected = by_definition(x.astype("float64"), w.astype("float64"), 1)
    same_kinds(native("conv2d", params, x, w)[0], expected)
    assert np.isfinite(expected[0, 0]).any()


@pytest.mark.parametrize("bad", BAD)
def test_strange_data_stays_where_windows_see_it(bad):
    x, w = np.abs(normal(2, 3, 12, 13)), np.abs(normal(20, 3, 3, 3))
    x[1, 2, 5, 6] = bad
    params = Conv2DAttrs(channels=20, kernel_size=(3, 3), padding=(1, 1), use_bias=False)
    (found,) = native("conv2d", params, x, w)
    same_kinds(found, by_definition(x.astype("float64"), w.astype("float64"), 1))


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("channels", [(20, 3), (4, 1)])
@pytest.mark.parametrize("name", ["_conv2d_grad_data", "_conv2d_grad_weight"])
def test_strange_gradients_at_borders(bad, channels, name):
    rows, deep = channels
    g, x, w = np.abs(normal(2, rows, 6, 7)), np.abs(normal(2, deep, 6, 7)), np.abs(normal(rows, deep, 3, 3))
    g[1, 2, 0, 0] = w[1, 0, 2, 0] = bad
    params = Conv2DAttrs(channels=rows, kernel_size=(3, 3), padding=(1, 1), use_bias=False)
    arrays = [g, x, w] if name.endswith("data") else [g, x]
    if name.endswith("data"):  # a convolution of g by the filters turned around
        turned = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
        expected = by_definition(g.astype("float64"), turned.astype("float64"), 1)
    else:  # windows of x, of the size of g, by g
        images, filters = x.transpose(1, 0, 2, 3), g.transpose(1, 0, 2, 3)
        made = by_definition(images.astype("float64"), filters.astype("float64"), 1)
        expected = made.transpose(1, 0, 2, 3)
    same_kinds(native(name, params, *arrays)[0], expected)


# Which calls are taken.


def plain(**attrs):
    return Conv2DAttrs(**{"channels": 4, "kernel_size": (3, 3), "use_bias": False, **attrs})


@pytest.mark.parametrize(
    "attrs", [{"layout": "NHWC"}, {"kernel_layout": "HWIO"}, {"out_layout": "NHWC"}, {"out_dtype": "float64"}], ids=str
)
def test_other_layouts_and_dtypes_are_left(attrs):
    x, w = normal(1, 3, 8, 8), normal(4, 3, 3, 3)
    with pytest.raises(Declined, match="dtype" if "out_dtype" in attrs else "layout"):
        native("conv2d", plain(**attrs), x, w)


def test_what_does_not_fit_is_left_for_the_reference_to_tell():
    x, w, g = normal(1, 3, 8, 8), normal(4, 3, 3, 3), normal(1, 4, 6, 6)
    for reason, params, *arrays in (
        ("shapes", plain(), x, normal(4, 2, 3, 3)),
        ("shapes", plain(), x, normal(4, 3, 2, 3)),
        ("shapes", plain(), normal(1, 3, 2, 8), w),
        ("shapes", plain(groups=2, channels=4), x, w),
        ("dtype", plain(), x.astype("float16"), w.astype("float16")),
        ("dtype", plain(), x, w.astype("float64")),
        ("empty", plain(), normal(0, 3, 8, 8), w),
        ("shapes", plain(use_bias=True), x, w, normal(3)),
    ):
        with pytest.raises(Declined, match=reason):
            native("conv2d", params, *arrays)
    with pytest.raises(Declined, match="shapes"):
        native("_conv2d_grad_data", plain(), g[:, :, 1:], x, w)
    with pytest.raises(Declined, match="shapes"):
        native("_conv2d_grad_weight", plain(), g[:, :3], x)


def test_memory_of_any_order():
    x, w = normal(8, 9, 3, 2).T, normal(3, 3, 3, 4).T
    params = plain(padding=(1, 1))
    whole = [np.ascontiguousarray(array) for array in (x, w)]
    np.testing.assert_array_equal(native("conv2d", params, x, w)[0], native("conv2d", params, *whole)[0])


@pytest.mark.parametrize("groups", [1, 32], ids=["dense", "depthwise"])
def test_same_bits_for_any_number_of_threads(groups, monkeypatch):
    x, w = normal(8, 32, 20, 21), normal(32, 32 // groups, 3, 3)
    params = plain(channels=32, padding=(1, 1), strides=(2, 1), groups=groups)
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(pool, "_chosen", threads)
        (out,) = native("conv2d", params, x, w)
        g = normal(*out.shape, seed=1)
        results.append([out, *native("_conv2d_grad", params, g, x, w)])
    for others in results[1:]:
        for one, other in zip(results[0], others):
            np.testing.assert_array_equal(one, other)


def test_output_padding_is_smaller_than_the_stride_or_the_dilation():
    torch = oracle("torch")
    x, w = np.ones((1, 2, 3, 3), "float32"), np.ones((2, 4, 2, 2), "float32")
    for options in ({"output_padding": 1}, {"output_padding": (0, 2), "stride": 2}):
        for side in (torch, weft):
            with pytest.raises(RuntimeError, match=r"output.padding"):
                side.nn.functional.conv_transpose2d(side.tensor(x), side.tensor(w), **options)
