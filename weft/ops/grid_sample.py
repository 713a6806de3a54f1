"""Images read at places that a network computes, interpolated between elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..base.dtype import INT64
from ..base.shape import Shape, unify_dim
from ..core.schema import BOOL, attr, choice, schema
from . import _layouts as layouts
from ._families import OPAQUE, F, attributes, define, floating, ranked
from ._kernels import Body, variable, wide_dtype

Shapes = Sequence[Shape]


@schema
class GridSampleAttrs:
    padding: str = attr(choice("zeros", "border"), "what is outside the image", default="zeros")
    align_corners: bool = attr(
        BOOL, "whether -1 and 1 are the centres of the first and last elements, not their outer "
        "sides", default=False,
    )  # fmt: skip


def _shape(params: GridSampleAttrs, ins: Shapes, outs: Shapes) -> Any:
    n, c, height, width = ranked(ins[0], 4, "the data")
    batch, rows, columns, two = ranked(ins[1], 4, "the grid")
    n = unify_dim(n, batch)
    unify_dim(two, 2)
    return [(n, c, height, width), (n, rows, columns, 2)], [(n, c, rows, columns)]


def _grad_shape(params: GridSampleAttrs, ins: Shapes, outs: Shapes) -> Any:
    given, (out,) = _shape(params, ins[1:], [None])
    return [out, *given], [given[0]]


def _grid_grad_shape(params: GridSampleAttrs, ins: Shapes, outs: Shapes) -> Any:
    given, (out,) = _shape(params, ins[1:], [None])
    return [out, *given], [given[1]]


def _scale(params: GridSampleAttrs, extent: int) -> float:
    """Elements for one unit of the grid."""
    return (extent - 1) / 2 if params.align_corners else extent / 2


# numpy


def _places(params: GridSampleAttrs, grid: Any, axis: int, extent: int) -> tuple[Any, Any, Any]:
    """The element before each place along an axis, the part of the way to the next, and whether the
    place moves with the grid."""
    number = grid[..., 1 - axis]
    kind = number.dtype.type
    place = (number + kind(1)) * kind(_scale(params, extent))
    place = place if params.align_corners else place - kind(0.5)
    inside = np.ones(place.shape, bool)
    if params.padding == "border":
        inside = (place >= 0) & (place <= extent - 1)
        place = np.where(place > 0, np.minimum(place, kind(extent - 1)), kind(0))
    place = np.where(place > -2, np.minimum(place, kind(extent + 1)), kind(-2))
    first = np.floor(place)
    return first.astype(INT64), place - first, inside


def _corners(params: GridSampleAttrs, x: Any, grid: Any) -> Any:
    """(row, weight, column, weight, there) for the four elements around every place, and their
    distances and what moves."""
    height, width = x.shape[2:]
    (y, down, moves_y), (z, across, moves_x) = (
        _places(params, grid, axis, extent) for axis, extent in enumerate((height, width))
    )
    made = []
    for row, vertical in ((y, 1 - down), (y + 1, down)):
        for column, level in ((z, 1 - across), (z + 1, across)):
            there = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            made.append(
                (np.where(there, row, 0), vertical, np.where(there, column, 0), level, there)
            )
    return made, (down, across), (moves_y, moves_x)


def _taken(x: Any, row: Any, column: Any, there: Any) -> Any:
    """(n, c, rows, columns): elements, 0 where there are none."""
    if not x.shape[2] * x.shape[3]:
        return np.zeros((*x.shape[:2], *row.shape[1:]), x.dtype)
    image = np.arange(len(x))[:, None, None, None]
    channel = np.arange(x.shape[1])[None, :, None, None]
    return np.where(there[:, None], x[image, channel, row[:, None], column[:, None]], 0)


def _reference(params: GridSampleAttrs, x: Any, grid: Any) -> Any:
    wide = wide_dtype(x.dtype)
    made = np.zeros((*x.shape[:2], *grid.shape[1:3]), wide)
    with np.errstate(all="ignore"):
        for row, vertical, column, level, there in _corners(params, x, grid.astype(wide))[0]:
            value = _taken(x.astype(wide), row, column, there)
            weight = np.where(there, vertical * level, 0)
            made += np.where(there[:, None], value * weight[:, None], 0)
    return made.astype(x.dtype)


def _grad_reference(params: GridSampleAttrs, g: Any, x: Any, grid: Any) -> Any:
    wide = wide_dtype(x.dtype)
    made = np.zeros(x.shape, wide)
    if not made.size or not g.size:
        return made.astype(x.dtype)
    image = np.arange(len(x))[:, None, None, None]
    channel = np.arange(x.shape[1])[None, :, None, None]
    with np.errstate(all="ignore"):
        for row, vertical, column, level, there in _corners(params, x, grid.astype(wide))[0]:
            share = g.astype(wide) * (vertical * level)[:, None]
            share = np.where(there[:, None], share, 0)
            np.add.at(made, (image, channel, row[:, None], column[:, None]), share)
    return made.astype(x.dtype)


def _grid_grad_reference(params: GridSampleAttrs, g: Any, x: Any, grid: Any) -> Any:
    wide = wide_dtype(x.dtype)
    with np.errstate(all="ignore"):
        corners, (down, across), moves = _corners(params, x, grid.astype(wide))
        a, b, c, d = (_taken(x.astype(wide), r, z, t) for r, _, z, _, t in corners)
        down, across = down[:, None], across[:, None]
        slopes = ((c - a) * (1 - across) + (d - b) * across, (b - a) * (1 - down) + (d - c) * down)
        sums = [(slope * g.astype(wide)).sum(1) for slope in slopes]
        parts = [
            np.where(move, total * wide.type(_scale(params, extent)), 0)
            for total, move, extent in zip(sums, moves, x.shape[2:])
        ]
    return np.stack(parts[::-1], -1).astype(x.dtype)


# te and loops


def _te_place(params: GridSampleAttrs, number: te.Expr, extent: int) -> tuple[te.Expr, te.Expr]:
    """Where a number of the grid is along an axis, and whether it moves with the grid."""
    place = (number + 1.0) * _scale(params, extent)
    place = place if params.align_corners else place - 0.5
    inside: te.Expr = te.const(True, "bool")
    if params.padding == "border":
        inside = (place >= 0.0) & (place <= float(extent - 1))
        place = te.select(place > 0.0, te.min(place, float(extent - 1)), 0.0)
    return te.select(place > -2.0, te.min(place, float(extent + 1)), -2.0), inside


def _compute(params: GridSampleAttrs, x: te.Tensor, grid: te.Tensor) -> te.Tensor:
    n, channels, height, width = x.shape
    rows, columns = grid.shape[1:3]
    wide = wide_dtype(x.dtype)

    def places(axis: int, extent: int) -> te.Tensor:
        def value(*i: Any) -> Any:
            return _te_place(params, te.cast(grid[(*i, 1 - axis)], wide), extent)[0]

        return te.compute((n, rows, columns), value, name="place")

    down, across = places(0, height), places(1, width)

    def element(b: Any, c: Any, i: Any, j: Any) -> Any:
        y, z = down[b, i, j], across[b, i, j]
        y0, z0 = te.floor(y), te.floor(z)
        total: Any = te.const(0, wide)
        if not height * width:
            return te.cast(total, x.dtype)
        for row, vertical in ((y0, 1.0 - (y - y0)), (y0 + 1.0, y - y0)):
            for column, level in ((z0, 1.0 - (z - z0)), (z0 + 1.0, z - z0)):
                there = (row >= 0.0) & (row <= height - 1.0) & (column >= 0.0)
                there = there & (column <= width - 1.0)
                at = [te.cast(te.select(there, v, 0.0), "int64") for v in (row, column)]
                value = te.cast(x[(b, c, *at)], wide)
                total = total + te.select(there, value * (vertical * level), 0.0)
        return te.cast(total, x.dtype)

    return te.compute((n, channels, rows, columns), element, name="grid_sample")


class _Around:
    """The four elements around a place, while loops are written."""

    def __init__(self, b: Any, params: GridSampleAttrs, grid: Any, at: Any, wide: Any, size: Any):
        found = [
            _te_place(params, te.cast(grid[(*at, 1 - axis)], wide), extent)
            for axis, extent in enumerate(size)
        ]
        places = [b.let("place", place) for place, _ in found]
        self.moves = [inside for _, inside in found]
        firsts = [b.let("first", te.cast(te.floor(place), INT64)) for place in places]
        self.parts = [b.let("part", place - te.floor(place)) for place in places]
        self.taps = []
        for r in (0, 1):
            for c in (0, 1):
                row, column = firsts[0] + r, firsts[1] + c
                there = (row >= 0) & (row < size[0]) & (column >= 0) & (column < size[1])
                down, across = self.parts
                weight = (down if r else 1.0 - down) * (across if c else 1.0 - across)
                self.taps.append((row, column, weight, b.let("there", there)))


def _grad_kernels(params: GridSampleAttrs, inputs: Any, outputs: Any) -> Any:
    """A channel of an image a thread."""
    ((n, channels, rows, columns), dtype), ((_, _, height, width), _), _ = inputs
    wide = wide_dtype(dtype)
    body = Body("grid_sample_grad", inputs, outputs)
    data = (n, channels, height, width)
    total = 3 if wide == dtype else body.temporary(data, wide)
    views = {0: (n, channels, rows, columns), 2: (n, rows, columns, 2), total: data, 3: data}
    made = body.kernel(views, 64 * n * channels * rows * columns)
    with made as (b, g, grid, *sums), b.parallel("p", n * channels) as p:
        image, c = b.let("image", p // max(channels, 1)), b.let("c", p % max(channels, 1))
        with b.loop("y", height) as y, b.loop("z", width) as z:
            b.store(sums[0], (image, c, y, z), 0)
        with b.loop("i", rows) as i, b.loop("j", columns) as j:
            around = _Around(b, params, grid, (image, i, j), wide, (height, width))
            given = b.let("given", te.cast(g[image, c, i, j], wide))
            for row, column, weight, there in around.taps:
                at = (image, c, row, column)
                with b.when(there):
                    b.store(sums[0], at, sums[0][at] + given * weight)
        if total != 3:
            with b.loop("y", height) as y, b.loop("z", width) as z:
                at = (image, c, y, z)
                b.store(sums[-1], at, te.cast(sums[0][at], dtype))
    return body.kernels


def _grid_grad_kernels(params: GridSampleAttrs, inputs: Any, outputs: Any) -> Any:
    """A row of the grid a thread."""
    ((n, channels, rows, columns), dtype), ((_, _, height, width), _), _ = inputs
    wide = wide_dtype(dtype)
    body = Body("grid_sample_grad_grid", inputs, outputs)
    views = {0: (n, channels, rows, columns), 1: (n, channels, height, width)}
    views |= {2: (n, rows, columns, 2), 3: (n, rows, columns, 2)}
    made = body.kernel(views, 64 * n * channels * rows * columns)
    with made as (b, g, x, grid, out), b.parallel("p", n * rows) as p:
        image, i = b.let("image", p // max(rows, 1)), b.let("i", p % max(rows, 1))
        sums = [variable(b, "sum", 0, wide) for _ in range(2)]
        values = [variable(b, "value", 0, wide) for _ in range(4)]
        with b.loop("j", columns) as j:
            around = _Around(b, params, grid, (image, i, j), wide, (height, width))
            for total in sums:
                b.store(total, (), 0)
            with b.loop("c", channels) as c:
                for value, (row, column, _, there) in zip(values, around.taps):
                    b.store(value, (), 0)
                    with b.when(there):
                        b.store(value, (), te.cast(x[image, c, row, column], wide))
                a, e, f, d = (b.let("v", value[()]) for value in values)
                down, across = around.parts
                slopes = (
                    (f - a) * (1.0 - across) + (d - e) * across,
                    (e - a) * (1.0 - down) + (d - f) * down,
                )
                given = b.let("given", te.cast(g[image, c, i, j], wide))
                for total, slope in zip(sums, slopes):
                    b.store(total, (), total[()] + slope * given)
            for axis, (total, moves) in enumerate(zip(sums, around.moves)):
                value = total[()] * _scale(params, (height, width)[axis])
                value = te.select(moves, value, 0.0)
                b.store(out, (image, i, j, 1 - axis), te.cast(value, dtype))
    return body.kernels


_INPUTS = {
    "data": "(n, c, height, width)",
    "grid": "(n, rows, columns, 2): x and y of every place, -1 to 1 being the image",
}
_GRAD = {"ograd": "the gradient of the output", **_INPUTS}


def _gradient(ctx: Any, g: Any) -> list[Any]:
    given = attributes(ctx.params)
    made = (F._grid_sample_grad, F._grid_sample_grad_grid)
    return [op(g, *ctx.inputs, **given) for op in made]


grid_sample = define(
    "grid_sample",
    "The data at every place of the grid, interpolated between the four elements around it.",
    level=4, inputs=_INPUTS, attrs=GridSampleAttrs, pattern=OPAQUE, shape=_shape, dtype=floating,
    layout=layouts.fixed_unknown, reference=_reference, compute=_compute, gradient=_gradient,
)  # fmt: skip

grid_sample_grad = define(
    "_grid_sample_grad", "ograd, shared by the elements that grid_sample reads.", level=10,
    inputs=_GRAD, attrs=GridSampleAttrs, pattern=OPAQUE, shape=_grad_shape, dtype=floating,
    layout=layouts.fixed_unknown, reference=_grad_reference, kernels=_grad_kernels,
    ignored_inputs=[1],
)  # fmt: skip

grid_sample_grad_grid = define(
    "_grid_sample_grad_grid", "The gradient of the places that grid_sample reads.", level=10,
    inputs=_GRAD, attrs=GridSampleAttrs, pattern=OPAQUE, shape=_grid_grad_shape, dtype=floating,
    layout=layouts.fixed_unknown, reference=_grid_grad_reference, kernels=_grid_grad_kernels,
)  # fmt: skip
