"""Converters of layers: convolutions, pools, products of matrices, normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.errors import FormatError, Unsupported
from ...building import in_float32
from ...emitter import Value
from ...products import matrix_product
from ...shapes import one_a_channel
from ...windows import Windows, convolved, per_axis, pooled
from ..call import OnnxCall
from ..registry import converter

# Convolutions and pools.


def _spatial(call: OnnxCall) -> int:
    """How many axes there are beside those of the batch and the channels."""
    count = call.rank(call[0]) - 2
    if count not in (1, 2):
        raise Unsupported(f"{call.op_type} of {count} spatial dimensions is not supported")
    return count


def _windows(call: OnnxCall, kernel: tuple[int, ...]) -> Windows:
    """What the attributes say, with padding from pads or auto_pad."""
    count, mode = len(kernel), call.attr("auto_pad", "NOTSET")
    strides, dilation = per_axis(call, "strides", count, 1), per_axis(call, "dilations", count, 1)
    plain = Windows(kernel, strides, (0,) * (2 * count), dilation)
    if mode == "VALID":
        return plain
    if mode == "NOTSET":
        return plain._replace(pads=per_axis(call, "pads", 2 * count, 0))
    rows = zip(call.shape(call[0])[2:], kernel, strides, dilation)
    totals = [max((-(-extent // s) - 1) * s + (k - 1) * d + 1 - extent, 0) for extent, k, s, d in rows]
    return plain._replace(pads=_shared(totals, mode))


def _shared(totals: list[int], mode: str) -> tuple[int, ...]:
    """Both sides of each axis; the odd one goes after for SAME_UPPER, before for SAME_LOWER."""
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise FormatError(f"unknown auto_pad {mode!r}")
    small = [total // 2 for total in totals]
    large = [total - half for total, half in zip(totals, small)]
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)


def _kernel(call: OnnxCall, weight: Value) -> tuple[int, ...]:
    shape = call.shape(weight, "the weight")
    if len(shape) != _spatial(call) + 2:
        raise FormatError(f"a weight of shape {shape} for an input of rank {call.rank(call[0])}")
    kernel = call.attr("kernel_shape")
    if kernel and tuple(kernel) != shape[2:]:
        raise FormatError(f"kernel_shape {kernel} for a weight of shape {shape}")
    return shape[2:]


@converter("Conv")
def conv(call: OnnxCall) -> Value:
    data, weight, bias = call[0], call[1], call.get(2)
    windows, channels = _windows(call, _kernel(call, weight)), call.shape(weight)[0]
    return convolved(call, "conv2d", data, weight, bias, windows, channels=channels, groups=call.attr("group"))


@converter("ConvTranspose")
def conv_transpose(call: OnnxCall) -> Value:
    data, weight, bias = call[0], call[1], call.get(2)
    windows, extra = _transposed_windows(call, _kernel(call, weight))
    groups = call.attr("group")
    channels = call.shape(weight)[1] * groups
    extra = extra if len(extra) == 2 else (0, *extra)
    attrs = {"channels": channels, "groups": groups, "output_padding": extra}
    return convolved(call, "conv2d_transpose", data, weight, bias, windows, **attrs)


def _transposed_windows(call: OnnxCall, kernel: tuple[int, ...]) -> tuple[Windows, tuple[int, ...]]:
    """What is cut from the full output and what is added behind it: given, or whatever leaves the
    output shape that is asked for."""
    count = len(kernel)
    extra = per_axis(call, "output_padding", count, 0)
    wanted, mode = call.attr("output_shape"), call.attr("auto_pad")
    windows = _windows(call, kernel)
    call.ignore("pads")
    if not wanted and mode in ("NOTSET", "VALID"):
        return windows, extra
    extents = call.shape(call[0])[2:]
    wanted = list(wanted[-count:]) if wanted else [e * s for e, s in zip(extents, windows.strides)]
    rows = zip(extents, kernel, windows.strides, windows.dilation, extra, wanted)
    totals = [(extent - 1) * s + (k - 1) * d + 1 + more - out for extent, k, s, d, more, out in rows]
    extra = tuple(more + max(-total, 0) for more, total in zip(extra, totals))
    sides = "SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER"
    return windows._replace(pads=_shared([max(total, 0) for total in totals], sides)), extra


@converter("MaxPool")
def max_pool(call: OnnxCall) -> Value:
    call.only_first_output()
    call.ignore("storage_order")
    return _pool(call, "max_pool2d")


@converter("AveragePool")
@in_float32
def average_pool(call: OnnxCall) -> Value:
    return _pool(call, "avg_pool2d", count_include_pad=bool(call.attr("count_include_pad", 0)))


def _pool(call: OnnxCall, op: str, **attrs: Any) -> Value:
    windows = _windows(call, per_axis(call, "kernel_shape", _spatial(call), 1))
    return pooled(call, op, call[0], windows, bool(call.attr("ceil_mode", 0)), **attrs)


@converter("GlobalMaxPool")
def global_max_pool(call: OnnxCall) -> Value:
    return _global_pool(call, "global_max_pool2d", "max")


@converter("GlobalAveragePool")
@in_float32
def global_average_pool(call: OnnxCall) -> Value:
    return _global_pool(call, "global_avg_pool2d", "mean")


def _global_pool(call: OnnxCall, of_images: str, of_others: str) -> Value:
    data, rank = call[0], call.rank(call[0])
    if rank == 4:
        return call.op(of_images, data)
    if rank < 3:
        raise FormatError(f"{call.op_type} of {rank} dimensions has none to pool")
    return call.op(of_others, data, axis=tuple(range(2, rank)), keepdims=True)


# Products of matrices.


@converter("MatMul")
def matmul(call: OnnxCall) -> Value:
    return matrix_product(call, call[0], call[1])


@converter("Gemm")
def gemm(call: OnnxCall) -> Value:
    """alpha A B + beta C; with B transposed and C a vector it is a dense layer."""
    call.ignore("broadcast")  # of opsets before 7: whether C has another shape
    scaled = (call.attr("alpha"), call.attr("beta")) != (1, 1)
    return in_float32(_scaled_product)(call) if scaled else _scaled_product(call)


def _scaled_product(call: OnnxCall) -> Value:
    a, b, c = call[0], call[1], call.get(2)
    a = call.op("transpose", a, axes=(1, 0)) if call.attr("transA") else a
    b = b if call.attr("transB") else call.op("transpose", b, axes=(1, 0))
    units = call.shape(b, "the weight")[0]
    if not units:
        return call.op("zeros", shape=(call.shape(a)[0], 0), dtype=call.dtype(a))
    alpha, beta = call.attr("alpha"), call.attr("beta")
    if c is not None and alpha == beta == 1 and c.shape in ((units,), (1, units)):
        return call.op("dense", a, b, call.reshape(c, (units,)), units=units, use_bias=True)
    product = call.op("dense", a, b, units=units, use_bias=False)
    product = product if alpha == 1 else call.scaled(product, alpha)
    if c is None or beta == 0:
        return product
    c = c if beta == 1 else call.scaled(c, beta)
    return call.op("broadcast_add", product, c)


# Normalisations.


@converter("LayerNormalization", since=17)
def layer_norm(call: OnnxCall) -> list[Value]:
    """Over the last axes from `axis` on; the mean and 1 / deviation only where they are used."""
    call.ignore("stash_type")
    normalised = _normalised(call)
    axis = call.axis(call.attr("axis"), call[0])
    return [normalised, *(_moments(call, axis) if call.wanted - {0} else [])]


@in_float32
def _normalised(call: OnnxCall) -> Value:
    data, scale, bias = call[0], call[1], call.get(2)
    axis = call.axis(call.attr("axis"), data)
    scale = _over_last_axes(call, scale, data, axis)
    if bias is None:
        bias = call.make(np.zeros(call.shape(scale)), call.dtype(scale))
    bias = _over_last_axes(call, bias, data, axis)
    return call.op("layer_norm", data, scale, bias, axis=axis, epsilon=call.attr("epsilon"))


def _over_last_axes(call: OnnxCall, value: Value, data: Value, axis: int) -> Value:
    wanted = call.dims(data)[axis:]
    return value if value.shape == wanted else call.broadcast_to(value, call.shape(data)[axis:])


def _moments(call: OnnxCall, axis: int) -> list[Value]:
    axes = tuple(range(axis, call.rank(call[0])))
    mean, centred = call.centred(call[0], axes)
    var = call.op("mean", call.square(centred), axis=axes, keepdims=True)
    var = call.shifted(var, call.attr("epsilon"))
    return [mean, call.op("__pow_scalar__", var, scalar=-0.5)]


@converter("RMSNormalization", since=23)
@in_float32
def rms_norm(call: OnnxCall) -> Value:
    call.ignore("stash_type")
    axis = call.axis(call.attr("axis"), call[0])
    scale = _over_last_axes(call, call[1], call[0], axis)
    return call.op("rms_norm", call[0], scale, axis=axis, epsilon=call.attr("epsilon"))


@converter("InstanceNormalization", since=6)
@in_float32
def instance_norm(call: OnnxCall) -> Value:
    return call.op("instance_norm", call[0], call[1], call[2], epsilon=call.attr("epsilon"))


@converter("GroupNormalization", since=18)
@in_float32
def group_norm(call: OnnxCall) -> Value:
    """Scale and bias are one number a group in opset 18, one a channel since 21."""
    channels, groups = call.shape(call[0])[1], call.attr("num_groups")
    scale, bias = call[1], call[2]
    if call.opset < 21:
        scale, bias = (one_a_channel(call, value, groups, channels) for value in (scale, bias))
    return call.op("group_norm", call[0], scale, bias, num_groups=groups, epsilon=call.attr("epsilon"))


@converter("MeanVarianceNormalization", since=9)
@in_float32
def mean_variance_norm(call: OnnxCall) -> Value:
    """(x - mean) / (deviation + 1e-9)"""
    axes = tuple(call.axis(axis, call[0]) for axis in call.attr("axes"))
    _, centred = call.centred(call[0], axes)
    deviation = call.op("sqrt", call.op("mean", call.square(centred), axis=axes, keepdims=True))
    return call.op("broadcast_div", centred, call.shifted(deviation, 1e-9))


@converter("LRN")
@in_float32
def local_response_norm(call: OnnxCall) -> Value:
    """A window wider than all channels sums no more than one that just reaches them."""
    size, alpha = call.attr("size"), call.attr("alpha")
    whole = max(2 * call.shape(call[0])[1] - 1, 1)
    if size > whole:
        size, alpha = whole, alpha * whole / size
    if size % 2 == 0:
        raise Unsupported(f"LRN of an even size, {size}, is not supported")
    return call.op("lrn", call[0], size=size, axis=1, alpha=alpha, **call.attrs("beta bias"))
