"""Writers of what detection networks end in: boxes, their choice, and parts of images."""

from __future__ import annotations

import numpy as np

from ....base.dtype import BOOL, INT32, INT64
from ....base.shape import StaticShape
from ....core.interpret import run_reference
from ....core.op import Op
from ..writing import TensorType, Writing, writes
from .reduce import sorted_parts


def _column(w: Writing, rows: str, start: int, end: int) -> str:
    """Some numbers of every row."""
    return w.node("Slice", rows, w.ints([start]), w.ints([end]), w.ints([-1]))


def _flat_column(w: Writing, rows: str, at: int, shape: StaticShape) -> str:
    return w.reshape(_column(w, rows, at, at + 1), shape)


def _rows_at(w: Writing, rows: str, places: str, shape: StaticShape) -> str:
    """Rows of every image, by number."""
    wide = w.node("Expand", w.node("Unsqueeze", places, w.ints([2])), w.ints(shape))
    return w.node("GatherElements", rows, wide, axis=1)


@writes("roi_align", "adaptive_roi_align", "roi_align_max")
def roi_align(w: Writing) -> None:
    """Rows (image, box) are two inputs in ONNX, whose images have to be there."""
    params, (data, rows) = w.params, w.inputs
    images = w.reshape(w.cast(_images(w, rows), INT64), [-1])
    mode = "half_pixel" if params.aligned else "output_half_pixel"
    height, width = params.pooled_size
    parts = w.node(
        "RoiAlign",
        data,
        _column(w, rows, 1, 5),
        images,
        output_height=height,
        output_width=width,
        sampling_ratio=params.sample_ratio,
        mode="max" if w.op_name == "roi_align_max" else "avg",
        spatial_scale=params.spatial_scale,
        coordinate_transformation_mode=mode,
    )

    if getattr(params, "position_sensitive", False):
        parts = _own_channels(w, parts, height * width)
    w.give_value(_unless_nowhere(w, rows, parts))


def _own_channels(w: Writing, parts: str, cells: int) -> str:
    """Of each cell, the channels that belong to it: the diagonal of cells by cells."""
    boxes, channels = w.outs[0].shape[:2]
    both = w.reshape(parts, (boxes, channels, cells, cells))
    chosen = w.node("Where", w.constant(np.eye(cells), BOOL), both, w.constant(0))
    return w.reshape(w.reduced("ReduceSum", chosen, [2]), w.outs[0].shape)


@writes("roi_pool")
def roi_pool(w: Writing) -> None:
    """The greatest element of each cell."""
    data, rows = w.inputs
    inside = w.node("Concat", _images(w, rows), _column(w, rows, 1, 5), axis=1)
    parts = w.node(
        "MaxRoiPool", data, inside, pooled_shape=list(w.params.pooled_size), spatial_scale=w.params.spatial_scale
    )
    w.give_value(_unless_nowhere(w, rows, parts))


def _images(w: Writing, rows: str) -> str:
    """The numbers of images, inside the batch."""
    return w.node("Clip", _column(w, rows, 0, 1), w.constant(0), w.constant(w.shape[0] - 1))


def _unless_nowhere(w: Writing, rows: str, parts: str) -> str:
    """0 for the boxes whose image is not in the batch."""
    number = w.reshape(_column(w, rows, 0, 1), (-1, 1, 1, 1))
    inside = w.node("Less", number, w.constant(w.shape[0]))
    inside = w.node("And", inside, w.node("GreaterOrEqual", number, w.constant(0)))
    return w.node("Where", inside, parts, w.constant(0))


@writes("multibox_prior")
def multibox_prior(w: Writing) -> None:
    """They follow from the shape alone."""
    shaped = np.broadcast_to(np.zeros((), w.dtype), w.shape)
    (boxes,) = run_reference(Op.get(w.op_name), w.params, [shaped])
    w.give("Identity", w.constant(boxes))


@writes("multibox_transform_loc")
def multibox_transform_loc(w: Writing) -> None:
    """Boxes whose best class is not the background come first; sorting keeps their order."""
    (batch, classes, anchors), params = w.shape, w.params
    if classes < 2:
        w.give("Expand", w.constant(-1), w.ints(w.outs[0].shape))
        w.give_value(w.constant(np.zeros(batch), INT32), 1)
        return
    scores = w.node("Slice", w.inputs[0], w.ints([1]), w.ints([classes]), w.ints([1]))
    best = w.reduced("ReduceMax", scores, [1], keepdims=False)
    kind = w.cast(w.node("ArgMax", scores, axis=1, keepdims=0), w.dtype)
    lowest = w.constant(np.nextafter(np.float32(-1), np.float32(0)))
    limit = w.node("Max", lowest, w.constant(params.threshold))
    kept = w.cast(w.node("GreaterOrEqual", best, limit), INT32)
    _, order = sorted_parts(w, kept, anchors, 1, True)
    parts = [w.node("Unsqueeze", part, w.ints([2])) for part in (kind, best)]
    rows = w.node("Concat", *parts, *_decoded(w), axis=2)
    total = w.reduced("ReduceSum", kept, [1], keepdims=True)
    inside = w.node("Less", w.constant(np.arange(anchors), INT32), total)
    mask = w.node("Unsqueeze", inside, w.ints([2]))
    w.give("Where", mask, _rows_at(w, rows, order, w.outs[0].shape), w.constant(-1))
    w.give_value(w.reshape(total, [batch]), 1)


def _decoded(w: Writing) -> tuple[str, str]:
    """The corners of anchors moved and scaled by predictions."""
    batch, _, anchors = w.shape
    moves = w.reshape(w.inputs[1], [batch, anchors, 4])
    scaled = w.node("Mul", moves, w.constant(w.params.variances))
    low, high = (_column(w, w.inputs[2], at, at + 2) for at in (0, 2))
    size, half = w.node("Sub", high, low), w.constant(0.5)
    centre = w.node("Mul", w.node("Add", low, high), half)
    middle = w.node("Add", w.node("Mul", _column(w, scaled, 0, 2), size), centre)
    reach = w.node("Mul", w.node("Exp", _column(w, scaled, 2, 4)), w.node("Mul", size, half))
    corners = w.node("Sub", middle, reach), w.node("Add", middle, reach)
    if not w.params.clip:
        return corners
    low, high = (w.node("Clip", side, w.constant(0), w.constant(1)) for side in corners)
    return low, high


@writes("non_max_suppression")
def non_max_suppression(w: Writing) -> None:
    """Boxes by falling score; a loop over them suppresses what overlaps the one it has come to."""
    params, (batch, boxes, width) = w.params, w.shape
    count = w.reshape(w.cast(w.inputs[1], INT64), [batch, 1])
    valid = w.node("Less", w.ints(np.arange(boxes)[None]), count)
    order, many = w.node("Expand", w.ints(np.arange(boxes)[None]), w.ints([batch, boxes])), boxes
    if params.iou_threshold > 0:
        many = min(params.top_k, boxes) if params.top_k > 0 else boxes
        scores = _flat_column(w, w.inputs[0], params.score_index, (batch, boxes))
        scores = w.node("Where", valid, scores, w.constant(-np.inf))
        _, order = sorted_parts(w, scores, many, 1, True)
    kept = w.node("Less", w.ints(np.arange(many)[None]), count)
    if params.iou_threshold > 0:
        rows = _rows_at(w, w.inputs[0], order, (batch, many, width))
        kept = _suppressed(w, rows, kept, (batch, many))
    if params.max_output_size > 0:
        number = w.node("CumSum", w.cast(kept, INT32), w.ints(1))
        enough = w.constant(params.max_output_size, INT32)
        kept = w.node("And", kept, w.node("LessOrEqual", number, enough))
    if params.invalid_to_bottom:
        flags, first = sorted_parts(w, w.cast(kept, INT32), many, 1, True)
        kept, order = w.cast(flags, BOOL), w.node("GatherElements", order, first, axis=1)
    _give_chosen(w, kept, order, many)


def _give_chosen(w: Writing, kept: str, order: str, many: int) -> None:
    """Row numbers or rows, with -1 in place of the others and behind."""
    batch, boxes, width = w.shape
    behind = [0, 0, 0, boxes - many]
    if w.params.return_indices:
        places = w.node("Where", kept, order, w.ints(-1))
        w.give_cast(w.node("Pad", places, w.ints(behind), w.ints(-1)) if boxes > many else places)
        return
    mask = w.node("Unsqueeze", kept, w.ints([2]))
    rows = _rows_at(w, w.inputs[0], order, (batch, many, width))
    chosen = w.node("Where", mask, rows, w.constant(-1))
    pads = [0, 0, 0, *behind[2:], 0]
    w.give_value(w.node("Pad", chosen, w.ints(pads), w.constant(-1)) if boxes > many else chosen)


def _suppressed(w: Writing, rows: str, kept: str, every: tuple[int, int]) -> str:
    """Which boxes are still kept, after each in turn has suppressed others."""
    params, zero = w.params, w.constant(0)
    live = w.node("Greater", _flat_column(w, rows, params.score_index, every), zero)
    kinds = None
    if params.id_index >= 0:
        kinds = _flat_column(w, rows, params.id_index, every)
        live = w.node("And", live, w.node("GreaterOrEqual", kinds, zero))
    sides = [_flat_column(w, rows, params.coord_start + side, every) for side in range(4)]
    areas, places = _area(w, *sides), w.ints(np.arange(every[1])[None])

    def suppress(number: str, state: str) -> str:
        def at(name: str) -> str:  # of every image, the element that has its turn
            return w.node("Unsqueeze", w.node("Gather", name, number, axis=1), w.ints([1]))

        share = _overlap(w, [at(side) for side in sides], at(areas), sides, areas)
        gone = w.node("GreaterOrEqual", share, w.constant(params.iou_threshold))
        conditions = [live, at(live), at(state), w.node("Greater", places, number)]
        if kinds is not None and not params.force_suppress:
            conditions.append(w.node("Equal", kinds, at(kinds)))
        for condition in conditions:
            gone = w.node("And", gone, condition)
        return w.node("And", state, w.node("Not", gone))

    return w.loop(every[1], kept, TensorType(every, BOOL), suppress)


def _area(w: Writing, left: str, top: str, right: str, bottom: str) -> str:
    return w.node("Mul", w.node("Sub", right, left), w.node("Sub", bottom, top))


def _overlap(w: Writing, one: list[str], area: str, sides: list[str], areas: str) -> str:
    """The shared area over that of both together; 0 where they have none."""
    zero = w.constant(0)
    low = [w.node("Max", one[i], sides[i]) for i in (0, 1)]
    high = [w.node("Min", one[i], sides[i]) for i in (2, 3)]
    extents = [w.node("Max", w.node("Sub", b, a), zero) for a, b in zip(low, high)]
    shared = w.node("Mul", *extents)
    union = w.node("Sub", w.node("Add", area, areas), shared)
    some = w.node("Greater", union, zero)
    return w.node("Where", some, w.node("Div", shared, union), zero)
