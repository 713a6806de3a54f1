"""Converters of what moves windows over any number of axes: convolutions and pools."""

from __future__ import annotations

from math import prod

from ....base.dtype import INT64
from ....base.errors import FormatError
from ...building import in_float32
from ...emitter import Value
from ...windows import Windows, convolved, folded, largest_with_places, padded, per_axis, pooled, window_sums
from ..call import OnnxCall
from ..registry import converter


def _spatial(call: OnnxCall) -> int:
    """How many axes there are beside those of the batch and the channels."""
    count = call.rank(call[0]) - 2
    if count < 1:
        raise FormatError(f"{call.op_type} of {count + 2} dimensions has none to move along")
    return count


def windows_of(call: OnnxCall, kernel: tuple[int, ...]) -> Windows:
    """What the attributes say, with padding from pads or auto_pad."""
    count, mode = len(kernel), call.attr("auto_pad", "NOTSET")
    strides, dilation = per_axis(call, "strides", count, 1), per_axis(call, "dilations", count, 1)
    if not all((*kernel, *strides, *dilation)):
        raise FormatError(f"a kernel {kernel} with strides {strides} and dilations {dilation}")
    plain = Windows(kernel, strides, (0,) * (2 * count), dilation)
    if mode == "NOTSET":
        return plain._replace(pads=per_axis(call, "pads", 2 * count, 0))
    call.ignore("pads")
    if mode == "VALID":
        return plain
    totals = [_same_total(call, 2 + axis, *row) for axis, row in enumerate(zip(strides, plain.reach))]
    return plain._replace(pads=_shared(totals, mode))


def _same_total(call: OnnxCall, axis: int, stride: int, reach: int) -> int:
    """The padding with which there are as many windows as strides; of stride 1 it is the same for all extents."""
    if stride == 1:
        return reach - 1
    extent = call.extent(call[0], axis)
    return max((-(-extent // stride) - 1) * stride + reach - extent, 0)


def _shared(totals: list[int], mode: str) -> tuple[int, ...]:
    """Both sides of each axis; the odd one goes after for SAME_UPPER, before for SAME_LOWER."""
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise FormatError(f"unknown auto_pad {mode!r}")
    small = [total // 2 for total in totals]
    large = [total - half for total, half in zip(totals, small)]
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)


# Convolutions.


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
    windows, channels = windows_of(call, _kernel(call, weight)), call.shape(weight)[0]
    return convolved(call, "conv2d", data, weight, bias, windows, channels=channels, groups=call.attr("group"))


@converter("ConvTranspose")
def conv_transpose(call: OnnxCall) -> Value:
    data, weight, bias = call[0], call[1], call.get(2)
    windows, extra = _transposed_windows(call, _kernel(call, weight))
    groups = call.attr("group")
    attrs = {"channels": call.shape(weight)[1] * groups, "groups": groups, "output_padding": extra}
    return convolved(call, "conv2d_transpose", data, weight, bias, windows, **attrs)


def _transposed_windows(call: OnnxCall, kernel: tuple[int, ...]) -> tuple[Windows, tuple[int, ...]]:
    """What is cut from the full output and what is added behind it: given, or whatever leaves the
    output shape that is asked for."""
    count = len(kernel)
    extra = per_axis(call, "output_padding", count, 0)
    wanted, mode = call.attr("output_shape"), call.attr("auto_pad")
    windows = windows_of(call, kernel)
    call.ignore("pads")
    if not wanted and mode in ("NOTSET", "VALID"):
        return windows, extra
    extents = call.shape(call[0])[2:]
    wanted = list(wanted[-count:]) if wanted else [e * s for e, s in zip(extents, windows.strides)]
    rows = zip(extents, windows.strides, windows.reach, extra, wanted)
    totals = [(extent - 1) * s + reach + more - out for extent, s, reach, more, out in rows]
    extra = tuple(more + max(-total, 0) for more, total in zip(extra, totals))
    sides = "SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER"
    return windows._replace(pads=_shared([max(total, 0) for total in totals], sides)), extra


@converter("CausalConvWithState", since=27)
@in_float32
def causal_conv_with_state(call: OnnxCall) -> list[Value]:
    """A convolution of each channel that looks back only: past elements stand before the first."""
    data, weight, past, activation = call[0], call[1], call.get(3), call.attr("activation")
    (batch, channels, _), size = call.shape(data), call.shape(weight, "the weight")[2]
    if past is None:
        past = call.op("zeros", shape=(batch, channels, size - 1), dtype=call.dtype(data))
    if call.shape(past) != (batch, channels, size - 1) or activation not in ("none", "silu", "swish"):
        raise FormatError(f"past of shape {past.shape} for {size} taps, and activation {activation!r}")
    whole = call.joined([past, data], 2) if size > 1 else data
    windows = Windows((size,), (1,), (0, 0), (1,))
    result = convolved(call, "conv2d", whole, weight, call.get(2), windows, channels=channels, groups=channels)
    total = call.shape(whole)[2]
    present = call.sliced(whole, {2: (total - size + 1, total, 1)})
    return [result if activation == "none" else call.op("silu", result), present]


@converter("Col2Im", since=18, decides=(1, 2))
def col2im(call: OnnxCall) -> Value:
    """Windows added up where they stand in an image, axis by axis from the last."""
    extents, kernel = call.ints(1, "the shape of the image"), tuple(call.ints(2, "the shape of the windows"))
    count = len(kernel)
    strides, dilation = per_axis(call, "strides", count, 1), per_axis(call, "dilations", count, 1)
    windows = Windows(kernel, strides, per_axis(call, "pads", 2 * count, 0), dilation)
    rows = zip(extents, windows.sides, windows.reach, strides)
    many = [(extent + sum(sides) - reach) // s + 1 for extent, sides, reach, s in rows]
    batch, wide, places = call.shape(call[0])
    if len(extents) != count or wide % prod(kernel) or places != prod(many):
        raise FormatError(f"{wide} numbers at {places} places for windows of {kernel} over {extents}")
    value = call.reshape(call[0], (batch, wide // prod(kernel), *kernel, *many))
    for axis in reversed(range(count)):  # (n, c, taps up to this axis, windows up to it, what is folded)
        value = _taps_beside(call, value, 2 + axis, 2 + 2 * axis + 1)
        value = folded(call, value, 2 + 2 * axis, windows.along(axis), extents[axis])
    return value


def _taps_beside(call: OnnxCall, value: Value, taps: int, windows: int) -> Value:
    """The axis of taps moved to just before that of windows."""
    order = [axis for axis in range(call.rank(value)) if axis != taps]
    return call.transposed(value, [*order[: windows - 1], taps, *order[windows - 1 :]])


# Pools.


def _pool_windows(call: OnnxCall) -> tuple[Windows, bool]:
    """The windows of a pool, and whether a last one may stick out. One that sticks out of all of an axis is
    cut to what is there."""
    windows = windows_of(call, per_axis(call, "kernel_shape", _spatial(call), 1))
    if not call.attr("ceil_mode", 0):
        return windows, False
    kernel, strides = list(windows.kernel), list(windows.strides)
    for axis, (sides, reach) in enumerate(zip(windows.sides, windows.reach)):
        dim = call.dims(call[0])[2 + axis]
        if isinstance(dim, int) and 0 < reach - dim - sum(sides) < strides[axis]:
            kernel[axis] = (dim + sum(sides) - 1) // windows.dilation[axis] + 1
            strides[axis] = dim + sum(sides)
    return windows._replace(kernel=tuple(kernel), strides=tuple(strides)), True


@converter("MaxPool")
def max_pool(call: OnnxCall) -> Value | list[Value]:
    """The largest element of every window, and where in all of the data it is."""
    windows, ceil = _pool_windows(call)
    by_columns = bool(call.attr("storage_order", 0))
    if 1 not in call.wanted:
        return pooled(call, "max_pool2d", call[0], windows, ceil)
    return largest_with_places(call, call[0], _places(call, by_columns), windows, ceil)


def _places(call: OnnxCall, by_columns: bool) -> Value:
    """Where every element stands in all of the data; by columns, the first spatial axis is the fastest."""
    shape = call.shape(call[0])
    line = call.op("arange", start=0, stop=prod(shape), step=1, dtype=INT64)
    if not by_columns:
        return call.reshape(line, shape)
    turned = call.reshape(line, (*shape[:2], *shape[:1:-1]))
    return call.transposed(turned, (0, 1, *range(len(shape) - 1, 1, -1)))


@converter("MaxUnpool", since=9, decides=(2,))
def max_unpool(call: OnnxCall) -> Value:
    """Zeros, with the data at given places of all of them. The places are those of the shape that follows
    from the windows; an output shape that is larger has zeros behind it."""
    data, shape = call[0], call.shape(call[0])
    windows = windows_of(call, per_axis(call, "kernel_shape", _spatial(call), 1))
    rows = zip(shape[2:], windows.strides, windows.kernel, windows.sides)
    inner = [*shape[:2], *((extent - 1) * s + k - sum(sides) for extent, s, k, sides in rows)]
    wanted = call.optional_ints(2, "the output shape") or inner
    if len(wanted) != len(inner) or any(more < dim for more, dim in zip(wanted, inner)):
        raise FormatError(f"an output of shape {wanted} for windows that make {inner}")
    zeros = call.op("zeros", shape=(prod(inner),), dtype=call.dtype(data))
    filled = call.op("scatter_nd", zeros, call.reshape(call[1], (1, prod(shape))), call.flat(data))
    return padded(call, call.reshape(filled, inner), {a: (0, wanted[a] - inner[a]) for a in range(len(inner))})


@converter("AveragePool")
@in_float32
def average_pool(call: OnnxCall) -> Value:
    windows, ceil = _pool_windows(call)
    counted = bool(call.attr("count_include_pad", 0))
    return pooled(call, "avg_pool2d", call[0], windows, ceil, count_include_pad=counted)


@converter("LpPool", since=2)
@in_float32
def lp_pool(call: OnnxCall) -> Value:
    """The p-norm of every window."""
    windows, ceil = _pool_windows(call)
    return _root(call, window_sums(call, _powers(call), windows, ceil))


def _powers(call: OnnxCall) -> Value:
    """|x|^p"""
    size, p = call.op("abs", call[0]), call.attr("p")
    if p < 1:
        raise FormatError(f"a norm of p = {p}")
    return size if p == 1 else call.op("__pow_scalar__", size, scalar=float(p))


def _root(call: OnnxCall, value: Value) -> Value:
    return value if call.attr("p") == 1 else call.op("__pow_scalar__", value, scalar=1 / call.attr("p"))


@converter("GlobalLpPool", since=2)
@in_float32
def global_lp_pool(call: OnnxCall) -> Value:
    return _root(call, _over_all(call, "sum", _powers(call)))


@converter("GlobalMaxPool")
def global_max_pool(call: OnnxCall) -> Value:
    return _over_all(call, "max", call[0], "global_max_pool2d")


@converter("GlobalAveragePool")
@in_float32
def global_average_pool(call: OnnxCall) -> Value:
    return _over_all(call, "mean", call[0], "global_avg_pool2d")


def _over_all(call: OnnxCall, op: str, value: Value, of_images: str | None = None) -> Value:
    """A reduction over all spatial axes, which stay."""
    count = _spatial(call)
    if of_images is not None and count == 2:
        return call.op(of_images, value)
    return call.op(op, value, axis=tuple(range(2, 2 + count)), keepdims=True)
