"""The position-sensitive pool whose cells are moved by what a network predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import FLOAT64, INT64
from ...base.errors import ShapeError
from ...base.shape import show, unify_dim
from ...core.op import Op
from ...core.schema import BOOL, FLOAT, INT, attr, schema
from .._families import OGRAD, F, Inferred, Shapes, attributes, define, floating, ranked
from .._kernels import Body, variable
from ..nn._cells import (
    BOXES,
    Cell,
    Pool,
    Taps,
    Visit,
    each_place,
    grad_kernels_rule,
    grad_reference_rule,
    kernels_rule,
    reference_rule,
    shape_rule,
    side,
    sides_of,
)
from .roi_pool import check_channels, own_channel


@schema
class DeformablePoolAttrs:
    output_dim: int = attr(INT, "channels of the output", low=1)
    pooled_size: int = attr(INT, "height and width of the output", low=1)
    group_size: int = attr(INT, "height and width of what tells a cell's channel", low=1)
    spatial_scale: float = attr(FLOAT, "what the boxes are multiplied by", default=1.0)
    part_size: int = attr(INT, "height and width of the moves; 0: those of the output", default=0, low=0)
    sample_per_part: int = attr(INT, "points along each side of a cell", default=1, low=1, high=1024)
    trans_std: float = attr(FLOAT, "what moves are multiplied by", default=0.0)
    no_trans: bool = attr(BOOL, "whether cells stay where they are", default=False)


def _parts(params: DeformablePoolAttrs) -> int:
    return params.part_size or params.pooled_size


def _part(params: DeformablePoolAttrs, cell: Any) -> Any:
    return cell * _parts(params) // params.pooled_size


def _fits(params: DeformablePoolAttrs, moves: int) -> bool:
    return moves > 0 and moves % 2 == 0 and params.output_dim % (moves // 2) == 0


def _shape(params: DeformablePoolAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    (data, boxes), (out,) = shape_rule(POOL)(params, ins, outs)
    if data is not None and 0 in data[2:] and isinstance(boxes[0], int) and boxes[0]:
        raise ShapeError(f"{boxes[0]} boxes cannot be in images of shape {show(data)}")
    if params.no_trans:
        return [data, boxes], [out]
    count, classes, down, across = ranked(ins[2], 4, "the moves")
    count, parts = unify_dim(boxes[0], count), _parts(params)
    unify_dim(down, parts), unify_dim(across, parts)
    if isinstance(classes, int) and not _fits(params, classes):
        raise ShapeError(
            f"moves of {classes} channels",
            why=f"there are two for each class, which {params.output_dim} channels are split in",
        )
    trans = (count, classes, parts, parts)
    return [data, (count, 5), trans], [(count, *out[1:])]


def _axis_places(params: DeformablePoolAttrs, sides: Any, axis: int, cell: int, move: Any) -> Any:
    """Where the points of a cell are along an axis, and the size of the box."""
    low, high = (np.copysign(np.floor(np.abs(v) + 0.5), v) for v in sides[[1 - axis, 3 - axis]].astype("f8"))
    low, high = low * params.spatial_scale - 0.5, (high + 1) * params.spatial_scale - 0.5
    size = max(high - low, 0.1)
    step = size / params.pooled_size
    start = cell * step + low + move * size
    return start + np.arange(params.sample_per_part) * (step / params.sample_per_part), size


def _points(params: DeformablePoolAttrs, sides: Any, cell: Any, extents: Any, move: Any) -> Any:
    """All points of a cell that are inside, (down, across), moved to where elements are; and the
    size of the box."""
    moves = [0.0, 0.0]
    if move is not None:
        at = _part(params, cell[0]), _part(params, cell[1])
        moves = [move[k].astype("f8")[at] * params.trans_std for k in (1, 0)]
    places, sizes = [], []
    for axis in (0, 1):
        found, size = _axis_places(params, sides, axis, cell[axis], moves[axis])
        found = found[(found >= -0.5) & (found <= extents[axis] - 0.5)]
        places.append(found.clip(0, extents[axis] - 1))
        sizes.append(size)
    rows, columns = (grid.reshape(-1) for grid in np.meshgrid(*places, indexing="ij"))
    return rows, columns, sizes


def _corners(rows: Any, columns: Any) -> list[tuple[Any, Any, Any, Any]]:
    """The four elements around each point: (row, weight, column, weight)."""
    top, left = np.floor(rows), np.floor(columns)
    down, across = rows - top, columns - left
    vertical = (top, 1 - down), (np.ceil(rows), down)
    level = (left, 1 - across), (np.ceil(columns), across)
    return [(y.astype(INT64), v, z.astype(INT64), w) for y, v in vertical for z, w in level]


def _taps(params: DeformablePoolAttrs, sides: Any, cell: Any, extents: Any, move: Any) -> Taps:
    rows, columns, _ = _points(params, sides, cell, extents, move)
    corners = _corners(rows, columns)
    share = 1 / max(len(rows), 1)
    return Taps(
        np.concatenate([y for y, *_ in corners]),
        np.concatenate([z for _, _, z, _ in corners]),
        np.concatenate([v * w * share for _, v, _, w in corners]),
    )


# Loops


def _emit_axis(b: Any, params: DeformablePoolAttrs, cell: Cell, axis: int) -> Any:
    """Where points start along an axis, from one to the next, and the size of the box."""
    scale = params.spatial_scale

    def near(number: int) -> te.Expr:
        wide = te.cast(side(cell.boxes, cell.box, number), "float64")
        rounded = te.floor(te.abs(wide) + 0.5)
        return te.select(wide < 0.0, -rounded, rounded)

    low = b.let("low", near(1 - axis) * scale - 0.5)
    high = (near(3 - axis) + 1.0) * scale - 0.5
    size = b.let("size", te.max(high - low, 0.1))
    step = b.let("step", size / float(params.pooled_size))
    number = cell.i if axis == 0 else cell.j
    start = te.cast(number, "float64") * step + low
    if cell.moves is not None:
        part = (_part(params, cell.i), _part(params, cell.j))
        move = te.cast(cell.moves[(cell.box, cell.kind * 2 + 1 - axis, *part)], "float64")
        start = start + move * params.trans_std * size
    return b.let("start", start), step / float(params.sample_per_part), size


def _each_point(b: Any, params: DeformablePoolAttrs, cell: Cell, axes: Any, visit: Any) -> None:
    """Calls visit(y, z) for the points inside, moved to where elements are."""
    extents = (cell.height, cell.width)
    at = lambda axis, k: axes[axis][0] + te.cast(k, "float64") * axes[axis][1]
    inside = lambda place, axis: (place >= -0.5) & (place <= extents[axis] - 0.5)
    inner = lambda place, axis: te.min(te.max(place, 0.0), float(extents[axis] - 1))
    with b.loop("p", params.sample_per_part) as p:
        y = b.let("y", at(0, p))
        with b.when(inside(y, 0)):
            y = b.let("y", inner(y, 0))
            with b.loop("q", params.sample_per_part) as q:
                z = b.let("z", at(1, q))
                with b.when(inside(z, 1)):
                    visit(y, b.let("z", inner(z, 1)))


def _emit_count(b: Any, params: DeformablePoolAttrs, cell: Cell, axes: Any) -> Any:
    """How many points are inside, and what each counts."""
    count = variable(b, "count", 0)
    _each_point(b, params, cell, axes, lambda y, z: b.store(count, (), count[()] + 1))
    share = te.const(1.0, "float64") / te.cast(te.max(count[()], 1), "float64")
    return count, b.let("share", share)


def _emit_pairs(b: Any, *places: te.Expr) -> list[list[tuple[te.Expr, te.Expr]]]:
    pairs = []
    for place in places:
        part = b.let("part", place - te.floor(place))
        low, high = (te.cast(edge(place), INT64) for edge in (te.floor, te.ceil))
        pairs.append([(b.let("low", low), 1.0 - part), (b.let("high", high), part)])
    return pairs


def _emit(b: Any, params: DeformablePoolAttrs, cell: Cell, visit: Visit) -> None:
    if not cell.height or not cell.width:
        return
    axes = [_emit_axis(b, params, cell, axis) for axis in (0, 1)]
    _, share = _emit_count(b, params, cell, axes)

    def point(y: te.Expr, z: te.Expr) -> None:
        rows, columns = _emit_pairs(b, y, z)
        for row, vertical in rows:
            for column, level in columns:
                visit(row, column, vertical * level * share)

    _each_point(b, params, cell, axes, point)


def _classes(shapes: Sequence[Any]) -> int:
    return shapes[0][1] // 2 if shapes and shapes[0] is not None else 1


POOL = Pool(
    "deformable_psroi_pool",
    lambda params: (params.pooled_size, params.pooled_size),
    check_channels,
    own_channel,
    _taps,
    _emit,
    _classes,
)

# The gradient of the moves: with s = trans_std and the size of the box, s times the slope between
# the elements around each point.


def _slope(corners: Any, image: Any) -> tuple[Any, Any]:
    """How values change (down, across) at the points, for channels of an image."""
    (y0, up, z0, left), (_, _, z1, right), (y1, down, _, _), _ = corners
    a, b, c, d = (image[:, y, z] for y, z in ((y0, z0), (y0, z1), (y1, z0), (y1, z1)))
    return (c - a) * left + (d - b) * right, (b - a) * up + (d - c) * down


def _trans_reference(params: DeformablePoolAttrs, g: Any, x: Any, boxes: Any, moves: Any) -> Any:
    grad = np.zeros(moves.shape)
    classes = _classes([moves.shape])
    groups = np.array_split(np.arange(params.output_dim), classes)
    for box, number in enumerate(boxes[:, 0].astype(np.float32)):
        if not 0 <= number < len(x):
            continue
        for i, j, kind in np.ndindex(params.pooled_size, params.pooled_size, classes):
            move, sides = moves[box, 2 * kind : 2 * kind + 2], sides_of(boxes, box)
            rows, columns, sizes = _points(params, sides, (i, j), x.shape[2:], move)
            if not len(rows):
                continue
            image = x[int(number)][own_channel(params, groups[kind], i, j)].astype("f8")
            slopes = _slope(_corners(rows, columns), image)
            part = _part(params, i), _part(params, j)
            for axis, slope in enumerate(slopes):
                mean = slope.sum(1) / len(rows) * g[box, groups[kind], i, j]
                at = (box, 2 * kind + 1 - axis, *part)
                grad[at] += mean.sum() * sizes[axis] * params.trans_std
    return grad.astype(moves.dtype)


def _trans_kernels(params: DeformablePoolAttrs, inputs: Any, outputs: Any) -> Any:
    """A box a thread."""
    (out_shape, dtype), ((n, channels, height, width), _), ((count, _), _), (moved, _) = inputs
    cells = params.pooled_size
    per_class = params.output_dim // max(moved[1] // 2, 1)
    body = Body("deformable_psroi_pool_grad_trans", inputs, outputs)
    sums = body.temporary(moved, FLOAT64)
    views = {0: out_shape, 1: (n, channels, height, width), 2: (count, 5), 3: moved, 4: moved}
    kernel = body.kernel(views | {sums: moved}, 128 * int(np.prod(out_shape)))
    with kernel as (b, g, x, boxes, moves, out, total), b.parallel("box", count) as box:
        with each_place(b, *moved[1:]) as at:
            b.store(total, (box, *at), 0)
        number = b.let("number", te.cast(boxes[box, 0], "float32"))
        there = (number >= 0.0) & (number < float(n))
        image = b.let("image", te.cast(te.select(there, number, 0.0), INT64))
        with b.when(there), each_place(b, params.output_dim, cells, cells) as (c, i, j):
            kind = b.let("kind", c // max(per_class, 1))
            cell = Cell(boxes, box, i, j, height, width, kind, moves)
            source = b.let("source", own_channel(params, c, i, j))
            ograd = b.let("given", te.cast(g[box, c, i, j], "float64"))
            _emit_slopes(b, params, cell, x, (image, source), ograd, total)
        with each_place(b, *moved[1:]) as at:
            b.store(out, (box, *at), te.cast(total[(box, *at)], dtype))
    return body.kernels


def _emit_slopes(b: Any, params: DeformablePoolAttrs, cell: Cell, x: Any, of: Any, ograd: Any, total: Any) -> None:
    if not cell.height or not cell.width:
        return
    axes = [_emit_axis(b, params, cell, axis) for axis in (0, 1)]
    count, share = _emit_count(b, params, cell, axes)
    part = (_part(params, cell.i), _part(params, cell.j))
    sums = [variable(b, "slope", 0, FLOAT64) for _ in axes]

    def point(y: te.Expr, z: te.Expr) -> None:
        (top, bottom), (first, second) = _emit_pairs(b, y, z)
        value = lambda row, column: te.cast(x[(*of, row[0], column[0])], "float64")
        corner = [[b.let("v", value(row, z)) for z in (first, second)] for row in (top, bottom)]
        (a, c), (d, e) = corner
        slopes = (d - a) * first[1] + (e - c) * second[1], (c - a) * top[1] + (e - d) * bottom[1]
        for kept, slope in zip(sums, slopes):
            b.store(kept, (), kept[()] + slope)

    _each_point(b, params, cell, axes, point)
    for axis, slope in enumerate(sums):
        at = (cell.box, cell.kind * 2 + 1 - axis, *part)
        change = slope[()] * share * ograd * axes[axis][2] * params.trans_std
        with b.when(count[()] > 0):
            b.store(total, at, total[at] + change)


_TRANS = {"trans": "(boxes, 2 * classes, parts, parts): across and down, in parts of the box"}
_GRAD = {**OGRAD, **BOXES, **_TRANS}


def _gradient(ctx: Any, g: Any) -> list[Any]:
    attrs = attributes(ctx.params)
    data = F._deformable_psroi_pool_grad(g, *ctx.inputs, **attrs)
    if ctx.params.no_trans:
        return [data, None]
    return [data, None, F._deformable_psroi_pool_grad_trans(g, *ctx.inputs, **attrs)]


def _grad_shape(params: DeformablePoolAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shapes, (out,) = _shape(params, ins[1:], [None])
    return [out, *shapes], [shapes[0]]


def _trans_shape(params: DeformablePoolAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    ins, _ = _grad_shape(params, ins, outs)
    return ins, [ins[3]]


deformable_psroi_pool = define(
    "deformable_psroi_pool",
    "Every box, split in cells that are moved by trans times trans_std times the size of the box, "
    "each the mean of its points inside the image, in a channel of its own as in psroi_pool.",
    level=4,
    inputs={**BOXES, **_TRANS},
    named=False,
    attrs=DeformablePoolAttrs,
    shape=_shape,
    dtype=floating,
    reference=reference_rule(POOL),
    kernels=kernels_rule(POOL),
    native_from=4096,
    open_body=True,
    gradient=_gradient,
)

deformable_psroi_pool_grad = define(
    "_deformable_psroi_pool_grad",
    "ograd, shared by the elements that the cells take.",
    inputs=_GRAD,
    named=False,
    attrs=DeformablePoolAttrs,
    shape=_grad_shape,
    dtype=floating,
    reference=grad_reference_rule(POOL),
    kernels=grad_kernels_rule(POOL),
    ignored_inputs=[1],
)

define(
    "_deformable_psroi_pool_grad_trans",
    "The gradient of the moves of deformable_psroi_pool.",
    inputs=_GRAD,
    attrs=DeformablePoolAttrs,
    shape=_trans_shape,
    dtype=floating,
    reference=_trans_reference,
    kernels=_trans_kernels,
)


def _without_moves(op: Op, inputs: Mapping[str, str]) -> None:
    """The moves are left out of the inputs where there are none."""
    op.input_names = lambda params: [name for name in inputs if name != "trans" or not params.no_trans]
    op.set_num_inputs(lambda params: len(inputs) - params.no_trans)


_without_moves(deformable_psroi_pool, {**BOXES, **_TRANS})
_without_moves(deformable_psroi_pool_grad, _GRAD)
