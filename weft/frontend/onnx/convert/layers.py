"""Converters of layers: convolutions, pools, products of matrices, normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.errors import FormatError, Unsupported
from ....base.shape import normalize_axis
from ...building import in_float32
from ...emitter import Value
from ..call import Call
from ..registry import converter

# Windows: kernels, strides and pads of images, and of lines, which are images of one row.


def _image(call: Call, value: Value) -> Value:
    """(n, c, length) as (n, c, 1, length)."""
    rank = call.rank(value)
    if rank not in (3, 4):
        raise Unsupported(f"{call.op_type} of {rank - 2} spatial dimensions is not supported")
    return call.op("expand_dims", value, axis=2) if rank == 3 else value


def _line(call: Call, value: Value) -> Value:
    """The way back, where the input was a line."""
    if call.rank(call[0]) == 4:
        return value
    n, c, _, length = call.shape(value)
    return call.reshape(value, (n, c, length))


def _pair(call: Call, name: str, default: int = 1) -> tuple[int, int]:
    """An attribute with one number an axis, for height and width."""
    count = call.rank(call[0]) - 2
    given = call.attr(name) or [default] * count
    if len(given) != count or min(given) < 0:
        raise FormatError(f"{name} {given} for {count} spatial dimensions")
    filler = 0 if default == 0 else 1
    return tuple(given) if count == 2 else (filler, given[0])


def _pads(
    call: Call, kernel: tuple[int, int], strides: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right), from pads or auto_pad."""
    mode = call.attr("auto_pad", "NOTSET")
    count = call.rank(call[0]) - 2
    if mode == "NOTSET":
        pads = call.attr("pads") or [0] * (2 * count)
        if len(pads) != 2 * count or min(pads) < 0:
            raise FormatError(f"pads {pads} for {count} spatial dimensions")
        return tuple(pads) if count == 2 else (0, pads[0], 0, pads[1])
    if mode == "VALID":
        return (0, 0, 0, 0)
    extents = call.shape(call[0])[2:] if count == 2 else (1, *call.shape(call[0])[2:])
    totals = []
    for extent, size, stride, step in zip(extents, kernel, strides, dilation):
        out = -(-extent // stride)
        totals.append(max((out - 1) * stride + (size - 1) * step + 1 - extent, 0))
    return _shared(totals, mode)


def _shared(totals: list[int], mode: str) -> tuple[int, int, int, int]:
    """Both sides of each axis; the odd one goes after for SAME_UPPER, before for SAME_LOWER."""
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise FormatError(f"unknown auto_pad {mode!r}")
    small = [total // 2 for total in totals]
    large = [total - half for total, half in zip(totals, small)]
    before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    return (*before, *after)


def _kernel(call: Call, weight: Value) -> tuple[int, int]:
    shape = call.shape(weight, "the weight")
    if len(shape) != call.rank(call[0]):
        raise FormatError(f"a weight of shape {shape} for an input of rank {call.rank(call[0])}")
    given = call.attr("kernel_shape")
    if given and tuple(given) != shape[2:]:
        raise FormatError(f"kernel_shape {given} for a weight of shape {shape}")
    return shape[2:] if len(shape) == 4 else (1, shape[2])


@converter("Conv")
def conv(call: Call) -> Value:
    data, weight, bias = _image(call, call[0]), call[1], call.get(2)
    kernel = _kernel(call, weight)
    strides, dilation = _pair(call, "strides"), _pair(call, "dilations")
    made = call.op(
        "conv2d",
        data,
        _image(call, weight),
        *([] if bias is None else [bias]),
        channels=call.shape(weight)[0],
        kernel_size=kernel,
        strides=strides,
        padding=_pads(call, kernel, strides, dilation),
        dilation=dilation,
        groups=call.attr("group"),
        use_bias=bias is not None,
    )
    return _line(call, made)


@converter("ConvTranspose")
def conv_transpose(call: Call) -> Value:
    data, weight, bias = _image(call, call[0]), call[1], call.get(2)
    kernel, groups = _kernel(call, weight), call.attr("group")
    strides, dilation = _pair(call, "strides"), _pair(call, "dilations")
    pads, extra = _transposed_pads(call, kernel, strides, dilation)
    made = call.op(
        "conv2d_transpose",
        data,
        _image(call, weight),
        *([] if bias is None else [bias]),
        channels=call.shape(weight)[1] * groups,
        kernel_size=kernel,
        strides=strides,
        padding=pads,
        output_padding=extra,
        dilation=dilation,
        groups=groups,
        use_bias=bias is not None,
    )
    return _line(call, made)


def _transposed_pads(
    call: Call, kernel: tuple[int, int], strides: tuple[int, int], dilation: tuple[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is cut from the full output and what is added behind it: given, or whatever leaves the
    output shape that is asked for."""
    extra = _pair(call, "output_padding", 0)
    wanted, mode = call.attr("output_shape"), call.attr("auto_pad")
    if not wanted and mode in ("NOTSET", "VALID"):
        return _pads(call, kernel, strides, dilation), extra
    call.ignore("pads")
    extents = call.shape(call[0])[2:]
    count = len(extents)
    wanted = list(wanted[-count:]) if wanted else [e * s for e, s in zip(extents, strides[-count:])]
    totals = [0] * (2 - count)
    for axis, (extent, out) in enumerate(zip(extents, wanted), start=2 - count):
        full = (extent - 1) * strides[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        totals.append(full + extra[axis] - out)
    extra = tuple(more + max(-total, 0) for more, total in zip(extra, totals))
    sides = "SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER"
    return _shared([max(total, 0) for total in totals], sides), extra


@converter("MaxPool")
def max_pool(call: Call) -> Value:
    call.only_first_output()
    call.ignore("storage_order")
    return _pool(call, "max_pool2d")


@converter("AveragePool")
@in_float32
def average_pool(call: Call) -> Value:
    counted = bool(call.attr("count_include_pad", 0))
    return _pool(call, "avg_pool2d", count_include_pad=counted)


def _pool(call: Call, op: str, **attrs: Any) -> Value:
    kernel, strides = _pair(call, "kernel_shape"), _pair(call, "strides")
    dilation = _pair(call, "dilations")
    attrs |= {"pool_size": kernel, "strides": strides}
    attrs["padding"] = _pads(call, kernel, strides, dilation)
    attrs["ceil_mode"] = bool(call.attr("ceil_mode", 0))
    if dilation != (1, 1):
        attrs["dilation"] = dilation
    return _line(call, call.op(op, _image(call, call[0]), **attrs))


@converter("GlobalMaxPool")
def global_max_pool(call: Call) -> Value:
    return _global_pool(call, "global_max_pool2d", "max")


@converter("GlobalAveragePool")
@in_float32
def global_average_pool(call: Call) -> Value:
    return _global_pool(call, "global_avg_pool2d", "mean")


def _global_pool(call: Call, of_images: str, of_others: str) -> Value:
    data, rank = call[0], call.rank(call[0])
    if rank == 4:
        return call.op(of_images, data)
    if rank < 3:
        raise FormatError(f"{call.op_type} of {rank} dimensions has none to pool")
    return call.op(of_others, data, axis=tuple(range(2, rank)), keepdims=True)


# Products of matrices.


@converter("MatMul")
def matmul(call: Call) -> Value:
    """numpy's product; with a plain matrix on the right, rows of any number of axes."""
    a, b = call[0], call[1]
    if call.rank(b) == 2 and call.rank(a) >= 2:
        return call.op("matmul", a, b)
    if call.rank(a) > 1 and call.rank(b) > 1:
        return call.op("batch_matmul", a, b)
    return _vector_product(call, a, b)


def _vector_product(call: Call, a: Value, b: Value) -> Value:
    """A vector is a row on the left, a column on the right; its axis is gone afterwards."""
    left, right = call.rank(a) == 1, call.rank(b) == 1
    a = call.op("expand_dims", a, axis=0) if left else a
    b = call.op("expand_dims", b, axis=1) if right else b
    made = call.op("batch_matmul", a, b)
    shape = list(call.shape(made))
    rows, columns = ([] if left else shape[-2:-1]), ([] if right else shape[-1:])
    return call.reshape(made, [*shape[:-2], *rows, *columns])


@converter("Gemm", since=7)
def gemm(call: Call) -> Value:
    """alpha A B + beta C; with B transposed and C a vector it is a dense layer."""
    scaled = (call.attr("alpha"), call.attr("beta")) != (1, 1)
    return in_float32(_scaled_product)(call) if scaled else _scaled_product(call)


def _scaled_product(call: Call) -> Value:
    a, b, c = call[0], call[1], call.get(2)
    a = call.op("transpose", a, axes=(1, 0)) if call.attr("transA") else a
    b = b if call.attr("transB") else call.op("transpose", b, axes=(1, 0))
    units = call.shape(b, "the weight")[0]
    if not units:
        return call.op("zeros", shape=(call.shape(a)[0], 0), dtype=call.dtype(a))
    alpha, beta = call.attr("alpha"), call.attr("beta")
    plain = c is not None and alpha == beta == 1 and c.shape in ((units,), (1, units))
    if plain:
        return call.op("dense", a, b, call.reshape(c, (units,)), units=units, use_bias=True)
    made = call.op("dense", a, b, units=units, use_bias=False)
    made = made if alpha == 1 else call.op("__mul_scalar__", made, scalar=alpha)
    if c is None or beta == 0:
        return made
    c = c if beta == 1 else call.op("__mul_scalar__", c, scalar=beta)
    return call.op("broadcast_add", made, c)


# Normalisations.


@converter("BatchNormalization", since=7)
@in_float32
def batch_norm(call: Call) -> Value:
    call.only_first_output()
    call.ignore("momentum")
    if call.attr("training_mode", 0) or not call.attr("spatial", 1):
        raise Unsupported("BatchNormalization in training mode, or not spatial, is not supported")
    return call.op("batch_norm", *(call[i] for i in range(5)), epsilon=call.attr("epsilon"), axis=1)


@converter("LayerNormalization", since=17)
def layer_norm(call: Call) -> list[Value]:
    """Over the last axes from `axis` on; the mean and 1 / deviation only where they are used."""
    call.ignore("stash_type")
    made = _normalised(call)
    axis = normalize_axis(call.attr("axis"), call.rank(call[0]))
    return [made, *(_moments(call, axis) if any(call.outputs[1:]) else [])]


@in_float32
def _normalised(call: Call) -> Value:
    data, scale, bias = call[0], call[1], call.get(2)
    axis = normalize_axis(call.attr("axis"), call.rank(data))
    scale = _over_last_axes(call, scale, data, axis)
    if bias is None:
        bias = call.make(np.zeros(call.shape(scale)), call.dtype(scale))
    bias = _over_last_axes(call, bias, data, axis)
    return call.op("layer_norm", data, scale, bias, axis=axis, epsilon=call.attr("epsilon"))


def _over_last_axes(call: Call, value: Value, data: Value, axis: int) -> Value:
    wanted = data.shape[axis:]
    return value if value.shape == wanted else call.broadcast_to(value, call.shape(data)[axis:])


def _moments(call: Call, axis: int) -> list[Value]:
    axes = tuple(range(axis, call.rank(call[0])))
    mean = call.op("mean", call[0], axis=axes, keepdims=True)
    centred = call.op("broadcast_sub", call[0], mean)
    var = call.op("mean", call.op("elemwise_mul", centred, centred), axis=axes, keepdims=True)
    var = call.op("__add_scalar__", var, scalar=call.attr("epsilon"))
    return [mean, call.op("__pow_scalar__", var, scalar=-0.5)]


@converter("RMSNormalization", since=23)
@in_float32
def rms_norm(call: Call) -> Value:
    call.ignore("stash_type")
    axis = normalize_axis(call.attr("axis"), call.rank(call[0]))
    scale = _over_last_axes(call, call[1], call[0], axis)
    return call.op("rms_norm", call[0], scale, axis=axis, epsilon=call.attr("epsilon"))


@converter("InstanceNormalization", since=6)
@in_float32
def instance_norm(call: Call) -> Value:
    return call.op("instance_norm", call[0], call[1], call[2], epsilon=call.attr("epsilon"))


@converter("GroupNormalization", since=18)
@in_float32
def group_norm(call: Call) -> Value:
    """Scale and bias are one number a group in opset 18, one a channel since 21."""
    channels, groups = call.shape(call[0])[1], call.attr("num_groups")
    scale, bias = call[1], call[2]
    if call.opset < 21:
        if groups < 1 or channels % groups:
            raise FormatError(f"{channels} channels do not split into {groups} groups")
        scale, bias = (_repeated(call, value, groups, channels) for value in (scale, bias))
    return call.op("group_norm", call[0], scale, bias, num_groups=groups, epsilon=call.attr("epsilon"))


def _repeated(call: Call, value: Value, groups: int, channels: int) -> Value:
    wide = call.broadcast_to(call.reshape(value, (groups, 1)), (groups, channels // groups))
    return call.reshape(wide, (channels,))


@converter("MeanVarianceNormalization", since=9)
@in_float32
def mean_variance_norm(call: Call) -> Value:
    """(x - mean) / (deviation + 1e-9)"""
    axes = tuple(normalize_axis(axis, call.rank(call[0])) for axis in call.attr("axes"))
    mean = call.op("mean", call[0], axis=axes, keepdims=True)
    centred = call.op("broadcast_sub", call[0], mean)
    square = call.op("elemwise_mul", centred, centred)
    deviation = call.op("sqrt", call.op("mean", square, axis=axes, keepdims=True))
    return call.op("broadcast_div", centred, call.op("__add_scalar__", deviation, scalar=1e-9))


@converter("LRN")
@in_float32
def local_response_norm(call: Call) -> Value:
    """A window wider than all channels sums no more than one that just reaches them."""
    size, alpha = call.attr("size"), call.attr("alpha")
    whole = max(2 * call.shape(call[0])[1] - 1, 1)
    if size > whole:
        size, alpha = whole, alpha * whole / size
    if size % 2 == 0:
        raise Unsupported(f"LRN of an even size, {size}, is not supported")
    return call.op("lrn", call[0], size=size, axis=1, alpha=alpha, beta=call.attr("beta"), bias=call.attr("bias"))
