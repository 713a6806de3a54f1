"""Converters of convolutions whose taps stand where other data says."""

from __future__ import annotations

import math
from functools import reduce
from typing import NamedTuple

import numpy as np

from ....base.dtype import INT32
from ....base.errors import FormatError
from ...emitter import Value
from ...windows import per_axis
from ..call import Call
from ..registry import converter


class TapPlaces(NamedTuple):
    """Where taps stand, one tensor an axis: (batch, groups of offsets, taps * places)."""

    y: Value
    x: Value


@converter("_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution")
def deformable_convolution(call: Call) -> Value:
    """The elements under all taps of all places, as a matrix, times the filters."""
    call.ignore("im2col_step")
    if call.attr("layout") not in (None, "NCHW") or len(call.attr("kernel")) != 2:
        raise FormatError(f"{call.op_type} is of images with channels first")
    modulated = call.op_type == "_contrib_ModulatedDeformableConvolution"
    weight, bias_at = call[2 + modulated], 3 + modulated
    batch, channels, _, _ = call.shape(call[0])
    count = call.attr("num_deformable_group")
    places = call.shape(call[1])[2:]
    if count < 1 or channels % count:
        raise FormatError(f"{channels} channels do not split into {count} groups")
    columns = _columns(call, _taps(call, count), count, call[2] if modulated else None)
    filtered = _filtered(call, columns, weight, batch, places)
    if call.attr("no_bias"):
        return filtered
    return call.op("broadcast_add", filtered, call.reshape(call[bias_at], (1, call.attr("num_filter"), 1, 1)))


def _taps(call: Call, count: int) -> TapPlaces:
    """Where the taps of a plain convolution stand, plus the offsets: (y, x) by turns."""
    kernel = call.attr("kernel")
    strides, dilation = per_axis(call, "stride", 2, 1), per_axis(call, "dilate", 2, 1)
    pads, (batch, wide, *places) = per_axis(call, "pad", 2, 0), call.shape(call[1])
    taps = math.prod(kernel)
    if wide != 2 * taps * count:
        raise FormatError(f"{wide} offsets for {taps} taps in {count} groups")
    offsets = call.reshape(call[1], (batch, count, taps, 2, math.prod(places)))
    call.check_table(4, *kernel, *places)
    grids = np.indices((*kernel, *places)).reshape(4, taps, -1)
    moved = []
    for axis in (0, 1):
        plain = grids[2 + axis] * strides[axis] + grids[axis] * dilation[axis] - pads[axis]
        part = call.sliced(offsets, {3: (axis, axis + 1, 1)})
        part = call.reshape(part, (batch, count, taps * plain.shape[1]))
        moved.append(call.op("broadcast_add", part, call.make(plain.reshape(1, 1, -1), call.dtype(part))))
    return TapPlaces(*moved)


def _columns(call: Call, taps: TapPlaces, count: int, mask: Value | None) -> Value:
    """(batch, groups, channels of a group, taps * places): the image between four elements."""
    batch, channels, height, width = call.shape(call[0])
    many = call.shape(taps.y)[2]
    data = call.reshape(call[0], (batch, count, channels // count, height * width))
    full = (batch, count, channels // count, many)
    parts = []
    for rows, vertical in _neighbours(call, taps.y, height):
        for columns, level in _neighbours(call, taps.x, width):
            flat = call.op("elemwise_add", call.scaled(rows, width), columns)
            index = call.reshape(call.cast(flat, INT32), (batch, count, 1, many))
            value = call.op("gather_elements", data, call.broadcast_to(index, full), axis=3)
            weight = call.op("elemwise_mul", vertical, level)
            if mask is not None:
                weight = call.op("elemwise_mul", weight, call.reshape(mask, (batch, count, many)))
            weight = call.reshape(weight, (batch, count, 1, many))
            parts.append(call.op("broadcast_mul", value, weight))
    return reduce(lambda a, b: call.op("elemwise_add", a, b), parts)


Neighbours = list[tuple[Value, Value]]


def _neighbours(call: Call, place: Value, extent: int) -> Neighbours:
    """The elements before and behind a place, and what they count."""
    if call.op_type == "_contrib_DeformableConvolution":
        return _neighbours_within(call, place, extent)
    first = call.op("floor", place)
    part = call.op("elemwise_sub", place, first)
    neighbours = []
    for element, weight in ((first, call.op("__rsub_scalar__", part, scalar=1.0)), (call.shifted(first, 1.0), part)):
        inside = call.op("clip", element, a_min=0.0, a_max=float(extent - 1))
        counts = call.op("broadcast_equal", inside, element)  # outside is nothing
        neighbours.append((inside, call.op("elemwise_mul", weight, counts)))
    return neighbours


def _neighbours_within(call: Call, place: Value, extent: int) -> Neighbours:
    """The first version: places before the first element count nothing, and those behind the last
    one, up to one step, are on it."""
    low, high = (call.make([edge], call.dtype(place)) for edge in (0, extent))
    counts = call.op(
        "elemwise_mul", call.op("broadcast_greater_equal", place, low), call.op("broadcast_less", place, high)
    )
    inside = call.op("clip", place, a_min=0.0, a_max=float(extent - 1))
    first = call.op("floor", inside)
    part = call.op("elemwise_sub", inside, first)
    second = call.op("clip", call.shifted(first, 1.0), a_min=0.0, a_max=float(extent - 1))
    before = call.op("__rsub_scalar__", part, scalar=1.0)
    return [(first, call.op("elemwise_mul", before, counts)), (second, call.op("elemwise_mul", part, counts))]


def _filtered(call: Call, columns: Value, weight: Value, batch: int, places: tuple[int, ...]) -> Value:
    """The filters, group by group, times the columns."""
    groups, filters = call.attr("num_group"), call.attr("num_filter")
    channels, size = call.shape(call[0])[1], math.prod(places)
    taps = math.prod(call.attr("kernel"))
    if groups < 1 or channels % groups or filters % groups:
        raise FormatError(f"{channels} channels and {filters} filters in {groups} groups")
    rows = channels // groups * taps
    matrix = call.reshape(columns, (batch, groups, rows, size))
    kernels = call.reshape(weight, (1, groups, filters // groups, rows))
    kernels = call.broadcast_to(kernels, (batch, groups, filters // groups, rows))
    return call.reshape(call.op("batch_matmul", kernels, matrix), (batch, filters, *places))
