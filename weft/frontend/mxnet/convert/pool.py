"""Converters of pooling, in one, two or three spatial dimensions."""

from __future__ import annotations

import math
from typing import NamedTuple

from ....base.errors import FormatError, Unsupported
from ...emitter import Value
from ..call import Call
from ..registry import converter
from .layers import as_image, as_line, channels_back, channels_first, pair, per_axis


class Windows(NamedTuple):
    """The windows of a pool, one number for each spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    ceil: bool


@converter("Pooling")
def pooling(call: Call) -> Value:
    data = channels_first(call, call[0])
    if call.attr("global_pool"):
        call.ignore("kernel", "stride", "pad", "pooling_convention", "count_include_pad")
        made = _global(call, data)
    else:
        made = _pooled(call, data, _windows(call, data))
    return channels_back(call, made)


@converter("Pooling_v1")
def old_pooling(call: Call) -> Value:
    """Padding is made of zeros, which count for all: a maximum is never below 0 there, and an
    average is always over a whole window."""
    data, kind = call[0], call.attr("pool_type")
    if call.attr("global_pool"):
        call.ignore("kernel", "stride", "pad", "pooling_convention")
        return _global(call, data)
    windows = _windows(call, data)
    if kind == "max":
        around = ((0, 0), (0, 0), *((p, p) for p in windows.pads))
        padded = call.op("pad", data, pad_width=around) if any(windows.pads) else data
        return _by_axes(call, padded, _unpadded(windows, windows.ceil), "max_pool2d", {})
    if kind not in ("avg", "sum"):
        raise FormatError(f"unknown pool_type {kind!r}")
    total = _sums(call, data, windows)
    if kind == "sum":
        return total
    return call.op("__mul_scalar__", total, scalar=1 / math.prod(windows.kernel))


def _unpadded(windows: Windows, ceil: bool) -> Windows:
    return Windows(windows.kernel, windows.strides, (0,) * len(windows.pads), ceil)


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


def _windows(call: Call, data: Value) -> Windows:
    kernel, convention = call.attr("kernel"), call.attr("pooling_convention")
    count = len(kernel)
    if count not in (1, 2, 3):
        raise FormatError(f"a kernel of {count} dimensions")
    strides, pads = per_axis(call, "stride", count, 1), per_axis(call, "pad", count, 0)
    if convention not in ("valid", "full"):
        raise Unsupported(f"Pooling with the convention {convention!r} is not supported")
    made = Windows(tuple(kernel), strides, pads, convention == "full")
    _check_last_windows(call, made, data)
    return made


def _check_last_windows(call: Call, windows: Windows, data: Value) -> None:
    """In the full convention a last window may have no element at all; no pool of ours has those.
    It takes a window that reaches less than a step into the data."""
    if not windows.ceil:
        return
    dims = (None,) * len(windows.kernel) if data.shape is None else data.shape[2:]
    for dim, k, s, p in zip(dims, *windows[:3]):
        if k - p >= s:
            continue
        if not isinstance(dim, int):
            call.shape(data)
        elif math.ceil((dim + 2 * p - k) / s) * s >= dim + p:
            raise Unsupported(f"a window of {k} with stride {s} beyond the end of {dim} elements")


def _pooled(call: Call, data: Value, windows: Windows) -> Value:
    kind = call.attr("pool_type")
    if kind == "max":
        call.ignore("count_include_pad", "p_value")
        return _by_axes(call, data, windows, "max_pool2d", {})
    if kind == "avg":
        call.ignore("p_value")
        given = call.attr("count_include_pad")
        counted = {"count_include_pad": True if given is None else given}
        return _by_axes(call, data, windows, "avg_pool2d", counted)
    if kind not in ("sum", "lp"):
        raise FormatError(f"unknown pool_type {kind!r}")
    call.ignore("count_include_pad")
    if kind == "sum":
        call.ignore("p_value")
        return _sums(call, data, windows)
    powers, p = _powers(call, data)
    return _root(call, _sums(call, powers, windows), p)


def _by_axes(call: Call, data: Value, windows: Windows, op: str, attrs: dict[str, bool]) -> Value:
    """A pool of lines or images; of volumes, one over images and then one over depth."""
    count = len(windows.kernel)
    if count < 3:
        made = _pool(call, op, as_image(call, data, count), windows, attrs)
        return as_line(call, made, count)
    n, c, depth, height, width = call.shape(data)
    flat = call.reshape(data, (n, c * depth, height, width))
    flat = _pool(call, op, flat, _part(windows, slice(1, 3)), attrs)
    rows, columns = call.shape(flat)[2:]
    deep = call.reshape(flat, (n, c, depth, rows * columns))
    first = _part(windows, slice(0, 1))
    down = Windows((first.kernel[0], 1), (first.strides[0], 1), (first.pads[0], 0), first.ceil)
    made = _pool(call, op, deep, down, attrs)
    return call.reshape(made, (n, c, call.shape(made)[2], rows, columns))


def _part(windows: Windows, which: slice) -> Windows:
    kernel, strides, pads, ceil = windows
    return Windows(kernel[which], strides[which], pads[which], ceil)


def _pool(call: Call, op: str, data: Value, windows: Windows, attrs: dict[str, bool]) -> Value:
    return call.op(
        op,
        data,
        pool_size=pair(windows.kernel, 1),
        strides=pair(windows.strides, 1),
        padding=pair(windows.pads, 0),
        ceil_mode=windows.ceil,
        **attrs,
    )


def _sums(call: Call, data: Value, windows: Windows) -> Value:
    """An average of windows that are all full, padded with zeros, times their size."""
    pads = [(0, 0), (0, 0)]
    for dim, k, s, p in zip(call.shape(data)[2:], *windows[:3]):
        whole = dim + 2 * p - k
        steps = math.ceil(whole / s) if windows.ceil else whole // s
        pads.append((p, max(steps * s + k - dim - p, 0)))
    padded = call.op("pad", data, pad_width=tuple(pads)) if any(map(any, pads)) else data
    made = _by_axes(call, padded, _unpadded(windows, False), "avg_pool2d", {})
    return call.op("__mul_scalar__", made, scalar=float(math.prod(windows.kernel)))


def _powers(call: Call, data: Value) -> tuple[Value, int]:
    """|x|^p"""
    p = call.attr("p_value")
    if p not in (1, 2, 3):
        raise FormatError(f"p_value is {p}, and must be 1, 2 or 3")
    size = call.op("abs", data)
    return (size if p == 1 else call.op("__pow_scalar__", size, scalar=float(p))), p


def _root(call: Call, value: Value, p: int) -> Value:
    return value if p == 1 else call.op("__pow_scalar__", value, scalar=1 / p)
