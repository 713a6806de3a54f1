"""Images and volumes read at places that a network computes, interpolated between elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import BOOL as BOOL8
from ...base.dtype import INT64
from ...base.errors import ShapeError
from ...base.shape import show, unify_dim
from ...core.schema import BOOL, attr, choice, schema
from .._families import OGRAD, F, Inferred, Shapes, attributes, define, floating, ranked
from .._kernels import VECTOR, Body, variable, wide_dtype

BLOCK = 4 * VECTOR  # places that a thread takes at a time
CHANNELS = 8  # the same of channels
BEND = -0.75  # of the cubic filter


@schema
class GridSampleAttrs:
    mode: str = attr(
        choice("bilinear", "nearest", "bicubic"),
        "whether places are between the two elements beside them along each axis, are the nearest one, or are on "
        "curves through four",
        default="bilinear",
    )
    padding: str = attr(choice("zeros", "border", "reflection"), "what is outside the image", default="zeros")
    align_corners: bool = attr(
        BOOL, "whether -1 and 1 are the centres of the first and last elements, not their outer sides", default=False
    )


def _shape(params: GridSampleAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    ranks = {len(shape) for shape in (*ins, *outs) if shape is not None}
    if not ranks:
        return list(ins), list(outs)
    rank = ranks.pop() if len(ranks) == 1 else 0
    if rank not in (4, 5) or (rank == 5 and params.mode == "bicubic"):
        shapes = ", ".join(show(shape) for shape in ins)
        raise ShapeError(f"data and grid have 4 dimensions or, if not in mode bicubic, 5; not {shapes}")
    n, c, *extents = ranked(ins[0], rank, "the data")
    batch, *places, numbers = ranked(ins[1], rank, "the grid")
    n = unify_dim(n, batch)
    unify_dim(numbers, rank - 2)
    return [(n, c, *extents), (n, *places, rank - 2)], [(n, c, *places)]


def _grad_shape(params: GridSampleAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shapes, (out,) = _shape(params, ins[1:], [None])
    return [out, *shapes], [shapes[0]]


def _grid_grad_shape(params: GridSampleAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shapes, (out,) = _shape(params, ins[1:], [None])
    return [out, *shapes], [shapes[1]]


# What a place reads along an axis, in numpy or in loops: a place is a number of elements from the first.


class _Reading(NamedTuple):
    """An element that places read along an axis, its weight, and how the weight grows with the place."""

    index: Any
    weight: Any
    growth: Any


def _linear(first: Any, part: Any) -> list[_Reading]:
    """Weights 1 - t and t, at t behind the first."""
    return [_Reading(first, 1.0 - part, -1.0), _Reading(first + 1, part, 1.0)]


def _cubic(part: Any) -> list[tuple[int, Any, Any]]:
    """Steps from the first element, weights and their growth at t behind it, from polynomials of the distance:
    with a = BEND, (a + 2) x^3 - (a + 3) x^2 + 1 up to 1, and a x^3 - 5a x^2 + 8a x - 4a up to 2."""
    a, rest = BEND, 1.0 - part

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1.0

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    def near_growth(x: Any) -> Any:
        return (3 * (a + 2) * x - 2 * (a + 3)) * x

    def far_growth(x: Any) -> Any:
        return (3 * a * x - 10 * a) * x + 8 * a

    before, behind = part + 1.0, rest + 1.0
    return [
        (-1, far(before), far_growth(before)),
        (0, near(part), near_growth(part)),
        (1, near(rest), -near_growth(rest)),
        (2, far(behind), -far_growth(behind)),
    ]


# numpy: the grid is (n, places, axes), its last number that of the first axis.


class _Axis(NamedTuple):
    """What places read along an axis, and how many elements they move by when the number in the grid grows by one."""

    readings: list[_Reading]
    slope: Any


def _axis(params: GridSampleAttrs, number: Any, extent: int) -> _Axis:
    kind = number.dtype.type
    scale = kind((extent - 1) / 2 if params.align_corners else extent / 2)
    place = (number + kind(1)) * scale
    place = place if params.align_corners else place - kind(0.5)
    slope = np.full(place.shape, scale)
    if params.mode == "bicubic":  # elements are brought in, not places
        low = np.floor(place)
        readings = []
        for step, weight, growth in _cubic(place - low):
            index, _ = _inward(params, low + kind(step), slope, extent)
            readings.append(_Reading(index.astype(INT64), weight, growth))
        return _Axis(readings, slope)
    place, slope = _inward(params, place, slope, extent)
    if params.mode == "nearest":
        return _Axis([_Reading(np.rint(place).astype(INT64), np.ones_like(place), kind(0))], slope)
    first = np.floor(place)
    return _Axis(_linear(first.astype(INT64), place - first), slope)


def _inward(params: GridSampleAttrs, place: Any, slope: Any, extent: int) -> tuple[Any, Any]:
    """Places as the padding moves them, and the slopes there; all end at most two elements outside."""
    kind = place.dtype.type
    if params.padding == "reflection":
        low, period = _mirrors(params, extent)
        left = np.fmod(np.abs(place - kind(low)), kind(period))
        slope = np.where((place < low) != (2 * left > period), -slope, slope)
        place = np.minimum(left, kind(period) - left) + kind(low)
    if params.padding != "zeros":
        slope = np.where((place > 0) & (place < extent - 1), slope, 0)
        place = np.where(place > 0, np.minimum(place, kind(extent - 1)), kind(0))
    return np.where(place > -2, np.minimum(place, kind(extent + 1)), kind(-2)), slope


def _mirrors(params: GridSampleAttrs, extent: int) -> tuple[float, int]:
    """The first of the places at which images are mirrored, and after how many elements they
    repeat."""
    return (0.0, max(2 * (extent - 1), 1)) if params.align_corners else (-0.5, 2 * extent)


def _axes(params: GridSampleAttrs, x: Any, grid: Any) -> list[_Axis]:
    numbers = grid.astype(wide_dtype(x.dtype)).reshape(len(grid), prod(grid.shape[1:-1]), grid.shape[-1])
    return [_axis(params, numbers[..., -1 - axis], extent) for axis, extent in enumerate(x.shape[2:])]


def _elements(axes: Sequence[_Axis], extents: Sequence[int]) -> Iterator[tuple[Sequence[_Reading], Any, Any]]:
    """For each element around places: what is read along each axis, where it is in the flat image, and whether it is
    there."""
    for readings in product(*[axis.readings for axis in axes]):
        there, at = np.bool_(True), np.int64(0)
        for reading, extent in zip(readings, extents):
            there = there & (reading.index >= 0) & (reading.index < extent)
            at = at * extent + reading.index
        yield readings, np.where(there, at, 0), there


def _flat(x: Any, wide: Any) -> Any:
    return x.astype(wide).reshape(*x.shape[:2], prod(x.shape[2:]))


def _taken(flat: Any, at: Any, there: Any) -> Any:
    """(n, c, places): elements, 0 where there are none."""
    if not flat.shape[2]:
        return np.zeros((*flat.shape[:2], at.shape[1]), flat.dtype)
    return np.where(there[:, None], np.take_along_axis(flat, at[:, None], 2), 0)


def _reference(params: GridSampleAttrs, x: Any, grid: Any) -> Any:
    wide = wide_dtype(x.dtype)
    out = np.zeros((*x.shape[:2], prod(grid.shape[1:-1])), wide)
    with np.errstate(all="ignore"):
        for readings, at, there in _elements(_axes(params, x, grid), x.shape[2:]):
            weight = prod(reading.weight for reading in readings)
            value = _taken(_flat(x, wide), at, there) * np.where(there, weight, 0)[:, None]
            out += np.where(there[:, None], value, 0)
    return out.astype(x.dtype).reshape(*x.shape[:2], *grid.shape[1:-1])


def _grad_reference(params: GridSampleAttrs, g: Any, x: Any, grid: Any) -> Any:
    wide = wide_dtype(x.dtype)
    grad = np.zeros((*x.shape[:2], prod(x.shape[2:])), wide)
    if not grad.size or not g.size:
        return grad.astype(x.dtype).reshape(x.shape)
    image = np.arange(len(x))[:, None, None]
    channel = np.arange(x.shape[1])[None, :, None]
    with np.errstate(all="ignore"):
        for readings, at, there in _elements(_axes(params, x, grid), x.shape[2:]):
            share = _flat(g, wide) * prod(reading.weight for reading in readings)[:, None]
            np.add.at(grad, (image, channel, at[:, None]), np.where(there[:, None], share, 0))
    return grad.astype(x.dtype).reshape(x.shape)


def _grid_grad_reference(params: GridSampleAttrs, g: Any, x: Any, grid: Any) -> Any:
    wide = wide_dtype(x.dtype)
    if params.mode == "nearest":
        return np.zeros(grid.shape, x.dtype)
    with np.errstate(all="ignore"):
        axes = _axes(params, x, grid)
        steps: list[Any] = [0.0] * len(axes)
        for readings, at, there in _elements(axes, x.shape[2:]):
            value = _taken(_flat(x, wide), at, there)
            steps = [step + value * _growth(readings, axis)[:, None] for axis, step in enumerate(steps)]
        sums = [(step * _flat(g, wide)).sum(1) for step in steps]
        parts = [np.where(axis.slope != 0, total * axis.slope, 0) for axis, total in zip(axes, sums)]
    return np.stack(parts[::-1], -1).astype(x.dtype).reshape(grid.shape)


def _growth(readings: Sequence[_Reading], axis: int) -> Any:
    """How the weight of an element grows with the place along an axis."""
    return prod(reading.growth if i == axis else reading.weight for i, reading in enumerate(readings))


# Loops: places in lanes, and for each of them all channels.


def _te_place(params: GridSampleAttrs, number: te.Expr, extent: te.Expr) -> tuple[te.Expr, te.Expr]:
    """Where a number of the grid is along an axis, and how far it moves with the grid."""
    slope = (extent - 1.0 if params.align_corners else extent) * 0.5
    place = (number + 1.0) * slope
    return place if params.align_corners else place - 0.5, slope


def _te_inward(params: GridSampleAttrs, place: te.Expr, slope: te.Expr, extent: te.Expr) -> tuple[te.Expr, te.Expr]:
    """Places as the padding moves them, and the slopes there; all end at most two elements outside."""
    last = extent - 1.0
    if params.padding == "reflection":
        low = 0.0 if params.align_corners else -0.5
        period = te.max(last * 2.0, 1.0) if params.align_corners else extent * 2.0
        away = te.abs(place - low)
        left = away - te.floor(away / period) * period
        for back in (place < low, left > period - left):
            slope = te.select(back, 0.0 - slope, slope)
        place = te.min(left, period - left) + low
    if params.padding != "zeros":
        slope = te.select((place > 0.0) & (place < last), slope, 0.0)
        place = te.select(place > 0.0, te.min(place, last), 0.0)
    return te.select(place > -2.0, te.min(place, extent + 1.0), -2.0), slope


class _Tap(NamedTuple):
    """An element that a place reads: where it is in the image, or the nearest element if it is
    outside, what it is along each axis, and whether it is inside."""

    at: te.Expr
    readings: tuple[_Reading, ...]
    there: te.Expr

    @property
    def weight(self) -> Any:
        return prod(reading.weight for reading in self.readings)


class _Sampled:
    """What the three kernels share: images seen as rows of elements, the grid as a row of places,
    and what a place reads."""

    def __init__(self, params: GridSampleAttrs, data: Any, grid: Any, dtype: Any) -> None:
        self.params, self.wide = params, wide_dtype(dtype)
        self.n, self.channels, *self.extents = data
        self.spots, self.elements = prod(grid[1:-1]), prod(self.extents)
        self.blocks = (self.spots + (BLOCK - 1)) // BLOCK
        self.images = (self.n, self.channels, self.elements)
        self.results = (self.n, self.channels, self.spots)
        self.grid = (self.n, self.spots, len(self.extents))
        self.each = {"nearest": 1, "bilinear": 2, "bicubic": 4}[params.mode] ** len(self.extents)
        self.work = self.each * self.n * self.channels * self.spots

    @contextmanager
    def places(self, b: te.KernelBuilder) -> Iterator[tuple[te.Expr, te.Expr]]:
        """An image and a place, in lanes."""
        blocks = max(self.blocks, 1)
        with b.parallel("p", self.n * self.blocks) as p:
            image, first = b.let("image", p // blocks), b.let("first", p % blocks * BLOCK)
            left = te.min(te.as_expr(self.spots) - first, BLOCK)
            parts = b.loop("part", (left + (VECTOR - 1)) // VECTOR)
            with parts as part, b.vector("lane", VECTOR) as lane:
                spot = b.let("spot", first + part * VECTOR + lane)
                with b.when(spot < self.spots):
                    yield image, spot

    def taps(self, b: te.KernelBuilder, grid: te.Buffer, at: Any) -> tuple[list[_Tap], list[te.Expr]]:
        """The elements that a place reads, the last axis fastest, and the slopes."""
        extents = [te.as_expr(extent) for extent in self.extents]
        last = len(extents) - 1
        axes, slopes = [], []
        for axis, extent in enumerate(extents):
            number = te.cast(grid[(*at, last - axis)], self.wide)
            readings, slope = self._along(b, number, te.cast(extent, self.wide))
            axes.append(readings)
            slopes.append(slope)
        taps = []
        for combined in product(*axes):
            there, place = te.as_expr(True), te.as_expr(0)
            for reading, extent in zip(combined, extents):
                there = there & (reading.index >= 0) & (reading.index < extent)
                place = place * extent + te.max(te.min(reading.index, extent - 1), 0)
            taps.append(_Tap(b.let("at", place), combined, b.let("there", there)))
        return taps, slopes

    def _along(self, b: te.KernelBuilder, number: te.Expr, extent: te.Expr) -> tuple[list[_Reading], te.Expr]:
        """The elements along an axis, and the slope."""
        params = self.params
        place, slope = _te_place(params, number, extent)
        if params.mode == "bicubic":
            place = b.let("place", place)
            low, part = te.floor(place), b.let("part", place - te.floor(place))
            readings = []
            for step, weight, growth in _cubic(part):
                inside, _ = _te_inward(params, low + float(step), slope, extent)
                index = b.let("index", te.cast(inside, INT64))
                readings.append(_Reading(index, b.let("weight", weight), b.let("growth", growth)))
            return readings, slope
        place, slope = _te_inward(params, place, slope, extent)
        if params.mode == "nearest":
            nearest = b.let("nearest", te.cast(te.round(place), INT64))
            return [_Reading(nearest, te.const(1, self.wide), te.const(0, self.wide))], slope
        place = b.let("place", place)
        first = b.let("first", te.cast(te.floor(place), INT64))
        part = b.let("part", place - te.floor(place))
        return _linear(first, part), slope


def _kernels(params: GridSampleAttrs, inputs: Any, outputs: Any) -> Any:
    (data, dtype), (grid_shape, _) = inputs
    sampled = _Sampled(params, data, grid_shape, dtype)
    body = Body("grid_sample", inputs, outputs)
    views = {0: sampled.images, 1: sampled.grid, 2: sampled.results}
    with body.kernel(views, sampled.work) as (b, x, grid, out), sampled.places(b) as (image, spot):
        taps, _ = sampled.taps(b, grid, (image, spot))
        weights = [b.let("weight", tap.weight) for tap in taps]
        with b.loop("c", sampled.channels) as c:
            total: te.Expr = te.const(0, sampled.wide)
            for tap, weight in zip(taps, weights):
                value = te.masked_load(x, (image, c, tap.at), tap.there)
                total = total + te.cast(value, sampled.wide) * weight
            b.store(out, (image, c, spot), te.cast(total, dtype))
    return body.kernels


def _grad_kernels(params: GridSampleAttrs, inputs: Any, outputs: Any) -> Any:
    """Some channels of an image a thread, which gives what places get to their elements one by
    one."""
    (_, dtype), (data, _), (grid_shape, _) = inputs
    sampled = _Sampled(params, data, grid_shape, dtype)
    body, wide = Body("grid_sample_grad", inputs, outputs), sampled.wide
    total = 3 if wide == dtype else body.temporary(data, wide)
    views = {0: sampled.results, 2: sampled.grid, total: sampled.images, 3: sampled.images}
    blocks = (sampled.channels + (CHANNELS - 1)) // CHANNELS
    elements = sampled.images[2]
    with body.kernel(views, sampled.work) as (b, g, grid, *sums), b.parallel("p", sampled.n * blocks) as p:
        image, first = (b.let("image", p // max(blocks, 1)), b.let("c", p % max(blocks, 1) * CHANNELS))
        count = b.let("count", te.min(te.as_expr(sampled.channels) - first, CHANNELS))
        with b.loop("c", count) as c, b.loop("i", elements) as i:
            b.store(sums[0], (image, first + c, i), 0)
        _give(b, sampled, g, grid, sums[0], (image, first, count))
        if total != 3:
            with b.loop("c", count) as c, b.loop("i", elements) as i:
                at = (image, first + c, i)
                b.store(sums[-1], at, te.cast(sums[0][at], dtype))
    return body.kernels


def _give(b: te.KernelBuilder, sampled: _Sampled, g: te.Buffer, grid: te.Buffer, sums: te.Buffer, of: Any) -> None:
    """What places of some channels get, added to the elements that they read."""
    image, first, count = of
    taps = sampled.each
    places = b.alloc("places", INT64, (taps, VECTOR))
    weights = b.alloc("weights", sampled.wide, (taps, VECTOR))
    inside = b.alloc("inside", BOOL8, (taps, VECTOR))
    shares = b.alloc("shares", sampled.wide, (taps, VECTOR))
    spots = sampled.spots if sampled.elements else 0
    with b.loop("part", (spots + (VECTOR - 1)) // VECTOR) as part:
        start = b.let("start", part * VECTOR)
        lanes = b.let("lanes", te.min(te.as_expr(spots) - start, VECTOR))
        with b.vector("lane", VECTOR) as lane, b.when(lane < lanes):
            for number, tap in enumerate(sampled.taps(b, grid, (image, start + lane))[0]):
                b.store(places, (number, lane), tap.at)
                b.store(weights, (number, lane), tap.weight)
                b.store(inside, (number, lane), tap.there)
        with b.loop("c", count) as c:
            with b.vector("lane", VECTOR) as lane, b.when(lane < lanes):
                ograd = b.let("given", te.cast(g[image, first + c, start + lane], sampled.wide))
                for number in range(taps):
                    share = ograd * weights[number, lane]
                    share = te.select(inside[number, lane], share, 0.0)
                    b.store(shares, (number, lane), share)
            with b.loop("lane", lanes) as lane:
                for number in range(taps):
                    at = (image, first + c, b.let("at", places[number, lane]))
                    b.store(sums, at, sums[at] + shares[number, lane])


def _grid_grad_kernels(params: GridSampleAttrs, inputs: Any, outputs: Any) -> Any:
    (_, dtype), (data, _), (grid_shape, _) = inputs
    sampled = _Sampled(params, data, grid_shape, dtype)
    body, last = Body("grid_sample_grad_grid", inputs, outputs), len(sampled.extents) - 1
    views = {0: sampled.results, 1: sampled.images, 2: sampled.grid, 3: sampled.grid}
    with body.kernel(views, sampled.work) as (b, g, x, grid, out), sampled.places(b) as (image, spot):
        if params.mode == "nearest":
            for axis in range(last + 1):
                b.store(out, (image, spot, axis), 0)
            return body.kernels
        taps, slopes = sampled.taps(b, grid, (image, spot))
        sums = [variable(b, "sum", 0, sampled.wide) for _ in slopes]
        growths = [[b.let("growth", _growth(tap.readings, axis)) for axis in range(last + 1)] for tap in taps]
        with b.loop("c", sampled.channels) as c:
            ograd = b.let("given", te.cast(g[image, c, spot], sampled.wide))
            steps: list[Any] = [te.const(0, sampled.wide)] * len(sums)
            for tap, growth in zip(taps, growths):
                value = b.let("v", te.cast(te.masked_load(x, (image, c, tap.at), tap.there), sampled.wide))
                steps = [step + value * more for step, more in zip(steps, growth)]
            for total, step in zip(sums, steps):
                b.store(total, (), total[()] + step * ograd)
        for axis, (total, slope) in enumerate(zip(sums, slopes)):
            value = te.select(slope.not_equal(0.0), total[()] * slope, 0.0)
            b.store(out, (image, spot, last - axis), te.cast(value, dtype))
    return body.kernels


_INPUTS = {
    "data": "(n, c, height, width), or with a depth before the height",
    "grid": "(n, rows, columns, 2): x and y of every place, -1 to 1 being the image; or (n, slices, rows, columns, 3)",
}
_GRAD = {**OGRAD, **_INPUTS}


def _gradient(ctx: Any, g: Any) -> list[Any]:
    attrs = attributes(ctx.params)
    rules = (F._grid_sample_grad, F._grid_sample_grad_grid)
    return [op(g, *ctx.inputs, **attrs) for op in rules]


grid_sample = define(
    "grid_sample",
    "The data at every place of the grid, interpolated between the elements around it, or those of the nearest "
    "elements.",
    level=4,
    inputs=_INPUTS,
    attrs=GridSampleAttrs,
    shape=_shape,
    dtype=floating,
    reference=_reference,
    kernels=_kernels,
    native_from=4096,
    open_body=True,
    gradient=_gradient,
)

grid_sample_grad = define(
    "_grid_sample_grad",
    "ograd, shared by the elements that grid_sample reads.",
    inputs=_GRAD,
    attrs=GridSampleAttrs,
    shape=_grad_shape,
    dtype=floating,
    reference=_grad_reference,
    kernels=_grad_kernels,
    native_from=4096,
    open_body=True,
    ignored_inputs=[1],
)

grid_sample_grad_grid = define(
    "_grid_sample_grad_grid",
    "The gradient of the places that grid_sample reads.",
    inputs=_GRAD,
    attrs=GridSampleAttrs,
    shape=_grid_grad_shape,
    dtype=floating,
    reference=_grid_grad_reference,
    kernels=_grid_grad_kernels,
    native_from=4096,
    open_body=True,
)
