"""Resizing of height and width: upsampling, resize, and the transposes that are their gradients.

Output place i along an axis stands on the source coordinate that `coordinate_mode` gives, in
float64; `nearest` takes one element there, `bilinear` the two beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import FLOAT64, INT64
from ...base.errors import InvalidValue, ShapeError
from ...base.shape import Dim, Ranked, Shape, floor_div_dims, mul_dims
from ...core.schema import BOOL, EXTENT_SIDES, FLOATS, INT, LAYOUT, Params, attr, choice, schema
from .. import _layouts as layouts
from .._families import INJECTIVE, OGRAD, Array, F, Inferred, Shapes, attributes, define, numeric, widened
from .._kernels import Body, add_rows, rows_of, wide_dtype
from ._spatial import (
    at_places,
    joined_images,
    places_of,
    spatial_axes,
    spatial_back,
    spatial_extents,
    spatial_last,
    static_extents,
    with_extents,
)

METHOD = choice("NEAREST_NEIGHBOR", "BILINEAR")


@schema
class UpsamplingAttrs:
    scale: int = attr(INT, "how many times larger", low=1)
    layout: str = attr(LAYOUT, "of the data", default="NCHW")
    method: str = attr(METHOD, "which elements count", default="NEAREST_NEIGHBOR")


@schema
class ResizeAttrs:
    size: tuple[int, ...] = attr(EXTENT_SIDES, "height and width of the output", low=1)
    layout: str = attr(LAYOUT, "of the data", default="NCHW")
    method: str = attr(METHOD, "which elements count", default="BILINEAR")
    align_corners: bool = attr(BOOL, "whether corners stand on corners", default=False)
    coordinate_mode: str = attr(
        choice("auto", "asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel"),
        "where an output place stands; auto: align_corners if that is set, else asymmetric",
        default="auto",
    )
    nearest_mode: str = attr(
        choice("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
        "which element is nearest to a coordinate",
        default="floor",
    )
    scales: tuple[float, ...] = attr(
        FLOATS, "output over input, where the coordinates are not to follow the sizes", default=()
    )


class Axis(NamedTuple):
    """Resizing along one axis. `scale` is 0 where the extents say it."""

    extent: int
    out: int
    mode: str
    scale: float
    nearest: str | None  # None: bilinear


def _axis(params: Params, extent: int, out: int, which: int) -> Axis:
    bilinear = params.method == "BILINEAR"
    if isinstance(params, UpsamplingAttrs):
        return Axis(extent, out, "asymmetric", 0.0, None if bilinear else "floor")
    mode = params.coordinate_mode
    if mode == "auto":
        mode = "align_corners" if params.align_corners else "asymmetric"
    scale = params.scales[which % len(params.scales)] if params.scales else 0.0
    return Axis(extent, out, mode, scale, None if bilinear else params.nearest_mode)


def _coordinate(axis: Axis, place: Any) -> Any:
    """The source coordinate of a float64 place, an array or an expression. Products come before
    quotients, so that whole coordinates are exact."""
    if axis.mode == "align_corners":
        return place * (axis.extent - 1) / max(axis.out - 1, 1)
    if axis.mode == "pytorch_half_pixel" and axis.out == 1:
        return place * 0
    if axis.mode == "asymmetric":
        return place / axis.scale if axis.scale else place * axis.extent / axis.out
    if axis.scale:
        return (place + 0.5) / axis.scale - 0.5
    return (place * 2 + 1) * axis.extent / (2 * axis.out) - 0.5


def _nearest(axis: Axis, coordinate: Any, floor: Any, ceil: Any) -> Any:
    if axis.nearest == "floor":
        return floor(coordinate)
    if axis.nearest == "ceil":
        return ceil(coordinate)
    if axis.nearest == "round_prefer_floor":
        return ceil(coordinate - 0.5)
    return floor(coordinate + 0.5)


# numpy


def sources_of(axis: Axis) -> list[tuple[Array, Array]]:
    """For each output place: the elements that count, and their weights."""
    coordinate = _coordinate(axis, np.arange(axis.out, dtype=np.float64))
    last = axis.extent - 1
    if axis.nearest is not None:
        index = np.clip(_nearest(axis, coordinate, np.floor, np.ceil), 0, last).astype(np.int64)
        return [(index, np.ones(axis.out))]
    inside = np.clip(coordinate, 0, last)
    low = np.floor(inside).astype(np.int64)
    return [(low, 1 - (inside - low)), (np.minimum(low + 1, last), inside - low)]


def _along(x: Array, axis: Axis, position: int) -> Array:
    sources = sources_of(axis)
    if axis.nearest is not None:
        return x.take(sources[0][0], axis=position)
    shape = [-1 if i == position % x.ndim else 1 for i in range(x.ndim)]
    total = np.zeros(())
    for index, weight in sources:
        weights = weight.reshape(shape)
        with np.errstate(invalid="ignore"):
            part = x.take(index, axis=position) * weights
        total = total + np.where(weights == 0, 0, part)  # an element that does not count may be inf
    return total


def _spread(g: Array, axis: Axis, position: int) -> Array:
    """The transpose of `_along`: every place gives to the elements it came from."""
    rows = np.moveaxis(g, position, 0)
    spread = np.zeros((axis.extent, *rows.shape[1:]))
    for index, weight in sources_of(axis):
        weights = weight.reshape(-1, *[1] * (rows.ndim - 1))
        with np.errstate(invalid="ignore"):
            np.add.at(spread, index, np.where(weights == 0, 0, rows * weights))
    return np.moveaxis(spread, 0, position)


def axes_of(params: Params, shape: Shape, out: Shape) -> list[Axis]:
    """Height and width of data of a shape, resized to another."""
    pairs = zip(static_extents(params, shape), static_extents(params, out))
    return [_axis(params, extent, size, which) for which, (extent, size) in enumerate(pairs)]


def _reference(params: Params, x: Array) -> Array:
    down, across = axes_of(params, x.shape, _forward(params, x.shape))
    resized = _along(_along(spatial_last(params, x), down, -2), across, -1)
    return spatial_back(params, resized, x.dtype)


def _grad(params: Params, g: Array, shape: Shape) -> Array:
    down, across = axes_of(params, shape, g.shape)
    wide = spatial_last(params, widened(g))
    return spatial_back(params, _spread(_spread(wide, down, -2), across, -1), g.dtype)


# te


def _te_sources(axis: Axis, place: te.Expr) -> list[tuple[te.Expr, te.Expr]]:
    coordinate = _coordinate(axis, te.cast(place, FLOAT64))
    last = axis.extent - 1
    if axis.nearest is not None:
        limited = te.min(te.max(_nearest(axis, coordinate, te.floor, te.ceil), 0), last)
        return [(te.cast(limited, INT64), te.const(1, FLOAT64))]
    inside = te.min(te.max(coordinate, 0), last)
    low = te.floor(inside)
    index, part = te.cast(low, INT64), inside - low
    return [(index, 1 - part), (te.min(index + 1, last), part)]


def _compute(params: Params, x: te.Tensor) -> te.Tensor:
    shape = _forward(params, x.shape)
    axes = axes_of(params, x.shape, shape)

    def element(*i: Any) -> Any:
        down, across = (_te_sources(a, place) for a, place in zip(axes, places_of(params, i)))
        if axes[0].nearest is not None:
            return x[at_places(params, i, (down[0][0], across[0][0]))]
        total: Any = None
        for row, row_weight in down:
            for column, column_weight in across:
                value = te.cast(x[at_places(params, i, (row, column))], FLOAT64)
                weight = row_weight * column_weight
                part = te.select(weight.equal(0), 0.0, value * weight)
                total = part if total is None else total + part
        return te.cast(total, x.dtype)

    return te.compute(shape, element, name="resize")


def _grad_kernels(params: Params, inputs: Any, outputs: Any) -> Any:
    """One axis after the other: every place gives its gradient to the elements it came from."""
    (g, dtype), (shape, _) = inputs[0], outputs[0]
    body = Body("resize_grad", inputs, outputs)
    source, extents = 0, list(g)
    axes = list(zip(axes_of(params, shape, g), spatial_axes(params)))
    for number, (axis, position) in enumerate(axes):
        extents[position] = axis.extent
        last = number + 1 == len(axes)
        target = len(inputs) if last else body.temporary(extents, wide_dtype(dtype))
        rows = rows_of(extents, position)
        add_rows(body, source, target, axis.out, rows, lambda b, k, a=axis: _places(b, a, k))
        source = target
    return body.kernels


def _places(b: te.KernelBuilder, axis: Axis, k: te.Expr) -> list[tuple[te.Expr, te.Expr]]:
    return [(b.let("row", index), b.let("weight", weight)) for index, weight in _te_sources(axis, k)]


# Shapes


def _sizes(params: ResizeAttrs) -> tuple[int, int]:
    if any(not scale > 0 for scale in params.scales) or len(params.scales) not in (0, 1, 2):
        raise InvalidValue(f"scales cannot be {params.scales}", why="they are positive")
    height, width = params.size
    return height, width


def _forward(params: Params, shape: Ranked) -> Any:
    """The shape after resizing."""
    extents = spatial_extents(params, shape)
    if 0 in extents:
        raise ShapeError("nothing cannot be resized")
    if isinstance(params, ResizeAttrs):
        return with_extents(params, shape, _sizes(params))
    return with_extents(params, shape, [_multiplied(dim, params.scale) for dim in extents])


def _multiplied(dim: Dim, scale: int) -> Dim:
    return mul_dims(dim, scale) if dim is None or isinstance(dim, str) else dim * scale


def _divided(dim: Dim, scale: int) -> Dim:
    if isinstance(dim, int) and dim % scale:
        raise ShapeError(f"an extent of {dim} cannot come from upsampling by {scale}")
    return floor_div_dims(dim, scale)


def unscaled(params: UpsamplingAttrs, shape: Ranked) -> Ranked:
    """The shape before upsampling."""
    extents = spatial_extents(params, shape)
    return with_extents(params, shape, [_divided(dim, params.scale) for dim in extents])


def _resize_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    spatial_axes(params)
    return [ins[0]], [None if ins[0] is None else _forward(params, ins[0])]


def _upsampling_shape(params: UpsamplingAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    spatial_axes(params)
    data = ins[0]
    if data is None and outs[0] is not None:
        data = unscaled(params, outs[0])
    return [data], [None if data is None else _forward(params, data)]


def _resize_grad_shape(params: ResizeAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    (data,), (out,) = _resize_shape(params, [ins[1] if ins[1] is not None else outs[0]], [None])
    return [out, data], [data]


def _upsampling_grad_shape(params: UpsamplingAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    (data,), (out,) = _upsampling_shape(params, [outs[0]], [ins[0]])
    return [out], [data]


SHARED: dict[str, Any] = {"dtype": numeric, "layout": layouts.pool}

upsampling = define(
    "upsampling",
    "Height and width `scale` times larger.",
    level=2,
    attrs=UpsamplingAttrs,
    pattern=INJECTIVE,
    shape=_upsampling_shape,
    reference=_reference,
    compute=_compute,
    gradient=lambda ctx, g: [F._upsampling_grad(g, **attributes(ctx.params))],
    **SHARED,
    native_from=64,
    joined_axes=joined_images,
)
upsampling_grad = define(
    "_upsampling_grad",
    "The transpose of upsampling.",
    inputs=OGRAD,
    attrs=UpsamplingAttrs,
    shape=_upsampling_grad_shape,
    kernels=_grad_kernels,
    open_body=True,
    gradient=lambda ctx, gg: [F.upsampling(gg, **attributes(ctx.params))],
    **SHARED,
    native_from=4096,
)
upsampling_grad.reference = lambda p, g: _grad(p, g, unscaled(p, g.shape))

resize = define(
    "resize",
    "Height and width brought to a size.",
    level=2,
    attrs=ResizeAttrs,
    pattern=INJECTIVE,
    shape=_resize_shape,
    reference=_reference,
    compute=_compute,
    gradient=lambda ctx, g: [F._resize_grad(g, ctx.inputs[0], **attributes(ctx.params))],
    **SHARED,
    native_from=64,
    joined_axes=joined_images,
)
resize_grad = define(
    "_resize_grad",
    "The transpose of resize.",
    attrs=ResizeAttrs,
    inputs={**OGRAD, "data": "the data, of which only the shape is used"},
    ignored_inputs=[1],
    shape=_resize_grad_shape,
    kernels=_grad_kernels,
    open_body=True,
    gradient=lambda ctx, gg: [F.resize(gg, **attributes(ctx.params)), None],
    **SHARED,
    native_from=4096,
)
resize_grad.reference = lambda p, g, x: _grad(p, g, x.shape)
