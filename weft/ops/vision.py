"""Operators of detection networks: anchors, boxes from predictions, suppression of overlaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..base.dtype import INT32, dtype_name, is_integer
from ..base.errors import DTypeError, InvalidValue, ShapeError
from ..base.shape import Shape, mul_dims, show, unify, unify_dim
from ..core.infer import unify_dtype
from ..core.schema import BOOL, FLOAT, FLOATS, INT, attr, schema
from . import _layouts as layouts
from ._families import INJECTIVE, OPAQUE, F, define, floating, no_flow
from ._kernels import Body, before, sort_row, variable, wide_dtype
from .sort import order_of

Shapes = Sequence[Shape]


def _ranked(shape: Shape, rank: int, what: str) -> Any:
    """The dimensions of a shape that may be unknown."""
    if shape is None:
        return (None,) * rank
    if len(shape) != rank:
        raise ShapeError(f"{what} has {rank} dimensions, not {show(shape)}")
    return shape


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


def _prior_shape(params: PriorAttrs, ins: Shapes, outs: Shapes) -> Any:
    _check_prior(params)
    _, _, height, width = _ranked(ins[0], 4, "the data")
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
    level=4, inputs={"data": "(n, c, height, width), of which only the shape is used"},
    attrs=PriorAttrs, pattern=OPAQUE, shape=_prior_shape, dtype=floating,
    layout=layouts.fixed_unknown, reference=_prior_reference, compute=_prior_compute,
    gradient=no_flow, ignored_inputs=[0],
)  # fmt: skip


# Boxes from predictions


@schema
class TransformLocAttrs:
    clip: bool = attr(BOOL, "keep boxes within 0..1", default=True)
    threshold: float = attr(FLOAT, "scores below it are background", default=0.01)
    variances: tuple[float, ...] = attr(
        FLOATS, "what predictions (x, y, width, height) are scaled by", default=(0.1, 0.1, 0.2, 0.2)
    )


def _transform_shape(params: TransformLocAttrs, ins: Shapes, outs: Shapes) -> Any:
    if len(params.variances) != 4:
        raise InvalidValue(f"variances {params.variances} are not four")
    batch, classes, anchors = _ranked(ins[0], 3, "cls_prob")
    batch_too, four = _ranked(ins[1], 2, "loc_pred")
    one, anchors_too, sides = _ranked(ins[2], 3, "anchor")
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
    inputs={
        "cls_prob": "(batch, classes, anchors)",
        "loc_pred": "(batch, 4 * anchors)",
        "anchor": "(1, anchors, 4)",
    },
    attrs=TransformLocAttrs, pattern=OPAQUE, shape=_transform_shape, dtype=_transform_dtype,
    layout=layouts.keep_last, reference=_transform_reference, kernels=_transform_kernels,
    output_names=["boxes", "valid_count"],
)  # fmt: skip
multibox_transform_loc.set_num_outputs(2)


# Suppression of overlaps


@schema
class NonMaxAttrs:
    max_output_size: int = attr(INT, "how many boxes may be left; -1: all", default=-1)
    iou_threshold: float = attr(
        FLOAT, "overlap, as part of the union, that is too much; 0: nothing is", default=0.5
    )
    force_suppress: bool = attr(BOOL, "whether other classes suppress too", default=False)
    top_k: int = attr(INT, "how many of the best boxes to look at; -1: all", default=-1)
    coord_start: int = attr(INT, "where the four sides begin in a row", default=2, low=0)
    score_index: int = attr(INT, "where the score is in a row", default=1, low=0)
    id_index: int = attr(INT, "where the class is in a row; -1: nowhere", default=0)
    return_indices: bool = attr(BOOL, "give row numbers rather than rows", default=True)
    invalid_to_bottom: bool = attr(BOOL, "move what is left to the top", default=False)


def _nms_shape(params: NonMaxAttrs, ins: Shapes, outs: Shapes) -> Any:
    batch, boxes, width = _ranked(ins[0], 3, "the data")
    (count,) = _ranked(ins[1], 1, "valid_count")
    batch = unify_dim(batch, count)
    if isinstance(width, int):
        last = max(params.coord_start + 3, params.score_index, params.id_index)
        if last >= width:
            raise ShapeError(f"a row of {width} numbers has no number {last}")
    data = (batch, boxes, width)
    return [data, (batch,)], [data[:2] if params.return_indices else data]


def _nms_dtype(params: NonMaxAttrs, ins: Sequence[Any], outs: Sequence[Any]) -> Any:
    known = None if params.return_indices else outs[0]
    ((dtype,), _) = floating(params, [unify_dtype(ins[0], known)], [])
    if ins[1] is not None and not is_integer(ins[1]):
        raise DTypeError(f"valid_count is {dtype_name(ins[1])}", hint="cast it to int32")
    return [dtype, None], [INT32 if params.return_indices else dtype]


def _nms_reference(params: NonMaxAttrs, data: Any, valid_count: Any) -> Any:
    batch, boxes = data.shape[:2]
    chosen = np.full((batch, boxes), -1, INT32)
    for number, rows in enumerate(data.astype(wide_dtype(data.dtype))):
        kept = _kept(params, rows[: max(int(valid_count[number]), 0)])
        if params.invalid_to_bottom:
            kept = [index for index in kept if index >= 0]
        chosen[number, : len(kept)] = kept
    if params.return_indices:
        return chosen
    made = np.full(data.shape, -1, data.dtype)
    for number, places in enumerate(chosen):
        made[number, places >= 0] = data[number, places[places >= 0]]
    return made


def _kept(params: NonMaxAttrs, rows: Any) -> list[int]:
    """The rows of one image, best first, -1 in place of those that are suppressed."""
    order = list(range(len(rows)))
    scores = rows[:, params.score_index]
    if params.iou_threshold > 0:
        order = order_of(scores, 0, True).tolist()
        order = order[: params.top_k] if params.top_k > 0 else order
        _suppress(params, rows, order)
    left = params.max_output_size if params.max_output_size > 0 else len(order)
    for place, index in enumerate(order):
        left -= index >= 0
        order[place] = index if left >= 0 else -1
    return order


def _suppress(params: NonMaxAttrs, rows: Any, order: list[int]) -> None:
    live = rows[:, params.score_index] > 0
    kinds = rows[:, params.id_index] if params.id_index >= 0 else np.zeros(len(rows))
    live &= kinds >= 0
    sides = rows[:, params.coord_start : params.coord_start + 4]
    for place, index in enumerate(order):
        if index < 0 or not live[index]:
            continue
        for later in range(place + 1, len(order)):
            other = order[later]
            if other < 0 or not live[other]:
                continue
            rival = params.force_suppress or kinds[index] == kinds[other]
            if rival and _overlap(sides[index], sides[other]) >= params.iou_threshold:
                order[later] = -1


def _overlap(a: Any, b: Any) -> Any:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    width, height = np.maximum(high - low, 0)
    shared = width * height
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / union if union > 0 else 0.0


def _nms_kernels(params: NonMaxAttrs, inputs: Any, outputs: Any) -> Any:
    """An image a thread: the order of its boxes, which of them stay, and the result."""
    ((batch, boxes, width), dtype) = inputs[0]
    body = Body("non_max_suppression", inputs, outputs)
    order = body.temporary((batch, 2, boxes), INT32)
    chosen = 2 if params.return_indices else body.temporary((batch, boxes), INT32)
    views = {0: (batch, boxes, width), 1: (batch,), order: (batch, 2, boxes)}
    views |= {chosen: (batch, boxes)}
    views |= {} if params.return_indices else {2: (batch, boxes, width)}
    made = body.kernel(views, 8 * batch * boxes**2)
    with made as (b, data, counts, numbers, kept, *out), b.parallel("n", batch) as n:
        wanted = te.cast(counts[n], "int64")
        count = b.let("count", te.min(te.max(wanted, 0), boxes))
        _start(b, params, data, numbers, kept, n, count)
        if params.iou_threshold > 0:
            _emit_suppression(b, params, data, kept, n, count)
        _emit_limits(b, params, kept, n, boxes)
        if out:
            with b.loop("i", boxes) as i, b.loop("k", width) as k:
                index = te.cast(kept[n, i], "int64")
                value = data[n, te.max(index, 0), k]
                b.store(out[0], (n, i, k), te.select(index >= 0, value, te.const(-1, dtype)))
    return body.kernels


def _start(b: Any, params: NonMaxAttrs, data: Any, numbers: Any, kept: Any, n: Any, count: Any):
    """The boxes that are looked at, best first; -1 behind them."""
    boxes, limit, place = int(kept.shape[1].value), count, lambda i: i
    if params.iou_threshold > 0:
        first = before(data.dtype, True)
        score = lambda i: data[n, i, params.score_index]
        place = sort_row(b, numbers, n, count, lambda i, j: first(score(i), score(j)))
        limit = te.min(count, params.top_k) if params.top_k > 0 else count
    with b.loop("i", boxes) as i:
        b.store(kept, (n, i), -1)
    with b.loop("i", limit) as i:
        b.store(kept, (n, i), te.cast(place(i), INT32))


def _emit_suppression(b: Any, params: NonMaxAttrs, data: Any, kept: Any, n: Any, count: Any):
    wide = wide_dtype(data.dtype)
    read = lambda i, k: te.cast(data[n, i, k], wide)

    def live(i: te.Expr) -> te.Expr:
        good = read(i, params.score_index) > 0
        return good & (read(i, params.id_index) >= 0) if params.id_index >= 0 else good

    with b.loop("i", count) as i:
        a = b.let("a", te.cast(kept[n, i], "int64"))
        with b.when(a >= 0), b.when(live(a)), b.loop("j", count - i - 1) as j:
            c = b.let("c", te.cast(kept[n, i + 1 + j], "int64"))
            with b.when(c >= 0):
                rival = live(c)
                if params.id_index >= 0 and not params.force_suppress:
                    rival = rival & read(a, params.id_index).equal(read(c, params.id_index))
                with b.when(rival):
                    sides = [[b.let("s", read(x, params.coord_start + k)) for k in range(4)]
                             for x in (a, c)]  # fmt: skip
                    with b.when(_te_overlap(b, *sides) >= params.iou_threshold):
                        b.store(kept, (n, i + 1 + j), -1)


def _te_overlap(b: Any, p: Sequence[te.Expr], q: Sequence[te.Expr]) -> te.Expr:
    across, down = (te.max(te.min(p[k + 2], q[k + 2]) - te.max(p[k], q[k]), 0.0) for k in (0, 1))
    shared = b.let("shared", across * down)
    areas = [(s[2] - s[0]) * (s[3] - s[1]) for s in (p, q)]
    union = b.let("union", areas[0] + areas[1] - shared)
    return te.select(union > 0, shared / te.select(union > 0, union, 1.0), 0.0)


def _emit_limits(b: Any, params: NonMaxAttrs, kept: Any, n: Any, boxes: int) -> None:
    """At most as many as are wanted, moved to the top if that is wanted."""
    if params.max_output_size > 0:
        found = variable(b, "found", 0)
        with b.loop("i", boxes) as i, b.when(kept[n, i] >= 0):
            b.store(found, (), found[()] + 1)
            with b.when(found[()] > params.max_output_size):
                b.store(kept, (n, i), -1)
    if params.invalid_to_bottom:
        end = variable(b, "end", 0)
        with b.loop("i", boxes) as i:
            index = b.let("index", kept[n, i])
            with b.when(index >= 0):
                b.store(kept, (n, i), -1)
                b.store(kept, (n, end[()]), index)
                b.store(end, (), end[()] + 1)


non_max_suppression = define(
    "non_max_suppression",
    "The first valid_count boxes of every image, by falling score; -1 in place of those that "
    "overlap a better one too much, of those beyond the limits, and behind them. A box without a "
    "positive score, or with a class below 0, neither suppresses nor is suppressed.",
    level=4,
    inputs={"data": "(batch, boxes, numbers of a box)", "valid_count": "(batch,), integers"},
    attrs=NonMaxAttrs, pattern=OPAQUE, shape=_nms_shape, dtype=_nms_dtype,
    layout=layouts.keep_last, reference=_nms_reference, kernels=_nms_kernels,
)  # fmt: skip


# Reorganisation


@schema
class ReorgAttrs:
    stride: int = attr(INT, "how many times smaller height and width become", default=1, low=1)


def _reorg_shape(params: ReorgAttrs, ins: Shapes, outs: Shapes) -> Any:
    s = params.stride
    n, c, h, w = _ranked(ins[0], 4, "the data")
    for dim, factor in ((c, s * s), (h, s), (w, s)):
        if isinstance(dim, int) and dim % factor:
            raise ShapeError(f"{show(ins[0])} cannot be reorganised by {s}")
    smaller = [dim // s if isinstance(dim, int) else None for dim in (h, w)]
    data = unify(ins[0], _unreorganised(s, outs[0]))
    return [data], [(n, mul_dims(c, s * s), *smaller)]


def _unreorganised(s: int, shape: Shape) -> Shape:
    """The shape that a reorganised one comes from."""
    n, c, h, w = _ranked(shape, 4, "the output")
    return (n, c // (s * s) if isinstance(c, int) else None, mul_dims(h, s), mul_dims(w, s))


def _reorg_reference(params: ReorgAttrs, x: Any) -> Any:
    """Memory is read as (c / s^2, h s, w s); blocks of s x s there become channels."""
    s, (n, c, h, w) = params.stride, x.shape
    blocks = x.reshape(n, c // (s * s), h, s, w, s).transpose(0, 3, 5, 1, 2, 4)
    return blocks.reshape(n, c * s * s, h // s, w // s).copy()


def _reorg_grad_reference(params: ReorgAttrs, g: Any) -> Any:
    s = params.stride
    n, c, h, w = _unreorganised(s, g.shape)  # type: ignore[misc]
    blocks = g.reshape(n, s, s, c // (s * s), h, w).transpose(0, 3, 4, 1, 5, 2)
    return blocks.reshape(n, c, h, w).copy()


def _moved(x: te.Tensor, shape: Sequence[int], source: Any) -> te.Tensor:
    """Every element of a batch from the place in memory that `source` gives for its own."""
    extents = x.shape[1:]

    def element(n: te.Expr, c: te.Expr, h: te.Expr, w: te.Expr) -> te.Expr:
        flat = source((c * shape[2] + h) * shape[3] + w)
        inner, outer = extents[1] * extents[2], extents[2]
        return x[n, flat // inner, flat % inner // outer, flat % outer]

    return te.compute(shape, element, name="reorg")


def _reorg_compute(params: ReorgAttrs, x: te.Tensor) -> te.Tensor:
    s, (_, c, h, w) = params.stride, x.shape
    (shape,) = _reorg_shape(params, [x.shape], [None])[1]
    parts = c // (s * s)

    def source(flat: te.Expr) -> te.Expr:  # memory as (s, s, parts, h, w)
        column, row = flat % w, flat // w % h
        part, block = flat // (h * w) % parts, flat // (h * w * parts)
        return ((part * h + row) * s + block // s) * (w * s) + column * s + block % s

    return _moved(x, shape, source)


def _reorg_grad_compute(params: ReorgAttrs, g: te.Tensor) -> te.Tensor:
    s = params.stride
    shape: Any = _unreorganised(s, g.shape)
    _, c, h, w = shape
    parts = c // (s * s)

    def source(flat: te.Expr) -> te.Expr:  # memory as (parts, h, s, w, s)
        across, column = flat % s, flat // s % w
        down, row = flat // (s * w) % s, flat // (s * w * s) % h
        part = flat // (s * w * s * h)
        return (((down * s + across) * parts + part) * h + row) * w + column

    return _moved(g, shape, source)


yolo_reorg = define(
    "yolo_reorg",
    "Height and width s times smaller, s^2 times the channels, as the reorg layer of Darknet does: "
    "out[n, (i s + j) c / s^2 + k, ...] takes what is at (i, j) of every s x s block of the data, "
    "whose memory is read as c / s^2 images of (h s, w s).",
    level=5, attrs=ReorgAttrs, pattern=INJECTIVE, shape=_reorg_shape,
    layout=layouts.fixed_unknown, reference=_reorg_reference, compute=_reorg_compute,
    gradient=lambda ctx, g: [F._yolo_reorg_grad(g, stride=ctx.params.stride)],
)  # fmt: skip
yolo_reorg_grad = define(
    "_yolo_reorg_grad", "The transpose of yolo_reorg.", level=10, inputs={"ograd": "the gradient"},
    attrs=ReorgAttrs, pattern=INJECTIVE, layout=layouts.fixed_unknown,
    shape=lambda params, ins, outs: (
        [_reorg_shape(params, outs, [None])[1][0]], [_unreorganised(params.stride, ins[0])]
    ),
    reference=_reorg_grad_reference, compute=_reorg_grad_compute,
    gradient=lambda ctx, gg: [F.yolo_reorg(gg, stride=ctx.params.stride)],
)  # fmt: skip
