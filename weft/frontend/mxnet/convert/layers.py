"""Converters of layers: convolutions, dense layers, normalisations, changes of image size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....base.errors import FormatError, Unsupported
from ....base.shape import normalize_axis
from ...building import in_float32
from ...emitter import Value
from ...shapes import one_a_channel
from ...windows import Windows, convolved, per_axis
from ..call import MxnetCall
from ..registry import converter

_CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")
_LAYOUTS = (None, "NCW", "NCHW", "NCDHW", *_CHANNELS_LAST)


# Channels last are moved to where the operators have them.


def channels_first(call: MxnetCall, value: Value) -> Value:
    """The value in MXNet's usual layout, whatever `layout` says it has."""
    if call.attr("layout") not in _LAYOUTS:
        raise FormatError(f"unknown layout {call.attr('layout')!r}")
    if call.attr("layout") not in _CHANNELS_LAST:
        return value
    rank = call.rank(value)
    return call.op("transpose", value, axes=(0, rank - 1, *range(1, rank - 1)))


def channels_back(call: MxnetCall, value: Value) -> Value:
    """The way back."""
    if call.attr("layout") not in _CHANNELS_LAST:
        return value
    return call.op("transpose", value, axes=(0, *range(2, call.rank(value)), 1))


def windows_of(call: MxnetCall) -> Windows:
    """What the attributes say; of padding there is as much before as behind."""
    kernel = tuple(call.attr("kernel"))
    if len(kernel) not in (1, 2, 3):
        raise FormatError(f"a kernel of {len(kernel)} dimensions")
    names = (("stride", 1), ("pad", 0), ("dilate", 1))
    strides, pads, dilation = (
        per_axis(call, name, len(kernel), default) if call.knows(name) else (default,) * len(kernel)
        for name, default in names
    )
    return Windows(kernel, strides, pads * 2, dilation)


# Convolutions.


@converter("Convolution", "Convolution_v1")
def convolution(call: MxnetCall) -> Value:
    windows = windows_of(call)
    data, weight = channels_first(call, call[0]), channels_first(call, call[1])
    bias = None if call.attr("no_bias") else call[2]
    attrs = call.attrs("num_filter=channels num_group=groups")
    return channels_back(call, convolved(call, "conv2d", data, weight, bias, windows, **attrs))


@converter("Deconvolution")
def deconvolution(call: MxnetCall) -> Value:
    windows = windows_of(call)
    count = len(windows.kernel)
    if call.attr("layout") in _CHANNELS_LAST:
        raise Unsupported("Deconvolution with channels last is not supported")
    extra, target = per_axis(call, "adj", count, 0), per_axis(call, "target_shape", count, 0)
    if any(target):
        windows, extra = _windows_for(call, target, windows)
    bias = None if call.attr("no_bias") else call[2]
    attrs = call.attrs("num_filter=channels num_group=groups")
    attrs["output_padding"] = extra
    return convolved(call, "conv2d_transpose", call[0], call[1], bias, windows, **attrs)


def _windows_for(call: MxnetCall, target: Sequence[int], windows: Windows) -> tuple[Windows, tuple[int, ...]]:
    """What gives the output a wanted size: half of what is too much is cut on each side."""
    surplus = [
        s * (dim - 1) + (k - 1) * d + 1 - want
        for dim, want, k, s, d in zip(
            call.shape(call[0])[2:], target, windows.kernel, windows.strides, windows.dilation
        )
    ]
    if min(surplus) < 0:
        raise FormatError(f"an output of {tuple(target)} is larger than the whole")
    return windows._replace(pads=tuple((more + 1) // 2 for more in surplus) * 2), tuple(more % 2 for more in surplus)


# Dense layers.


@converter("FullyConnected")
def fully_connected(call: MxnetCall) -> Value:
    """x W^T + b, on all axes but the first together, or on the last alone."""
    data, weight, units = call[0], call[1], call.attr("num_hidden")
    if call.attr("flatten") and data.rank != 2:
        data = call.op("flatten", data)
    bias = [] if call.attr("no_bias") else [call[2]]
    return call.op("dense", data, weight, *bias, units=units, use_bias=bool(bias))


# Normalisations.


@converter("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU")
def batch_norm(call: MxnetCall) -> Value:
    """By the moving moments; gamma counts as 1 unless fix_gamma is false."""
    call.ignore("use_global_stats", "ndev", "key", "output_mean_var", 1)
    call.only_first_output()
    gamma = call[1]
    axis = call.attr("axis") if call.op_type in ("BatchNorm", "_contrib_BatchNormWithReLU") else 1
    if call.attr("fix_gamma"):
        gamma = call.op("ones_like", call[4])
    normed = call.op("batch_norm", call[0], gamma, call[2], call[3], call[4], epsilon=call.attr("eps"), axis=axis)
    return call.op("relu", normed) if call.op_type.endswith("ReLU") else normed


@converter("LayerNorm")
def layer_norm(call: MxnetCall) -> Value:
    call.ignore("output_mean_var")
    call.only_first_output()
    data, epsilon = call[0], call.attr("eps")
    rank = call.rank(data)
    axis = normalize_axis(call.attr("axis"), rank)
    order = (*(a for a in range(rank) if a != axis), axis)
    normed = call.op("layer_norm", call.transposed(data, order), call[1], call[2], axis=-1, epsilon=epsilon)
    return call.transposed(normed, (int(a) for a in np.argsort(order)))


@converter("GroupNorm")
def group_norm(call: MxnetCall) -> Value:
    """Scale and shift are one number a group, or one a channel."""
    call.ignore("output_mean_var")
    call.only_first_output()
    groups, channels = call.attr("num_groups"), call.shape(call[0])[1]
    scale, shift = (one_a_channel(call, call[i], groups, channels) for i in (1, 2))
    return call.op("group_norm", call[0], scale, shift, num_groups=groups, epsilon=call.attr("eps"))


@converter("L2Normalization")
@in_float32
def l2_normalization(call: MxnetCall) -> Value:
    """x / sqrt(sum(x^2) + eps), over an instance, its channels, or its places."""
    data, mode = call[0], call.attr("mode")
    rank = call.rank(data)
    axes = {"instance": range(1, rank), "channel": (1,), "spatial": range(2, rank)}.get(mode)
    if axes is None:
        raise FormatError(f"unknown mode {mode!r}")
    total = call.op("sum", call.square(data), axis=tuple(axes), keepdims=True)
    root = call.op("sqrt", call.shifted(total, call.attr("eps")))
    return call.op("broadcast_div", data, root)


@converter("LRN")
def local_response_norm(call: MxnetCall) -> Value:
    call.only_first_output()
    return call.op("lrn", call[0], axis=1, **call.attrs("alpha beta nsize=size knorm=bias"))


# Changes of image size.


@converter("UpSampling")
def upsampling(call: MxnetCall) -> Value:
    """Nearest: every image to the first one's size times the scale, then joined or added."""
    scale, kind = call.attr("scale"), call.attr("sample_type")
    if kind == "bilinear":
        return _learned_upsampling(call, scale)
    call.ignore("num_filter")
    images = call.all()
    height = call.shape(images[0])[2] * scale if len(images) > 1 else scale
    scaled = []
    for image in images:
        times = scale if len(images) == 1 else height // max(call.shape(image)[2], 1)
        scaled.append(image if times == 1 else call.op("upsampling", image, scale=times))
    if len(scaled) > 1 and call.attr("multi_input_mode") == "sum":
        return call.op("elemwise_sum", *scaled, num_args=len(scaled))
    return call.joined(scaled, 1)


def _learned_upsampling(call: MxnetCall, scale: int) -> Value:
    """A transposed convolution of each channel, whose weight says how."""
    channels = call.attr("num_filter")
    call.ignore("multi_input_mode")
    size = 2 * scale - scale % 2
    return call.op(
        "conv2d_transpose",
        call[0],
        call[1],
        channels=channels,
        groups=channels,
        kernel_size=(size, size),
        strides=(scale, scale),
        padding=(math.ceil((scale - 1) / 2),) * 2,
        use_bias=False,
    )


@converter("_contrib_BilinearResize2D")
def bilinear_resize(call: MxnetCall) -> Value:
    size = _resized(call, *call.shape(call[0])[2:])
    mode = "align_corners" if call.attr("align_corners") else "half_pixel"
    return call.op("resize", call[0], size=size, method="BILINEAR", coordinate_mode=mode)


def _resized(call: MxnetCall, height: int, width: int) -> tuple[int, int]:
    mode = call.attr("mode")
    if mode == "like":
        call.ignore("height", "width")
        _, _, *size = call.shape(call[1])
        return size[0], size[1]
    down, across = call.attr("scale_height"), call.attr("scale_width")
    if mode == "size" and down is None:
        return call.attr("height"), call.attr("width")
    call.ignore("height", "width")
    if mode == "size":
        return int(down * height), int(across * width)
    if mode == "odd_scale":
        return _odd_scaled(height, down), _odd_scaled(width, across)
    if mode not in _ROUNDED:
        raise FormatError(f"unknown mode {mode!r}")
    odd, step = _ROUNDED[mode]
    height, width = (dim if dim % 2 == odd else dim + step for dim in (height, width))
    return height, width


_ROUNDED = {"to_even_down": (0, -1), "to_even_up": (0, 1), "to_odd_down": (1, -1), "to_odd_up": (1, 1)}


def _odd_scaled(extent: int, scale: float) -> int:
    """Scaled so that an even extent, one less, keeps its even spacing."""
    return int(extent * scale) if extent % 2 == 0 else int((extent - 1) * scale) + 1


@converter("_contrib_AdaptiveAvgPooling2D")
def adaptive_pool(call: MxnetCall) -> Value:
    size = call.attr("output_size") or (1,)
    if size in ((1,), (1, 1)):
        return call.op("global_avg_pool2d", call[0])
    return call.op("adaptive_avg_pool2d", call[0], output_size=(size[0], size[-1]))
