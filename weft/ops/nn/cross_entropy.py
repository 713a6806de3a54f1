"""Losses of scores against classes: cross entropy in one operator, the negative score of the right
class; and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import DType, dtype_name, is_float, is_integer
from ...base.errors import DTypeError
from ...base.quiet import quietly
from ...base.shape import Shape, normalize_axis, unify
from ...core.infer import unify_dtype
from ...core.schema import FLOAT, INT, attr, choice, schema
from .._families import Array, Dtypes, F, Inferred, Shapes, attributes, define
from .dense_softmax import exp_sum, one, through_softmax
from .norm import te_mean

CLASSES = {"classes": "the right class of each row; a negative one counts nothing"}


@schema
class ClassLossAttrs:
    axis: int = attr(INT, "the axis of classes", default=1)
    reduction: str = attr(choice("none", "mean", "sum"), "what is given of the losses that count", default="none")


@schema
class CrossEntropyAttrs(ClassLossAttrs):
    smoothing: float = attr(FLOAT, "how much of a row is right by all classes alike", default=0.0, low=0, high=1)


def _without(shape: Any, axis: int) -> tuple[Any, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _shapes(params: ClassLossAttrs, data: Shape, rows: Shape) -> tuple[Shape, Shape]:
    """Of the data, and of what has one element for each of its rows."""
    if data is not None:
        axis = normalize_axis(params.axis, len(data))
        rows = unify(rows, _without(data, axis))
    if data is not None and rows is not None:
        data = (*rows[:axis], data[axis], *rows[axis:])
    return data, rows


def _shape(params: ClassLossAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    losses = outs[0] if params.reduction == "none" else None
    data, rows = _shapes(params, ins[0], unify(ins[1], losses))
    return [data, rows], [rows if params.reduction == "none" else ()]


def _grad_shape(params: ClassLossAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    (data, rows), (ograd,) = _shape(params, [unify(ins[1], outs[0]), ins[2]], [ins[0]])
    return [ograd, data, rows], [data]


def _dtype(params: ClassLossAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    *values, classes = ins
    if classes is not None and not is_integer(classes):
        raise DTypeError(f"classes are {dtype_name(classes)}", hint="cast them to int64")
    dtype = outs[0]
    for known in values:
        dtype = unify_dtype(dtype, known)
    if dtype is not None and not is_float(dtype):
        raise DTypeError(f"scores are {dtype_name(dtype)}", hint="cast them to float32")
    return [*[dtype] * len(values), classes], [dtype]


def _powers(x: Array, axis: int) -> tuple[Array, Array]:
    """What the largest of a row leaves of its elements, and exponentials of that; in float64."""
    wide = x.astype(np.float64)
    left = wide - wide.max(axis, keepdims=True) if wide.size else wide
    return left, np.exp(left)


def _places(x: Array, classes: Array, axis: int) -> Array:
    """Classes as indices along the axis, which stays."""
    inside = np.clip(classes.astype(np.int64), 0, max(x.shape[axis] - 1, 0))
    return np.expand_dims(inside, axis)


def _losses(params: CrossEntropyAttrs, x: Array, classes: Array) -> Array:
    axis = normalize_axis(params.axis, x.ndim)
    left, powers = _powers(x, axis)
    losses = np.log(powers.sum(axis)) - (1 - params.smoothing) * _right(left, classes, axis)
    if params.smoothing:
        losses -= params.smoothing * left.mean(axis)
    return reduced_losses(params, np.where(classes < 0, 0, losses), classes).astype(x.dtype)


def _right(x: Array, classes: Array, axis: int) -> Array:
    """The element of the right class of each row."""
    if not x.size:
        return np.zeros(classes.shape, x.dtype)
    return np.take_along_axis(x, _places(x, classes, axis), axis).squeeze(axis)


def reduced_losses(params: ClassLossAttrs, losses: Array, classes: Array) -> Array:
    if params.reduction == "none":
        return losses
    total = losses.sum(dtype=np.float64)
    return total if params.reduction == "sum" else total / np.float64((classes >= 0).sum())


def row_gradients(params: ClassLossAttrs, g: Array, classes: Array) -> Array:
    """What comes to each loss."""
    if params.reduction == "none":
        return g
    if params.reduction == "mean":
        g = (g / np.float64((classes >= 0).sum())).astype(g.dtype)
    return np.broadcast_to(g, classes.shape)


def _gradients(params: CrossEntropyAttrs, g: Array, x: Array, classes: Array) -> Array:
    axis = normalize_axis(params.axis, x.ndim)
    if not x.size:
        return np.zeros(x.shape, x.dtype)
    powers = _powers(x, axis)[1]
    slopes = powers / powers.sum(axis, keepdims=True)
    places = _places(x, classes, axis)
    certain = 1 - params.smoothing
    np.put_along_axis(slopes, places, np.take_along_axis(slopes, places, axis) - certain, axis)
    slopes -= params.smoothing / x.shape[axis]
    counts = np.expand_dims(classes >= 0, axis)
    row_grads = np.expand_dims(row_gradients(params, g, classes), axis)
    return np.where(counts, slopes * row_grads, 0).astype(x.dtype)


def _compute(params: CrossEntropyAttrs, x: te.Tensor, classes: te.Tensor) -> te.Tensor:
    axis = normalize_axis(params.axis, x.rank)
    top, total = exp_sum(x, (axis,))
    right = _te_right(x, classes, axis)
    even = te_mean(x, (axis,), "even", lambda i: x[i]) if params.smoothing else None

    def element(*i: Any) -> Any:
        at = (*i[:axis], 0, *i[axis:])
        loss = te.log(total[at]) - (right[i] - top[at]) * (1 - params.smoothing)
        if even is not None:
            loss = loss - (even[at] - top[at]) * params.smoothing
        return te.select(classes[i] < 0, te.const(0, x.dtype), loss)

    losses = te.compute(classes.shape, element, name="cross_entropy")
    return _te_reduced(params, losses, classes)


def _te_right(x: te.Tensor, classes: te.Tensor, axis: int) -> te.Tensor:
    """What is given for the right class; 0 where there is none of that number."""
    count = te.as_expr(x.shape[axis])

    def right(*i: Any) -> Any:
        own = te.cast(classes[i], "int64")
        there = (own >= 0) & (own < count)
        value = x[(*i[:axis], te.select(there, own, te.const(0, "int64")), *i[axis:])]
        return te.select(there, value, te.const(0, x.dtype))

    return te.compute(classes.shape, right, name="right")


def _te_reduced(params: ClassLossAttrs, losses: te.Tensor, classes: te.Tensor) -> te.Tensor:
    if params.reduction == "none":
        return losses
    total = _total(losses)
    count = _count(classes, losses.dtype) if params.reduction == "mean" else None
    return te.compute((), lambda: total[()] if count is None else total[()] / count[()])


def _total(values: te.Tensor) -> te.Tensor:
    axes = [te.reduce_axis(extent) for extent in values.shape]
    if not axes:
        return values
    return te.compute((), lambda: te.sum(values[tuple(axis.var for axis in axes)], axes))


def _count(classes: te.Tensor, dtype: DType) -> te.Tensor:
    """How many rows count."""
    one, none = te.const(1, dtype), te.const(0, dtype)
    return _total(te.compute(classes.shape, lambda *i: te.select(classes[i] < 0, none, one), name="counts"))


def _grad_compute(params: CrossEntropyAttrs, g: te.Tensor, x: te.Tensor, classes: te.Tensor) -> te.Tensor:
    axis = normalize_axis(params.axis, x.rank)
    top, total = exp_sum(x, (axis,))
    row_grad = _te_given(params, g, classes)

    def element(*i: Any) -> Any:
        at, row = one(i, (axis,)), _without(i, axis)
        right = te.cast(classes[row], "int64").equal(i[axis])
        share = te.exp(x[i] - top[at]) / total[at]
        certain, none = te.const(1 - params.smoothing, x.dtype), te.const(0, x.dtype)
        slope = share - te.select(right, certain, none)
        if params.smoothing:
            slope = slope - params.smoothing / te.as_expr(x.shape[axis], x.dtype)
        return te.select(classes[row] < 0, te.const(0, x.dtype), slope * row_grad(row))

    return te.compute(x.shape, element, name="cross_entropy_grad")


def _te_given(params: ClassLossAttrs, g: te.Tensor, classes: te.Tensor) -> Callable[[Any], te.Expr]:
    """What comes to the loss of a row."""
    if params.reduction == "none":
        return lambda row: g[row]
    if params.reduction == "sum":
        return lambda row: g[()]
    count = _count(classes, g.dtype)
    return lambda row: g[()] / count[()]


def _second_gradient(ctx: Any, a: Any) -> list[Any]:
    """With p = softmax(x): dg = sum of A (p - right), dx = g p (A - sum of A p)."""
    (g, x, classes), params = ctx.inputs, ctx.params
    over = {"axis": (params.axis,)}
    alone = F._softmax_cross_entropy_grad(F.ones_like(g), x, classes, **attributes(params))
    product = F.elemwise_mul(a, alone)
    summed = F.sum(product, **over) if params.reduction == "none" else F.sum(product)
    counts = F.cast_like(F.broadcast_greater_equal(classes, F.zeros_like(classes)), g)
    per_row = g
    if params.reduction == "mean":
        per_row = F.elemwise_div(g, F.reshape_like(F.sum(counts), g))
    if params.reduction != "none":
        per_row = F.broadcast_like(per_row, counts)
    through = through_softmax(a, F.softmax(x, axis=params.axis), params.axis)
    wide = F.expand_like(F.elemwise_mul(per_row, counts), x, **over)
    return [F.reshape_like(summed, g), F.elemwise_mul(through, wide), None]


softmax_cross_entropy = define(
    "softmax_cross_entropy",
    "-log(softmax(data)) of the right class of each row, or the mean or sum of it; with smoothing, "
    "all classes are right by a little.",
    level=5,
    inputs={"data": "scores of classes", **CLASSES},
    attrs=CrossEntropyAttrs,
    shape=_shape,
    dtype=_dtype,
    compute=_compute,
    reference=lambda params, x, classes: quietly(_losses, params, x, classes),
    gradient=lambda ctx, g: [F._softmax_cross_entropy_grad(g, *ctx.inputs, **attributes(ctx.params)), None],
    native_from=64,
)
softmax_cross_entropy_grad = define(
    "_softmax_cross_entropy_grad",
    "(softmax(data) - what is right of each class) ograd.",
    inputs={"ograd": "the gradient of the losses", "data": "scores of classes", **CLASSES},
    named=False,
    attrs=CrossEntropyAttrs,
    shape=_grad_shape,
    dtype=_dtype,
    compute=_grad_compute,
    gradient=_second_gradient,
    reference=lambda params, g, x, classes: quietly(_gradients, params, g, x, classes),
    native_from=64,
)


# The negative score of the right class.


def _scores(params: ClassLossAttrs, x: Array, classes: Array) -> Array:
    losses = -_right(x, classes, normalize_axis(params.axis, x.ndim))
    reduced = reduced_losses(params, np.where(classes < 0, 0, losses), classes)
    return np.asarray(reduced).astype(x.dtype)


def _scores_grad(params: ClassLossAttrs, g: Array, x: Array, classes: Array) -> Array:
    axis, grad = normalize_axis(params.axis, x.ndim), np.zeros(x.shape, g.dtype)
    if x.size:
        row_grads = np.where(classes < 0, 0, -row_gradients(params, g, classes)).astype(g.dtype)
        np.put_along_axis(grad, _places(x, classes, axis), np.expand_dims(row_grads, axis), axis)
    return grad


def _scores_compute(params: ClassLossAttrs, x: te.Tensor, classes: te.Tensor) -> te.Tensor:
    right = _te_right(x, classes, normalize_axis(params.axis, x.rank))
    losses = te.compute(classes.shape, lambda *i: -right[i], name="nll")
    return _te_reduced(params, losses, classes)


def _scores_grad_compute(params: ClassLossAttrs, g: te.Tensor, x: te.Tensor, classes: te.Tensor) -> te.Tensor:
    axis, row_grad = normalize_axis(params.axis, x.rank), _te_given(params, g, classes)

    def element(*i: Any) -> Any:
        row = _without(i, axis)
        right = te.cast(classes[row], "int64").equal(i[axis])
        return te.select(right, -row_grad(row), te.const(0, g.dtype))

    return te.compute(x.shape, element, name="nll_grad")


nll_loss = define(
    "nll_loss",
    "-data of the right class of each row, or the mean or sum of that.",
    level=5,
    inputs={"data": "logarithms of probabilities", **CLASSES},
    attrs=ClassLossAttrs,
    shape=_shape,
    dtype=_dtype,
    compute=_scores_compute,
    reference=lambda params, x, classes: quietly(_scores, params, x, classes),
    gradient=lambda ctx, g: [F._nll_loss_grad(g, *ctx.inputs, **attributes(ctx.params)), None],
)
nll_loss_grad = define(
    "_nll_loss_grad",
    "-ograd at the right class of each row, else 0.",
    inputs={"ograd": "the gradient of the losses", "data": "has the wanted shape", **CLASSES},
    named=False,
    attrs=ClassLossAttrs,
    shape=_grad_shape,
    dtype=_dtype,
    compute=_scores_grad_compute,
    ignored_inputs=[1],
    reference=lambda params, g, x, classes: quietly(_scores_grad, params, g, x, classes),
    gradient=lambda ctx, a: [F.nll_loss(a, ctx.inputs[2], **attributes(ctx.params)), None, None],
)
