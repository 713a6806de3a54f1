"""Converters of what reads data at places that a network computes, between elements along any
number of axes: sampling by a grid, deformable convolutions, the largest of regions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ....base.dtype import INT32, is_float
from ....base.errors import FormatError, Unsupported
from ...building import in_float32
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter
from .windows import windows_of

CUBIC = -0.75  # the coefficient of the cubic filter


class Tap(NamedTuple):
    """An element beside every place along an axis: its number, how much it counts, and whether it is
    inside, where that is open; all (n, places)."""

    element: Value
    weight: Value | None = None
    inside: Value | None = None


def _read(call: OnnxCall, data: Value, axes: Sequence[Sequence[Tap]]) -> list[Value]:
    """What the elements around every place add to it, each (n, c, places); data is (n, c, ...)."""
    n, c, *extents = call.shape(data)
    places = call.shape(axes[0][0].element)[1]
    flat = call.reshape(data, (n, c, prod(extents)))
    parts = []
    for taps in product(*axes):
        number = taps[0].element
        for tap, extent in zip(taps[1:], extents[1:]):
            number = call.op("elemwise_add", call.scaled(number, extent), tap.element)
        index = call.broadcast_to(call.reshape(number, (n, 1, places)), (n, c, places))
        part = call.op("gather_elements", flat, index, axis=2)
        for tap in taps:
            if tap.inside is not None:  # what is outside may be infinite where it is read
                zero = call.make(0, call.dtype(part))
                part = call.op("broadcast_where", call.reshape(tap.inside, (n, 1, places)), part, zero)
        weights = [tap.weight for tap in taps if tap.weight is not None]
        if weights:
            weight = reduce(lambda a, b: call.op("elemwise_mul", a, b), weights)
            part = call.op("broadcast_mul", part, call.reshape(weight, (n, 1, places)))
        parts.append(part)
    return parts


def _total(call: OnnxCall, parts: Sequence[Value]) -> Value:
    return reduce(lambda a, b: call.op("elemwise_add", a, b), parts)


def _clipped(call: OnnxCall, value: Value, extent: int) -> Value:
    return call.op("clip", value, a_min=0.0, a_max=float(extent - 1))


def _tap(call: OnnxCall, element: Value, weight: Value | None, extent: int, open_ends: bool) -> Tap:
    """Elements beyond an end are the last ones there, or not inside where ends are open."""
    near = _clipped(call, element, extent)
    inside = call.op("broadcast_equal", near, element) if open_ends else None
    return Tap(call.cast(near, INT32), weight, inside)


def _linear(call: OnnxCall, place: Value, extent: int, open_ends: bool) -> list[Tap]:
    """The two elements beside every place."""
    low = call.op("floor", place)
    part = call.op("elemwise_sub", place, low)
    weights = (call.op("__rsub_scalar__", part, scalar=1.0), part)
    return [_tap(call, call.shifted(low, step), weights[step], extent, open_ends) for step in (0, 1)]


# Sampling by a grid.


@converter("GridSample", since=16)
def grid_sample(call: OnnxCall) -> Value:
    mode, rank, grid = _mode(call), call.rank(call[0]), call.shape(call[1], "the grid")
    if len(grid) != rank or grid[-1] != rank - 2:
        raise FormatError(f"a grid of shape {grid} for data of {rank} dimensions")
    if (rank == 4 or (rank == 5 and mode != "cubic")) and call[0].dtype == call[1].dtype:
        attrs = call.attrs("padding_mode=padding align_corners")
        return call.op("grid_sample", call[0], call[1], mode=mode if mode == "nearest" else f"bi{mode}", **attrs)
    return _nearest_of_grid(call) if mode == "nearest" else _between_elements(call)


def _mode(call: OnnxCall) -> str:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(call.attr("mode"), call.attr("mode"))
    if mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(f"GridSample with mode {mode!r} is not supported")
    return str(mode)


def _nearest_of_grid(call: OnnxCall) -> Value:
    data, grid = call[0], call.widened(call[1])
    axes = []
    for axis, extent in enumerate(call.shape(data)[2:]):
        place = call.op("round", _inward(call, _on_axis(call, grid, axis, extent), extent))
        axes.append([_tap(call, place, None, extent, call.attr("padding_mode") == "zeros")])
    (taken,) = _read(call, data, axes)
    return call.reshape(taken, (*call.shape(data)[:2], *call.shape(grid)[1:-1]))


@in_float32
def _between_elements(call: OnnxCall) -> Value:
    data, dtype = call[0], call.dtype(call[0])
    grid = call.cast(call[1], dtype) if is_float(dtype) else call.widened(call[1])
    axes = []
    for axis, extent in enumerate(call.shape(data)[2:]):
        place = _on_axis(call, grid, axis, extent)
        if _mode(call) == "linear":
            open_ends = call.attr("padding_mode") == "zeros"
            axes.append(_linear(call, _inward(call, place, extent), extent, open_ends))
        else:
            axes.append(_cubic(call, place, extent))
    total = _total(call, _read(call, call.cast(data, call.dtype(grid)), axes))
    return call.cast(call.reshape(total, (*call.shape(data)[:2], *call.shape(grid)[1:-1])), dtype)


def _on_axis(call: OnnxCall, grid: Value, axis: int, extent: int) -> Value:
    """(n, places): the grid's numbers, from -1 to 1, as places among the elements of an axis."""
    n, *places, rank = call.shape(grid)
    last = rank - 1 - axis  # the last axis comes first
    number = call.sliced(grid, {len(places) + 1: (last, last + 1, 1)})
    scale = (extent - 1) / 2 if call.attr("align_corners") else extent / 2
    place = call.scaled(call.shifted(call.reshape(number, (n, prod(places))), 1.0), scale)
    return place if call.attr("align_corners") else call.shifted(place, -0.5)


def _inward(call: OnnxCall, place: Value, extent: int) -> Value:
    """Places outside brought in, as the padding says."""
    padding = call.attr("padding_mode")
    if padding == "zeros":
        return place
    if padding == "border":
        return _clipped(call, place, extent)
    if padding != "reflection":
        raise FormatError(f"unknown padding_mode {padding!r}")
    low, period = (0.0, max(2 * (extent - 1), 1)) if call.attr("align_corners") else (-0.5, 2 * extent)
    far = call.op("abs", call.shifted(place, -low))
    left = call.op("fmod", far, call.broadcast_to(call.make(period, call.dtype(place)), call.shape(place)))
    near = call.op("broadcast_min", left, call.op("__rsub_scalar__", left, scalar=float(period)))
    return _clipped(call, call.shifted(near, low), extent)


def _cubic(call: OnnxCall, place: Value, extent: int) -> list[Tap]:
    """The four elements beside every place, each of which may be brought in."""
    low = call.op("floor", place)
    part = call.op("elemwise_sub", place, low)
    rest = call.op("__rsub_scalar__", part, scalar=1.0)
    far = (CUBIC, -5 * CUBIC, 8 * CUBIC, -4 * CUBIC)
    near = (CUBIC + 2, -CUBIC - 3, 0.0, 1.0)
    sides = [(far, call.shifted(part, 1.0)), (near, part), (near, rest), (far, call.shifted(rest, 1.0))]
    taps = []
    for step, (coefficients, distance) in enumerate(sides):
        element = _inward(call, call.shifted(low, step - 1.0), extent)
        weight = _polynomial(call, coefficients, distance)
        taps.append(_tap(call, element, weight, extent, call.attr("padding_mode") == "zeros"))
    return taps


def _polynomial(call: OnnxCall, coefficients: Sequence[float], x: Value) -> Value:
    first, *others, last = coefficients
    value = call.scaled(x, first)
    for coefficient in others:
        value = call.op("elemwise_mul", call.shifted(value, coefficient), x)
    return call.shifted(value, last)


@converter("AffineGrid", since=20, decides=(1,))
@in_float32
def affine_grid(call: OnnxCall) -> Value:
    """The map of every place, from -1 to 1 along each axis, of which the last comes first."""
    theta, sizes = call[0], call.ints(1, "the size")
    n, rank, _ = call.shape(theta)
    extents = sizes[2:]
    if call.shape(theta) != (sizes[0], len(extents), len(extents) + 1):
        raise FormatError(f"maps of shape {theta.shape} for a grid of {sizes}")
    call.check_table(rank + 1, *extents)
    lines = [_from_minus_one(extent, bool(call.attr("align_corners"))) for extent in extents]
    grids = np.meshgrid(*lines, indexing="ij")
    table = np.stack([*grids[::-1], np.ones_like(grids[0])]).reshape(rank + 1, prod(extents))
    places = call.op("matmul", call.reshape(theta, (n * rank, rank + 1)), call.make(table, call.dtype(theta)))
    moved = call.transposed(call.reshape(places, (n, rank, prod(extents))), (0, 2, 1))
    return call.reshape(moved, (n, *extents, rank))


def _from_minus_one(extent: int, align_corners: bool) -> np.ndarray:
    """Places from -1 to 1: of the first and last elements, or of their outer sides."""
    places = np.arange(extent, dtype=np.float64)
    if align_corners:
        return places * 2 / (extent - 1) - 1 if extent > 1 else places * 0
    return (2 * places + 1) / extent - 1


# Deformable convolutions.


@converter("DeformConv", since=19)
@in_float32
def deform_conv(call: OnnxCall) -> Value:
    """The elements under all taps of all places, as a matrix, times the filters."""
    data, weight, bias, mask = call[0], call[1], call.get(3), call.get(4)
    (n, channels, *_), (filters, _, *kernel) = call.shape(data), call.shape(weight, "the weight")
    places, count, groups = call.shape(call[2])[2:], call.attr("offset_group"), call.attr("group")
    if min(count, groups) < 1 or channels % count or channels % groups or filters % groups:
        raise FormatError(f"{channels} channels, {filters} filters, {groups} groups and {count} of offsets")
    taps, size = prod(kernel), prod(places)
    apart = call.reshape(data, (n * count, channels // count, *call.shape(data)[2:]))
    columns = _columns(call, apart, _deformed(call, kernel, count))
    if mask is not None:
        columns = call.op("broadcast_mul", columns, call.reshape(mask, (n * count, 1, taps * size)))
    matrix = call.reshape(columns, (n, groups, channels // groups * taps, size))
    kernels = call.reshape(weight, (1, groups, filters // groups, channels // groups * taps))
    kernels = call.broadcast_to(kernels, (n, *call.shape(kernels)[1:]))
    result = call.reshape(call.op("batch_matmul", kernels, matrix), (n, filters, *places))
    if bias is None:
        return result
    return call.op("broadcast_add", result, call.reshape(bias, (filters, *[1] * len(places))))


def _deformed(call: OnnxCall, kernel: Sequence[int], count: int) -> list[Value]:
    """(n * groups of offsets, taps * places) an axis: where the taps of a plain convolution stand, moved by
    the offsets, which have one number an axis for each tap of each group."""
    n, wide, *places = call.shape(call[2])
    rank, taps = len(kernel), prod(kernel)
    windows = windows_of(call, tuple(kernel))
    if call.attr("kernel_shape") not in (None, list(kernel)) or wide != count * taps * rank:
        raise FormatError(f"{wide} offsets for a kernel of {tuple(kernel)} in {count} groups")
    call.check_table(2 * rank, *kernel, *places)
    grids = np.indices((*kernel, *places)).reshape(2 * rank, -1)
    offsets = call.reshape(call[2], (n * count, taps, rank, prod(places)))
    moved = []
    for axis in range(rank):
        plain = grids[rank + axis] * windows.strides[axis] + grids[axis] * windows.dilation[axis] - windows.pads[axis]
        part = call.reshape(call.sliced(offsets, {2: (axis, axis + 1, 1)}), (n * count, taps * prod(places)))
        moved.append(call.op("broadcast_add", part, call.make(plain[None], call.dtype(part))))
    return moved


def _columns(call: OnnxCall, data: Value, places: list[Value]) -> Value:
    """(n, c, places): the data between elements, with zeros around; of images by one operator, for which
    places are from -1 to 1 between the outer sides of the outermost elements."""
    extents = call.shape(data)[2:]
    if len(places) != 2:
        taps = [_linear(call, place, extent, open_ends=True) for place, extent in zip(places, extents)]
        return _total(call, _read(call, data, taps))
    y, x = (call.shifted(call.scaled(place, 2 / n), 1 / n - 1) for place, n in zip(places, extents))
    rows = call.op("expand_dims", call.op("stack", x, y, axis=2), axis=1)
    return call.op("squeeze", call.op("grid_sample", data, rows), axis=(2,))
