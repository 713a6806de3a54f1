"""Batching rules of operators that read or write at positions that another tensor says: where both are batched, the
number of the element of the batch is one more coordinate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....core.op import Op
from ....ops.shape.index import TakeAttrs
from ...dispatch import apply
from ...functions.shape.join import cat
from ...functions.shape.shape import reshape
from ...tensor.tensor import Tensor, wrap
from ...tensor.viewing import permuted, stretched
from ..level import Call
from .shapes import changed, register

_ADD, _MUL = Op.get("broadcast_add"), Op.get("broadcast_mul")


def _take(call: Call) -> Sequence[Tensor]:
    """take(data, indices): along an axis, which a batch of data has one further; a batch of indices is more of them."""
    axis, (rank, count) = call.params.axis, call.ranks()
    data, indices = call.inputs
    if call.batched == [True, False]:
        if axis is None:
            data, axis, rank = reshape(data, (call.size, -1)), 0, 1
        return apply(call.op, changed(call.params, axis=axis % rank + 1), [data, indices])
    if call.batched == [False, True]:
        if axis is None:
            return apply(call.op, call.params, [data, indices])
        axis %= rank
        made = apply(call.op, changed(call.params, axis=axis), [data, indices])[0]
        return [permuted(made, [axis, *range(axis), *range(axis + 1, made.ndim)])]
    # Both: rows of all data below each other, and indices that count from the first row of their own data.
    if axis is None:
        data, axis, rank = reshape(data, (call.size, -1)), 0, 1
    axis %= rank
    rows = permuted(data, [0, axis + 1, *[at for at in range(1, rank + 1) if at != axis + 1]])
    extent, rest = rows._shape[1], rows._shape[2:]
    flat = reshape(rows, (call.size * extent, *rest))
    made = apply(_TAKE, TakeAttrs(axis=0), [flat, _numbered(indices, extent, call.size)])[0]
    back = [0, *range(1 + count, 1 + count + axis), *range(1, 1 + count), *range(1 + count + axis, made.ndim)]
    return [permuted(made, back)]


def _numbered(indices: Tensor, extent: int, size: int) -> Tensor:
    """Indices of each element of the batch into what is `extent` long, as indices into all of it."""
    array_shape = (size, *(1,) * (indices.ndim - 1))
    first = wrap((np.arange(size) * extent).reshape(array_shape))
    wide = indices._cast(np.dtype(np.int64))
    below = apply(Op.get("broadcast_less"), None, [wide, wrap(np.array(0))])[0]._cast(np.dtype(np.int64))
    inside = apply(_ADD, None, [wide, apply(_MUL, None, [below, wrap(np.array(extent))])[0]])[0]
    return apply(_ADD, None, [inside, first])[0]


def _take_grad(call: Call) -> Sequence[Tensor]:
    """What comes to data, of (gradient, data, indices): sums of rows, each to the data of its own element."""
    axis, (_, rank, count) = call.params.axis, call.ranks()
    gradient, data, indices = call.wholes()
    if not call.batched[2] and axis is not None:
        return apply(call.op, changed(call.params, axis=axis % rank + 1), [gradient, data, call.inputs[2]])
    shape = data._shape
    if axis is None:
        data, axis, rank = reshape(data, (call.size, -1)), 0, 1
    axis %= rank
    order = [0, axis + 1, *[at for at in range(1, rank + 1) if at != axis + 1]]
    rows = permuted(data, order)
    extent, rest = rows._shape[1], rows._shape[2:]
    before = [0, *range(axis + 1, axis + 1 + count), *range(1, axis + 1), *range(axis + 1 + count, gradient.ndim)]
    flat = reshape(rows, (call.size * extent, *rest))
    made = apply(
        _TAKE_GRAD, TakeAttrs(axis=0), [permuted(gradient, before), flat, _numbered(indices, extent, call.size)]
    )[0]
    whole = permuted(reshape(made, rows._shape), np.argsort(order).tolist())
    return [reshape(whole, shape)]


_TAKE, _TAKE_GRAD = Op.get("take"), Op.get("_take_grad")
register("take gather", _take)
register("_take_grad", _take_grad)


def _places(call: Call, number: int) -> Tensor:
    """Coordinates (k, ...) of each element of the batch, as coordinates (k + 1, batch, ...) of all."""
    indices = call.whole(number)
    turned = permuted(indices, [1, 0, *range(2, indices.ndim)])
    numbers = wrap(np.arange(call.size, dtype=indices._dtype).reshape(1, -1, *(1,) * (indices.ndim - 2)))
    return cat([stretched(numbers, (1, *turned._shape[1:])), turned])


def _gather(call: Call) -> Sequence[Tensor]:
    return apply(call.op, call.params, [call.whole(0), _places(call, 1)])


def _gather_grad(call: Call) -> Sequence[Tensor]:
    return apply(call.op, call.params, [call.whole(0), call.whole(1), _places(call, 2)])


def _scatter(call: Call) -> Sequence[Tensor]:
    return apply(call.op, call.params, [call.whole(0), _places(call, 1), call.whole(2)])


register("gather_nd", _gather)
register("_gather_nd_grad", _gather_grad)
register("scatter_nd scatter_nd_reduce", _scatter)
