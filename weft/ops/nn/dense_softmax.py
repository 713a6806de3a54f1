"""dense, softmax and log_softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ... import te
from ...base.errors import ShapeError
from ...base.shape import Dim, mul_dims, normalize_axis, unify, unify_dim
from ...core.schema import BOOL, INT, attr, schema
from .. import _layouts as layouts
from .._families import (
    INJECTIVE,
    OUT_FUSABLE,
    Array,
    F,
    Inferred,
    Joined,
    Shapes,
    axis_shape,
    define,
    floating,
    holomorphic,
    in_dtype,
    in_float32,
    numeric,
    widened,
)

# dense


@schema
class DenseAttrs:
    units: int = attr(INT, "number of outputs", low=1)
    use_bias: bool = attr(BOOL, "whether there is a bias", default=True)


def _dense_shape(params: DenseAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    """The last axis of the data goes from k to units; leading axes are carried both ways."""
    data, weight, out = ins[0], ins[1], outs[0]
    rank = next((len(shape) for shape in (data, out) if shape is not None), None)
    if rank == 0:
        raise ShapeError("dense needs data of at least one dimension")
    k: Dim = data[-1] if data is not None else None
    if weight is not None and len(weight) == 2:
        k = unify_dim(k, weight[1])
    weights = [(params.units, k), (params.units,)][: len(ins) - 1]
    if rank is None:
        return [None, *weights], [None]
    leading = unify(data[:-1] if data is not None else None, out[:-1] if out is not None else None)
    assert leading is not None
    return [(*leading, k), *weights], [(*leading, params.units)]


def _dense_reference(params: DenseAttrs, x: Array, w: Array, *bias: Array) -> Array:
    out = np.asarray(widened(x) @ widened(w).T)
    if bias:
        out += widened(bias[0])
    return out.astype(x.dtype, copy=False)


def _dense_compute(params: DenseAttrs, x: te.Tensor, w: te.Tensor, *bias: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(x.shape[-1])
    out = te.compute(
        (*x.shape[:-1], params.units), lambda *i: te.sum(x[(*i[:-1], k.var)] * w[i[-1], k.var], k), name="dense"
    )
    if not bias:
        return out
    return te.compute(out.shape, lambda *i: out[i] + bias[0][i[-1]], name="bias_add")


def _dense_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g w; dw = g' x; db = the sum of g over all but the last axis."""
    x, w = ctx.inputs[:2]
    return [
        F.matmul(g, w),
        F.matmul(F._as_rows(g), F._as_rows(x), transpose_a=True),
        *([F.sum(g, axis=(-1,), exclude=True)] if ctx.params.use_bias else []),
    ]


_DENSE_INPUTS = {"data": "the input, of shape (..., k)", "weight": "(units, k)", "bias": "(units,), if use_bias"}
dense = define(
    "dense",
    "data weight' + bias: a fully connected layer over the last axis.",
    level=1,
    inputs=_DENSE_INPUTS,
    named=False,
    attrs=DenseAttrs,
    pattern=OUT_FUSABLE,
    shape=_dense_shape,
    dtype=numeric,
    layout=layouts.fixed_copy,
    reference=_dense_reference,
    compute=_dense_compute,
    gradient=_dense_gradient,
    complex_gradient=holomorphic,
    native_from=1024,
)
dense.set_num_inputs(lambda params: 3 if params.use_bias else 2)
dense.input_names = lambda params: list(_DENSE_INPUTS)[: 3 if params.use_bias else 2]


def _rows_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return [None], [None]
    if not ins[0]:
        raise ShapeError("a scalar has no rows")
    return [ins[0]], [(mul_dims(*ins[0][:-1]), ins[0][-1])]


def _as_rows(x: Array) -> Array:
    return x.reshape(int(np.prod(x.shape[:-1], dtype=np.int64)), x.shape[-1]).copy()


def _rows_compute(x: te.Tensor) -> te.Tensor:
    shape = (int(np.prod(x.shape[:-1], dtype=np.int64)), x.shape[-1])

    def element(row: te.Expr, column: te.Expr) -> te.Expr:
        index: list[Any] = [column]
        for extent in reversed(x.shape[:-1]):
            index.insert(0, row % max(extent, 1))
            row = row // max(extent, 1)
        return x[tuple(index)]

    return te.compute(shape, element)


as_rows = define(
    "_as_rows",
    "x with all axes but the last merged into one.",
    pattern=INJECTIVE,
    shape=_rows_shape,
    reference=_as_rows,
    compute=_rows_compute,
    gradient=lambda ctx, g: [F.reshape_like(g, ctx.inputs[0])],
    complex_gradient=holomorphic,
    alias={0: 0},
    inplace=[(0, 0)],
    inplace_identity=[True],
)

# softmax


@schema
class AxisAttrs:
    axis: int = attr(INT, "the axis that is summed over", default=-1)


def along(x: te.Tensor, axes: Sequence[int], name: str, body: Any, reducer: Any) -> te.Tensor:
    """A reduction over some axes, which stay with extent 1: `body` takes an index of x."""
    reduced = {axis: te.reduce_axis(x.shape[axis]) for axis in axes}
    shape = tuple(1 if axis in reduced else extent for axis, extent in enumerate(x.shape))

    def element(*i: Any) -> Any:
        index = tuple(reduced[a].var if a in reduced else v for a, v in enumerate(i))
        return reducer(body(index), list(reduced.values()))

    return te.compute(shape, element, name=name)


def one(index: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    """The index of a reduced tensor that belongs to one of the whole tensor."""
    return tuple(0 if axis in axes else value for axis, value in enumerate(index))


def joined_around(params: Any, *shapes: Sequence[int]) -> Joined:
    """(before, along, after), or (before, along) if nothing comes after, of inputs with the axis."""
    return replace(params, axis=1), [axes_around(shape, params.axis) for shape in shapes]


def axes_around(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    axis %= len(shape)
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return (before, shape[axis], after) if after > 1 else (before, shape[axis])


def _shifted(params: AxisAttrs, x: Array) -> Array:
    wide = x.astype(np.float64)
    if not wide.shape[params.axis]:
        return wide
    return wide - wide.max(axis=params.axis, keepdims=True)


def _softmax_reference(params: AxisAttrs, x: Array) -> Array:
    e = np.exp(_shifted(params, x))
    return e / e.sum(axis=params.axis, keepdims=True)


def _log_softmax_reference(params: AxisAttrs, x: Array) -> Array:
    shifted = _shifted(params, x)
    return shifted - np.log(np.exp(shifted).sum(axis=params.axis, keepdims=True))


def exp_sum(x: te.Tensor, axis: tuple[int, ...]) -> tuple[te.Tensor, te.Tensor]:
    """The largest element along an axis, and the sum of the exponentials of what is above it."""
    top = along(x, axis, "max", lambda i: x[i], te.max_of)
    total = along(x, axis, "exp_sum", lambda i: te.exp(x[i] - top[one(i, axis)]), te.sum)
    return top, total


@in_float32
def _softmax_compute(params: AxisAttrs, x: te.Tensor) -> te.Tensor:
    axis = (normalize_axis(params.axis, x.rank),)
    top, total = exp_sum(x, axis)
    return te.compute(x.shape, lambda *i: te.exp(x[i] - top[one(i, axis)]) / total[one(i, axis)], name="softmax")


@in_float32
def _log_softmax_compute(params: AxisAttrs, x: te.Tensor) -> te.Tensor:
    axis = (normalize_axis(params.axis, x.rank),)
    top, total = exp_sum(x, axis)
    return te.compute(x.shape, lambda *i: x[i] - top[one(i, axis)] - te.log(total[one(i, axis)]), name="log_softmax")


def _softmax_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = y (g - sum of g y)"""
    return [through_softmax(g, ctx.outputs[0], ctx.params.axis)]


def through_softmax(g: Any, y: Any, axis: int) -> Any:
    """The gradient of what goes into a softmax that gave y."""
    total = F.sum(F.elemwise_mul(g, y), axis=(axis,), keepdims=True)
    return F.elemwise_mul(y, F.broadcast_sub(g, total))


def _log_softmax_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g - exp(y) sum of g"""
    total = F.sum(g, axis=(ctx.params.axis,), keepdims=True)
    return [F.elemwise_sub(g, F.broadcast_mul(F.exp(ctx.outputs[0]), total))]


softmax = define(
    "softmax",
    "exp(x) / sum of exp(x) along the axis.",
    level=1,
    attrs=AxisAttrs,
    pattern=OUT_FUSABLE,
    shape=axis_shape,
    dtype=floating,
    layout=layouts.fixed_copy,
    compute=_softmax_compute,
    reference=in_dtype(_softmax_reference),
    gradient=_softmax_gradient,
    inplace=[(0, 0)],
    native_from=64,
    joined_axes=joined_around,
)
log_softmax = define(
    "log_softmax",
    "x - log(sum of exp(x)) along the axis.",
    level=1,
    attrs=AxisAttrs,
    pattern=OUT_FUSABLE,
    shape=axis_shape,
    dtype=floating,
    layout=layouts.fixed_copy,
    compute=_log_softmax_compute,
    reference=in_dtype(_log_softmax_reference),
    gradient=_log_softmax_gradient,
    inplace=[(0, 0)],
    native_from=64,
    joined_axes=joined_around,
)
