"""The distances between all rows of two matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.errors import ShapeError
from ...base.shape import show, unify_dim
from ...core.schema import BOOL, attr, schema
from .._families import F, Inferred, Shapes, define, floating
from .._kernels import wide_dtype


@schema
class DistancesAttrs:
    by_products: bool = attr(
        BOOL,
        "whether products of matrices may do it, which is faster for many rows, and less "
        "exact for rows that are near to each other",
        default=False,
    )


def _shape(params: DistancesAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    for shape in ins:
        if shape is not None and len(shape) < 2:
            raise ShapeError(f"shape {show(shape)} holds no rows")
    a, b = ins
    if a is None or b is None:
        return [None, None], [None]
    if len(a) != len(b):
        raise ShapeError(f"rows of {show(a)} and {show(b)}", why="both have the same dimensions")
    batch = tuple(unify_dim(m, n) for m, n in zip(a[:-2], b[:-2]))
    k = unify_dim(a[-1], b[-1])
    return [(*batch, a[-2], k), (*batch, b[-2], k)], [(*batch, a[-2], b[-2])]


def _reference(params: DistancesAttrs, a: Any, b: Any) -> Any:
    wide = wide_dtype(a.dtype)
    with np.errstate(all="ignore"):
        gaps = a[..., :, None, :].astype(wide) - b[..., None, :, :].astype(wide)
        return np.sqrt(np.square(gaps).sum(-1)).astype(a.dtype)


def _compute(params: DistancesAttrs, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    wide = wide_dtype(a.dtype)
    k = te.reduce_axis(a.shape[-1], "k")

    def value(*i: Any) -> Any:
        *batch, row, column = i
        x, y = a[(*batch, row, k.var)], b[(*batch, column, k.var)]
        gap = te.cast(x, wide) - te.cast(y, wide)
        return te.sum(gap * gap, k)

    squares = te.compute((*a.shape[:-1], b.shape[-2]), value)
    return te.compute(squares.shape, lambda *i: te.cast(te.sqrt(squares[i]), a.dtype))


def _gradient(ctx: Any, g: Any) -> list[Any]:
    """Rows that are equal have a distance of 0, and what it is divided by does not count."""
    (a, b), y = ctx.inputs, ctx.outputs[0]
    share = F.elemwise_div(g, F.broadcast_where(y, y, F.ones_like(y)))
    if ctx.params.by_products:
        across = F.sum(share, axis=(-1,), keepdims=True)
        down = F.expand_dims(F.sum(share, axis=(-2,)), axis=-1)
        return [
            F.broadcast_mul(a, across) - F.batch_matmul(share, b),
            F.broadcast_mul(b, down) - F.batch_matmul(share, a, transpose_a=True),
        ]
    gaps = F.broadcast_sub(F.expand_dims(a, axis=-2), F.expand_dims(b, axis=-3))
    parts = F.broadcast_mul(gaps, F.expand_dims(share, axis=-1))
    return [F.sum(parts, axis=(-2,)), -F.sum(parts, axis=(-3,))]


distances = define(
    "distances",
    "y[..., i, j] = sqrt(sum_k (lhs[..., i, k] - rhs[..., j, k])^2), the Euclidean distances of "
    "all rows of lhs from all rows of rhs.",
    level=5,
    inputs={"lhs": "(..., m, k)", "rhs": "(..., n, k)"},
    attrs=DistancesAttrs,
    shape=_shape,
    dtype=floating,
    reference=_reference,
    compute=_compute,
    gradient=_gradient,
    native_from=256,
)
