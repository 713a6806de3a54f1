"""Normalisation by magnitude: lrn and l2_normalize."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import te
from ...base.shape import normalize_axis
from ...core.schema import FLOAT, INT, INTS, attr, schema
from .. import _layouts as layouts
from .._families import OUT_FUSABLE, Array, F, axis_shape, define, floating, in_dtype, in_float32, numeric, unary
from ..nn.dense_softmax import along, one

# Sums over neighbours along an axis.


@schema
class WindowSumAttrs:
    size: int = attr(INT, "number of elements summed", low=1)
    before: int = attr(INT, "how many of them stand before the element", low=0)
    axis: int = attr(INT, "the axis of neighbours")


def _neighbour_sum(x: Array, axis: int, size: int, before: int) -> Array:
    axis = normalize_axis(axis, x.ndim)
    if not x.size:
        return x.copy()
    pads = [(before, size - 1 - before) if i == axis else (0, 0) for i in range(x.ndim)]
    view = np.lib.stride_tricks.sliding_window_view(np.pad(x, pads), size, axis)
    return view.sum(axis=-1)


def _te_neighbour_sum(x: te.Tensor, axis: int, size: int, before: int, body: Any = lambda value: value) -> te.Tensor:
    axis, k = normalize_axis(axis, x.rank), te.reduce_axis(size)

    def element(*i: Any) -> Any:
        place = i[axis] + k.var - before
        index = (*i[:axis], place, *i[axis + 1 :])
        inside = (place >= 0) & (place < x.shape[axis])
        return te.sum(body(te.read_or(x, index, inside, 0)), k)

    return te.compute(x.shape, element, name="neighbour_sum")


window_sum = define(
    "_window_sum",
    "The sum of neighbours along an axis; outside is 0.",
    attrs=WindowSumAttrs,
    pattern=OUT_FUSABLE,
    shape=axis_shape,
    dtype=numeric,
    layout=layouts.fixed_copy,
)
window_sum.reference = in_dtype(lambda p, x: _neighbour_sum(x, p.axis, p.size, p.before))
window_sum.compute = lambda p, x: _te_neighbour_sum(x, p.axis, p.size, p.before)
window_sum.native_from, window_sum.open_body = 2048, True
window_sum.gradient = lambda ctx, g: [  # the window, mirrored
    F._window_sum(g, size=ctx.params.size, before=ctx.params.size - 1 - ctx.params.before, axis=ctx.params.axis)
]


@schema
class LrnAttrs:
    size: int = attr(INT, "number of neighbours, the element itself included", low=1)
    axis: int = attr(INT, "the axis of neighbours, usually channels")
    alpha: float = attr(FLOAT, "weight of the neighbours' mean square")
    beta: float = attr(FLOAT, "the exponent")
    bias: float = attr(FLOAT, "added to the weighted mean square")


def _lrn_reference(params: LrnAttrs, x: Array) -> Array:
    wide = x.astype(np.float64)
    squares = _neighbour_sum(np.square(wide), params.axis, params.size, params.size // 2)
    return wide / (params.bias + params.alpha / params.size * squares) ** params.beta


@in_float32
def _lrn_compute(params: LrnAttrs, x: te.Tensor) -> te.Tensor:
    squares = _te_neighbour_sum(x, params.axis, params.size, params.size // 2, lambda v: v * v)
    weight = params.alpha / params.size
    return te.compute(x.shape, lambda *i: x[i] / te.pow(squares[i] * weight + params.bias, params.beta), name="lrn")


def _lrn_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g s^-b - 2 b w x W'(g x s^(-b-1)), where s = bias + w W(x^2)."""
    x, p = ctx.inputs[0], ctx.params
    weight, before = p.alpha / p.size, p.size // 2
    square = F.elemwise_mul(x, x)
    s = F._window_sum(square, size=p.size, before=before, axis=p.axis) * weight + p.bias
    spread = F.elemwise_mul(F.elemwise_mul(g, x), s ** (-p.beta - 1))
    back = F._window_sum(spread, size=p.size, before=p.size - 1 - before, axis=p.axis)
    direct = F.elemwise_mul(g, s**-p.beta)
    return [F.elemwise_sub(direct, F.elemwise_mul(x, back) * (2 * p.beta * weight))]


lrn = define(
    "lrn",
    "x / (bias + alpha/size * sum of x^2 over `size` neighbours)^beta.",
    level=1,
    attrs=LrnAttrs,
    shape=axis_shape,
    dtype=floating,
    layout=layouts.fixed_copy,
    reference=in_dtype(_lrn_reference),
    compute=_lrn_compute,
    native_from=2048,
    open_body=True,
    gradient=_lrn_gradient,
)


@schema
class L2NormalizeAttrs:
    eps: float = attr(FLOAT, "the smallest square that is divided by", low=0)
    axis: tuple[int, ...] = attr(INTS, "the axes that are normalised together")


def _axes(params: L2NormalizeAttrs, rank: int) -> tuple[int, ...]:
    axes = params.axis or range(rank)
    return tuple(sorted({normalize_axis(axis, rank) for axis in axes}))


def _l2_reference(params: L2NormalizeAttrs, x: Array) -> Array:
    wide = x.astype(np.float64)
    total = np.square(wide).sum(axis=_axes(params, x.ndim), keepdims=True)
    return wide / np.sqrt(np.maximum(total, params.eps))


@in_float32
def _l2_compute(params: L2NormalizeAttrs, x: te.Tensor) -> te.Tensor:
    axes = _axes(params, x.rank)
    total = along(x, axes, "square_sum", lambda i: x[i] * x[i], te.sum)
    return te.compute(x.shape, lambda *i: x[i] / te.sqrt(te.max(total[one(i, axes)], params.eps)), name="l2_normalize")


def _l2_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = (g - y sum of g y) / norm, without the second term where the square is below eps."""
    x, y, p = ctx.inputs[0], ctx.outputs[0], ctx.params
    over = {"axis": p.axis, "keepdims": True}
    total = F.sum(F.elemwise_mul(x, x), **over)
    limited = F.clip(total, a_min=p.eps, a_max=math.inf)
    moving = F.broadcast_greater(total, F.full_like(total, fill_value=p.eps))
    along = F.sum(F.elemwise_mul(g, y), **over)
    shared = F.broadcast_where(moving, along, F.zeros_like(along))
    return [F.broadcast_mul(F.elemwise_sub(g, F.broadcast_mul(y, shared)), limited**-0.5)]


l2_normalize = unary(
    "l2_normalize",
    "x / sqrt(max(sum of x^2, eps)), with the sum over the axes.",
    level=1,
    attrs=L2NormalizeAttrs,
    pattern=OUT_FUSABLE,
    dtype=floating,
    native_from=8192,
)
l2_normalize.reference = in_dtype(_l2_reference)
l2_normalize.compute = _l2_compute
l2_normalize.gradient = _l2_gradient
