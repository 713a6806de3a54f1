"""Products of matrices: NNVM's matmul of any ranks, and numpy's over batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.errors import ShapeError
from ...base.shape import Shape, StaticShape, broadcast, show, unify, unify_dim
from ...core.op import Op, Rule
from ...core.schema import BOOL, attr, schema
from .. import _layouts as layouts
from .._families import (
    LHS_RHS,
    OUT_FUSABLE,
    Array,
    F,
    Inferred,
    Shapes,
    attributes,
    backward_shape,
    define,
    holomorphic,
    numeric,
    widened,
)


@schema
class MatmulAttrs:
    transpose_a: bool = attr(BOOL, "take lhs with its axes reversed", default=False)
    transpose_b: bool = attr(BOOL, "take rhs with its axes reversed", default=False)


@schema
class BatchMatmulAttrs:
    transpose_a: bool = attr(BOOL, "swap the last two axes of lhs", default=False)
    transpose_b: bool = attr(BOOL, "swap the last two axes of rhs", default=False)


def _turn(items: Any, reverse: bool) -> Any:
    return items[::-1] if reverse else items


def _summed(dim: Any, other: Any, lhs: Shape, rhs: Shape) -> Any:
    """The dimension along which products are summed, the same of both sides."""
    try:
        return unify_dim(dim, other)
    except ShapeError as error:
        raise ShapeError(
            f"shapes {show(lhs)} and {show(rhs)} do not multiply",
            why=f"the sums go over {dim} elements of lhs and {other} of rhs",
        ) from error


def _matmul_shape(params: MatmulAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    lhs, rhs = ins
    if () in (lhs, rhs):
        raise ShapeError("matmul of a single number", hint="multiply with *")
    if lhs is None or rhs is None:
        return [None, None], [None]
    a, b = _turn(lhs, params.transpose_a), _turn(rhs, params.transpose_b)
    k = _summed(a[-1], b[0], lhs, rhs)
    rows, columns = a[:-1], b[1:]
    if outs[0] is not None:
        whole = unify(rows + columns, outs[0])
        rows, columns = whole[: len(rows)], whole[len(rows) :]
    left, right = rows + (k,), (k,) + columns
    return [_turn(left, params.transpose_a), _turn(right, params.transpose_b)], [rows + columns]


def _matmul_reference(params: MatmulAttrs, a: Array, b: Array) -> Array:
    left, right = (
        x.transpose() if turned else x
        for x, turned in ((widened(a), params.transpose_a), (widened(b), params.transpose_b))
    )
    flat = left.ndim == right.ndim == 2
    out = np.matmul(left, right) if flat else np.tensordot(left, right, 1)
    return out.astype(a.dtype, copy=False)


def _matmul_compute(params: MatmulAttrs, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    left, right = _turn(a.shape, params.transpose_a), _turn(b.shape, params.transpose_b)
    k, rows = te.reduce_axis(left[-1], "k"), a.rank - 1

    def value(*i: te.Expr) -> te.Expr:
        x = a[_turn((*i[:rows], k.var), params.transpose_a)]
        return te.sum(x * b[_turn((k.var, *i[rows:]), params.transpose_b)], k)

    return te.compute(left[:-1] + right[1:], value)


matmul = define(
    "matmul",
    "Sums of products over the last axis of lhs and the first of rhs: "
    "out[i..., j...] = sum over k of lhs[i..., k] rhs[k, j...].",
    level=1,
    inputs=LHS_RHS,
    named=False,
    attrs=MatmulAttrs,
    pattern=OUT_FUSABLE,
    shape=_matmul_shape,
    dtype=numeric,
    layout=layouts.multiplied,
    native_from=1024,
)
matmul.reference = _matmul_reference
matmul.compute = _matmul_compute
matmul.complex_gradient = holomorphic
matmul.gradient = lambda ctx, g: [
    F._matmul_grad_lhs(g, ctx.inputs[1], ctx.inputs[0], **attributes(ctx.params)),
    F._matmul_grad_rhs(g, ctx.inputs[0], ctx.inputs[1], **attributes(ctx.params)),
]


def _lhs_reference(params: MatmulAttrs, g: Array, b: Array, like: Array) -> Array:
    right = _turn_array(widened(b), params.transpose_b)
    count = right.ndim - 1
    g_axes, b_axes = range(g.ndim - count, g.ndim), range(1, right.ndim)
    grad = np.tensordot(widened(g), right, (list(g_axes), list(b_axes)))
    return _turn_array(grad, params.transpose_a).astype(g.dtype, copy=False)


def _rhs_reference(params: MatmulAttrs, g: Array, a: Array, like: Array) -> Array:
    left = _turn_array(widened(a), params.transpose_a)
    rows = list(range(left.ndim - 1))
    grad = np.tensordot(left, widened(g), (rows, rows))
    return _turn_array(grad, params.transpose_b).astype(g.dtype, copy=False)


def _turn_array(x: Array, reverse: bool) -> Array:
    return x.transpose() if reverse else x


def _lhs_compute(params: MatmulAttrs, g: te.Tensor, b: te.Tensor, like: te.Tensor) -> te.Tensor:
    right = _turn(b.shape, params.transpose_b)
    ks = [te.reduce_axis(dim, f"k{axis}") for axis, dim in enumerate(right[1:])]
    js = tuple(k.var for k in ks)

    def value(*i: te.Expr) -> te.Expr:
        *rows, k = _turn(i, params.transpose_a)
        product = g[(*rows, *js)] * b[_turn((k, *js), params.transpose_b)]
        return te.sum(product, ks) if ks else product

    return te.compute(like.shape, value)


def _rhs_compute(params: MatmulAttrs, g: te.Tensor, a: te.Tensor, like: te.Tensor) -> te.Tensor:
    left = _turn(a.shape, params.transpose_a)
    ks = [te.reduce_axis(dim, f"k{axis}") for axis, dim in enumerate(left[:-1])]
    rows = tuple(k.var for k in ks)

    def value(*i: te.Expr) -> te.Expr:
        k, *columns = _turn(i, params.transpose_b)
        product = a[_turn((*rows, k), params.transpose_a)] * g[(*rows, *columns)]
        return te.sum(product, ks) if ks else product

    return te.compute(like.shape, value)


def _matmul_grad(side: str, other: str, order: Sequence[int], reference: Rule, compute: Rule) -> Op:
    return define(
        f"_matmul_grad_{side}",
        f"The gradient of matmul with respect to {side}.",
        inputs={"ograd": "gradient of the product", other: "the other factor", side: "its shape"},
        named=False,
        attrs=MatmulAttrs,
        pattern=OUT_FUSABLE,
        dtype=numeric,
        shape=backward_shape(_matmul_shape, own=2, order=order),
        ignored_inputs=[2],
        reference=reference,
        compute=compute,
        native_from=1024,
    )


grad_lhs = _matmul_grad("lhs", "rhs", (2, 1), _lhs_reference, _lhs_compute)
grad_lhs.complex_gradient = holomorphic
grad_lhs.gradient = lambda ctx, g: [
    F.matmul(g, ctx.inputs[1], **attributes(ctx.params)),
    F._matmul_grad_rhs(ctx.inputs[0], g, ctx.inputs[1], **attributes(ctx.params)),
    None,
]

grad_rhs = _matmul_grad("rhs", "lhs", (1, 2), _rhs_reference, _rhs_compute)
grad_rhs.complex_gradient = holomorphic
grad_rhs.gradient = lambda ctx, g: [
    F.matmul(ctx.inputs[1], g, **attributes(ctx.params)),
    F._matmul_grad_lhs(ctx.inputs[0], g, ctx.inputs[1], **attributes(ctx.params)),
    None,
]

# Over batches.


def _swap(items: Any, swapped: bool) -> Any:
    return (*items[:-2], items[-1], items[-2]) if swapped else tuple(items)


def _batch_shape(params: BatchMatmulAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    for shape in ins:
        if shape is not None and len(shape) < 2:
            raise ShapeError(
                f"shape {show(shape)} holds no matrix",
                why="batch_matmul takes tensors of two or more dimensions",
                hint="expand_dims before it and reshape after it",
            )
    lhs, rhs = ins
    if lhs is None or rhs is None:
        return [None, None], [None]
    a, b = _swap(lhs, params.transpose_a), _swap(rhs, params.transpose_b)
    k = _summed(a[-1], b[-2], lhs, rhs)
    left = _swap((*a[:-1], k), params.transpose_a)
    right = _swap((*b[:-2], k, b[-1]), params.transpose_b)
    lead: Any = broadcast(a[:-2], b[:-2])
    return [left, right], [(*lead, a[-2], b[-1])]


def _batch_reference(params: BatchMatmulAttrs, a: Array, b: Array) -> Array:
    left = widened(a).swapaxes(-1, -2) if params.transpose_a else widened(a)
    right = widened(b).swapaxes(-1, -2) if params.transpose_b else widened(b)
    with np.errstate(all="ignore"):
        return np.matmul(left, right).astype(a.dtype, copy=False)


def _batch_compute(params: BatchMatmulAttrs, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    left, right = _swap(a.shape, params.transpose_a), _swap(b.shape, params.transpose_b)
    batch: Any = broadcast(left[:-2], right[:-2])
    k = te.reduce_axis(left[-1], "k")

    def value(*i: te.Expr) -> te.Expr:
        row, column = i[-2:]
        x = a[_swap((*_batch_index(i[:-2], left[:-2]), row, k.var), params.transpose_a)]
        y = b[_swap((*_batch_index(i[:-2], right[:-2]), k.var, column), params.transpose_b)]
        return te.sum(x * y, k)

    return te.compute((*batch, left[-2], right[-1]), value)


def _batch_index(i: Sequence[te.Expr], shape: StaticShape) -> tuple[te.ExprLike, ...]:
    return tuple(0 if dim == 1 else at for at, dim in zip(i[len(i) - len(shape) :], shape))


def _batch_gradient(ctx: Any, g: Any) -> list[Any]:
    """da = g b^T and db = a^T g, turned as the factors were, and summed over what broadcast"""
    a, b = ctx.inputs
    ta, tb = ctx.params.transpose_a, ctx.params.transpose_b
    if ta:
        da = F.batch_matmul(b, g, transpose_a=tb, transpose_b=True)
    else:
        da = F.batch_matmul(g, b, transpose_b=not tb)
    if tb:
        db = F.batch_matmul(g, a, transpose_a=True, transpose_b=ta)
    else:
        db = F.batch_matmul(a, g, transpose_a=not ta)
    return [F.collapse_sum(da, a), F.collapse_sum(db, b)]


batch_matmul = define(
    "batch_matmul",
    "Products of matrices in the last two axes; the axes before them broadcast.",
    level=5,
    inputs=LHS_RHS,
    named=False,
    attrs=BatchMatmulAttrs,
    pattern=OUT_FUSABLE,
    shape=_batch_shape,
    dtype=numeric,
    native_from=1024,
)
batch_matmul.reference = _batch_reference
batch_matmul.compute = _batch_compute
batch_matmul.complex_gradient = holomorphic
batch_matmul.gradient = _batch_gradient
