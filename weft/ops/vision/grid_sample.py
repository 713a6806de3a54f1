"""Images read at places that a network computes, interpolated between elements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import BOOL as BOOL8
from ...base.dtype import INT64
from ...base.shape import unify_dim
from ...core.schema import BOOL, attr, choice, schema
from ...te.visit import masked_load
from .._families import OGRAD, F, Inferred, Shapes, attributes, define, floating, ranked
from .._kernels import VECTOR, Body, variable, wide_dtype

BLOCK = 4 * VECTOR  # places that a thread takes at a time
CHANNELS = 8  # the same of channels


@schema
class GridSampleAttrs:
    mode: str = attr(
        choice("bilinear", "nearest"),
        "whether places are between four elements, or are the nearest one",
        default="bilinear",
    )
    padding: str = attr(choice("zeros", "border", "reflection"), "what is outside the image", default="zeros")
    align_corners: bool = attr(
        BOOL, "whether -1 and 1 are the centres of the first and last elements, not their outer sides", default=False
    )


def _shape(params: GridSampleAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    n, c, height, width = ranked(ins[0], 4, "the data")
    batch, rows, columns, two = ranked(ins[1], 4, "the grid")
    n = unify_dim(n, batch)
    unify_dim(two, 2)
    return [(n, c, height, width), (n, rows, columns, 2)], [(n, c, rows, columns)]


def _grad_shape(params: GridSampleAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shapes, (out,) = _shape(params, ins[1:], [None])
    return [out, *shapes], [shapes[0]]


def _grid_grad_shape(params: GridSampleAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shapes, (out,) = _shape(params, ins[1:], [None])
    return [out, *shapes], [shapes[1]]


def _scale(params: GridSampleAttrs, extent: int) -> float:
    """Elements for one unit of the grid."""
    return (extent - 1) / 2 if params.align_corners else extent / 2


# numpy


def _places(params: GridSampleAttrs, grid: Any, axis: int, extent: int) -> tuple[list[tuple[Any, Any]], Any]:
    """The elements that each place reads along an axis with their weights, and how many of them it
    moves by when the number in the grid grows by one."""
    number = grid[..., 1 - axis]
    kind = number.dtype.type
    scale = kind(_scale(params, extent))
    place = (number + kind(1)) * scale
    place = place if params.align_corners else place - kind(0.5)
    slope = np.full(place.shape, scale)
    if params.padding == "reflection":
        low, period = _mirrors(params, extent)
        left = np.fmod(np.abs(place - kind(low)), kind(period))
        slope = np.where((place < low) != (2 * left > period), -slope, slope)
        place = np.minimum(left, kind(period) - left) + kind(low)
    if params.padding != "zeros":
        slope = np.where((place > 0) & (place < extent - 1), slope, 0)
        place = np.where(place > 0, np.minimum(place, kind(extent - 1)), kind(0))
    place = np.where(place > -2, np.minimum(place, kind(extent + 1)), kind(-2))
    if params.mode == "nearest":
        return [(np.rint(place).astype(INT64), np.ones_like(place))], slope
    first = np.floor(place)
    part, index = place - first, first.astype(INT64)
    return [(index, 1 - part), (index + 1, part)], slope


def _mirrors(params: GridSampleAttrs, extent: int) -> tuple[float, int]:
    """The first of the places at which images are mirrored, and after how many elements they
    repeat."""
    return (0.0, max(2 * (extent - 1), 1)) if params.align_corners else (-0.5, 2 * extent)


def _taps(params: GridSampleAttrs, x: Any, grid: Any) -> Any:
    """(row, weight, column, weight, there) for the elements around every place, row by row, and the
    slopes of the places."""
    height, width = x.shape[2:]
    (rows, down), (columns, across) = (
        _places(params, grid, axis, extent) for axis, extent in enumerate((height, width))
    )
    taps = []
    for row, vertical in rows:
        for column, level in columns:
            there = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            taps.append((np.where(there, row, 0), vertical, np.where(there, column, 0), level, there))
    return taps, (down, across)


def _taken(x: Any, row: Any, column: Any, there: Any) -> Any:
    """(n, c, rows, columns): elements, 0 where there are none."""
    if not x.shape[2] * x.shape[3]:
        return np.zeros((*x.shape[:2], *row.shape[1:]), x.dtype)
    image = np.arange(len(x))[:, None, None, None]
    channel = np.arange(x.shape[1])[None, :, None, None]
    return np.where(there[:, None], x[image, channel, row[:, None], column[:, None]], 0)


def _reference(params: GridSampleAttrs, x: Any, grid: Any) -> Any:
    wide = wide_dtype(x.dtype)
    out = np.zeros((*x.shape[:2], *grid.shape[1:3]), wide)
    with np.errstate(all="ignore"):
        for row, vertical, column, level, there in _taps(params, x, grid.astype(wide))[0]:
            value = _taken(x.astype(wide), row, column, there)
            weight = np.where(there, vertical * level, 0)
            out += np.where(there[:, None], value * weight[:, None], 0)
    return out.astype(x.dtype)


def _grad_reference(params: GridSampleAttrs, g: Any, x: Any, grid: Any) -> Any:
    wide = wide_dtype(x.dtype)
    grad = np.zeros(x.shape, wide)
    if not grad.size or not g.size:
        return grad.astype(x.dtype)
    image = np.arange(len(x))[:, None, None, None]
    channel = np.arange(x.shape[1])[None, :, None, None]
    with np.errstate(all="ignore"):
        for row, vertical, column, level, there in _taps(params, x, grid.astype(wide))[0]:
            share = g.astype(wide) * (vertical * level)[:, None]
            share = np.where(there[:, None], share, 0)
            np.add.at(grad, (image, channel, row[:, None], column[:, None]), share)
    return grad.astype(x.dtype)


def _grid_grad_reference(params: GridSampleAttrs, g: Any, x: Any, grid: Any) -> Any:
    wide = wide_dtype(x.dtype)
    if params.mode == "nearest":
        return np.zeros(grid.shape, x.dtype)
    with np.errstate(all="ignore"):
        taps, slopes = _taps(params, x, grid.astype(wide))
        a, b, c, d = (_taken(x.astype(wide), r, z, t) for r, _, z, _, t in taps)
        (_, top, _, left, _), *_, (_, low, _, right, _) = taps
        top, left, low, right = (weight[:, None] for weight in (top, left, low, right))
        steps = ((c - a) * left + (d - b) * right, (b - a) * top + (d - c) * low)
        sums = [(step * g.astype(wide)).sum(1) for step in steps]
        parts = [np.where(slope != 0, total * slope, 0) for total, slope in zip(sums, slopes)]
    return np.stack(parts[::-1], -1).astype(x.dtype)


# Loops: places in lanes, and for each of them all channels.


def _te_place(params: GridSampleAttrs, number: te.Expr, extent: te.Expr) -> tuple[te.Expr, te.Expr]:
    """Where a number of the grid is along an axis, and how far it moves with the grid."""
    last = extent - 1.0
    slope = (last if params.align_corners else extent) * 0.5
    place = (number + 1.0) * slope
    place = place if params.align_corners else place - 0.5
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
    outside, its weight, and whether it is inside."""

    at: te.Expr
    weight: te.Expr
    there: te.Expr


class _Sampled:
    """What the three kernels share: images seen as rows of elements, the grid as a row of places,
    and what a place reads."""

    def __init__(self, params: GridSampleAttrs, data: Any, grid: Any, dtype: Any) -> None:
        self.params, self.wide = params, wide_dtype(dtype)
        self.n, self.channels, self.height, self.width = data
        self.spots = grid[1] * grid[2]
        self.blocks = (self.spots + (BLOCK - 1)) // BLOCK
        self.images = (self.n, self.channels, self.height * self.width)
        self.results = (self.n, self.channels, self.spots)
        self.grid = (self.n, self.spots, 2)
        self.work = 4 * self.n * self.channels * self.spots

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

    def taps(self, b: te.KernelBuilder, grid: te.Buffer, at: Any) -> tuple[list[_Tap], Any, Any]:
        """The elements that a place reads, row by row, their weights along both axes, and the
        slopes."""
        extents = [te.as_expr(extent) for extent in (self.height, self.width)]
        places = []
        for axis, extent in enumerate(extents):
            number = te.cast(grid[(*at, 1 - axis)], self.wide)
            places.append(_te_place(self.params, number, te.cast(extent, self.wide)))
        slopes = [slope for _, slope in places]
        (rows, down), (columns, across) = (self._along(b, place) for place, _ in places)
        taps = []
        for row, vertical in zip(rows, down):
            for column, level in zip(columns, across):
                pairs = list(zip((row, column), extents))
                there = (row >= 0) & (row < extents[0]) & (column >= 0) & (column < extents[1])
                y, z = (te.max(te.min(index, extent - 1), 0) for index, extent in pairs)
                at = b.let("at", y * extents[1] + z)
                taps.append(_Tap(at, b.let("weight", vertical * level), b.let("there", there)))
        return taps, (down, across), slopes

    def _along(self, b: te.KernelBuilder, place: te.Expr) -> tuple[list[te.Expr], list[te.Expr]]:
        """The elements along an axis, and their weights."""
        if self.params.mode == "nearest":
            nearest = b.let("nearest", te.cast(te.round(place), INT64))
            return [nearest], [te.const(1, self.wide)]
        place = b.let("place", place)
        first = b.let("first", te.cast(te.floor(place), INT64))
        part = b.let("part", place - te.floor(place))
        return [first, first + 1], [b.let("rest", 1.0 - part), part]


def _kernels(params: GridSampleAttrs, inputs: Any, outputs: Any) -> Any:
    (data, dtype), (grid_shape, _) = inputs
    sampled = _Sampled(params, data, grid_shape, dtype)
    body = Body("grid_sample", inputs, outputs)
    views = {0: sampled.images, 1: sampled.grid, 2: sampled.results}
    with body.kernel(views, sampled.work) as (b, x, grid, out), sampled.places(b) as (image, spot):
        taps, _, _ = sampled.taps(b, grid, (image, spot))
        with b.loop("c", sampled.channels) as c:
            total: te.Expr = te.const(0, sampled.wide)
            for at, weight, there in taps:
                value = masked_load(x, (image, c, at), there)
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
    taps = 1 if sampled.params.mode == "nearest" else 4
    places = b.alloc("places", INT64, (taps, VECTOR))
    weights = b.alloc("weights", sampled.wide, (taps, VECTOR))
    inside = b.alloc("inside", BOOL8, (taps, VECTOR))
    shares = b.alloc("shares", sampled.wide, (taps, VECTOR))
    spots = sampled.spots if sampled.height * sampled.width else 0
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
    body = Body("grid_sample_grad_grid", inputs, outputs)
    views = {0: sampled.results, 1: sampled.images, 2: sampled.grid, 3: sampled.grid}
    with body.kernel(views, sampled.work) as (b, g, x, grid, out), sampled.places(b) as (image, spot):
        if params.mode == "nearest":
            for axis in (0, 1):
                b.store(out, (image, spot, axis), 0)
            return body.kernels
        taps, (down, across), slopes = sampled.taps(b, grid, (image, spot))
        sums = [variable(b, "sum", 0, sampled.wide) for _ in slopes]
        with b.loop("c", sampled.channels) as c:
            loaded = [masked_load(x, (image, c, tap.at), tap.there) for tap in taps]
            e, f, h, k = (b.let("v", te.cast(value, sampled.wide)) for value in loaded)
            steps = ((h - e) * across[0] + (k - f) * across[1], (f - e) * down[0] + (k - h) * down[1])
            ograd = b.let("given", te.cast(g[image, c, spot], sampled.wide))
            for total, step in zip(sums, steps):
                b.store(total, (), total[()] + step * ograd)
        for axis, (total, slope) in enumerate(zip(sums, slopes)):
            value = te.select(slope.not_equal(0.0), total[()] * slope, 0.0)
            b.store(out, (image, spot, 1 - axis), te.cast(value, dtype))
    return body.kernels


_INPUTS = {
    "data": "(n, c, height, width)",
    "grid": "(n, rows, columns, 2): x and y of every place, -1 to 1 being the image",
}
_GRAD = {**OGRAD, **_INPUTS}


def _gradient(ctx: Any, g: Any) -> list[Any]:
    attrs = attributes(ctx.params)
    rules = (F._grid_sample_grad, F._grid_sample_grad_grid)
    return [op(g, *ctx.inputs, **attrs) for op in rules]


grid_sample = define(
    "grid_sample",
    "The data at every place of the grid, interpolated between the four elements around it, or "
    "those of the nearest elements.",
    level=4,
    inputs=_INPUTS,
    attrs=GridSampleAttrs,
    shape=_shape,
    dtype=floating,
    reference=_reference,
    kernels=_kernels,
    reference_cost="gathers",
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
    reference_cost="gathers",
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
    reference_cost="gathers",
    open_body=True,
)
