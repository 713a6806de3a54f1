"""Converters of layers: convolutions, dense layers, normalisations, changes of image size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....base.errors import FormatError, Unsupported
from ....base.shape import normalize_axis
from ...building import in_float32
from ...emitter import Value
from ..call import Call
from ..registry import converter

_CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")
_LAYOUTS = (None, "NCW", "NCHW", "NCDHW", *_CHANNELS_LAST)


# Channels last are moved to where the operators have them.


def channels_first(call: Call, value: Value) -> Value:
    """The value in MXNet's usual layout, whatever `layout` says it has."""
    if call.attr("layout") not in _LAYOUTS:
        raise FormatError(f"unknown layout {call.attr('layout')!r}")
    if call.attr("layout") not in _CHANNELS_LAST:
        return value
    rank = call.rank(value)
    return call.op("transpose", value, axes=(0, rank - 1, *range(1, rank - 1)))


def channels_back(call: Call, value: Value) -> Value:
    """The way back."""
    if call.attr("layout") not in _CHANNELS_LAST:
        return value
    return call.op("transpose", value, axes=(0, *range(2, call.rank(value)), 1))


def per_axis(call: Call, name: str, count: int, default: int) -> tuple[int, ...]:
    """An attribute with one number for each spatial axis."""
    given = tuple(call.attr(name) or (default,) * count)
    if len(given) != count or any(item is None or item < 0 for item in given):
        raise FormatError(f"{name} {given} for {count} spatial dimensions")
    return given


def as_image(call: Call, value: Value, count: int) -> Value:
    """(n, c, length) as (n, c, 1, length)."""
    return call.op("expand_dims", value, axis=2) if count == 1 else value


def as_line(call: Call, value: Value, count: int) -> Value:
    """The way back."""
    return call.op("squeeze", value, axis=(2,)) if count == 1 else value


def pair(numbers: Sequence[int], filler: int) -> tuple[int, int]:
    """Numbers for height and width, of which a line only has the second."""
    return (filler, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


# Convolutions.


@converter("Convolution", "Convolution_v1")
def convolution(call: Call) -> Value:
    kernel = call.attr("kernel")
    count = len(kernel)
    if count not in (1, 2, 3):
        raise FormatError(f"a kernel of {count} dimensions")
    data, weight = channels_first(call, call[0]), channels_first(call, call[1])
    bias = [] if call.attr("no_bias") else [call[2]]
    strides, dilation = per_axis(call, "stride", count, 1), per_axis(call, "dilate", count, 1)
    pads, groups = per_axis(call, "pad", count, 0), call.attr("num_group")
    attrs = {"channels": call.attr("num_filter"), "groups": groups, "use_bias": bool(bias)}
    if count == 3:
        made = _convolution_3d(call, (data, weight, *bias), (strides, pads, dilation), attrs)
        return channels_back(call, made)
    made = call.op(
        "conv2d",
        as_image(call, data, count),
        as_image(call, weight, count),
        *bias,
        kernel_size=pair(kernel, 1),
        strides=pair(strides, 1),
        padding=pair(pads, 0),
        dilation=pair(dilation, 1),
        **attrs,
    )
    return channels_back(call, as_line(call, made, count))


def _convolution_3d(
    call: Call, inputs: Sequence[Value], steps: tuple[Sequence[int], ...], attrs: dict[str, object]
) -> Value:
    """The sum over the kernel's depth of convolutions of images, all depths at once."""
    data, weight, *bias = inputs
    strides, pads, dilation = steps
    n, c, depth, height, width = call.shape(data)
    taps = call.shape(weight)[2]
    if pads[0]:
        around = ((0, 0), (0, 0), (pads[0], pads[0]), (0, 0), (0, 0))
        data, depth = call.op("pad", data, pad_width=around), depth + 2 * pads[0]
    out = (depth - (taps - 1) * dilation[0] - 1) // strides[0] + 1
    if out < 1:
        raise FormatError(f"a kernel of {taps} for a depth of {depth}")
    slices = call.op("transpose", data, axes=(0, 2, 1, 3, 4))
    total = None
    for tap in range(taps):
        start = tap * dilation[0]
        end = start + (out - 1) * strides[0] + 1
        part = call.sliced(slices, {1: (start, end, strides[0])})
        images = call.reshape(part, (n * out, c, height, width))
        kernel = call.sliced(weight, {2: (tap, tap + 1, 1)})
        kernel = call.reshape(kernel, [d for i, d in enumerate(call.shape(kernel)) if i != 2])
        attrs["use_bias"] = bool(bias) and tap == 0
        made = call.op(
            "conv2d",
            images,
            kernel,
            *(bias if tap == 0 else ()),
            kernel_size=call.shape(kernel)[2:],
            strides=tuple(strides[1:]),
            padding=tuple(pads[1:]),
            dilation=tuple(dilation[1:]),
            **attrs,
        )
        total = made if total is None else call.op("elemwise_add", total, made)
    filters, *extents = call.shape(total)[1:]
    volume = call.reshape(total, (n, out, filters, *extents))
    return call.op("transpose", volume, axes=(0, 2, 1, 3, 4))


@converter("Deconvolution")
def deconvolution(call: Call) -> Value:
    kernel = call.attr("kernel")
    count = len(kernel)
    if count not in (1, 2):
        raise Unsupported(f"Deconvolution of {count} spatial dimensions is not supported")
    if call.attr("layout") in _CHANNELS_LAST:
        raise Unsupported("Deconvolution with channels last is not supported")
    strides, dilation = per_axis(call, "stride", count, 1), per_axis(call, "dilate", count, 1)
    pads, extra = per_axis(call, "pad", count, 0), per_axis(call, "adj", count, 0)
    target = per_axis(call, "target_shape", count, 0)
    if any(target):
        pads, extra = _pads_for(call, target, kernel, strides, dilation)
    bias = [] if call.attr("no_bias") else [call[2]]
    made = call.op(
        "conv2d_transpose",
        as_image(call, call[0], count),
        as_image(call, call[1], count),
        *bias,
        channels=call.attr("num_filter"),
        groups=call.attr("num_group"),
        kernel_size=pair(kernel, 1),
        strides=pair(strides, 1),
        padding=pair(pads, 0),
        output_padding=pair(extra, 0),
        dilation=pair(dilation, 1),
        use_bias=bool(bias),
    )
    return as_line(call, made, count)


def _pads_for(
    call: Call, target: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What gives the output a wanted size: half of what is too much is cut on each side."""
    pads, extra = [], []
    for dim, want, k, s, d in zip(call.shape(call[0])[2:], target, kernel, strides, dilation):
        surplus = s * (dim - 1) + (k - 1) * d + 1 - want
        if surplus < 0:
            raise FormatError(f"an output of {want} is larger than the whole")
        pads.append((surplus + 1) // 2)
        extra.append(surplus % 2)
    return tuple(pads), tuple(extra)


# Dense layers.


@converter("FullyConnected")
def fully_connected(call: Call) -> Value:
    """x W^T + b, on all axes but the first together, or on the last alone."""
    data, weight, units = call[0], call[1], call.attr("num_hidden")
    if call.attr("flatten") and data.rank != 2:
        data = call.op("flatten", data)
    bias = [] if call.attr("no_bias") else [call[2]]
    return call.op("dense", data, weight, *bias, units=units, use_bias=bool(bias))


# Normalisations.


@converter("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU")
def batch_norm(call: Call) -> Value:
    """By the moving moments; gamma counts as 1 unless fix_gamma is false."""
    call.ignore("use_global_stats", "ndev", "key", "output_mean_var", 1)
    call.only_first_output()
    gamma = call[1]
    axis = call.attr("axis") if call.op_type in ("BatchNorm", "_contrib_BatchNormWithReLU") else 1
    if call.attr("fix_gamma"):
        gamma = call.op("ones_like", call[4])
    made = call.op("batch_norm", call[0], gamma, call[2], call[3], call[4], epsilon=call.attr("eps"), axis=axis)
    return call.op("relu", made) if call.op_type.endswith("ReLU") else made


@converter("LayerNorm")
def layer_norm(call: Call) -> Value:
    call.ignore("output_mean_var")
    call.only_first_output()
    data, epsilon = call[0], call.attr("eps")
    rank = call.rank(data)
    axis = normalize_axis(call.attr("axis"), rank)
    if axis == rank - 1:
        return call.op("layer_norm", data, call[1], call[2], axis=-1, epsilon=epsilon)
    order = (*(a for a in range(rank) if a != axis), axis)
    moved = call.op("transpose", data, axes=order)
    made = call.op("layer_norm", moved, call[1], call[2], axis=-1, epsilon=epsilon)
    return call.op("transpose", made, axes=tuple(int(a) for a in np.argsort(order)))


@converter("InstanceNorm")
def instance_norm(call: Call) -> Value:
    return call.op("instance_norm", call[0], call[1], call[2], epsilon=call.attr("eps"))


@converter("GroupNorm")
def group_norm(call: Call) -> Value:
    """Scale and shift are one number a group, or one a channel."""
    call.ignore("output_mean_var")
    call.only_first_output()
    groups, channels = call.attr("num_groups"), call.shape(call[0])[1]
    if groups < 1 or channels % groups:
        raise FormatError(f"{channels} channels do not split into {groups} groups")
    scale, shift = (_one_a_channel(call, call[i], groups, channels) for i in (1, 2))
    return call.op("group_norm", call[0], scale, shift, num_groups=groups, epsilon=call.attr("eps"))


def _one_a_channel(call: Call, value: Value, groups: int, channels: int) -> Value:
    if call.shape(value) == (channels,):
        return value
    wide = call.broadcast_to(call.reshape(value, (groups, 1)), (groups, channels // groups))
    return call.reshape(wide, (channels,))


@converter("L2Normalization")
@in_float32
def l2_normalization(call: Call) -> Value:
    """x / sqrt(sum(x^2) + eps), over an instance, its channels, or its places."""
    data, mode = call[0], call.attr("mode")
    rank = call.rank(data)
    axes = {"instance": range(1, rank), "channel": (1,), "spatial": range(2, rank)}.get(mode)
    if axes is None:
        raise FormatError(f"unknown mode {mode!r}")
    square = call.op("elemwise_mul", data, data)
    total = call.op("sum", square, axis=tuple(axes), keepdims=True)
    root = call.op("sqrt", call.op("__add_scalar__", total, scalar=call.attr("eps")))
    return call.op("broadcast_div", data, root)


@converter("LRN")
def local_response_norm(call: Call) -> Value:
    call.only_first_output()
    return call.op(
        "lrn",
        call[0],
        size=call.attr("nsize"),
        axis=1,
        alpha=call.attr("alpha"),
        beta=call.attr("beta"),
        bias=call.attr("knorm"),
    )


# Changes of image size.


@converter("UpSampling")
def upsampling(call: Call) -> Value:
    """Nearest: every image to the first one's size times the scale, then joined or added."""
    scale, kind = call.attr("scale"), call.attr("sample_type")
    if kind == "bilinear":
        return _learned_upsampling(call, scale)
    call.ignore("num_filter")
    images = call.all()
    height = call.shape(images[0])[2] * scale if len(images) > 1 else scale
    made = []
    for image in images:
        times = scale if len(images) == 1 else height // max(call.shape(image)[2], 1)
        made.append(image if times == 1 else call.op("upsampling", image, scale=times))
    if len(made) == 1:
        return made[0]
    if call.attr("multi_input_mode") == "sum":
        return call.op("elemwise_sum", *made, num_args=len(made))
    return call.op("concatenate", *made, axis=1)


def _learned_upsampling(call: Call, scale: int) -> Value:
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
def bilinear_resize(call: Call) -> Value:
    height, width = call.shape(call[0])[2:]
    size = _resized(call, height, width)
    mode = "align_corners" if call.attr("align_corners") else "half_pixel"
    return call.op("resize", call[0], size=size, method="BILINEAR", coordinate_mode=mode)


def _resized(call: Call, height: int, width: int) -> tuple[int, int]:
    mode = call.attr("mode")
    if mode == "like":
        call.ignore("height", "width")
        return call.shape(call[1])[2:]
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
    return tuple(dim if dim % 2 == odd else dim + step for dim in (height, width))


_ROUNDED = {"to_even_down": (0, -1), "to_even_up": (0, 1), "to_odd_down": (1, -1), "to_odd_up": (1, 1)}


def _odd_scaled(extent: int, scale: float) -> int:
    """Scaled so that an even extent, one less, keeps its even spacing."""
    return int(extent * scale) if extent % 2 == 0 else int((extent - 1) * scale) + 1


@converter("_contrib_AdaptiveAvgPooling2D")
def adaptive_pool(call: Call) -> Value:
    size = call.attr("output_size") or (1,)
    if size in ((1,), (1, 1)):
        return call.op("global_avg_pool2d", call[0])
    return call.op("adaptive_avg_pool2d", call[0], output_size=(size[0], size[-1]))
