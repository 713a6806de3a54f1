"""Pools over the cells of boxes: the greatest element, the mean of elements in channels that belong
to the cell, and means of interpolated points, as many as a box is large."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import BOOL as BOOL_DTYPE
from ...base.dtype import FLOAT32, INT64
from ...base.errors import ShapeError
from ...base.shape import floor_div_dims, show
from ...core.schema import BOOL, FLOAT, INT, SIDES, attr, schema
from .._families import F, Inferred, Shapes, define, floating
from .._kernels import Body, variable, wide_dtype
from ..nn._cells import BOXES, Cell, Pool, Taps, Visit, define_pool, shape_rule, side, sides_of, single, times, whole

SCALE = "what the boxes are multiplied by"


def _away(value: Any) -> Any:
    """float32 to the nearest whole number, halves away from zero, in numpy."""
    wide = value.astype(np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide).astype(FLOAT32)


def _te_away(value: te.Expr) -> te.Expr:
    wide = te.cast(value, "float64")
    near = te.floor(te.abs(wide) + 0.5)
    return te.cast(te.select(wide < 0.0, -near, near), FLOAT32)


# The greatest element


@schema
class RoiPoolAttrs:
    pooled_size: tuple[int, ...] = attr(SIDES, "height and width of the output", low=1)
    spatial_scale: float = attr(FLOAT, SCALE, default=1.0)


def _roi_pool_shape(params: RoiPoolAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    unused: Any = lambda *_: None
    plain = Pool("", lambda p: p.pooled_size, lambda p, c: c, unused, unused, unused)
    inputs, (out,) = shape_rule(plain)(params, ins, outs)
    return inputs, [out, out]


def _roi_pool_dtype(params: Any, ins: Any, outs: Any) -> Any:
    ins, (dtype,) = floating(params, list(ins), [outs[0]])
    return ins, [dtype, INT64]


def _bounds(params: RoiPoolAttrs, sides: Any, axis: int, cell: int, extent: int) -> Any:
    """Where a cell begins and ends along an axis."""
    scaled = _away(sides[[1 - axis, 3 - axis]] * FLOAT32.type(params.spatial_scale))
    size = np.maximum(scaled[1] - scaled[0] + FLOAT32.type(1), FLOAT32.type(1))
    step = size / FLOAT32.type(params.pooled_size[axis])
    low = np.floor(FLOAT32.type(cell) * step) + scaled[0]
    high = np.ceil(FLOAT32.type(cell + 1) * step) + scaled[0]
    return int(np.clip(low, 0, extent)), int(np.clip(high, 0, extent))


def _roi_pool_reference(params: RoiPoolAttrs, x: Any, boxes: Any) -> Any:
    n, channels, height, width = x.shape
    out = np.zeros((len(boxes), channels, *params.pooled_size), x.dtype)
    places = np.full(out.shape, -1, INT64)
    for box, number in enumerate(boxes[:, 0].astype(FLOAT32)):
        if not 0 <= number < n:
            continue
        image, sides = int(number), sides_of(boxes, box)
        first = (image * channels + np.arange(channels)) * height
        for i, j in np.ndindex(*params.pooled_size):
            top, bottom = _bounds(params, sides, 0, i, height)
            left, right = _bounds(params, sides, 1, j, width)
            if bottom <= top or right <= left:
                continue
            part = x[image, :, top:bottom, left:right].astype(wide_dtype(x.dtype))
            cells = (bottom - top) * (right - left)
            part = np.where(np.isnan(part), -np.inf, part).reshape(channels, cells)
            down, across = np.divmod(part.argmax(1), right - left)
            out[box, :, i, j] = part.max(1)
            at = (first + top + down) * width + left + across
            places[box, :, i, j] = np.where(part.max(1) > -np.inf, at, -1)
    return out, places


def _emit_bounds(b: Any, params: RoiPoolAttrs, cell: Cell, axis: int) -> Any:
    scale = single(params.spatial_scale)
    low, high = (b.let("side", _te_away(times(side(cell.boxes, cell.box, k - axis), scale))) for k in (1, 3))
    size = te.max(high - low + 1.0, 1.0)
    step = b.let("step", size / single(params.pooled_size[axis]))
    number, extent = (cell.i, cell.height) if axis == 0 else (cell.j, cell.width)
    place = te.cast(number, FLOAT32)
    begin = b.let("begin", whole(te.floor(times(place, step)) + low, extent))
    end = b.let("end", whole(te.ceil(times(place + 1.0, step)) + low, extent))
    return begin, te.max(end - begin, 0)


def _roi_pool_kernels(params: RoiPoolAttrs, inputs: Any, outputs: Any) -> Any:
    ((n, channels, height, width), dtype), ((count, _), _) = inputs
    rows, columns = params.pooled_size
    out_shape = (count, channels, rows, columns)
    body = Body("roi_pool", inputs, outputs)
    views = {0: (n, channels, height, width), 1: (count, 5), 2: out_shape, 3: out_shape}
    kernel = body.kernel(views, 64 * count * channels * rows * columns)
    with kernel as (b, x, boxes, out, places), b.parallel("p", count * channels) as p:
        box = b.let("box", p // max(channels, 1))
        c = b.let("c", p % max(channels, 1))
        number = b.let("number", te.cast(boxes[box, 0], FLOAT32))
        there = (number >= 0.0) & (number < float(n))
        image = b.let("image", te.cast(te.select(there, number, 0.0), "int64"))
        best, place = variable(b, "best", 0, wide_dtype(dtype)), variable(b, "place", 0)
        with b.loop("i", rows) as i, b.loop("j", columns) as j:
            cell = Cell(boxes, box, i, j, height, width, te.as_expr(0))
            (top, down), (left, across) = (_emit_bounds(b, params, cell, a) for a in (0, 1))
            some = there & (down > 0) & (across > 0)
            b.store(best, (), te.cast(te.select(some, float("-inf"), 0.0), best.dtype))
            b.store(place, (), -1)
            with b.when(some), b.loop("y", down) as y, b.loop("z", across) as z:
                at = (image, c, top + y, left + z)
                value = b.let("value", te.cast(x[at], best.dtype))
                with b.when(value > best[()]):
                    b.store(best, (), value)
                    flat = ((image * channels + c) * height + top + y) * width + left + z
                    b.store(place, (), flat)
            b.store(out, (box, c, i, j), te.cast(best[()], dtype))
            b.store(places, (box, c, i, j), place[()])
    return body.kernels


def _roi_pool_gradient(ctx: Any, g: Any, _: Any) -> list[Any]:
    """Every element gets the gradients of the cells in which it is the greatest."""
    x, places = ctx.inputs[0], ctx.outputs[1]
    some = F.cast(F.broadcast_greater_equal(places, F.zeros_like(places)), dtype=BOOL_DTYPE)
    flowing = F.where(some, g, F.zeros_like(g))
    flat_g, flat_places, flat_x = (F.reshape(v, shape=(-1,)) for v in (flowing, places, x))
    return [F.reshape_like(F._gather_elements_grad(flat_g, flat_x, flat_places, axis=0), x), None]


roi_pool = define(
    "roi_pool",
    "Every box of every channel, its sides rounded to whole elements, split in cells, each its "
    "greatest element, or 0 where it has none. The second output, which is hidden, is the number "
    "of that element in the data, or -1.",
    level=4,
    inputs=BOXES,
    attrs=RoiPoolAttrs,
    shape=_roi_pool_shape,
    dtype=_roi_pool_dtype,
    reference=_roi_pool_reference,
    kernels=_roi_pool_kernels,
    native_from=4096,
    open_body=True,
    gradient=_roi_pool_gradient,
    visible_outputs=1,
    output_names=["output", "places"],
)


# The mean in a channel of the cell's own


@schema
class PsRoiPoolAttrs:
    output_dim: int = attr(INT, "channels of the output", low=1)
    pooled_size: int = attr(INT, "height and width of the output", low=1)
    group_size: int = attr(INT, "height and width of what tells a cell's channel; 0: the same", default=0, low=0)
    spatial_scale: float = attr(FLOAT, SCALE, default=1.0)


def group_of(params: Any) -> int:
    return int(params.group_size or params.pooled_size)


def own_channel(params: Any, c: Any, i: Any, j: Any) -> Any:
    """The channel that a cell of one of the output's channels reads."""
    group, cells = group_of(params), params.pooled_size
    return (c * group + i * group // cells) * group + j * group // cells


def check_channels(params: Any, channels: Any) -> int:
    wanted = params.output_dim * group_of(params) ** 2
    if isinstance(channels, int) and channels != wanted:
        raise ShapeError(f"data of {channels} channels", why=f"the pool reads {wanted} of them")
    return int(params.output_dim)


def _ps_bounds(params: PsRoiPoolAttrs, sides: Any, axis: int, cell: int, extent: int) -> range:
    one, scale = FLOAT32.type(1), FLOAT32.type(params.spatial_scale)
    low, high = _away(sides[[1 - axis, 3 - axis]])
    low, high = low * scale, (high + one) * scale
    step = np.maximum(high - low, FLOAT32.type(0.1)) / FLOAT32.type(params.pooled_size)
    begin = np.floor(FLOAT32.type(cell) * step + low)
    end = np.ceil(FLOAT32.type(cell + 1) * step + low)
    return range(int(np.clip(begin, 0, extent)), int(np.clip(end, 0, extent)))


def _ps_taps(params: PsRoiPoolAttrs, sides: Any, cell: Any, extents: Any, _: Any) -> Taps:
    bounds = [_ps_bounds(params, sides, axis, cell[axis], extents[axis]) for axis in (0, 1)]
    rows, columns = (grid.reshape(-1) for grid in np.meshgrid(*bounds, indexing="ij"))
    area = len(bounds[0]) * len(bounds[1])
    return Taps(rows.astype(INT64), columns.astype(INT64), np.full(area, 1 / max(area, 1)))


def _emit_ps_bounds(b: Any, params: PsRoiPoolAttrs, cell: Cell, axis: int) -> Any:
    scale = single(params.spatial_scale)
    low, high = (b.let("side", _te_away(side(cell.boxes, cell.box, k - axis))) for k in (1, 3))
    low, high = b.let("low", times(low, scale)), times(high + 1.0, scale)
    step = b.let("step", te.max(high - low, single(0.1)) / single(params.pooled_size))
    number, extent = (cell.i, cell.height) if axis == 0 else (cell.j, cell.width)
    place = te.cast(number, FLOAT32)
    begin = b.let("begin", whole(te.floor(times(place, step) + low), extent))
    end = b.let("end", whole(te.ceil(times(place + 1.0, step) + low), extent))
    return begin, b.let("count", te.max(end - begin, 0))


def _emit_ps(b: Any, params: PsRoiPoolAttrs, cell: Cell, visit: Visit) -> None:
    (top, down), (left, across) = (_emit_ps_bounds(b, params, cell, axis) for axis in (0, 1))
    area = te.cast(te.max(down * across, 1), "float64")
    weight = b.let("weight", te.const(1.0, "float64") / area)
    with b.loop("y", down) as y, b.loop("z", across) as z:
        visit(top + y, left + z, weight)


define_pool(
    PS := Pool(
        "psroi_pool",
        lambda params: (params.pooled_size, params.pooled_size),
        check_channels,
        own_channel,
        _ps_taps,
        _emit_ps,
    ),
    "Every box, split in cells, each the mean of its elements in a channel of its own: of channel "
    "c of the output, cell (i, j) of k by k reads channel (c g + i g / k) g + j g / k of the data, "
    "with g = group_size.",
    PsRoiPoolAttrs,
    shape_rule(PS),
    floating,
    native_from=4096,
    open_body=True,
)


# The mean of interpolated points


@schema
class AdaptiveRoiAlignAttrs:
    pooled_size: tuple[int, ...] = attr(SIDES, "height and width of the output", low=1)
    spatial_scale: float = attr(FLOAT, SCALE, default=1.0)
    sample_ratio: int = attr(
        INT, "points along each side of an output cell; 0: as many as it has elements", default=0, low=0, high=1024
    )
    aligned: bool = attr(BOOL, "whether places are centres of pixels, and boxes may be smaller than one", default=False)
    position_sensitive: bool = attr(BOOL, "whether each cell reads a channel of its own", default=False)


def _align_channels(params: AdaptiveRoiAlignAttrs, channels: Any) -> Any:
    cells = params.pooled_size[0] * params.pooled_size[1]
    if not params.position_sensitive:
        return channels
    if isinstance(channels, int) and channels % cells:
        raise ShapeError(f"{channels} channels for {show(params.pooled_size)} cells")
    return floor_div_dims(channels, cells)


def _align_source(params: AdaptiveRoiAlignAttrs, c: Any, i: Any, j: Any) -> Any:
    if not params.position_sensitive:
        return c
    return (c * params.pooled_size[0] + i) * params.pooled_size[1] + j


def align_places(params: Any, sides: Any, axis: int, cell: int, extent: int) -> tuple[Any, int]:
    """Where the points of a cell are along an axis, those inside the image, and how many there are in all."""
    half = FLOAT32.type(0.5 if params.aligned else 0)
    low, high = sides[[1 - axis, 3 - axis]] * FLOAT32.type(params.spatial_scale) - half
    size = high - low if params.aligned else np.maximum(high - low, FLOAT32.type(1))
    step = size / FLOAT32.type(params.pooled_size[axis])
    count = int(params.sample_ratio or np.ceil(step))
    if count <= 0:
        return np.zeros(0), 0
    pace = np.float64(step) / count
    start = np.float64(low) + cell * np.float64(step)
    first, end = 0, count
    if pace > 0:  # points outside count as 0, and a box may have far too many
        first = int(np.clip(np.floor((-1 - start) / pace) - 1, 0, count))
        end = int(np.clip(np.ceil((extent - start) / pace) + 1, 0, count))
    place = start + (np.arange(first, end) + 0.5) * pace
    return place[(place >= -1) & (place <= extent)].clip(0, extent - 1), count


def _align_points(params: AdaptiveRoiAlignAttrs, sides: Any, axis: int, cell: int, extent: int) -> tuple[Any, Any]:
    """Elements before and behind the points of a cell along an axis, and how much they count."""
    place, count = align_places(params, sides, axis, cell, extent)
    before = np.floor(place).astype(INT64)
    part = place - before
    behind = np.minimum(before + 1, extent - 1)
    return np.concatenate([before, behind]), np.concatenate([1 - part, part]) / max(count, 1)


def _align_taps(params: AdaptiveRoiAlignAttrs, sides: Any, cell: Any, extents: Any, _: Any) -> Taps:
    points = [_align_points(params, sides, axis, cell[axis], extents[axis]) for axis in (0, 1)]
    (rows, down), (columns, across) = points
    rows, columns = (grid.reshape(-1) for grid in np.meshgrid(rows, columns, indexing="ij"))
    return Taps(rows, columns, np.multiply.outer(down, across).reshape(-1))


class Points(NamedTuple):
    """Of a cell along an axis: where they start, from one to the next, the first that may count, how many there are
    from there, and all, also as a float, which is 1 at least."""

    start: te.Expr
    pace: te.Expr
    first: te.Expr
    turns: te.Expr
    total: te.Expr
    many: te.Expr


def emit_points(b: Any, params: Any, cell: Cell, axis: int) -> Points:
    half, scale = (0.5 if params.aligned else 0.0), single(params.spatial_scale)
    low, high = (b.let("side", times(side(cell.boxes, cell.box, k - axis), scale) - half) for k in (1, 3))
    size = high - low if params.aligned else te.max(high - low, 1.0)
    step = b.let("step", size / single(params.pooled_size[axis]))
    count = te.as_expr(params.sample_ratio)
    if not params.sample_ratio:
        count = b.let("count", te.max(te.cast(te.ceil(step), INT64), 0))
    number, extent = (cell.i, cell.height) if axis == 0 else (cell.j, cell.width)
    wide, many = te.cast(step, "float64"), te.cast(te.max(count, 1), "float64")
    pace = b.let("pace", wide / many)
    start = b.let("start", te.cast(low, "float64") + te.cast(number, "float64") * wide)
    moving = pace > 0.0
    safe = b.let("safe", te.select(moving, pace, 1.0))
    limit = lambda place: te.cast(te.min(te.max(place, 0.0), many), INT64)
    first = limit(te.floor((-1.0 - start) / safe) - 1.0)
    end = limit(te.ceil((float(extent) - start) / safe) + 1.0)
    first = b.let("first", te.select(moving, first, 0))
    end = te.select(moving, te.min(end, count), count)
    return Points(start, pace, first, b.let("turns", te.max(end - first, 0)), count, many)


def place_of(points: Points, number: te.Expr) -> te.Expr:
    """Where a point is, by its number, which is a float."""
    return points.start + (number + 0.5) * points.pace


def within(place: te.Expr, extent: int) -> te.Expr:
    """Whether a point counts: it is no more than one element outside."""
    return (place >= -1.0) & (place <= float(extent))


def _emit_pair(b: Any, place: te.Expr, extent: int) -> list[tuple[te.Expr, te.Expr]]:
    """The elements before and behind a place, with what they count."""
    inner = b.let("inner", te.min(te.max(place, 0.0), float(extent - 1)))
    first = b.let("before", te.cast(te.floor(inner), INT64))
    part = b.let("part", inner - te.cast(first, "float64"))
    return [(first, 1.0 - part), (te.min(first + 1, extent - 1), part)]


def emit_taps(b: Any, cell: Cell, down: Points, across: Points, visit: Visit) -> None:
    """Visits the four elements around each point that counts, with what each adds to the point."""
    with b.loop("p", down.turns) as p:
        y = b.let("y", place_of(down, te.cast(down.first + p, "float64")))
        with b.when(within(y, cell.height)):
            rows = _emit_pair(b, y, cell.height)
            with b.loop("q", across.turns) as q:
                z = b.let("z", place_of(across, te.cast(across.first + q, "float64")))
                with b.when(within(z, cell.width)):
                    columns = _emit_pair(b, z, cell.width)
                    for row, vertical in rows:
                        for column, level in columns:
                            visit(row, column, vertical * level)


def _emit_align(b: Any, params: AdaptiveRoiAlignAttrs, cell: Cell, visit: Visit) -> None:
    if not cell.height or not cell.width:
        return
    down, across = (emit_points(b, params, cell, axis) for axis in (0, 1))
    share = b.let("share", te.const(1.0, "float64") / (down.many * across.many))
    emit_taps(b, cell, down, across, lambda row, column, weight: visit(row, column, weight * share))


define_pool(
    ALIGN := Pool(
        "adaptive_roi_align",
        lambda params: params.pooled_size,
        _align_channels,
        _align_source,
        _align_taps,
        _emit_align,
    ),
    "roi_align whose number of points may follow from the size of each box, and whose cells may "
    "each read a channel of their own: cell (i, j) of h by w reads channel (c h + i) w + j.",
    AdaptiveRoiAlignAttrs,
    shape_rule(ALIGN),
    floating,
)
