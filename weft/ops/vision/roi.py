"""Parts of images, given as boxes that only the run knows, brought to one size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.errors import ShapeError
from ...base.shape import show, unify_dim
from ...core.schema import BOOL, FLOAT, INT, SIDES, attr, schema
from .._families import F, Inferred, Shapes, attributes, define, floating, ranked


@schema
class RoiAlignAttrs:
    pooled_size: tuple[int, ...] = attr(SIDES, "height and width of the output", low=1)
    spatial_scale: float = attr(FLOAT, "what the boxes are multiplied by", default=1.0)
    sample_ratio: int = attr(INT, "points along each side of an output cell", default=2, low=1)
    aligned: bool = attr(BOOL, "whether places are centres of pixels, and boxes may be smaller than one", default=False)


def _shape(params: RoiAlignAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    n, c, height, width = ranked(ins[0], 4, "the data")
    count, five = ranked(ins[1], 2, "the boxes")
    unify_dim(five, 5)
    if 0 in (n, height, width) and isinstance(count, int) and count:
        raise ShapeError(f"{count} boxes cannot be in images of shape {show(ins[0])}")
    data = None if ins[0] is None else (n, c, height, width)
    return [data, (count, 5)], [(count, c, *params.pooled_size)]


def _grad_shape(params: RoiAlignAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    """(gradient, data, boxes) -> the gradient of the data."""
    (data, boxes), (out,) = _shape(params, [ins[1], ins[2]], [None])
    return [out, data, boxes], [data]


# numpy: for each box and axis, the elements before and behind its points, and what they count.


def _taps(params: RoiAlignAttrs, boxes: Any, axis: int, extent: int) -> list[tuple[Any, Any]]:
    """Two pairs of (boxes, points): elements, and their weights."""
    cells, ratio = params.pooled_size[axis], params.sample_ratio
    half = 0.5 if params.aligned else 0.0
    low = boxes[:, 2 - axis].astype(np.float64) * params.spatial_scale - half
    high = boxes[:, 4 - axis].astype(np.float64) * params.spatial_scale - half
    size = high - low if params.aligned else np.maximum(high - low, 1)
    place = low[:, None] + (np.arange(cells * ratio) + 0.5) / (ratio * cells) * size[:, None]
    inside = (place >= -1) & (place <= extent)
    place = np.where(inside, np.clip(place, 0, extent - 1), 0)
    first = np.floor(place).astype(np.int64)
    part = (place - first) * inside / ratio
    return [(first, inside / ratio - part), (np.minimum(first + 1, extent - 1), part)]


def _placed(x: Any, boxes: Any) -> Any:
    """Whether each box is in an image of the batch."""
    return (boxes[:, 0] >= 0) & (boxes[:, 0] < len(x))


def _each_tap(params: RoiAlignAttrs, x: Any, boxes: Any) -> Any:
    """Indices into the data and weights, as (boxes, 1, points down, points across), for all four
    elements around a point of boxes that are in an image."""
    down, across = (_taps(params, boxes, axis, x.shape[2 + axis]) for axis in (0, 1))
    image = boxes[:, 0].astype(np.int64)[:, None, None, None]
    channel = np.arange(x.shape[1])[None, :, None, None]
    for rows, vertical in down:
        for columns, level in across:
            at = (image, channel, rows[:, None, :, None], columns[:, None, None, :])
            yield at, vertical[:, None, :, None] * level[:, None, None, :]


def _reference(params: RoiAlignAttrs, x: Any, boxes: Any) -> Any:
    (rows, columns), ratio = params.pooled_size, params.sample_ratio
    made = np.zeros((len(boxes), x.shape[1], rows, columns), x.dtype)
    placed = _placed(x, boxes)
    with np.errstate(all="ignore"):
        taps = _each_tap(params, x, boxes[placed])
        total = sum(x[at].astype(np.float64) * weight for at, weight in taps)
        split = total.reshape(*total.shape[:2], rows, ratio, columns, ratio)
        made[placed] = split.sum(axis=(3, 5)).astype(x.dtype)
    return made


def _grad_reference(params: RoiAlignAttrs, g: Any, x: Any, boxes: Any) -> Any:
    placed = _placed(x, boxes)
    wide = g[placed].astype(np.float64)
    wide = wide.repeat(params.sample_ratio, 2).repeat(params.sample_ratio, 3)
    made = np.zeros(x.shape)
    for at, weight in _each_tap(params, x, boxes[placed]):
        np.add.at(made, at, np.where(weight != 0, wide * weight, 0))
    return made.astype(x.dtype)


# te: the points of every box along each axis, then what stands around them.


class Points(NamedTuple):
    """Of all boxes along one axis, as (boxes, points): the element before each point, the one
    behind it, and how much each counts."""

    first: te.Tensor
    weights: tuple[te.Tensor, te.Tensor]
    extent: int

    def second(self, box: Any, point: Any) -> Any:
        return te.min(self.first[box, point] + 1, self.extent - 1)


def _points(params: RoiAlignAttrs, boxes: te.Tensor, axis: int, extent: int) -> Points:
    cells, ratio = params.pooled_size[axis], params.sample_ratio
    half = 0.5 if params.aligned else 0.0
    shape = (boxes.shape[0], cells * ratio)

    def raw(box: Any, point: Any) -> Any:
        low, high = (te.cast(boxes[box, side - axis], "float64") * params.spatial_scale - half for side in (2, 4))
        size = high - low if params.aligned else te.max(high - low, 1.0)
        return low + (te.cast(point, "float64") + 0.5) / (ratio * cells) * size

    place = te.compute(shape, raw, name="place")
    last = float(extent - 1)
    inside = te.compute(shape, lambda *i: (place[i] >= -1.0) & (place[i] <= float(extent)), name="inside")
    inner = te.compute(shape, lambda *i: te.select(inside[i], te.min(te.max(place[i], 0.0), last), 0.0), name="inner")
    first = te.compute(shape, lambda *i: te.cast(te.floor(inner[i]), "int64"), name="first")

    def weight(behind: bool) -> te.Tensor:
        def value(*i: Any) -> Any:
            part = inner[i] - te.floor(inner[i])
            part = part if behind else 1.0 - part
            return te.cast(te.select(inside[i], part / ratio, 0.0), boxes.dtype)

        return te.compute(shape, value, name="weight")

    return Points(first, (weight(False), weight(True)), extent)


def _image(boxes: te.Tensor, box: Any, count: int) -> tuple[Any, Any]:
    """Whether a box is in an image of the batch, and in which; the first stands for none."""
    number = boxes[box, 0]
    placed = (number >= 0) & (number < count)
    return placed, te.cast(te.select(placed, number, 0), "int64")


def _compute(params: RoiAlignAttrs, x: te.Tensor, boxes: te.Tensor) -> te.Tensor:
    n, channels = x.shape[:2]
    down, across = (_points(params, boxes, axis, x.shape[2 + axis]) for axis in (0, 1))
    ratio = params.sample_ratio
    p, q = te.reduce_axis(ratio, "p"), te.reduce_axis(ratio, "q")

    def element(box: Any, c: Any, i: Any, j: Any) -> Any:
        placed, image = _image(boxes, box, n)
        y, z = i * ratio + p.var, j * ratio + q.var
        rows = down.first[box, y], down.second(box, y)
        columns = across.first[box, z], across.second(box, z)
        total: Any = None
        for row, vertical in zip(rows, down.weights):
            for column, level in zip(columns, across.weights):
                value = x[image, c, row, column]
                term = value * vertical[box, y] * level[box, z]
                total = term if total is None else total + term
        return te.sum(te.select(placed, total, 0), [p, q])

    return te.compute((boxes.shape[0], channels, *params.pooled_size), element, name="roi_align")


def _taken(points: Points, cells: int, ratio: int) -> te.Tensor:
    """(boxes, cells, extent): what a cell takes from each element."""
    p = te.reduce_axis(ratio, "p")

    def value(box: Any, cell: Any, at: Any) -> Any:
        point = cell * ratio + p.var
        first = te.select(points.first[box, point].equal(at), points.weights[0][box, point], 0)
        second = te.select(points.second(box, point).equal(at), points.weights[1][box, point], 0)
        return te.sum(first + second, p)

    shape = (points.first.shape[0], cells, points.extent)
    return te.compute(shape, value, name="taken")


def _share(weight: Any, value: Any) -> Any:
    """Their product; what does not count at all is 0 whatever the value is."""
    return te.select(weight.equal(0), 0, weight * value)


def _grad_compute(params: RoiAlignAttrs, g: te.Tensor, x: te.Tensor, boxes: te.Tensor) -> te.Tensor:
    n, _, _, width = x.shape
    count, channels, cells, across = g.shape
    matrices = [
        _taken(_points(params, boxes, axis, x.shape[2 + axis]), params.pooled_size[axis], params.sample_ratio)
        for axis in (0, 1)
    ]
    j = te.reduce_axis(across, "j")
    rows = te.compute(
        (count, channels, cells, width),
        lambda r, c, i, z: te.sum(_share(matrices[1][r, j.var, z], g[r, c, i, j.var]), j),
        name="rows",
    )
    r, i = te.reduce_axis(count, "r"), te.reduce_axis(cells, "i")

    def element(image: Any, c: Any, y: Any, z: Any) -> Any:
        placed, number = _image(boxes, r.var, n)
        part = _share(matrices[0][r.var, i.var, y], rows[r.var, c, i.var, z])
        return te.sum(te.select(placed & number.equal(image), part, 0), [r, i])

    return te.compute(x.shape, element, name="roi_align_grad")


_DATA = {
    "data": "(n, c, height, width)",
    "rois": "(boxes, 5): the number of the image, left, top, right, bottom; a box of no image of the batch gives 0",
}
_GRAD = {"ograd": "the gradient of the output", **_DATA}

roi_align = define(
    "roi_align",
    "Every box of every channel, split in cells, each the mean of points between which the image "
    "is interpolated. Points more than one element outside count as 0.",
    level=4,
    inputs=_DATA,
    attrs=RoiAlignAttrs,
    shape=_shape,
    dtype=floating,
    reference=_reference,
    compute=_compute,
    gradient=lambda ctx, g: [F._roi_align_grad(g, *ctx.inputs, **attributes(ctx.params)), None],
)

roi_align_grad = define(
    "_roi_align_grad",
    "ograd, shared by the elements that the points of roi_align read.",
    inputs=_GRAD,
    attrs=RoiAlignAttrs,
    shape=_grad_shape,
    dtype=floating,
    reference=_grad_reference,
    compute=_grad_compute,
    ignored_inputs=[1],
    gradient=lambda ctx, gg: [F.roi_align(gg, ctx.inputs[2], **attributes(ctx.params)), None, None],
)
