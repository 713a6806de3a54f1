"""Converters of detection: anchors, boxes from them, and which boxes stay."""

from __future__ import annotations

import math

import numpy as np

from ....base.dtype import BOOL, INT32
from ....base.errors import FormatError
from ...building import in_float32
from ...emitter import Value
from ..call import Call
from ..registry import converter


def _coordinates(call: Call, value: Value) -> list[Value]:
    """The four numbers of boxes, each with a last axis of 1."""
    return call.ops("split", value, indices_or_sections=4, axis=call.rank(value) - 1)


def _half(call: Call, value: Value) -> Value:
    return call.scaled(value, 0.5)


def _centres(call: Call, boxes: list[Value]) -> list[Value]:
    """(left, top, right, bottom) as (x, y, width, height)."""
    left, top, right, bottom = boxes
    width, height = call.op("elemwise_sub", right, left), call.op("elemwise_sub", bottom, top)
    x = call.op("elemwise_add", left, _half(call, width))
    y = call.op("elemwise_add", top, _half(call, height))
    return [x, y, width, height]


def _corners(call: Call, boxes: list[Value]) -> list[Value]:
    """The way back."""
    x, y, width, height = boxes
    halves = _half(call, width), _half(call, height)
    low = [call.op("elemwise_sub", at, half) for at, half in zip((x, y), halves)]
    return low + [call.op("elemwise_add", at, half) for at, half in zip((x, y), halves)]


@converter("_contrib_box_decode")
@in_float32
def box_decode(call: Call) -> Value:
    """Offsets from anchors as corners: x = dx std aw + ax, width = exp(dw std) aw."""
    clip, corners = call.attr("clip"), call.attr("format") == "corner"
    anchors = _coordinates(call, call[1])
    ax, ay, aw, ah = _centres(call, anchors) if corners else anchors
    offsets = _coordinates(call, call[0])
    dx, dy, dw, dh = (call.scaled(part, call.attr(f"std{i}")) for i, part in enumerate(offsets))
    x = call.op("broadcast_add", call.op("broadcast_mul", dx, aw), ax)
    y = call.op("broadcast_add", call.op("broadcast_mul", dy, ah), ay)
    sizes = []
    for change, size in ((dw, aw), (dh, ah)):
        if clip > 0:
            change = call.op("broadcast_min", change, call.make([clip], call.dtype(change)))
        sizes.append(call.op("broadcast_mul", call.op("exp", change), size))
    return call.op("concatenate", *_corners(call, [x, y, *sizes]), axis=call.rank(x) - 1)


@converter("_contrib_box_iou")
@in_float32
def box_iou(call: Call) -> Value:
    """The shared part of the union of every box on the left with every box on the right."""
    left, right = call.shape(call[0]), call.shape(call[1])
    a = _coordinates(call, call.reshape(call[0], (math.prod(left[:-1]), 1, 4)))
    b = _coordinates(call, call.reshape(call[1], (1, math.prod(right[:-1]), 4)))
    if call.attr("format") == "center":
        a, b = _corners(call, a), _corners(call, b)
    sides = []
    for i in (0, 1):
        low = call.op("broadcast_max", a[i], b[i])
        high = call.op("broadcast_min", a[i + 2], b[i + 2])
        sides.append(call.op("relu", call.op("elemwise_sub", high, low)))
    shared = call.op("elemwise_mul", *sides)
    total = call.op("broadcast_add", _area(call, a), _area(call, b))
    union = call.op("elemwise_sub", total, shared)
    some = call.op("broadcast_greater", union, call.make([0], call.dtype(union)))
    nothing = call.op("zeros_like", union)
    share = call.op("where", some, call.op("elemwise_div", shared, union), nothing)
    return call.reshape(share, (*left[:-1], *right[:-1]))


def _area(call: Call, box: list[Value]) -> Value:
    sides = [call.op("elemwise_sub", box[i + 2], box[i]) for i in (0, 1)]
    return call.op("elemwise_mul", *(call.op("relu", side) for side in sides))


# Suppression.


@converter("_contrib_box_nms")
def box_nms(call: Call) -> Value:
    """Boxes that stay, by falling score; rows of -1 behind them."""
    call.only_first_output()
    shape = call.shape(call[0])
    rows = call.reshape(call[0], (math.prod(shape[:-2]), *shape[-2:]))
    rows, count = _best_first(call, rows)
    width, start = shape[-1], call.attr("coord_start")
    if not 0 <= start <= width - 4:
        raise FormatError(f"boxes that start at {start} of {width} numbers")
    before, whole, after = _around(call, rows, start)
    boxes = _coordinates(call, whole)
    wanted = {"corner": boxes, "center": boxes}
    if call.attr("in_format") == "center":
        wanted["corner"] = _corners(call, boxes)
    else:
        wanted["center"] = _centres(call, boxes) if call.attr("out_format") == "center" else boxes
    chosen = _chosen(call, rows, wanted["corner"], count)
    parts = [*before, *wanted[call.attr("out_format")], *after]
    kept = _rows_at(call, call.op("concatenate", *parts, axis=2), chosen)
    return call.reshape(kept, shape)


def _column(call: Call, rows: Value, index: int) -> Value:
    width = call.shape(rows)[2]
    if not 0 <= index < width:
        raise FormatError(f"column {index} of rows of {width} numbers")
    return call.sliced(rows, {2: (index, index + 1, 1)})


def _best_first(call: Call, rows: Value) -> tuple[Value, Value]:
    """The rows by falling score, those that do not count last; and how many count."""
    batch, many, width = call.shape(rows)
    score, dtype = _column(call, rows, call.attr("score_index")), call.dtype(rows)
    valid = call.op("broadcast_greater", score, call.make([call.attr("valid_thresh")], dtype))
    if call.attr("id_index") >= 0:
        kind = _column(call, rows, call.attr("id_index"))
        other = call.make([call.attr("background_id")], dtype)
        valid = call.op("elemwise_mul", valid, call.op("broadcast_not_equal", kind, other))
    call.ignore("background_id")
    lowest = call.op("full_like", score, fill_value=float(np.finfo(dtype).min))
    key = call.op("where", call.cast(valid, BOOL), score, lowest)
    order = call.op("argsort", key, axis=1, descending=True)
    order = call.broadcast_to(order, (batch, many, width))
    count = call.reshape(call.op("sum", valid, axis=(1,)), (batch,))
    return call.op("gather_elements", rows, order, axis=1), call.cast(count, INT32)


def _around(call: Call, rows: Value, start: int) -> tuple[list[Value], Value, list[Value]]:
    """What stands before the box, the box, and what stands behind it."""
    width = call.shape(rows)[2]
    bounds = (0, start), (start, start + 4), (start + 4, width)
    before, box, after = ([call.sliced(rows, {2: (low, high, 1)})] if high > low else [] for low, high in bounds)
    return before, box[0], after


def _chosen(call: Call, rows: Value, corners: list[Value], count: Value) -> Value:
    """Numbers of the rows that stay, -1 behind them. Their order stands for the score, which may
    be negative."""
    batch, many, _ = call.shape(rows)
    places = call.positions(many, 1, 3, call.dtype(rows))
    ranks = call.broadcast_to(call.op("__rsub_scalar__", places, scalar=many), (batch, many, 1))
    classes = call.attr("id_index") >= 0 and not call.attr("force_suppress")
    call.ignore("force_suppress")
    kind = _column(call, rows, call.attr("id_index")) if classes else ranks
    candidates = call.op("concatenate", kind, ranks, *corners, axis=2)
    above = float(np.nextafter(np.float32(call.attr("overlap_thresh")), np.float32(np.inf)))
    return call.op(
        "non_max_suppression",
        candidates,
        count,
        iou_threshold=above,  # only what is greater than the limit overlaps too much
        top_k=call.attr("topk"),
        id_index=0 if classes else -1,
        force_suppress=not classes,
        invalid_to_bottom=True,
    )


def _rows_at(call: Call, rows: Value, places: Value) -> Value:
    """Rows by number; -1 throughout where the number is."""
    batch, many, width = call.shape(rows)
    places = call.reshape(places, (batch, many, 1))
    nowhere = call.op("broadcast_less", places, call.make([0], INT32))
    index = call.op("clip", places, a_min=0, a_max=many - 1)
    there = call.op("gather_elements", rows, call.broadcast_to(index, (batch, many, width)), axis=1)
    mask = call.cast(call.broadcast_to(nowhere, (batch, many, width)), BOOL)
    return call.op("where", mask, call.op("full_like", rows, fill_value=-1.0), there)


# Boxes around the cells of an image.


@converter("_contrib_MultiBoxPrior")
def multibox_prior(call: Call) -> Value:
    """Anchors of every cell: all sizes with the first ratio, then the first size with the others.
    They follow from the shape alone."""
    height, width = call.shape(call[0])[2:]
    sizes, ratios = call.attr("sizes"), call.attr("ratios")
    down, across = call.attr("steps")
    down, across = (down if down > 0 else 1 / height), (across if across > 0 else 1 / width)
    top, left = call.attr("offsets")
    pairs = [(size, ratios[0]) for size in sizes] + [(sizes[0], ratio) for ratio in ratios[1:]]
    call.check_table(height, width, len(pairs), 4)
    halves = np.array([(size * height / width * math.sqrt(r) / 2, size / math.sqrt(r) / 2) for size, r in pairs])
    y, x = np.meshgrid((np.arange(height) + top) * down, (np.arange(width) + left) * across, indexing="ij")
    centres = np.stack([x, y], -1)[:, :, None]
    boxes = np.concatenate([centres - halves, centres + halves], -1).reshape(1, -1, 4)
    boxes = boxes.clip(0, 1) if call.attr("clip") else boxes
    return call.make(boxes, call.dtype(call[0]))


@converter("_contrib_MultiBoxDetection")
def multibox_detection(call: Call) -> Value:
    """(class, score, box) of all anchors by falling score; the class of what is suppressed is -1,
    as is everything behind what is above the threshold."""
    call.ignore("background_id")
    if call.attr("background_id") != 0:
        raise FormatError("a background that is not class 0")
    rows, count = call.ops(
        "multibox_transform_loc",
        call[0],
        call[1],
        call[2],
        clip=call.attr("clip"),
        threshold=call.attr("threshold"),
        variances=call.attr("variances"),
    )
    threshold, top = call.attr("nms_threshold"), call.attr("nms_topk")
    if not 0 < threshold <= 1:
        call.ignore("force_suppress")
        return rows
    chosen = call.op(
        "non_max_suppression",
        rows,
        count,
        iou_threshold=threshold,
        top_k=top,
        force_suppress=call.attr("force_suppress"),
    )
    return _with_classes(call, rows, chosen, top)


def _with_classes(call: Call, rows: Value, chosen: Value, top: int) -> Value:
    """The best rows in order, the others where they were; class -1 where they are not chosen."""
    batch, many, width = call.shape(rows)
    order = call.op("argsort", _column(call, rows, 1), axis=1, descending=True)
    best = call.op("gather_elements", rows, call.broadcast_to(order, (batch, many, width)), axis=1)
    chosen = call.reshape(chosen, (batch, many, 1))
    lost = call.cast(call.op("broadcast_less", chosen, call.make([0], INT32)), BOOL)
    kind = _column(call, best, 0)
    kind = call.op("where", lost, call.op("full_like", kind, fill_value=-1.0), kind)
    if 0 < top < many:
        first = call.sliced(best, {1: (0, top, 1)})
        best = call.op("concatenate", first, call.sliced(rows, {1: (top, many, 1)}), axis=1)
    return call.op("concatenate", kind, call.sliced(best, {2: (1, width, 1)}), axis=2)
