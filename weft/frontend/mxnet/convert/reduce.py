"""Converters of reductions, orders, and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_letters

from ....base.dtype import BOOL, INT32, is_float
from ....base.errors import FormatError, Unsupported
from ....base.shape import normalize_axis
from ...building import in_float32
from ...emitter import Value
from ...products import contracted
from ..call import Call
from ..registry import converter


def _axes(call: Call, axes: Sequence[int] | None, exclude: bool = False) -> tuple[int, ...]:
    """The axes to reduce; all of them where none is named."""
    named = call.axes(axes or None, call[0])
    return tuple(a for a in range(call.rank(call[0])) if a not in named) if axes and exclude else named


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
    return product if alpha == 1 else call.scaled(product, alpha)


@converter("_linalg_gemm2")
def gemm(call: Call) -> Value:
    return _product(call, call[0], call[1])


@converter("_linalg_gemm")
def gemm_with_addend(call: Call) -> Value:
    """alpha A B + beta C over the last two axes."""
    shape = call.shape(call[2])
    a, b = (call.reshape(v, (math.prod(shape[:-2]), *call.shape(v)[-2:])) for v in (call[0], call[1]))
    other = call.scaled(call[2], call.attr("beta"))
    return call.op("elemwise_add", call.reshape(_product(call, a, b), shape), other)


@converter("dot")
def dot(call: Call) -> Value:
    """Sums over the last axis of a and the first of b, or the other way; of vectors, a tensor of shape (1,)."""
    a_axis = 0 if call.attr("transpose_a") else call.rank(call[0]) - 1
    b_axis = call.rank(call[1]) - 1 if call.attr("transpose_b") else 0
    product = dotted(call, call[0], call[1], [a_axis], [b_axis])
    return product if call.rank(product) else call.reshape(product, (1,))


def dotted(call: Call, a: Value, b: Value, a_axes: Sequence[int], b_axes: Sequence[int]) -> Value:
    """Sums over axes of both: of a the axes that are left come first, then those of b."""
    mine, others = [call.axis(axis, a) for axis in a_axes], [call.axis(axis, b) for axis in b_axes]
    if len(mine) != len(others) or any(call.extent(a, i) != call.extent(b, j) for i, j in zip(mine, others)):
        raise FormatError(f"axes {mine} of {call.shape(a)} and {others} of {call.shape(b)} do not fit")
    names = ascii_letters[: call.rank(a)]
    rest = iter(ascii_letters[len(names) :])
    letters = "".join(names[mine[others.index(j)]] if j in others else next(rest) for j in range(call.rank(b)))
    left = [name for i, name in enumerate(names) if i not in mine]
    right = [name for name in letters if name not in names]
    return contracted(call, [a, b], [names, letters], "".join(left + right))


@converter("_contrib_div_sqrt_dim")
def div_sqrt_dim(call: Call) -> Value:
    """x / sqrt(the size of the last axis)"""
    if not is_float(call.dtype(call[0])):
        raise Unsupported("_contrib_div_sqrt_dim of integers is not supported")
    return call.scaled(call[0], call.shape(call[0])[-1] ** -0.5)
