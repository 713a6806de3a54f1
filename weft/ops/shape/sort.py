"""Sorting along an axis: the order, the values, or the first k of both.

Equal elements keep their order. NaN counts as greater than every number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import INT32, DType
from ...base.errors import ShapeError
from ...base.shape import normalize_axis, show
from ...core.infer import unify_dtype
from ...core.schema import BOOL, DTYPE, EXTENT, INT, attr, schema
from .. import _layouts as layouts
from .._families import F, Inferred, Shapes, axis_shape, changed, define, no_flow
from .._kernels import Body, before, rows_of, sort_row, wide_dtype

_AXIS = "along which axis"


@schema
class SortAttrs:
    axis: int = attr(INT, _AXIS, default=-1)
    descending: bool = attr(BOOL, "whether the greatest comes first", default=False)


@schema
class ArgsortAttrs:
    axis: int = attr(INT, _AXIS, default=-1)
    descending: bool = attr(BOOL, "whether the greatest comes first", default=False)
    dtype: DType = attr(DTYPE, "of the output", default=INT32)


@schema
class TopkAttrs:
    k: int = attr(EXTENT, "how many", low=0)
    axis: int = attr(INT, _AXIS, default=-1)
    largest: bool = attr(BOOL, "the greatest rather than the smallest", default=True)
    dtype: DType = attr(DTYPE, "of the indices", default=INT32)


def _topk_shape(params: TopkAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return [None], [None, None]
    axis = normalize_axis(params.axis, len(ins[0]))
    extent = ins[0][axis]
    if isinstance(extent, int) and isinstance(params.k, int) and params.k > extent:
        raise ShapeError(f"{params.k} of {extent} elements", why=f"the data is {show(ins[0])}")
    return [None], [changed(ins[0], axis, params.k)] * 2


def _topk_dtype(params: TopkAttrs, ins: Sequence[Any], outs: Sequence[Any]) -> Any:
    dtype = unify_dtype(ins[0], outs[0])
    return [dtype], [dtype, params.dtype]


FEW = 256  # elements that are sorted as they are


def order_of(x: Any, axis: int, descending: bool) -> Any:
    """The stable order of an array; NaN counts as the greatest."""
    x = x.astype(wide_dtype(x.dtype), copy=False)
    numbers = np.moveaxis(x, axis, -1) if x.size >= FEW else None
    keys = None if numbers is None else _keys(numbers, descending)
    return _plain_order(x, axis, descending) if keys is None else np.moveaxis(keys, -1, axis)


def _keys(rows: Any, descending: bool) -> Any:
    """The order of the elements of rows: numbers are sorted that are made of an element, as whole
    number, and its place, so that no two are equal. None where they are too long for that."""
    count = rows.shape[-1]
    bits = (count - 1).bit_length()
    if rows.dtype == np.float32:
        low, high, keys = 0, 2**32 - 1, _ranks(rows)
    elif rows.dtype.kind in "iub":
        low, high, keys = int(rows.min()), int(rows.max()), rows
    else:
        return None
    if high - low >= 2 ** (64 - bits):
        return None
    keys = keys.astype(np.uint64)  # of integers below zero: modulo 2**64, as what follows is
    keys = np.uint64(high % 2**64) - keys if descending else keys - np.uint64(low % 2**64)
    keys <<= np.uint64(bits)
    keys |= np.arange(count, dtype=np.uint64)
    keys.sort(-1)
    keys &= np.uint64(2**bits - 1)
    return keys.astype(np.int64)


def _ranks(x: Any) -> Any:
    """float32 numbers as whole ones in the same order."""
    bits = (x + np.float32(0)).view(np.uint32)  # there is but one zero
    signs = (bits.view(np.int32) >> 31).view(np.uint32)
    ranks = bits ^ (signs | np.uint32(2**31))
    unknown = np.isnan(x)
    if unknown.any():
        ranks[unknown] = 2**32 - 1
    return ranks


def _plain_order(x: Any, axis: int, descending: bool) -> Any:
    """Backwards, it is that of the array read backwards."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    behind = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - behind, axis)


def _kernels(descending: Any, values: int | None, indices: int | None) -> Any:
    """The first elements in order: as many as the outputs at these positions have."""

    def rule(params: Any, inputs: Any, outputs: Any) -> Any:
        ((shape, dtype),) = inputs
        axis = normalize_axis(params.axis, len(shape))
        rows, kept = rows_of(shape, axis), rows_of(outputs[0][0], axis)
        count = rows.outer * rows.inner
        body = Body("sort", inputs, outputs)
        order = body.temporary((count, 2, rows.extent), INT32)
        views = {0: rows, order: (count, 2, rows.extent)}
        views |= {position: kept for position in (values, indices) if position is not None}
        work = math.prod(shape) * max(rows.extent, 1).bit_length()
        with body.kernel(views, work) as (b, x, numbers, *out), b.parallel("p", count) as p:
            outer = b.let("outer", p // max(rows.inner, 1))
            inner = b.let("inner", p % max(rows.inner, 1))
            first = before(dtype, descending(params))
            precedes = lambda i, j: first(x[outer, i, inner], x[outer, j, inner])
            place = sort_row(b, numbers, p, rows.extent, precedes)
            with b.loop("i", kept.extent) as i:
                at, chosen = (outer, i, inner), b.let("chosen", place(i))
                if values is not None:
                    b.store(out[0], at, x[outer, chosen, inner])
                if indices is not None:
                    b.store(out[-1], at, te.cast(chosen, out[-1].dtype))
        return body.kernels

    return rule


argsort = define(
    "argsort",
    "Where the elements stand that come 1st, 2nd, 3rd... along an axis.",
    level=5,
    attrs=ArgsortAttrs,
    shape=axis_shape,
    layout=layouts.fixed_copy,
    dtype=lambda params, ins, outs: ([None], [params.dtype]),
    gradient=no_flow,
    kernels=_kernels(lambda params: params.descending, None, 1),
)
argsort.reference = lambda p, x: order_of(x, p.axis, p.descending).astype(p.dtype)

sort = define(
    "sort",
    "The elements in order along an axis.",
    level=5,
    attrs=SortAttrs,
    shape=axis_shape,
    layout=layouts.fixed_copy,
    kernels=_kernels(lambda params: params.descending, 1, None),
)
sort.reference = lambda p, x: np.take_along_axis(x, order_of(x, p.axis, p.descending), p.axis)


def _sort_gradient(ctx: Any, g: Any) -> list[Any]:
    axis, descending = ctx.params.axis, ctx.params.descending
    order = F.argsort(ctx.inputs[0], axis=axis, descending=descending)
    return [F._gather_elements_grad(g, ctx.inputs[0], order, axis=axis)]


sort.gradient = _sort_gradient


def _topk_reference(params: TopkAttrs, x: Any) -> Any:
    axis = normalize_axis(params.axis, x.ndim)
    order = order_of(x, axis, params.largest).take(range(params.k), axis)
    return np.take_along_axis(x, order, axis), order.astype(params.dtype)


topk = define(
    "topk",
    "The k greatest (or smallest) elements along an axis, in order, and where they stand.",
    level=5,
    attrs=TopkAttrs,
    shape=_topk_shape,
    dtype=_topk_dtype,
    layout=layouts.fixed_copy,
    reference=_topk_reference,
    kernels=_kernels(lambda params: params.largest, 1, 2),
    output_names=["values", "indices"],
)
topk.gradient = lambda ctx, g, _: [F._gather_elements_grad(g, ctx.inputs[0], ctx.outputs[1], axis=ctx.params.axis)]
