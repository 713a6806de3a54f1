"""The greatest share that an element has in a point of a cell of a box: RoiAlign of ONNX with mode "max"."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL as BOOL_DTYPE
from ...base.dtype import FLOAT64, INT64
from ...core.schema import BOOL, FLOAT, INT, SIDES, attr, schema
from .._families import F, Inferred, Shapes, define, floating
from .._kernels import Body, variable
from ..nn._cells import BOXES, Cell, Pool, shape_rule, sides_of
from .roi_pool import SCALE, Points, align_places, emit_points, emit_taps, place_of, within


@schema
class RoiAlignMaxAttrs:
    pooled_size: tuple[int, ...] = attr(SIDES, "height and width of the output", low=1)
    spatial_scale: float = attr(FLOAT, SCALE, default=1.0)
    sample_ratio: int = attr(
        INT, "points along each side of an output cell; 0: as many as it has elements", default=0, low=0, high=1024
    )
    aligned: bool = attr(BOOL, "whether places are centres of pixels, and boxes may be smaller than one", default=False)


def _shape(params: RoiAlignMaxAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    unused: Any = lambda *_: None
    plain = Pool("", lambda p: p.pooled_size, lambda p, c: c, unused, unused, unused)
    inputs, (out,) = shape_rule(plain)(params, ins, outs)
    return inputs, [out, out, out]


def _dtype(params: Any, ins: Any, outs: Any) -> Any:
    ins, (dtype,) = floating(params, list(ins), [outs[0]])
    return ins, [dtype, INT64, FLOAT64]


def _pairs(place: Any, extent: int) -> tuple[Any, Any]:
    """(points, 2): the elements before and behind places, and how much they count."""
    before = np.floor(place).astype(INT64)
    part = place - before
    return np.stack([before, np.minimum(before + 1, extent - 1)], 1), np.stack([1 - part, part], 1)


def _reference(params: RoiAlignMaxAttrs, x: Any, boxes: Any) -> Any:
    n, channels, height, width = x.shape
    out = np.zeros((len(boxes), channels, *params.pooled_size), FLOAT64)
    places, weights = np.full(out.shape, -1, INT64), np.zeros(out.shape, FLOAT64)
    for box, i, j in np.ndindex(len(boxes), *params.pooled_size):
        if not 0 <= boxes[box, 0] < n or not height or not width:
            continue
        image, sides = int(boxes[box, 0]), sides_of(boxes, box)
        axes = [align_places(params, sides, axis, cell, x.shape[2 + axis]) for axis, cell in enumerate((i, j))]
        (rows, down), (columns, across) = (_pairs(place, x.shape[2 + axis]) for axis, (place, _) in enumerate(axes))
        if not rows.size or not columns.size:
            continue
        pairs = rows[:, None, :, None], columns[None, :, None, :]
        flat = (pairs[0] * width + pairs[1]).reshape(-1)
        weight = (down[:, None, :, None] * across[None, :, None, :]).reshape(-1)
        with np.errstate(all="ignore"):
            shares = x[image].reshape(channels, height * width)[:, flat].astype(FLOAT64) * weight
        best = np.where(np.isnan(shares), -np.inf, shares)
        first = best.argmax(1)
        top = best[np.arange(channels), first]
        outside = any(len(place) < count for place, count in axes)  # such a point counts as 0
        chosen = top > (0 if outside else -np.inf)
        out[box, :, i, j] = np.where(chosen, top, 0 if outside else -np.inf)
        numbers = (image * channels + np.arange(channels)) * height * width + flat[first]
        places[box, :, i, j] = np.where(chosen, numbers, -1)
        weights[box, :, i, j] = np.where(chosen, weight[first], 0)
    with np.errstate(over="ignore"):
        return out.astype(x.dtype), places, weights


def _all_inside(points: Points, extent: int) -> te.Expr:
    """Whether there are points along an axis, and all of them in the image, where the outermost are."""
    first, last = (place_of(points, end) for end in (te.const(0.0, FLOAT64), points.many - 1.0))
    return (points.total > 0) & within(first, extent) & within(last, extent)


def _kernels(params: RoiAlignMaxAttrs, inputs: Any, outputs: Any) -> Any:
    ((n, channels, height, width), dtype), ((count, _), _) = inputs
    rows, columns = params.pooled_size
    out_shape = (count, channels, rows, columns)
    body = Body("roi_align_max", inputs, outputs)
    views = {0: (n, channels, height, width), 1: (count, 5), **dict.fromkeys((2, 3, 4), out_shape)}
    kernel = body.kernel(views, 256 * count * channels * rows * columns)
    with kernel as (b, x, boxes, out, places, weights), b.parallel("p", count * channels) as p:
        box, c = b.let("box", p // max(channels, 1)), b.let("c", p % max(channels, 1))
        number = b.let("number", te.cast(boxes[box, 0], FLOAT64))
        there = (number >= 0.0) & (number < float(n))
        image = b.let("image", te.cast(te.select(there, number, 0.0), INT64))
        best, place = variable(b, "best", 0.0, FLOAT64), variable(b, "place", 0)
        part = variable(b, "part", 0.0, FLOAT64)
        with b.loop("i", rows) as i, b.loop("j", columns) as j:
            b.store(best, (), 0.0)
            b.store(place, (), -1)
            b.store(part, (), 0.0)
            if height and width:
                with b.when(there):
                    cell = Cell(boxes, box, i, j, height, width, te.as_expr(0))
                    down, across = (emit_points(b, params, cell, axis) for axis in (0, 1))
                    whole = _all_inside(down, height) & _all_inside(across, width)
                    b.store(best, (), te.select(whole, te.const(float("-inf"), FLOAT64), 0.0))

                    def visit(row: te.Expr, column: te.Expr, weight: te.Expr) -> None:
                        share = b.let("share", te.cast(x[image, c, row, column], FLOAT64) * weight)
                        with b.when(share > best[()]):
                            b.store(best, (), share)
                            b.store(part, (), weight)
                            b.store(place, (), ((image * channels + c) * height + row) * width + column)

                    emit_taps(b, cell, down, across, visit)
            at = (box, c, i, j)
            b.store(out, at, te.cast(best[()], dtype))
            b.store(places, at, place[()])
            b.store(weights, at, part[()])
    return body.kernels


def _gradient(ctx: Any, g: Any, *_: Any) -> list[Any]:
    """An element gets, of each cell of which it has the greatest share, the gradient times its weight there."""
    x, places, weights = ctx.inputs[0], ctx.outputs[1], ctx.outputs[2]
    some = F.cast(F.broadcast_greater_equal(places, F.zeros_like(places)), dtype=BOOL_DTYPE)
    flowing = F.where(some, F.broadcast_mul(g, F.cast_like(weights, g)), F.zeros_like(g))
    flat_g, flat_places, flat_x = (F.reshape(v, shape=(-1,)) for v in (flowing, places, x))
    return [F.reshape_like(F._gather_elements_grad(flat_g, flat_x, flat_places, axis=0), x), None]


roi_align_max = define(
    "roi_align_max",
    "Every box of every channel, split in cells with points between elements, as in roi_align; each cell is the "
    "greatest of what an element around a point adds to it, its value times its weight. Points more than one element "
    "outside count as 0, and so does a cell without points. The further outputs, which are hidden, are the number of "
    "that element in the data, or -1, and its weight.",
    level=4,
    inputs=BOXES,
    attrs=RoiAlignMaxAttrs,
    shape=_shape,
    dtype=_dtype,
    reference=_reference,
    kernels=_kernels,
    native_from=4096,
    open_body=True,
    gradient=_gradient,
    visible_outputs=1,
    output_names=["output", "places", "weights"],
)
