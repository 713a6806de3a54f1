"""Reductions whose gradients read what they gave: variance, Euclidean norm, log of a sum of exp."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.dtype import FLOAT64
from ...core.schema import BOOL, FLOAT, INTS, attr, schema
from .. import _layouts as layouts
from .._families import COMM_REDUCE, F, Inferred, Shapes, define, floating, in_dtype, in_float32, pointwise, unary
from ..nn.dense_softmax import along, one
from .reductions import (
    AXIS,
    EXCLUDE,
    KEEPDIMS,
    SCALAR,
    ReduceAttrs,
    axes_of,
    expanded,
    reduced_axes,
    reduced_count,
    reduced_shape,
    wide,
)


@schema
class VarianceAttrs:
    axis: tuple[int, ...] = attr(INTS, AXIS, default=())
    keepdims: bool = attr(BOOL, KEEPDIMS, default=False)
    exclude: bool = attr(BOOL, EXCLUDE, default=False)
    scalar: bool = attr(BOOL, SCALAR, default=False)
    correction: float = attr(FLOAT, "what the number of elements is lessened by", default=1.0)


def _shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    return [None], [reduced_shape(params, ins[0])] * len(outs)


def _shaped(params: Any, x: te.Tensor, kept: te.Tensor) -> te.Tensor:
    """A reduction that kept its axes, in the shape that the attributes ask for."""
    axes, shape = reduced_axes(params, x.rank), reduced_shape(params, x.shape)

    def value(*i: te.Expr) -> te.Expr:
        rest = iter(i)
        whole = params.keepdims or len(i) == x.rank != len(axes)
        at = [next(rest) if whole or axis not in axes else 0 for axis in range(x.rank)]
        return kept[tuple(at)]

    return te.compute(shape, value)


def _reduced(params: Any, x: te.Tensor, name: str, body: Any, reducer: Any = te.sum) -> te.Tensor:
    """A body reduced over the axes, which stay."""
    axes = reduced_axes(params, x.rank)
    if not axes:
        return te.compute(x.shape, lambda *i: body(i), name=name)
    return along(x, axes, name, body, reducer)


# The variance, and the mean that its gradient reads.


def _variance_reference(params: VarianceAttrs, x: Any) -> Any:
    axes = tuple(reduced_axes(params, x.ndim))
    count = reduced_count(params, x.shape)
    with np.errstate(all="ignore"):
        mean = np.divide(wide(x).sum(axes, keepdims=True), count)
        total = np.square(wide(x) - mean).sum(axes)
        variance = np.divide(total, max(count - params.correction, 0))
        shape = reduced_shape(params, x.shape)
        return variance.reshape(shape).astype(x.dtype), mean.reshape(shape).astype(x.dtype)


@in_float32
def _variance_compute(params: VarianceAttrs, x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Of what is far from zero the mean is needed more exactly than its dtype has it: it is that and a rest."""
    axes = reduced_axes(params, x.rank)
    count = te.as_expr(reduced_count(params, x.shape))
    less = te.max(te.cast(count, x.dtype) - te.const(params.correction, x.dtype), te.const(0, x.dtype))
    total = _reduced(params, x, "total", lambda i: te.cast(x[i], FLOAT64))
    exact = te.compute(total.shape, lambda *i: total[i] / te.cast(count, FLOAT64), name="exact")
    mean = te.compute(total.shape, lambda *i: te.cast(exact[i], x.dtype), name="mean")
    rest = te.compute(total.shape, lambda *i: te.cast(exact[i] - te.cast(mean[i], FLOAT64), x.dtype), name="rest")

    def square(i: Any) -> te.Expr:
        centred = x[i] - mean[one(i, axes)] - rest[one(i, axes)]
        return centred * centred

    squares = _reduced(params, x, "squares", square)
    variance = te.compute(squares.shape, lambda *i: squares[i] / less)
    return _shaped(params, x, variance), _shaped(params, x, mean)


def _variance_gradient(ctx: Any, g: Any, g_mean: Any) -> list[Any]:
    """dx = 2 (x - mean) g / (n - correction) + dmean / n"""
    x, axes = ctx.inputs[0], axes_of(ctx.params)
    centred = F.elemwise_sub(x, expanded(ctx, ctx.outputs[1]))
    share = F._divide_by_count(F.elemwise_add(g, g), x, less=ctx.params.correction, **axes)
    along_mean = expanded(ctx, F._divide_by_count(g_mean, x, **axes))
    return [F.elemwise_add(F.elemwise_mul(centred, expanded(ctx, share)), along_mean)]


variance = define(
    "_variance",
    "The sum of squared distances from the mean along axes, over n - correction; and the mean.",
    attrs=VarianceAttrs,
    pattern=COMM_REDUCE,
    shape=_shape,
    dtype=floating,
    layout=layouts.reduced,
    output_names=["variance", "mean"],
    reference=_variance_reference,
    compute=_variance_compute,
    gradient=_variance_gradient,
    keeps_output=True,
    native_from=1024,
)


def _root_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g / 2 y, and 0 where y is"""
    y = ctx.outputs[0]
    return [F.broadcast_where(y, F.elemwise_div(g, F.elemwise_add(y, y)), y)]


root = unary("_root", "The square root, whose gradient is 0 where it is 0.", level=10, dtype=floating)
root.reference, root.compute = in_dtype(np.sqrt), pointwise(te.sqrt)
root.gradient = _root_gradient


def _norm_reference(params: ReduceAttrs, x: Any) -> Any:
    axes = tuple(reduced_axes(params, x.ndim))
    return np.sqrt(np.square(wide(x)).sum(axes)).reshape(reduced_shape(params, x.shape))


@in_float32
def _norm_compute(params: ReduceAttrs, x: te.Tensor) -> te.Tensor:
    squares = _reduced(params, x, "squares", lambda i: x[i] * x[i])
    root = te.compute(squares.shape, lambda *i: te.sqrt(squares[i]))
    return _shaped(params, x, root)


def _norm_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = x g / y, and 0 where y is"""
    y = ctx.outputs[0]
    nothing = F.cast_like(F.broadcast_equal(y, F.zeros_like(y)), y)
    share = F.elemwise_div(g, F.elemwise_add(y, nothing))
    return [F.elemwise_mul(ctx.inputs[0], expanded(ctx, share))]


norm = define(
    "_norm",
    "The root of the sum of squares along axes.",
    attrs=ReduceAttrs,
    pattern=COMM_REDUCE,
    shape=_shape,
    dtype=floating,
    layout=layouts.reduced,
    reference=in_dtype(_norm_reference),
    compute=_norm_compute,
    gradient=_norm_gradient,
    native_from=1024,
)


def _log_sum_reference(params: ReduceAttrs, x: Any) -> Any:
    axes = tuple(reduced_axes(params, x.ndim))
    with np.errstate(all="ignore"):
        top = wide(x).max(axes, keepdims=True, initial=-np.inf)
        shift = np.where(np.isinf(top), 0, top)
        total = np.log(np.exp(wide(x) - shift).sum(axes, keepdims=True)) + shift
    return total.reshape(reduced_shape(params, x.shape))


@in_float32
def _log_sum_compute(params: ReduceAttrs, x: te.Tensor) -> te.Tensor:
    axes = reduced_axes(params, x.rank)
    top = _reduced(params, x, "top", lambda i: x[i], te.max_of)
    zero = te.const(0, x.dtype)
    shift = te.compute(top.shape, lambda *i: te.select(te.isinf(top[i]), zero, top[i]))
    powers = _reduced(params, x, "powers", lambda i: te.exp(x[i] - shift[one(i, axes)]))
    total = te.compute(powers.shape, lambda *i: te.log(powers[i]) + shift[i])
    return _shaped(params, x, total)


def _log_sum_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g exp(x - y)"""
    y = F.clip(ctx.outputs[0], a_min=-3e38, a_max=np.inf)  # -inf has no difference to itself
    share = F.exp(F.elemwise_sub(ctx.inputs[0], expanded(ctx, y)))
    return [F.elemwise_mul(share, expanded(ctx, g))]


logsumexp = define(
    "logsumexp",
    "log of the sum of exp along axes.",
    attrs=ReduceAttrs,
    pattern=COMM_REDUCE,
    shape=_shape,
    dtype=floating,
    layout=layouts.reduced,
    reference=in_dtype(_log_sum_reference),
    compute=_log_sum_compute,
    gradient=_log_sum_gradient,
    native_from=1024,
)
