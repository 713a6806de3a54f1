"""Converters of reductions, orders, and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....base.dtype import BOOL, INT32, is_float
from ....base.errors import FormatError, Unsupported
from ....base.shape import normalize_axis
from ...building import in_float32
from ...emitter import Value
from ..call import Call
from ..registry import converter


def _axes(call: Call, axes: Sequence[int] | None, exclude: bool = False) -> tuple[int, ...]:
    """The axes to reduce; all of them where none is named."""
    rank = call.rank(call[0])
    named = sorted({normalize_axis(axis, rank) for axis in axes or ()})
    if not named:
        return tuple(range(rank))
    return tuple(a for a in range(rank) if a not in named) if exclude else tuple(named)


def _reduced(call: Call, op: str, value: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """A reduction; one over all axes leaves the shape (1,)."""
    return call.op(op, value, axis=axes, keepdims=keep) if axes else value


@converter("sum", "mean", "prod", "max", "min")
def reduce_plain(call: Call) -> Value:
    axes = _axes(call, call.attr("axis"), call.attr("exclude"))
    return _reduced(call, call.op_type, call[0], axes, call.attr("keepdims"))


@converter("nansum", "nanprod")
def reduce_numbers(call: Call) -> Value:
    """NaN counts as nothing: 0 in a sum, 1 in a product."""
    data, fill = call[0], 0.0 if call.op_type == "nansum" else 1.0
    other = call.op("full_like", data, fill_value=fill)
    missing = call.op("broadcast_not_equal", data, data)
    data = call.op("where", call.cast(missing, BOOL), other, data)
    axes = _axes(call, call.attr("axis"), call.attr("exclude"))
    return _reduced(call, call.op_type.removeprefix("nan"), data, axes, call.attr("keepdims"))


@converter("norm")
def norm(call: Call) -> Value:
    """sum(|x|), or sqrt(sum(x^2))"""
    data, order = call.widened(call[0]), call.attr("ord")
    if order not in (1, 2):
        raise Unsupported(f"norm with ord={order} is not supported")
    dtype = call.dtype_attr("out_dtype") or call[0].dtype
    inner = call.op("abs", data) if order == 1 else call.square(data)
    total = _reduced(call, "sum", inner, _axes(call, call.attr("axis")), call.attr("keepdims"))
    total = total if order == 1 else call.op("sqrt", total)
    return total if dtype is None else call.cast(total, dtype)


@converter("moments")
@in_float32
def moments(call: Call) -> list[Value]:
    """Mean and variance."""
    axes, keep = _axes(call, call.attr("axes")), call.attr("keepdims")
    _, centred = call.centred(call[0], axes)
    return [_reduced(call, "mean", part, axes, keep) for part in (call[0], call.square(centred))]


@converter("argmax", "argmin")
def arg_extreme(call: Call) -> Value:
    """The first of equal ones, as a float; over all elements where no axis is named."""
    data, axis, keep = call[0], call.attr("axis"), call.attr("keepdims")
    if axis is None:
        place = call.op(call.op_type, call.flat(data), axis=0, keepdims=True)
        place = call.reshape(place, [1] * call.rank(data) if keep else [1])
    else:
        place = call.op(call.op_type, data, axis=call.axis(axis, data), keepdims=keep, dtype=INT32)
    return call.cast(place, call.dtype(data))


@converter("argmax_channel")
def argmax_channel(call: Call) -> Value:
    axis = call.rank(call[0]) - 1 if call.rank(call[0]) < 2 else 1
    return call.cast(call.op("argmax", call[0], axis=axis, dtype=INT32), call.dtype(call[0]))


# Orders. Places are floats unless another dtype is asked for.


def _ordered_axis(call: Call) -> tuple[Value, int]:
    """The data and the axis; all elements in one where no axis is named."""
    data, axis = call[0], call.attr("axis")
    if axis is None:
        return call.flat(data), 0
    return data, normalize_axis(axis, call.rank(data))


@converter("sort")
def sort(call: Call) -> Value:
    data, axis = _ordered_axis(call)
    return call.op("sort", data, axis=axis, descending=not call.attr("is_ascend"))


@converter("argsort")
def argsort(call: Call) -> Value:
    data, axis = _ordered_axis(call)
    places = call.op("argsort", data, axis=axis, descending=not call.attr("is_ascend"))
    return call.cast(places, call.required_dtype())


@converter("topk")
def topk(call: Call) -> Value | list[Value]:
    """The k first elements in order, where they stand, both, or a mask of them."""
    data, axis = _ordered_axis(call)
    kind, extent = call.attr("ret_typ"), call.shape(data)[axis]
    k = call.attr("k") if call.attr("k") > 0 else extent
    values, places = call.ops("topk", data, k=min(k, extent), axis=axis, largest=not call.attr("is_ascend"))
    if kind == "mask":
        call.ignore("dtype")
        return _mask(call, places, axis, data)
    places = call.cast(places, call.required_dtype())
    if kind == "both":
        return [values, places]
    if kind not in ("value", "indices"):
        raise FormatError(f"unknown ret_typ {kind!r}")
    return values if kind == "value" else places


def _mask(call: Call, places: Value, axis: int, data: Value) -> Value:
    """1 at the places along the axis, 0 elsewhere."""
    depth, dtype = call.shape(data)[axis], call.dtype(data)
    hot = call.op("one_hot", places, depth=depth, axis=axis + 1, dtype=dtype)
    mask = call.op("sum", hot, axis=(axis,))
    return call.reshape(mask, call.shape(call[0])) if call.attr("axis") is None else mask


# Products of matrices.


def _product(call: Call, a: Value, b: Value) -> Value:
    """alpha A B over the last two axes."""
    if call.attr("axis") != -2:
        raise Unsupported("matrices that are not in the last two axes are not supported")
    turns = {name: call.attr(name) for name in ("transpose_a", "transpose_b")}
    product, alpha = call.op("batch_matmul", a, b, **turns), call.attr("alpha")
    return product if alpha == 1 else call.op("__mul_scalar__", product, scalar=alpha)


@converter("_linalg_gemm2")
def gemm(call: Call) -> Value:
    return _product(call, call[0], call[1])


@converter("_linalg_gemm")
def gemm_with_addend(call: Call) -> Value:
    """alpha A B + beta C over the last two axes."""
    shape = call.shape(call[2])
    a, b = (call.reshape(v, (math.prod(shape[:-2]), *call.shape(v)[-2:])) for v in (call[0], call[1]))
    other = call.op("__mul_scalar__", call[2], scalar=call.attr("beta"))
    return call.op("elemwise_add", call.reshape(_product(call, a, b), shape), other)


@converter("dot")
def dot(call: Call) -> Value:
    """Sums over the last axis of a and the first of b; of vectors, a tensor of shape (1,)."""
    a, b = call[0], call[1]
    if call.attr("transpose_a"):
        a = _turned(call, a, first=True)
    if call.attr("transpose_b"):
        b = _turned(call, b, first=False)
    left, right = call.shape(a), call.shape(b)
    if left[-1] != right[0]:
        raise FormatError(f"dot of shapes {left} and {right}")
    rows, columns = math.prod(left[:-1]), math.prod(right[1:])
    a, b = call.reshape(a, (rows, left[-1])), call.reshape(b, (right[0], columns))
    return call.reshape(call.op("matmul", a, b), left[:-1] + right[1:] or (1,))


def _turned(call: Call, value: Value, first: bool) -> Value:
    """The first axis goes last, or the last one first."""
    rank = call.rank(value)
    if rank == 1:
        return value
    axes = (*range(1, rank), 0) if first else (rank - 1, *range(rank - 1))
    return call.op("transpose", value, axes=axes)


@converter("_contrib_div_sqrt_dim")
def div_sqrt_dim(call: Call) -> Value:
    """x / sqrt(the size of the last axis)"""
    if not is_float(call.dtype(call[0])):
        raise Unsupported("_contrib_div_sqrt_dim of integers is not supported")
    return call.op("__mul_scalar__", call[0], scalar=call.shape(call[0])[-1] ** -0.5)
