"""Pools whose output has a given size. Bin i of n over an extent d is [floor(i d / n),
ceil((i + 1) d / n)), so bins may overlap."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.errors import ShapeError
from ...core.schema import LAYOUT, SIDES, attr, schema
from .._families import Array, Inferred, Shapes, in_float32, widened
from ..vision._spatial import (
    at_places,
    places_of,
    spatial_axes,
    spatial_back,
    spatial_extents,
    spatial_last,
    static_extents,
    with_extents,
)
from ._windows import read
from .pool import mean_pools


@schema
class AdaptivePool2DAttrs:
    output_size: tuple[int, ...] = attr(SIDES, "height and width of the output", low=1)
    layout: str = attr(LAYOUT, "of the data", default="NCHW")


def sizes_of(params: AdaptivePool2DAttrs) -> tuple[int, int]:
    """Height and width of the output."""
    height, width = params.output_size
    return height, width


def _shape(params: AdaptivePool2DAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    spatial_axes(params)
    if ins[0] is None:
        return [None], [None]
    if 0 in spatial_extents(params, ins[0]):
        raise ShapeError("a pool over no elements has no value")
    return [ins[0]], [with_extents(params, ins[0], sizes_of(params))]


def bins_of(extent: int, count: int) -> tuple[Array, Array]:
    """Where the bins start and end."""
    number = np.arange(count)
    return number * extent // count, -(-(number + 1) * extent // count)


def _bin_sums(x: Array, axis: int, count: int) -> Array:
    starts, ends = bins_of(x.shape[axis], count)
    padding = [(0, int(a == axis % x.ndim)) for a in range(x.ndim)]  # an end is an index too
    cuts = np.stack([starts, ends], axis=1).reshape(-1)
    return np.add.reduceat(np.pad(x, padding), cuts, axis=axis).take(range(0, 2 * count, 2), axis)


def _reference(params: AdaptivePool2DAttrs, x: Array) -> Array:
    height, width = sizes_of(params)
    total = _bin_sums(_bin_sums(widened(spatial_last(params, x)), -2, height), -1, width)
    sizes = [
        np.subtract(*bins_of(extent, count)[::-1])
        for extent, count in zip(static_extents(params, x.shape), (height, width))
    ]
    return spatial_back(params, total / np.multiply.outer(*sizes), x.dtype)


def _grad_reference(params: AdaptivePool2DAttrs, g: Array, x: Array) -> Array:
    down, across = (
        list(zip(*bins_of(extent, count))) for extent, count in zip(static_extents(params, x.shape), sizes_of(params))
    )
    wide = widened(spatial_last(params, g))
    grad = np.zeros((*wide.shape[:-2], *static_extents(params, x.shape)), wide.dtype)
    for i, (top, bottom) in enumerate(down):
        for j, (left, right) in enumerate(across):
            share = (wide[..., i, j] / ((bottom - top) * (right - left))).astype(wide.dtype)
            grad[..., top:bottom, left:right] += share[..., None, None]
    return spatial_back(params, grad, g.dtype)


def bin_ends(number: Any, extent: int, count: int) -> tuple[Any, Any]:
    return number * extent // count, ((number + 1) * extent + count - 1) // count


def _longest(extent: int, count: int) -> int:
    """The most elements a bin has. Bins begin and end r / n past an element, r = extent % n: a bin
    reaches into elements at both ends unless such steps meet every whole number."""
    rest = extent % count
    if rest == 0:
        return extent // count
    return extent // count + (1 if count % rest == 0 else 2)


def _bin_size(params: AdaptivePool2DAttrs, index: Any, extents: tuple[int, int], dtype: Any) -> Any:
    total: Any = None
    for number, extent, count in zip(places_of(params, index), extents, sizes_of(params)):
        start, end = bin_ends(number, extent, count)
        total = end - start if total is None else total * (end - start)
    return te.cast(total, dtype)


@in_float32
def _compute(params: AdaptivePool2DAttrs, x: te.Tensor) -> te.Tensor:
    extents, counts = static_extents(params, x.shape), sizes_of(params)
    axes = [te.reduce_axis(_longest(*pair), "k") for pair in zip(extents, counts)]

    def element(*index: Any) -> Any:
        places, conditions = [], []
        for number, extent, count, axis in zip(places_of(params, index), extents, counts, axes):
            start, end = bin_ends(number, extent, count)
            places.append(start + axis.var)
            conditions += [places[-1] < end] if extent % count else []
        return te.sum(read(x, at_places(params, index, places), conditions, 0), axes)

    total = te.compute(with_extents(params, x.shape, counts), element, name="bin_sum")
    return te.compute(
        total.shape, lambda *i: total[i] / _bin_size(params, i, extents, x.dtype), name="adaptive_avg_pool2d"
    )


@in_float32
def _grad_compute(params: AdaptivePool2DAttrs, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    extents, counts = static_extents(params, x.shape), sizes_of(params)
    share = te.compute(g.shape, lambda *i: g[i] / _bin_size(params, i, extents, g.dtype), name="share")
    # an element is in the bins from floor(place n / d) up to ceil((place + 1) n / d)
    most = [-(-count // extent) + 1 if extent % count else 1 for extent, count in zip(extents, counts)]
    axes = [te.reduce_axis(bins, "b") for bins in most]

    def element(*index: Any) -> Any:
        numbers, conditions = [], []
        for place, extent, count, axis in zip(places_of(params, index), extents, counts, axes):
            first, end = bin_ends(place, count, extent)
            numbers.append(first + axis.var)
            conditions.append(numbers[-1] < end)
        return te.sum(read(share, at_places(params, index, numbers), conditions, 0), axes)

    return te.compute(x.shape, element, name="adaptive_avg_pool2d_grad")


mean_pools(
    "adaptive_avg_pool2d",
    "The means of bins that split height and width evenly.",
    "bin",
    AdaptivePool2DAttrs,
    _shape,
    (_reference, _compute),
    (_grad_reference, _grad_compute),
    level=5,
)
