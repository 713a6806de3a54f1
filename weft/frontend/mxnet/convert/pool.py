"""Converters of pooling, in one, two or three spatial dimensions."""

from __future__ import annotations

import math

from ....base.errors import FormatError, Unsupported
from ...emitter import Value
from ...windows import Windows, padded, pooled, window_sums
from ..call import MxnetCall
from ..registry import converter
from .layers import channels_back, channels_first, windows_of


@converter("Pooling")
def pooling(call: MxnetCall) -> Value:
    data = channels_first(call, call[0])
    if call.attr("global_pool"):
        call.ignore("kernel", "stride", "pad", "pooling_convention", "count_include_pad")
        return channels_back(call, _global(call, data))
    windows = windows_of(call)
    return channels_back(call, _pooled(call, data, windows, _ceil(call, data, windows)))


@converter("Pooling_v1")
def old_pooling(call: MxnetCall) -> Value:
    """Padding is made of zeros, which count for all: a maximum is never below 0 there, and an
    average is always over a whole window."""
    data, kind = call[0], call.attr("pool_type")
    if call.attr("global_pool"):
        call.ignore("kernel", "stride", "pad", "pooling_convention")
        return _global(call, data)
    windows = windows_of(call)
    ceil = _ceil(call, data, windows)
    if kind == "max":
        filled = padded(call, data, {2 + axis: sides for axis, sides in enumerate(windows.sides)})
        return pooled(call, "max_pool2d", filled, windows._replace(pads=(0,) * len(windows.pads)), ceil)
    if kind not in ("avg", "sum"):
        raise FormatError(f"unknown pool_type {kind!r}")
    total = window_sums(call, data, windows, ceil)
    return total if kind == "sum" else call.scaled(total, 1 / math.prod(windows.kernel))


def _pads(windows: Windows) -> tuple[int, ...]:
    return windows.pads[: len(windows.kernel)]


def _global(call: MxnetCall, data: Value) -> Value:
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


def _spatial(call: MxnetCall, data: Value) -> int:
    kernel = call.attr("kernel")
    if data.rank is None and kernel:
        return len(kernel)
    return call.rank(data) - 2


def _ceil(call: MxnetCall, data: Value, windows: Windows) -> bool:
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


def _pooled(call: MxnetCall, data: Value, windows: Windows, ceil: bool) -> Value:
    kind, counted = call.attr("pool_type"), call.attr("count_include_pad")
    if kind != "lp":
        call.ignore("p_value")
    if kind == "max":
        return pooled(call, "max_pool2d", data, windows, ceil)
    if kind == "avg":
        return pooled(call, "avg_pool2d", data, windows, ceil, count_include_pad=counted is None or counted)
    if kind == "sum":
        return window_sums(call, data, windows, ceil)
    if kind != "lp":
        raise FormatError(f"unknown pool_type {kind!r}")
    powers, p = _powers(call, data)
    return _root(call, window_sums(call, powers, windows, ceil), p)


def _powers(call: MxnetCall, data: Value) -> tuple[Value, int]:
    """|x|^p"""
    p = call.attr("p_value")
    if p not in (1, 2, 3):
        raise FormatError(f"p_value is {p}, and must be 1, 2 or 3")
    size = call.op("abs", data)
    return (size if p == 1 else call.op("__pow_scalar__", size, scalar=float(p))), p


def _root(call: MxnetCall, value: Value, p: int) -> Value:
    return value if p == 1 else call.op("__pow_scalar__", value, scalar=1 / p)
