"""Rows: elements by their rank among the others: the middle, quantiles, and what is most frequent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....base.dtype import INT64, is_float
from ....base.errors import RunError
from ....ops.shape.sort import order_of
from ...tensor.memory import Array, array_of
from ...tensor.tensor import Tensor, axis_of, wrap
from ..index.index import gather
from ..index.sort import sort
from ..math.arithmetic import add, lerp, mul, rsub, sub
from ..math.compare import choose, lt, ne
from ..math.unary import ceil, floor, round
from ..operands import in_dtype
from ..reducing import in_shape, must_not_be_empty
from ..shape.shape import movedim, reshape
from ..table import row
from .extreme import alone, found_at, must_be_ordered
from .reduce import any as any_along
from .reduce import sum as sum_along

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _ranked(name: str, input: Tensor, dim: Any, keepdim: bool, place: Any) -> Any:
    """The element whose place along a dimension is `place(rows)`, of arrays with it last."""
    must_be_ordered(name, input)
    rank = input.ndim
    axis = axis_of(dim, rank)
    if not rank:
        return alone(input)
    must_not_be_empty(name, input, (axis,))
    places = np.expand_dims(place(np.moveaxis(array_of(input), axis, -1)), axis)
    return found_at(input, wrap(places.astype(np.int64)), axis, keepdim)


def _median_place(rows: Array) -> Array:
    """Of an even number the lower middle; a NaN, if there is one."""
    order = order_of(rows, -1, False)
    nan = rows != rows
    middle: Array = np.where(nan.any(-1), nan.argmax(-1), order[..., (rows.shape[-1] - 1) // 2])
    return middle


def _nanmedian_place(rows: Array) -> Array:
    order = order_of(rows, -1, False)
    count = rows.shape[-1] - (rows != rows).sum(-1, keepdims=True)
    return np.take_along_axis(order, np.maximum(count - 1, 0) // 2, -1)[..., 0]


def _middle(name: str, input: Tensor, dim: Any, keepdim: bool, place: Any) -> Any:
    if dim is not None:
        return _ranked(name, input, dim, keepdim, place)
    flat = in_shape(input, (input.numel(),))
    if not input.numel():
        if not is_float(input._dtype):
            raise RunError(f"{name}() operation does not have an identity for empty input")
        return add(sum_along(flat), math.nan)
    return _ranked(name, flat, 0, False, place).values


@row(out=True)
def median(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """the middle of everything; along a dimension, with where it stands

    >>> import weft
    >>> weft.median(weft.tensor([3.0, 1.0, 2.0]))
    tensor(2.)
    >>> weft.median(weft.tensor([[1, 2, 9], [4, 6, 5]]), dim=1).values
    tensor([2, 5])
    """
    return _middle("median", input, dim, keepdim, _median_place)


@row(out=True)
def nanmedian(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """the middle of what is not NaN; along a dimension, with where it stands"""
    return _middle("nanmedian", input, dim, keepdim, _nanmedian_place)


def _mode_place(rows: Array) -> Array:
    """The last place of the value that stands most often; of several, of the smallest."""
    flat = rows.reshape(-1, rows.shape[-1])
    result = np.empty(len(flat), np.int64)
    for number, line in enumerate(flat):
        values, counts = np.unique(line, return_counts=True)
        result[number] = np.flatnonzero(line == values[counts.argmax()])[-1:].sum()
    return result.reshape(rows.shape[:-1])


@row(out=True)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """the value that stands most often along a dimension, and where"""
    return _ranked("mode", input, dim, keepdim, _mode_place)


@row(out="apart")
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """the k-th smallest along a dimension, and where it stands"""
    rank = input.ndim
    size = input._shape[axis_of(dim, rank)] if rank else 1
    if not 1 <= k <= size and size:
        raise RunError("kthvalue(): selected number k out of range for dimension")
    find = lambda rows: order_of(rows, -1, False)[..., k - 1]
    return _ranked("kthvalue", input, dim, keepdim, find)


# Quantiles.


def _must_be_quantiles(name: str, input: Tensor, q: Any, interpolation: str) -> Tensor:
    """The quantiles as a tensor."""
    if input._dtype not in (np.float32, np.float64):
        raise RunError(f"{name}() input tensor must be either float or double dtype")
    if not input.numel():
        raise RunError(f"{name}() input tensor must be non-empty")
    if interpolation not in INTERPOLATIONS:
        raise RunError(f"{name}() interpolation must be one of {', '.join(INTERPOLATIONS)}, but got {interpolation}")
    quantiles = q if isinstance(q, Tensor) else in_dtype(q, input._dtype)
    if quantiles.ndim > 1:
        raise RunError(f"{name}() q must be a scalar or 1D tensor")
    if quantiles._dtype != input._dtype:
        raise RunError(f"{name}() q tensor must be same dtype as the input tensor")
    if not ((array_of(quantiles) >= 0) & (array_of(quantiles) <= 1)).all():
        raise RunError(f"{name}() q values must be in the range [0, 1]")
    return quantiles


def _quantile(name: str, input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str) -> Tensor:
    quantiles = _must_be_quantiles(name, input, q, interpolation)
    rank = input.ndim
    axis = None if dim is None else axis_of(dim, rank)
    rows = reshape(input, (-1,)) if axis is None or not rank else movedim(input, axis, -1)
    ordered = sort(rows, -1)[0]
    ranks = _ranks(name, ordered, reshape(quantiles, (-1,)))
    between = _between(ordered, ranks, interpolation)
    result = movedim(between, -1, 0)
    kept = [1] * rank if axis is None else [n if k != axis else 1 for k, n in enumerate(input.shape)]
    left = list(result._shape[1:])
    lead = [result._shape[0]] if quantiles.ndim else []
    return reshape(result, (*lead, *(kept if keepdim else left)))


def _ranks(name: str, ordered: Tensor, quantiles: Tensor) -> Tensor:
    """Places among the ordered elements; of a row with NaN the last, unless these do not count."""
    nan = ne(ordered, ordered)
    last = ordered._shape[-1] - 1
    if name == "nanquantile":
        count = sum_along(nan, -1, True)._cast(ordered._dtype)
        highest = rsub(count, float(last))
        return mul(quantiles, choose(lt(highest, 0), 0.0, highest))
    ranks = mul(quantiles, float(last))
    return choose(any_along(nan, -1, True), float(last), ranks)


def _between(ordered: Tensor, ranks: Tensor, interpolation: str) -> Tensor:
    whole = {"lower": floor, "higher": ceil, "nearest": round}.get(interpolation)
    if whole is not None:
        return gather(ordered, -1, whole(ranks)._cast(INT64))
    low, high = floor(ranks).detach(), ceil(ranks).detach()
    below, above = (gather(ordered, -1, place._cast(INT64)) for place in (low, high))
    weight = sub(ranks, low) if interpolation == "linear" else 0.5
    return lerp(below, above, weight)


@row(out=True)
def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """the number that a share q of the elements is below, along a dimension or of everything

    >>> import weft
    >>> weft.quantile(weft.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), weft.tensor([0.25, 0.5]))
    tensor([2., 3.])
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@row(out=True)
def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """the quantile of what is not NaN"""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)
