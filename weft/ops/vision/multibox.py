"""Boxes of detection networks: anchors over an image, and boxes from what a network predicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import INT32
from ...base.errors import InvalidValue, ShapeError
from ...base.shape import mul_dims, show, unify_dim
from ...core.schema import BOOL, FLOAT, FLOATS, attr, schema
from .._families import Inferred, Shapes, define, floating, no_flow, ranked
from .._kernels import Body, variable, wide_dtype

# Anchors


@schema
class PriorAttrs:
    sizes: tuple[float, ...] = attr(FLOATS, "of boxes, as part of the height", default=(1.0,))
    ratios: tuple[float, ...] = attr(FLOATS, "width over height of boxes", default=(1.0,))
    steps: tuple[float, ...] = attr(
        FLOATS, "from centre to centre, (down, across); those below 0: one cell", default=(-1, -1)
    )
    offsets: tuple[float, ...] = attr(FLOATS, "of centres in their cells", default=(0.5, 0.5))
    clip: bool = attr(BOOL, "keep boxes within 0..1", default=False)


def _halves(params: PriorAttrs, height: int, width: int) -> list[tuple[float, float]]:
    """Half the width and height of the boxes of a cell: every size with the first ratio taken as 1,
    then the first size with every other ratio."""
    square = height / width if width else 1.0
    made = [(size * square / 2, size / 2) for size in params.sizes]
    for ratio in params.ratios[1:]:
        root = math.sqrt(ratio)
        made.append((params.sizes[0] * square * root / 2, params.sizes[0] / root / 2))
    return made


def _check_prior(params: PriorAttrs) -> None:
    if not params.sizes or not params.ratios or not all(ratio > 0 for ratio in params.ratios):
        raise InvalidValue(
            f"sizes {params.sizes} and ratios {params.ratios}",
            why="there must be at least one of each, and ratios are positive",
        )
    if len(params.steps) != 2 or len(params.offsets) != 2:
        raise InvalidValue(f"steps {params.steps} and offsets {params.offsets} are not two each")


def _prior_shape(params: PriorAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    _check_prior(params)
    _, _, height, width = ranked(ins[0], 4, "the data")
    count = len(params.sizes) + len(params.ratios) - 1
    return [None], [(1, mul_dims(mul_dims(height, width), count), 4)]


def _steps(params: PriorAttrs, height: int, width: int) -> tuple[float, float]:
    down, across = params.steps
    return (down if down > 0 else 1 / height), (across if across > 0 else 1 / width)


def _prior_reference(params: PriorAttrs, x: Any) -> Any:
    height, width = x.shape[2:]
    halves = np.array(_halves(params, height, width))
    if not height * width:
        return np.zeros((1, 0, 4), x.dtype)
    down, across = _steps(params, height, width)
    rows = (np.arange(height) + params.offsets[0]) * down
    columns = (np.arange(width) + params.offsets[1]) * across
    centres = np.stack(np.broadcast_arrays(columns[None, :], rows[:, None]), -1)[:, :, None]
    boxes = np.concatenate([centres - halves, centres + halves], -1).reshape(1, -1, 4)
    return (boxes.clip(0, 1) if params.clip else boxes).astype(x.dtype)


def _prior_compute(params: PriorAttrs, x: te.Tensor) -> te.Tensor:
    height, width = x.shape[2:]
    halves = _halves(params, height, width)
    (shape,) = _prior_shape(params, [x.shape], [None])[1]
    down, across = _steps(params, height, width) if height * width else (1.0, 1.0)

    def chosen(which: te.Expr, side: int) -> te.Expr:
        found: te.Expr = te.const(halves[0][side], "float64")
        for number, half in enumerate(halves[1:], 1):
            found = te.select(which.equal(number), te.const(half[side], "float64"), found)
        return found

    def element(_: te.Expr, box: te.Expr, side: te.Expr) -> te.Expr:
        which, cell = box % len(halves), box // len(halves)
        row = te.cast(cell // max(width, 1), "float64")
        column = te.cast(cell % max(width, 1), "float64")
        y, x_ = (row + params.offsets[0]) * down, (column + params.offsets[1]) * across
        vertical = (side % 2).equal(1)
        centre = te.select(vertical, y, x_)
        half = te.select(vertical, chosen(which, 1), chosen(which, 0))
        value = te.select(side < 2, centre - half, centre + half)
        value = te.min(te.max(value, 0.0), 1.0) if params.clip else value
        return te.cast(value, x.dtype)

    return te.compute(shape, element, name="prior")


multibox_prior = define(
    "multibox_prior",
    "Anchor boxes (left, top, right, bottom) around the centre of every cell of the data, in parts "
    "of the image: for all sizes, and for the first size with every ratio after the first.",
    level=4,
    inputs={"data": "(n, c, height, width), of which only the shape is used"},
    attrs=PriorAttrs,
    shape=_prior_shape,
    dtype=floating,
    reference=_prior_reference,
    compute=_prior_compute,
    gradient=no_flow,
    ignored_inputs=[0],
)


# Boxes from predictions


@schema
class TransformLocAttrs:
    clip: bool = attr(BOOL, "keep boxes within 0..1", default=True)
    threshold: float = attr(FLOAT, "scores below it are background", default=0.01)
    variances: tuple[float, ...] = attr(
        FLOATS, "what predictions (x, y, width, height) are scaled by", default=(0.1, 0.1, 0.2, 0.2)
    )


def _transform_shape(params: TransformLocAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if len(params.variances) != 4:
        raise InvalidValue(f"variances {params.variances} are not four")
    batch, classes, anchors = ranked(ins[0], 3, "cls_prob")
    batch_too, four = ranked(ins[1], 2, "loc_pred")
    one, anchors_too, sides = ranked(ins[2], 3, "anchor")
    batch, anchors = unify_dim(batch, batch_too), unify_dim(anchors, anchors_too)
    if isinstance(four, int):
        if four % 4:
            raise ShapeError(f"loc_pred is {show(ins[1])}", why="every anchor has four numbers")
        anchors = unify_dim(anchors, four // 4)
    unify_dim(one, 1)
    unify_dim(sides, 4)
    ins = [(batch, classes, anchors), (batch, mul_dims(anchors, 4)), (1, anchors, 4)]
    return ins, [(batch, anchors, 6), (batch,)]


def _transform_dtype(params: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Any:
    (dtype, *_), _ = floating(params, list(ins), [outs[0]])
    return [dtype] * 3, [dtype, INT32]


def _transform_reference(params: TransformLocAttrs, probs: Any, loc: Any, anchor: Any) -> Any:
    batch, _, anchors = probs.shape
    wide = wide_dtype(probs.dtype)
    boxes = _decoded(params, loc.reshape(batch, anchors, 4).astype(wide), anchor.astype(wide))
    made = np.full((batch, anchors, 6), -1, probs.dtype)
    counts = np.zeros(batch, INT32)
    for number, scores in enumerate(probs[:, 1:].astype(wide)):
        if not scores.size:
            continue
        known = np.where(np.isnan(scores), -np.inf, scores)
        best = known.max(0)
        kept = (best > -1) & (best >= params.threshold)
        rows = np.concatenate([known.argmax(0)[:, None], best[:, None], boxes[number]], 1)[kept]
        counts[number] = len(rows)
        made[number, : len(rows)] = rows
    return made, counts


def _decoded(params: TransformLocAttrs, loc: Any, anchor: Any) -> Any:
    scale = np.array(params.variances, loc.dtype)
    low, high = anchor[..., :2], anchor[..., 2:]
    size, centre = high - low, (low + high) * loc.dtype.type(0.5)
    middle = loc[..., :2] * scale[:2] * size + centre
    half = np.exp(loc[..., 2:] * scale[2:]) * size * loc.dtype.type(0.5)
    boxes = np.concatenate([middle - half, middle + half], -1)
    return boxes.clip(0, 1) if params.clip else boxes


def _transform_kernels(params: TransformLocAttrs, inputs: Any, outputs: Any) -> Any:
    """An image a thread: boxes that are kept go to the next free row."""
    ((batch, classes, anchors), dtype) = inputs[0]
    wide = wide_dtype(dtype)
    body = Body("multibox_transform_loc", inputs, outputs)
    views = {0: (batch, classes, anchors), 1: (batch, anchors, 4), 2: (anchors, 4)}
    views |= {3: (batch, anchors, 6), 4: (batch,)}
    made = body.kernel(views, batch * anchors * (classes + 20))
    with made as (b, probs, loc, anchor, out, counts), b.parallel("n", batch) as n:
        score, kind = variable(b, "score", 0, wide), variable(b, "kind", 0)
        count = variable(b, "count", 0)
        with b.loop("i", anchors) as i, b.loop("side", 6) as side:
            b.store(out, (n, i, side), -1)
        with b.loop("i", anchors) as i:
            b.store(score, (), -1)
            b.store(kind, (), 0)
            with b.loop("c", max(classes - 1, 0)) as c:
                value = b.let("value", te.cast(probs[n, c + 1, i], wide))
                with b.when(value > score[()]):
                    b.store(score, (), value)
                    b.store(kind, (), c + 1)
            with b.when((kind[()] > 0) & (score[()] >= params.threshold)):
                row = b.let("row", count[()])
                first = [te.cast(kind[()] - 1, wide), score[()]]
                for side, value in enumerate([*first, *_box(b, params, loc, anchor, (n, i), wide)]):
                    b.store(out, (n, row, side), te.cast(value, dtype))
                b.store(count, (), row + 1)
        b.store(counts, n, te.cast(count[()], INT32))
    return body.kernels


def _box(b: Any, params: TransformLocAttrs, loc: Any, anchor: Any, at: Any, wide: Any) -> list[Any]:
    """(left, top, right, bottom) of one anchor moved by its prediction."""
    lows, highs = [], []
    for axis in (0, 1):
        low, high = (te.cast(anchor[at[1], side], wide) for side in (axis, axis + 2))
        size, centre = b.let("size", high - low), (low + high) * 0.5
        moved = te.cast(loc[(*at, axis)], wide) * params.variances[axis]
        grown = te.cast(loc[(*at, axis + 2)], wide) * params.variances[axis + 2]
        middle = b.let("middle", moved * size + centre)
        half = b.let("half", te.exp(grown) * size * 0.5)
        lows.append(middle - half)
        highs.append(middle + half)
    boxes = [*lows, *highs]
    return [te.min(te.max(side, 0.0), 1.0) for side in boxes] if params.clip else boxes


multibox_transform_loc = define(
    "multibox_transform_loc",
    "Boxes (class, score, left, top, right, bottom) of the anchors whose best class is not the "
    "background (class 0, not counted in the result), first, the other rows being -1; and how many "
    "there are. With d the prediction, c and s the centre and size of an anchor and v variances: "
    "centre = d v s + c, size = exp(d v) s.",
    level=4,
    inputs={"cls_prob": "(batch, classes, anchors)", "loc_pred": "(batch, 4 * anchors)", "anchor": "(1, anchors, 4)"},
    attrs=TransformLocAttrs,
    shape=_transform_shape,
    dtype=_transform_dtype,
    reference=_transform_reference,
    kernels=_transform_kernels,
    output_names=["boxes", "valid_count"],
)
multibox_transform_loc.set_num_outputs(2)
