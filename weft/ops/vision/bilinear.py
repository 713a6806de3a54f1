"""Bilinear resizing as compiled models run it: places and weights are computed once for a row and a column, and no
element asks for them again. A build puts it in the place of `resize` after gradients are taken: it has none.

Images whose innermost axis is the width are resized across into rows that stay in the cache, then down, a vector of
columns at a time; where channels are innermost, a vector has those of one place."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from ... import te
from ...base.dtype import FLOAT32, INT32, INT64
from ...base.layout import Layout
from .._families import define, single
from .._kernels import VECTOR, Body
from .._layouts import Answer, Layouts, pool
from ._spatial import spatial_axes
from .image import Axis, ResizeAttrs, _reference, _resize_shape, _te_sources, axes_of


def _layout(params: ResizeAttrs, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Blocks where the attribute names them, else as a pool."""
    named = Layout(params.layout)
    return ([named], [named]) if "c" in named else pool(params, ins, last, outs)


class _Tables(NamedTuple):
    """For each place along an axis: the two elements beside it, and the weight of the second, in memory."""

    low: te.Buffer
    high: te.Buffer
    part: te.Buffer

    def at(self, b: te.KernelBuilder, place: te.ExprLike) -> tuple[te.Expr, te.Expr, te.Expr]:
        low, high = (b.let("at", te.cast(table[place], INT64)) for table in self[:2])
        return low, high, b.let("part", self.part[place])


def _kernels(params: ResizeAttrs, inputs: Any, outputs: Any) -> Any:
    (shape, _), (out, _) = inputs[0], outputs[0]
    down, across = axes_of(params, shape, out)
    first, last = spatial_axes(params)
    outer, inner = prod(shape[:first]), prod(shape[last + 1 :])
    body = Body("bilinear", inputs, outputs)
    rows, columns = _tables(body, down), _tables(body, across)
    if inner > 1:
        _both_ways(body, outer, inner, (down, rows), (across, columns))
    else:
        wide = body.temporary((outer, down.extent, across.out), FLOAT32)
        _across(body, wide, outer * down.extent, across, columns)
        _down(body, wide, outer, across.out, down, rows)
    return body.kernels


def _tables(body: Body, axis: Axis) -> dict[int, tuple[int]]:
    """Fills tables of an axis; their positions and shapes."""
    places = [body.temporary((axis.out,), dtype) for dtype in (INT32, INT32, FLOAT32)]
    views = dict.fromkeys(places, (axis.out,))
    with body.kernel(views, work=axis.out) as (b, low, high, part), b.loop("i", axis.out) as i:
        (index, _), (after, weight) = _te_sources(axis, i)
        b.store(low, i, te.cast(index, INT32))
        b.store(high, i, te.cast(after, INT32))
        b.store(part, i, te.cast(weight, FLOAT32))
    return views


def _between(a: te.Expr, b: te.Expr, part: te.Expr) -> te.Expr:
    """a (1 - part) + b part; an element that does not count may be infinite."""
    return te.select(part.equal(0), a, a * (1 - part) + b * part)


def _each(b: te.KernelBuilder, extent: int, body: Callable[[te.Expr], None]) -> None:
    """`body(i)` for 0 <= i < extent, in vectors."""
    whole, rest = divmod(extent, VECTOR)
    if whole:
        with b.loop("v", whole) as v, b.vector("lane", VECTOR) as lane:
            body(v * VECTOR + lane)
    if rest:
        with b.vector("lane", rest) if rest > 1 else b.loop("lane", 1) as lane:
            body(whole * VECTOR + lane)


def _across(body: Body, wide: int, rows: int, axis: Axis, tables: dict[int, tuple[int]]) -> None:
    views = {0: (rows, axis.extent), wide: (rows, axis.out), **tables}
    with body.kernel(views, work=rows * axis.out) as (b, x, out, *columns), b.parallel("row", rows) as row:
        table = _Tables(*columns)

        def element(i: te.Expr) -> None:
            low, high, part = (te.cast(table.low[i], INT64), te.cast(table.high[i], INT64), table.part[i])
            b.store(out, (row, i), _between(x[row, low], x[row, high], part))

        _each(b, axis.out, element)


def _down(body: Body, wide: int, outer: int, width: int, axis: Axis, tables: dict[int, tuple[int]]) -> None:
    views = {wide: (outer, axis.extent, width), 1: (outer, axis.out, width), **tables}
    kernel = body.kernel(views, work=outer * axis.out * width)
    with kernel as (b, x, out, *rows), b.parallel("p", outer * axis.out) as p:
        o, row = b.let("o", p // axis.out), b.let("row", p % axis.out)
        low, high, part = _Tables(*rows).at(b, row)
        _each(b, width, lambda i: b.store(out, (o, row, i), _between(x[o, low, i], x[o, high, i], part)))


def _both_ways(body: Body, outer: int, inner: int, down: Any, across: Any) -> None:
    (height, rows), (width, columns) = down, across
    views = {0: (outer, height.extent, width.extent, inner), 1: (outer, height.out, width.out, inner)}
    work = outer * inner * height.out * width.out * 2
    with body.kernel({**views, **rows, **columns}, work=work) as (b, x, out, *tables):
        by_row, by_column = _Tables(*tables[:3]), _Tables(*tables[3:])
        with b.parallel("p", outer * height.out) as p:
            o, row = b.let("o", p // height.out), b.let("row", p % height.out)
            top, bottom, down_part = by_row.at(b, row)
            with b.loop("column", width.out) as column:
                left, right, part = by_column.at(b, column)

                def element(i: te.Expr) -> None:
                    above = _between(x[o, top, left, i], x[o, top, right, i], part)
                    below = _between(x[o, bottom, left, i], x[o, bottom, right, i], part)
                    b.store(out, (o, row, column, i), _between(above, below, down_part))

                _each(b, inner, element)


bilinear = define(
    "_bilinear",
    "Height and width brought to a size, each element from the four beside it.",
    attrs=ResizeAttrs,
    shape=_resize_shape,
    dtype=single,
    layout=_layout,
    reference=_reference,
    kernels=_kernels,
)
