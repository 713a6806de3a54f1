"""Converters of pooling, in one, two or three spatial dimensions."""

from __future__ import annotations

import math

from ....base.errors import FormatError, Unsupported
from ...emitter import Value
from ...windows import Windows, pooled
from ..call import Call
from ..registry import converter
from .layers import channels_back, channels_first, windows_of


@converter("Pooling")
def pooling(call: Call) -> Value:
    data = channels_first(call, call[0])
    if call.attr("global_pool"):
        call.ignore("kernel", "stride", "pad", "pooling_convention", "count_include_pad")
        return channels_back(call, _global(call, data))
    windows = windows_of(call)
    return channels_back(call, _pooled(call, data, windows, _ceil(call, data, windows)))


@converter("Pooling_v1")
def old_pooling(call: Call) -> Value:
    """Padding is made of zeros, which count for all: a maximum is never below 0 there, and an
    average is always over a whole window."""
    data, kind = call[0], call.attr("pool_type")
    if call.attr("global_pool"):
        call.ignore("kernel", "stride", "pad", "pooling_convention")
        return _global(call, data)
    windows = windows_of(call)
    ceil = _ceil(call, data, windows)
    if kind == "max":
        around = ((0, 0), (0, 0), *((p, p) for p in _pads(windows)))
        padded = call.op("pad", data, pad_width=around) if any(windows.pads) else data
        return _by_axes(call, padded, _unpadded(windows), ceil, "max_pool2d")
    if kind not in ("avg", "sum"):
        raise FormatError(f"unknown pool_type {kind!r}")
    total = _sums(call, data, windows, ceil)
    return total if kind == "sum" else call.scaled(total, 1 / math.prod(windows.kernel))


def _pads(windows: Windows) -> tuple[int, ...]:
    return windows.pads[: len(windows.kernel)]


def _unpadded(windows: Windows) -> Windows:
    return windows._replace(pads=(0,) * len(windows.pads))


def _global(call: Call, data: Value) -> Value:
    kind = call.attr("pool_type")
    if call.op_type == "Pooling" and kind != "lp":
        call.ignore("p_value")
    axes = tuple(range(2, _spatial(call, data) + 2))
    if len(axes) == 2 and kind in ("avg", "max"):
        return call.op(f"global_{kind}_pool2d", data)
    if kind in ("avg", "max", "sum"):
        op = {"avg": "mean"}.get(kind, kind)
        return call.op(op, data, axis=axes, keepdims=True)
    powers, p = _powers(call, data)
    return _root(call, call.op("sum", powers, axis=axes, keepdims=True), p)


def _spatial(call: Call, data: Value) -> int:
    kernel = call.attr("kernel")
    if data.rank is None and kernel:
        return len(kernel)
    return call.rank(data) - 2


def _ceil(call: Call, data: Value, windows: Windows) -> bool:
    """Whether a last window may stick out. In that, the full convention, it may have no element at all; no pool of ours
    has those. It takes a window that reaches less than a step into the data."""
    convention = call.attr("pooling_convention")
    if convention not in ("valid", "full"):
        raise Unsupported(f"Pooling with the convention {convention!r} is not supported")
    dims = (None,) * len(windows.kernel) if data.shape is None else data.shape[2:]
    for dim, k, s, p in zip(dims, windows.kernel, windows.strides, _pads(windows)):
        if convention == "valid" or k - p >= s:
            continue
        if not isinstance(dim, int):
            call.shape(data)
        elif math.ceil((dim + 2 * p - k) / s) * s >= dim + p:
            raise Unsupported(f"a window of {k} with stride {s} beyond the end of {dim} elements")
    return bool(convention == "full")


def _pooled(call: Call, data: Value, windows: Windows, ceil: bool) -> Value:
    kind, counted = call.attr("pool_type"), call.attr("count_include_pad")
    if kind != "lp":
        call.ignore("p_value")
    if kind == "max":
        return _by_axes(call, data, windows, ceil, "max_pool2d")
    if kind == "avg":
        return _by_axes(call, data, windows, ceil, "avg_pool2d", count_include_pad=counted is None or counted)
    if kind == "sum":
        return _sums(call, data, windows, ceil)
    if kind != "lp":
        raise FormatError(f"unknown pool_type {kind!r}")
    powers, p = _powers(call, data)
    return _root(call, _sums(call, powers, windows, ceil), p)


def _by_axes(call: Call, data: Value, windows: Windows, ceil: bool, op: str, **attrs: bool) -> Value:
    """A pool of lines or images; of volumes, one over images and then one over depth."""
    if len(windows.kernel) < 3:
        return pooled(call, op, data, windows, ceil, **attrs)
    n, c, depth, height, width = call.shape(data)
    (k, *kernel), (s, *strides), (p, *pads) = windows.kernel, windows.strides, _pads(windows)
    across = Windows(tuple(kernel), tuple(strides), (*pads, *pads), (1, 1))
    flat = pooled(call, op, call.reshape(data, (n, c * depth, height, width)), across, ceil, **attrs)
    rows, columns = call.shape(flat)[2:]
    down = Windows((k, 1), (s, 1), (p, 0, p, 0), (1, 1))
    deep = pooled(call, op, call.reshape(flat, (n, c, depth, rows * columns)), down, ceil, **attrs)
    return call.reshape(deep, (n, c, call.shape(deep)[2], rows, columns))


def _sums(call: Call, data: Value, windows: Windows, ceil: bool) -> Value:
    """An average of windows that are all full, padded with zeros, times their size."""
    around = [(0, 0), (0, 0)]
    for dim, k, s, p in zip(call.shape(data)[2:], windows.kernel, windows.strides, _pads(windows)):
        whole = dim + 2 * p - k
        steps = math.ceil(whole / s) if ceil else whole // s
        around.append((p, max(steps * s + k - dim - p, 0)))
    padded = call.op("pad", data, pad_width=tuple(around)) if any(map(any, around)) else data
    means = _by_axes(call, padded, _unpadded(windows), False, "avg_pool2d")
    return call.scaled(means, float(math.prod(windows.kernel)))


def _powers(call: Call, data: Value) -> tuple[Value, int]:
    """|x|^p"""
    p = call.attr("p_value")
    if p not in (1, 2, 3):
        raise FormatError(f"p_value is {p}, and must be 1, 2 or 3")
    size = call.op("abs", data)
    return (size if p == 1 else call.op("__pow_scalar__", size, scalar=float(p))), p


def _root(call: Call, value: Value, p: int) -> Value:
    return value if p == 1 else call.op("__pow_scalar__", value, scalar=1 / p)
