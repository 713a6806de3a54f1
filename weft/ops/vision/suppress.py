"""Suppression of overlaps: of the boxes that a detection network gives, which ones stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import INT32, dtype_name, is_integer
from ...base.errors import DTypeError, ShapeError
from ...base.shape import unify_dim
from ...core.infer import unify_dtype
from ...core.schema import BOOL, FLOAT, INT, attr, schema
from .._families import Inferred, Shapes, define, floating, ranked
from .._kernels import Body, before, sort_row, variable, wide_dtype
from ..shape.sort import order_of


@schema
class NonMaxAttrs:
    max_output_size: int = attr(INT, "how many boxes may be left; -1: all", default=-1)
    iou_threshold: float = attr(FLOAT, "overlap, as part of the union, that is too much; 0: nothing is", default=0.5)
    force_suppress: bool = attr(BOOL, "whether other classes suppress too", default=False)
    top_k: int = attr(INT, "how many of the best boxes to look at; -1: all", default=-1)
    coord_start: int = attr(INT, "where the four sides begin in a row", default=2, low=0)
    score_index: int = attr(INT, "where the score is in a row", default=1, low=0)
    id_index: int = attr(INT, "where the class is in a row; -1: nowhere", default=0)
    return_indices: bool = attr(BOOL, "give row numbers rather than rows", default=True)
    invalid_to_bottom: bool = attr(BOOL, "move what is left to the top", default=False)


def _nms_shape(params: NonMaxAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    batch, boxes, width = ranked(ins[0], 3, "the data")
    (count,) = ranked(ins[1], 1, "valid_count")
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


def _start(b: Any, params: NonMaxAttrs, data: Any, numbers: Any, kept: Any, n: Any, count: Any) -> None:
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


def _emit_suppression(b: Any, params: NonMaxAttrs, data: Any, kept: Any, n: Any, count: Any) -> None:
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
                    sides = [[b.let("s", read(x, params.coord_start + k)) for k in range(4)] for x in (a, c)]
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
    attrs=NonMaxAttrs,
    shape=_nms_shape,
    dtype=_nms_dtype,
    reference=_nms_reference,
    kernels=_nms_kernels,
)
