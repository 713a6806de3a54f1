"""Samples of quantised numbers and of integer products: what onnx's reference evaluator, PyTorch and numpy say."""

from __future__ import annotations

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator
from sample import Sample, floats, samples

GRANULARITIES = (  # shape of the data, shape of the scales, attributes
    ((3, 4), (), {}),
    ((5,), (1,), {"axis": 0}),
    ((2, 3, 4), (3,), {"axis": 1}),
    ((2, 3, 4), (4,), {"axis": -1}),
    ((2, 7, 3), (2, 3, 3), {"axis": 1, "block_size": 3}),
    ((2, 0, 3), (3,), {"axis": 2}),
)


def _onnx(op_type, attrs, *values):
    """What onnx's own evaluator makes of a node."""
    names = [f"x{i}" for i in range(len(values))]
    node = helper.make_node(op_type, names, ["y"], **attrs)
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, values)
    ]
    graph = helper.make_graph([node], "node", given, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, values)))[0]


def _levels(rng, shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _scales(rng, shape):
    return np.asarray(rng.uniform(0.02, 0.2, shape), np.float32)


@samples("quantize", system="numpy")
def quantize(rng, _):
    for (shape, scales, attrs), dtype in zip(GRANULARITIES, ("uint8", "int8", "int16", "uint16", "int8", "uint8")):
        data = floats(rng, shape, -20, 20)
        data.reshape(-1)[: data.size // 3] = 300 if data.size % 2 else -300
        inputs = [data, _scales(rng, scales), _levels(rng, scales, dtype)]
        yield Sample(inputs, attrs, lambda *x, a=attrs: _onnx("QuantizeLinear", a, *x), differentiable=False)
    halves = np.arange(-6, 7).astype(np.float32) / 2
    yield Sample(
        [halves, np.float32(1), np.int8(3)], {"axis": 0}, lambda *_: np.rint(halves).astype(np.int8) + np.int8(3)
    )


@samples("dequantize", system="numpy")
def dequantize(rng, _):
    for (shape, scales, attrs), dtype in zip(GRANULARITIES, ("uint8", "int8", "int16", "uint16", "int8", "uint8")):
        inputs = [_levels(rng, shape, dtype), _scales(rng, scales), _levels(rng, scales, dtype)]
        for zero in (True, False):
            given = inputs if zero else inputs[:2]
            yield Sample(
                given,
                {**attrs, "use_zero": zero},
                lambda *x, a=attrs: _onnx("DequantizeLinear", a, *x),
                differentiable=False,
            )
    sums = rng.integers(-(10**6), 10**6, (3, 4)).astype(np.int32)
    yield Sample([sums, np.float32(0.003)], {"use_zero": False}, lambda x, s: x.astype(np.float32) * s)


@samples("requantize", system="numpy")
def requantize(rng, _):
    for shape, many, dtype in (((3, 4), (), "uint8"), ((2, 3, 4), (3, 1), "int8"), ((4,), (4,), "int16")):
        inputs = [rng.integers(-9999, 9999, shape).astype(np.int32), _scales(rng, many), _levels(rng, (), dtype)]

        def levels(x, m, z):
            limits = np.iinfo(z.dtype)
            return np.clip(np.rint(x.astype(np.float32) * m) + z, limits.min, limits.max).astype(z.dtype)

        yield Sample(inputs, {}, levels)


BYTE_PAIRS = (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"))


@samples("integer_matmul", system="numpy")
def integer_matmul(rng, _):
    def product(a, b, a_zero=0, b_zero=0):
        return np.matmul(a.astype(np.int64) - a_zero, b.astype(np.int64) - b_zero).astype(np.int32)

    cases = (((3, 5), (5, 4)), ((2, 3, 7), (7, 18)), ((2, 1, 3, 4), (3, 4, 2)), ((2, 0), (0, 3)), ((1, 130), (130, 33)))
    for number, ((left, right), (a, b)) in enumerate(zip(cases, BYTE_PAIRS * 2)):
        inputs = [_levels(rng, left, a), _levels(rng, right, b)]
        zeros = [_levels(rng, (left[-2], 1) if number % 2 else (), a), _levels(rng, right[-1:], b)]
        yield Sample([*inputs, *zeros], {}, product)
        yield Sample(inputs, {"use_data_zero": False, "use_weight_zero": False}, product)
        alone = [*inputs, zeros[1]]
        yield Sample(alone, {"use_data_zero": False}, lambda x, y, z: product(x, y, 0, z))


CONVOLUTIONS = (  # data, weight, strides, padding, dilation, groups
    ((2, 3, 6, 5), (4, 3, 3, 2), (1, 1), (1, 0, 1, 1), (1, 1), 1),
    ((1, 4, 7, 7), (6, 2, 3, 3), (2, 1), (2, 2, 1, 0), (1, 2), 2),
    ((1, 16, 5, 5), (20, 16, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((1, 5, 6, 6), (5, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 5),
    ((2, 3, 9), (2, 3, 4), (2,), (1, 2), (2,), 1),
    ((1, 2, 4, 3, 5), (3, 2, 2, 1, 3), (1, 2, 1), (1, 0, 1, 0, 0, 1), (1, 1, 1), 1),
)


@samples("integer_conv")
def integer_conv(rng, torch):
    def convolution(x, w, x_zero, w_zero, strides, padding, dilation, groups):
        count = len(strides)
        sides = [side for axis in reversed(range(count)) for side in (padding[axis], padding[count + axis])]
        filters = w.double() - w_zero.double().reshape(-1, *(1,) * (w.ndim - 1))
        data = torch.nn.functional.pad(x.double() - x_zero.double(), sides)
        run = getattr(torch.nn.functional, f"conv{count}d")
        return run(data, filters, stride=strides, dilation=dilation, groups=groups).int()

    for number, ((data, weight, *how), (a, b)) in enumerate(zip(CONVOLUTIONS, BYTE_PAIRS * 2)):
        attrs = dict(zip(("strides", "padding", "dilation", "groups"), how))
        attrs.update(channels=weight[0], kernel_size=weight[2:])
        inputs = [_levels(rng, data, a), _levels(rng, weight, b)]
        zeros = [_levels(rng, (), a), _levels(rng, (weight[0],) if number % 2 else (), b)]
        yield Sample([*inputs, *zeros], attrs, lambda *x, h=how: convolution(*x, *h))
        only = {**attrs, "use_weight_zero": False}
        none = np.zeros((), b)
        yield Sample(
            [*inputs, zeros[0]], only, lambda x, w, z, h=how, n=none: convolution(x, w, z, torch.as_tensor(n), *h)
        )


# What a build puts in place of the products above. Zero points of the data are numbers for each column.


def _panels(w, lanes):
    """Filters (o, i, h, w) number by number."""
    o, i, h, k = w.shape
    together = 4 // w.dtype.itemsize
    words = -(-i // together)
    panels = np.zeros((-(-o // lanes), h * k * words, lanes, together), w.dtype)
    for n, c, y, x in np.ndindex(*w.shape):
        panels[n // lanes, (y * k + x) * words + c // together, n % lanes, c % together] = w[n, c, y, x]
    return panels


@samples("_word_panels", system="numpy")
def word_panels(rng, _):
    for shape, lanes in (((5, 6, 2, 3), 4), ((16, 8, 1, 1), 16), ((3, 3, 3, 3), 8), ((1, 1, 1, 1), 4)):
        for w in (_levels(rng, shape, "int8"), rng.standard_normal(shape).astype("bfloat16")):
            attrs = {"lanes": lanes, "together": 4 // w.dtype.itemsize}
            yield Sample([w], attrs, lambda w, n=lanes: _panels(w, n))


# Weights of 16 bits.


def _double_product(x, w):
    return (x.astype(np.float64) @ w.astype(np.float64).T).astype(np.float32)


@samples("_narrow_dense", system="numpy")
def narrow_dense(rng, _):
    for leading, depth, units, dtype in (
        ((3,), 7, 5, "bfloat16"),
        ((2, 9), 20, 33, "float16"),
        ((0,), 4, 3, "float16"),
    ):
        x = rng.standard_normal((*leading, depth)).astype(np.float32)
        w = rng.standard_normal((units, depth)).astype(dtype)
        yield Sample([x, w], {"units": units}, _double_product)


@samples("_pair_matmul", system="numpy")
def pair_matmul(rng, _):
    for leading, depth, units, lanes in (((3,), 8, 5, 4), ((2, 9), 20, 33, 16), ((), 4, 16, 16), ((0,), 4, 3, 8)):
        x = rng.standard_normal((*leading, depth)).astype("bfloat16")
        w = rng.standard_normal((units, depth)).astype("bfloat16")
        panels = _panels(w.reshape(units, depth, 1, 1), lanes)
        yield Sample([x, panels], {"units": units}, lambda x, _, w=w: _double_product(x, w))


@samples("_pair_conv2d", system="numpy")
def pair_conv2d(rng, _):
    for data, units, kernel, strides, dilation, lanes in (
        ((2, 6, 5, 8), 5, (3, 2), (1, 1), (1, 1), 16),
        ((1, 7, 9, 2), 33, (3, 3), (2, 1), (1, 2), 16),
        ((1, 4, 4, 6), 17, (1, 1), (1, 1), (1, 1), 8),
    ):
        x = rng.standard_normal(data).astype("bfloat16")
        w = rng.standard_normal((units, data[3], *kernel)).astype("bfloat16")
        attrs = {"units": units, "kernel_size": kernel, "strides": strides, "dilation": dilation}

        def convolution(x, _, w=w, s=strides, d=dilation):
            rows, columns = (
                (x.shape[1 + axis] - d[axis] * (w.shape[2 + axis] - 1) - 1) // s[axis] + 1 for axis in (0, 1)
            )
            sums = 0.0
            for p, q in np.ndindex(*w.shape[2:]):
                part = x[:, p * d[0] :: s[0], q * d[1] :: s[1]][:, :rows, :columns]
                sums = sums + part.astype("d") @ w[:, :, p, q].astype("d").T
            return sums.astype("f")

        yield Sample([x, _panels(w, lanes)], attrs, convolution)


@samples("_word_image", system="numpy")
def word_image(rng, _):
    for shape, padding, dtype in (
        ((2, 3, 4, 5), (1, 0, 2, 1), "uint8"),
        ((1, 4, 3, 8), (0, 1, 0, 0), "int8"),
        ((1, 2, 2, 3), (0, 0, 0, 0), "int8"),
        ((1, 2, 2, 4), (0, 0, 0, 0), "uint8"),
    ):

        def image(x, zero, p=padding):
            n, h, w, c = x.shape
            shift = 128 if x.dtype == np.int8 else 0
            out = np.zeros((n, h + p[0] + p[2], w + p[1] + p[3], -(-c // 4) * 4), np.uint8)
            out[..., :c] = int(zero) + shift
            out[:, p[0] : p[0] + h, p[1] : p[1] + w, :c] = x.astype(np.int32) + shift
            return out

        attrs = {"padding": padding, "together": 4}
        yield Sample([_levels(rng, shape, dtype), _levels(rng, (), dtype)], attrs, image)
    x, zero = rng.standard_normal((1, 3, 4, 5)).astype("bfloat16"), np.zeros((), "bfloat16")
    attrs = {"padding": (1, 0, 2, 1), "together": 2}
    yield Sample([x, zero], attrs, lambda x, _: np.pad(x, [(0, 0), (1, 2), (0, 1), (0, 1)]))


@samples("_byte_matmul", system="numpy")
def byte_matmul(rng, _):
    for leading, depth, units, lanes in (((3,), 8, 5, 4), ((2, 9), 20, 33, 16), ((), 4, 16, 16), ((0,), 4, 3, 8)):
        w = _levels(rng, (depth, units), "int8")
        x, offsets = _levels(rng, (*leading, depth), "uint8"), rng.integers(-999, 999, units).astype(np.int32)
        zeros = rng.integers(-200, 200, units).astype(np.int32)
        panels = _panels(w.T.reshape(units, depth, 1, 1), lanes)

        def product(x, p, o, z=0, w=w):
            return np.asarray(x.astype(np.int32) @ (w.astype(np.int32) - z) + o)

        yield Sample([x, panels, offsets], {"units": units}, product)
        yield Sample([x, panels, offsets, zeros], {"units": units, "use_zeros": True}, product)


@samples("_byte_conv2d")
def byte_conv2d(rng, torch):
    for data, units, kernel, strides, dilation, lanes in (
        ((2, 6, 5, 8), 5, (3, 2), (1, 1), (1, 1), 16),
        ((1, 7, 9, 4), 33, (3, 3), (2, 1), (1, 2), 16),
        ((1, 4, 4, 12), 17, (1, 1), (1, 1), (1, 1), 8),
    ):
        w = _levels(rng, (units, data[3], *kernel), "int8")
        inputs = [_levels(rng, data, "uint8"), _panels(w, lanes), rng.integers(-999, 999, units).astype(np.int32)]
        attrs = {"units": units, "kernel_size": kernel, "strides": strides, "dilation": dilation}

        def convolution(x, p, o, z=None, w=w, s=strides, d=dilation):
            filters = torch.as_tensor(w).double()
            filters = filters if z is None else filters - z.double().reshape(-1, 1, 1, 1)
            sums = torch.nn.functional.conv2d(x.double().permute(0, 3, 1, 2), filters, stride=s, dilation=d)
            return (sums.permute(0, 2, 3, 1) + o).int()

        yield Sample(inputs, attrs, convolution)
        zeros = rng.integers(-200, 200, units).astype(np.int32)
        yield Sample([*inputs, zeros], {**attrs, "use_zeros": True}, convolution)


@samples("_byte_depthwise")
def byte_depthwise(rng, torch):
    for data, units, kernel, strides, dilation in (
        ((2, 6, 5, 8), 8, (3, 2), (1, 1), (1, 1)),
        ((1, 7, 9, 20), 18, (3, 3), (2, 1), (1, 2)),
    ):
        w = _levels(rng, (*kernel, units), "int8")
        inputs = [_levels(rng, data, "uint8"), w, rng.integers(-999, 999, units).astype(np.int32)]
        attrs = {"units": units, "kernel_size": kernel, "strides": strides, "dilation": dilation}

        def convolution(x, w, o, z=None, s=strides, d=dilation):
            filters = (w.double() if z is None else w.double() - z).permute(2, 0, 1)[:, None]
            image = x.double().permute(0, 3, 1, 2)[:, : len(filters)]
            sums = torch.nn.functional.conv2d(image, filters, stride=s, dilation=d, groups=len(filters))
            return (sums.permute(0, 2, 3, 1) + o).int()

        yield Sample(inputs, attrs, convolution)
        zeros = rng.integers(-200, 200, units).astype(np.int32)
        yield Sample([*inputs, zeros], {**attrs, "use_zeros": True}, convolution)
