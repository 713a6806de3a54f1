"""Proposals of regions: the boxes that a network thinks hold something, from scores and moves of
anchors over an image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import INT32
from ...base.errors import InvalidValue, ShapeError
from ...base.shape import mul_dims, unify_dim
from ...core.schema import BOOL, FLOAT, FLOATS, INT, attr, schema
from .._families import Inferred, Shapes, define, floating, ranked
from .._kernels import Body, before, sort_row, variable, wide_dtype
from ..shape.sort import order_of


@schema
class ProposalAttrs:
    rpn_pre_nms_top_n: int = attr(INT, "how many of the best boxes to look at; none or less: all", default=6000)
    rpn_post_nms_top_n: int = attr(INT, "how many boxes to give", default=300, low=1)
    threshold: float = attr(FLOAT, "overlap, as part of the union, beyond which it is too much", default=0.7)
    rpn_min_size: int = attr(INT, "the least side of a box in the original image", default=16)
    scales: tuple[float, ...] = attr(FLOATS, "of anchors, as multiples of the stride", default=(4, 8, 16, 32))
    ratios: tuple[float, ...] = attr(FLOATS, "height over width of anchors", default=(0.5, 1, 2))
    feature_stride: int = attr(INT, "elements of the image for one of the data", default=16, low=1)
    iou_loss: bool = attr(BOOL, "whether moves are of sides, not of centres", default=False)


def anchors_of(params: ProposalAttrs) -> np.ndarray:
    """(left, top, right, bottom) around the first cell: all scales of the first ratio, ..."""
    side = params.feature_stride
    made = []
    for ratio in params.ratios:
        width = math.floor(math.sqrt(math.floor(side * side / ratio)) + 0.5)
        height = math.floor(width * ratio + 0.5)
        for scale in params.scales:
            half = (width * scale - 1) / 2, (height * scale - 1) / 2
            centre = (side - 1) / 2
            made.append([centre - half[0], centre - half[1], centre + half[0], centre + half[1]])
    return np.array(made, np.float64).reshape(-1, 4)


def _shape(params: ProposalAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if not params.scales or not params.ratios or not all(r > 0 for r in params.ratios):
        raise InvalidValue(f"scales {params.scales} and ratios {params.ratios}")
    many = len(params.scales) * len(params.ratios)
    batch, two, height, width = ranked(ins[0], 4, "cls_prob")
    batch_too, four, height_too, width_too = ranked(ins[1], 4, "bbox_pred")
    images, three = ranked(ins[2], 2, "im_info")
    batch = unify_dim(unify_dim(batch, batch_too), images)
    height, width = unify_dim(height, height_too), unify_dim(width, width_too)
    for have, each in ((two, 2), (four, 4)):
        if isinstance(have, int) and have != each * many:
            raise ShapeError(f"{have} channels for {many} anchors", why=f"each has {each}")
    unify_dim(three, 3)
    ins = [(batch, 2 * many, height, width), (batch, 4 * many, height, width), (batch, 3)]
    rows = mul_dims(batch, params.rpn_post_nms_top_n)
    return ins, [(rows, 5), (rows, 1)]


# numpy


def _decoded(params: ProposalAttrs, moves: Any, info: Any) -> Any:
    """All boxes of an image, row by row of cells, an anchor after the other: (..., 4)."""
    _, height, width = moves.shape
    wide = moves.dtype
    anchors = anchors_of(params).astype(wide)
    d = moves.reshape(len(anchors), 4, height, width).transpose(2, 3, 0, 1)
    step = wide.type(params.feature_stride)
    columns, rows = np.meshgrid(np.arange(width, dtype=wide), np.arange(height, dtype=wide))
    shift = np.stack([columns, rows, columns, rows], -1)[:, :, None] * step
    boxes = anchors + shift
    one, half = wide.type(1), wide.type(0.5)
    if params.iou_loss:
        made = boxes + d
    else:
        size = boxes[..., 2:] - boxes[..., :2] + one
        centre = d[..., :2] * size + (boxes[..., :2] + half * (size - one))
        reach = half * (np.exp(d[..., 2:]) * size - one)
        made = np.concatenate([centre - reach, centre + reach], -1)
    last = info[[1, 0, 1, 0]] - one
    return np.fmax(np.fmin(made, last), wide.type(0))


def _scored(params: ProposalAttrs, scores: Any, boxes: Any, info: Any) -> tuple[Any, Any]:
    """Scores in the order of the boxes, -1 where cells are outside the image or boxes too small;
    those are grown."""
    height, width, many = boxes.shape[:3]
    wide = boxes.dtype
    found = scores[many:].transpose(1, 2, 0).copy()
    rows, columns = (_cells(params, info[axis], n) for axis, n in enumerate((height, width)))
    found[rows:] = found[:, columns:] = -1
    least = wide.type(params.rpn_min_size) * info[2]
    sides = boxes[..., 2:] - boxes[..., :2] + wide.type(1)
    small = (sides < least).any(-1)
    found[small] = -1
    grow = least / wide.type(2) * np.array([-1, -1, 1, 1], wide)
    return found.reshape(-1), np.where(small[..., None], boxes + grow, boxes).reshape(-1, 4)


def _cells(params: ProposalAttrs, extent: Any, limit: int) -> int:
    """How many cells an image has along an axis."""
    cells = extent / extent.dtype.type(params.feature_stride)
    return int(cells) if 0 <= cells < limit else limit if cells >= limit else 0


def _reference(params: ProposalAttrs, scores: Any, moves: Any, info: Any) -> Any:
    wide, post = wide_dtype(scores.dtype), params.rpn_post_nms_top_n
    made = np.zeros((len(scores) * post, 5), wide)
    given = np.zeros((len(scores) * post, 1), wide)
    for image in range(len(scores)):
        about = info[image].astype(wide)
        with np.errstate(all="ignore"):
            boxes = _decoded(params, moves[image].astype(wide), about)
            found, boxes = _scored(params, scores[image].astype(wide), boxes, about)
        order = order_of(found, 0, True)
        looked = params.rpn_pre_nms_top_n if params.rpn_pre_nms_top_n > 0 else len(order)
        kept = _kept(params, boxes, order[:looked])
        rows = slice(image * post, (image + 1) * post)
        made[rows, 0] = image
        if kept:
            places = np.array(kept)[np.arange(post) % len(kept)]
            made[rows, 1:], given[rows, 0] = boxes[places], found[places]
    return made.astype(scores.dtype), given.astype(scores.dtype)


def _kept(params: ProposalAttrs, boxes: Any, order: Any) -> list[int]:
    """The best boxes of which none overlaps a better one too much."""
    chosen = boxes[order]
    one = boxes.dtype.type(1)
    limit = boxes.dtype.type(params.threshold)
    live = np.ones(len(order), bool)
    kept: list[int] = []
    most = min(params.rpn_post_nms_top_n, len(order))
    with np.errstate(all="ignore"):
        areas = (chosen[:, 2] - chosen[:, 0] + one) * (chosen[:, 3] - chosen[:, 1] + one)
        for place, index in enumerate(order):
            if len(kept) == most:
                break
            if not live[place]:
                continue
            kept.append(int(index))
            low = np.maximum(chosen[place, :2], chosen[place + 1 :, :2])
            high = np.minimum(chosen[place, 2:], chosen[place + 1 :, 2:])
            across = np.fmax(high - low + one, 0)
            shared = across[:, 0] * across[:, 1]
            live[place + 1 :] &= ~(shared / (areas[place] + areas[place + 1 :] - shared) > limit)
    return kept


# Loops


def _kernels(params: ProposalAttrs, inputs: Any, outputs: Any) -> Any:
    """An image a thread: boxes and scores of all anchors, their order, which stay, the result."""
    ((batch, _, height, width), dtype) = inputs[0]
    wide, post = wide_dtype(dtype), params.rpn_post_nms_top_n
    many = len(params.scales) * len(params.ratios)
    count = many * height * width
    body = Body("proposal", inputs, outputs)
    boxes = body.temporary((batch, count, 5), wide)
    order = body.temporary((batch, 2, count), INT32)
    gone = body.temporary((batch, count), INT32)
    kept = body.temporary((batch, post), INT32)
    views = {0: (batch, 2, many, height, width), 1: (batch, many, 4, height, width), 2: (batch, 3)}
    views |= {3: (batch, post, 5), 4: (batch, post), boxes: (batch, count, 5)}
    views |= {order: (batch, 2, count), gone: (batch, count), kept: (batch, post)}
    looked = params.rpn_pre_nms_top_n if 0 < params.rpn_pre_nms_top_n < count else count
    work = batch * count * (64 + max(count, 1).bit_length()) + 16 * batch * looked * min(post, looked)
    with (
        body.kernel(views, work) as (b, scores, moves, info, out, given, made, numbers, lost, stay),
        b.parallel("n", batch) as n,
    ):
        about = [b.let("info", te.cast(info[n, k], wide)) for k in range(3)]
        _emit_boxes(b, params, (scores, moves, made), n, about)
        first = before(wide, True)
        place = sort_row(b, numbers, n, count, lambda i, j: first(made[n, i, 4], made[n, j, 4]))
        found = _emit_kept(b, params, made, lost, stay, n, looked, place)
        with b.loop("i", post) as i:
            _emit_row(b, (made, stay, out, given), n, i, found, dtype)
    return body.kernels


def _emit_boxes(b: Any, params: ProposalAttrs, buffers: Any, n: Any, about: Any) -> None:
    """The box and score of every anchor."""
    scores, moves, made = buffers
    wide = made.dtype
    _, many, _, height, width = (int(extent.value) for extent in moves.shape)
    number = lambda value: te.cast(value, wide)
    stride = number(te.as_expr(params.feature_stride))
    least = b.let("least", number(te.as_expr(params.rpn_min_size)) * about[2])
    for anchor, sides in enumerate(anchors_of(params).tolist()):
        with b.loop("y", height) as y, b.loop("z", width) as z:
            shifts = number(z) * stride, number(y) * stride
            box = [b.let("s", shifts[k % 2] + te.const(side, wide)) for k, side in enumerate(sides)]
            d = [te.cast(moves[n, anchor, k, y, z], wide) for k in range(4)]
            box = _emit_moved(b, params, box, d)
            box = [b.let("s", _within(side, about[1 - k % 2])) for k, side in enumerate(box)]
            small = (box[2] - box[0] + 1.0 < least) | (box[3] - box[1] + 1.0 < least)
            small = b.let("small", small)
            outside = te.logical_not(
                (number(y) + 1.0 <= _whole(about[0] / stride, height))
                & (number(z) + 1.0 <= _whole(about[1] / stride, width))
            )
            score = te.cast(scores[n, 1, anchor, y, z], wide)
            row = (y * width + z) * many + anchor
            for k, side in enumerate(box):
                grown = side - least / 2.0 if k < 2 else side + least / 2.0
                b.store(made, (n, row, k), te.select(small, grown, side))
            b.store(made, (n, row, 4), te.select(small | outside, -1.0, score))


def _whole(cells: te.Expr, limit: int) -> te.Expr:
    """Whole cells, at most so many; what is not a number is none."""
    known = te.select(cells >= 0.0, te.min(cells, float(limit)), 0.0)
    return te.floor(known)


def _within(side: te.Expr, extent: te.Expr) -> te.Expr:
    """Between 0 and the last element; what is not a number is the last element."""
    last = extent - 1.0
    low = te.select((side < last) | te.isnan(last), side, last)
    return te.select(low > 0.0, low, 0.0)


def _emit_moved(b: Any, params: ProposalAttrs, box: list[Any], d: list[Any]) -> list[Any]:
    """centre = d size + centre, size = exp(d) size; or sides = sides + d."""
    if params.iou_loss:
        return [side + move for side, move in zip(box, d)]
    lows, highs = [], []
    for k in (0, 1):
        size = b.let("size", box[k + 2] - box[k] + 1.0)
        centre = b.let("centre", d[k] * size + (box[k] + (size - 1.0) * 0.5))
        reach = b.let("reach", (te.exp(d[k + 2]) * size - 1.0) * 0.5)
        lows.append(centre - reach)
        highs.append(centre + reach)
    return [*lows, *highs]


def _emit_kept(b: Any, params: ProposalAttrs, made: Any, lost: Any, stay: Any, n: Any, looked: int, place: Any) -> Any:
    """Fills `stay` with rows that do not overlap a better one too much; how many there are."""
    found = variable(b, "found", 0)
    most = min(params.rpn_post_nms_top_n, looked)
    wide = made.dtype
    with b.loop("i", looked) as i:
        b.store(lost, (n, i), 0)
    with b.loop("i", looked) as i, b.when((found[()] < most) & lost[n, i].equal(0)):
        row = b.let("row", place(i))
        b.store(stay, (n, found[()]), te.cast(row, INT32))
        b.store(found, (), found[()] + 1)
        own = [b.let("s", made[n, row, k]) for k in range(4)]
        area = b.let("area", (own[2] - own[0] + 1.0) * (own[3] - own[1] + 1.0))
        with b.loop("j", looked - i - 1) as j, b.when(lost[n, i + 1 + j].equal(0)):
            other = b.let("other", place(i + 1 + j))
            its = [b.let("s", made[n, other, k]) for k in range(4)]
            sides = [te.min(own[k + 2], its[k + 2]) - te.max(own[k], its[k]) + 1.0 for k in (0, 1)]
            sides = [te.select(side > 0.0, side, 0.0) for side in sides]
            shared = b.let("shared", sides[0] * sides[1])
            rest = (its[2] - its[0] + 1.0) * (its[3] - its[1] + 1.0)
            part = shared / (area + rest - shared)
            with b.when(part > te.const(float(wide.type(params.threshold)), wide)):
                b.store(lost, (n, i + 1 + j), 1)
    return found


def _emit_row(b: Any, buffers: Any, n: Any, i: Any, found: Any, dtype: Any) -> None:
    """Row i of an image; where there are too few boxes they come again."""
    made, stay, out, given = buffers
    b.store(out, (n, i, 0), te.cast(n, dtype))
    for k in range(4):
        b.store(out, (n, i, k + 1), 0)
    b.store(given, (n, i), 0)
    with b.when(found[()] > 0):
        row = b.let("row", te.cast(stay[n, i % te.max(found[()], 1)], "int64"))
        for k in range(4):
            b.store(out, (n, i, k + 1), te.cast(made[n, row, k], dtype))
        b.store(given, (n, i), te.cast(made[n, row, 4], dtype))


proposal = define(
    "proposal",
    "The best boxes of every image that do not overlap a better one too much, (image, left, top, "
    "right, bottom), and their scores. Anchors stand around every cell, all scales for each ratio; "
    "with d the prediction, c and s the centre and size of an anchor: centre = d s + c, "
    "size = exp(d) s. Sides count the pixels they end at. Boxes that are too small, and those of "
    "cells outside the image, have the score -1. Where there are too few boxes they come again.",
    level=4,
    inputs={
        "cls_prob": "(batch, 2 * anchors, height, width): that there is nothing, then something",
        "bbox_pred": "(batch, 4 * anchors, height, width)",
        "im_info": "(batch, 3): height, width and scale of the images",
    },
    attrs=ProposalAttrs,
    shape=_shape,
    dtype=floating,
    reference=_reference,
    kernels=_kernels,
    output_names=["output", "score"],
)
proposal.set_num_outputs(2)
