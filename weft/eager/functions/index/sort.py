"""Rows: elements in order, searched, counted and told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....base.dtype import is_complex, is_integer
from ....base.errors import RunError, Unsupported
from ....core.op import Op
from ....ops.shape.index import GatherAttrs
from ....ops.shape.sort import order_of
from ... import native
from ...dispatch import apply
from ...tensor.memory import Array, array_of
from ...tensor.tensor import Tensor, axis_of, wrap
from ..hosted import hosted
from ..operands import in_dtype, must_be_real, promoted
from ..reduce.extreme import ValuesIndices
from ..shape.shape import reshape
from ..table import row

_GATHER = Op.get("gather_elements")


def _taken(input: Tensor, axis: int, where: Tensor) -> ValuesIndices:
    """The elements at positions along an axis, and the positions."""
    data = input if input.ndim else reshape(input, 1)
    values = apply(_GATHER, GatherAttrs(axis=axis), [data, where])[0]
    if input.ndim or not where.numel():
        return ValuesIndices(values, where)
    return ValuesIndices(reshape(values, ()), reshape(where, ()))


def _places(name: str, input: Tensor, find: Callable[[Array], Array]) -> Tensor:
    """Where elements stand in the rows of a tensor, one of which a number is."""
    if is_complex(input._dtype):
        raise Unsupported(f"{name}(): complex numbers have no order")
    return hosted(lambda array: np.ascontiguousarray(find(array if array.ndim else array.reshape(1)), np.int64), input)


@row(out=True)
def sort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> ValuesIndices:
    """The elements in order along an axis, and where they stood; NaN counts as the greatest

    >>> import weft
    >>> values, indices = weft.sort(weft.tensor([3, 1, 2]))
    >>> values, indices
    (tensor([1, 2, 3]), tensor([1, 2, 0]))
    >>> weft.sort(weft.tensor([3, 1, 2]), descending=True).values
    tensor([3, 2, 1])
    """
    axis = axis_of(dim, input.ndim)
    return _taken(input, axis, _places("sort", input, lambda rows: order_of(rows, axis, descending)))


@row
def argsort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Tensor:
    """Where the elements stand that come 1st, 2nd, ... along an axis

    >>> import weft
    >>> weft.argsort(weft.tensor([3, 1, 2]))
    tensor([1, 2, 0])
    """
    axis = axis_of(dim, input.ndim)
    order = _places("argsort", input, lambda rows: order_of(rows, axis, descending))
    return order if input.ndim else reshape(order, ())


@row(out=True)
def msort(input: Tensor) -> Tensor:
    """The elements in order along the first axis"""
    return sort(input, 0).values


@row(out=True)
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The k greatest (or smallest) elements along an axis, in order, and where they stand

    >>> import weft
    >>> values, indices = weft.topk(weft.tensor([3, 1, 4, 2]), 2)
    >>> values, indices
    (tensor([4, 3]), tensor([2, 0]))
    >>> weft.topk(weft.tensor([3, 1, 4, 2]), 1, largest=False).values
    tensor([1])
    """
    axis = axis_of(dim, input.ndim)
    if not 0 <= k <= (input._shape or (1,))[axis]:
        raise RunError("selected index k out of range")
    return _taken(input, axis, _places("topk", input, lambda rows: _first_of(rows, axis, k, largest)))


def _first_of(rows: Array, axis: int, k: int, largest: bool) -> Array:
    """Where the k greatest or smallest stand, in order; where they are few, the others are not put
    in order."""
    count = rows.shape[axis]
    if not 0 < FEW * k < count:
        return np.take(order_of(rows, axis, largest), range(k), axis)
    first = count - k if largest else 0
    parts = np.argpartition(rows, first if largest else k - 1, axis)
    some = np.sort(parts.take(range(first, first + k), axis), axis)
    order = order_of(np.take_along_axis(rows, some, axis), axis, largest)
    return np.take_along_axis(some, order, axis)


FEW = 8

# Where elements belong, and how often they are there.


@row(method=False, out=True)
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where elements would go into rows that are in order

    >>> import weft
    >>> weft.searchsorted(weft.tensor([1, 3, 5]), weft.tensor([0, 3, 9]))
    tensor([0, 1, 3])
    >>> weft.searchsorted(weft.tensor([1, 3, 5]), weft.tensor([0, 3, 9]), right=True)
    tensor([0, 2, 3])
    """
    must_be_real("searchsorted", sorted_sequence)
    if side not in (None, "left", "right"):
        raise RunError(f"searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RunError(
            "searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    rows = array_of(sorted_sequence)
    if sorter is not None:
        rows = np.take_along_axis(rows, _sorter(sorter, rows), -1)
    values = input if isinstance(input, Tensor) else in_dtype(input, rows.dtype)
    _must_search(rows, array_of(values))
    found = _found(rows, array_of(values), "right" if right or side == "right" else "left")
    return wrap(found.astype(np.int32 if out_int32 else np.int64))


def _sorter(sorter: Tensor, rows: Array) -> Array:
    if sorter._shape != rows.shape:
        raise RunError(
            "searchsorted(): boundary and sorter must have the same size, but got boundary "
            f"tensor {list(rows.shape)} and got sorter tensor {list(sorter.shape)}"
        )
    if sorter._dtype != np.int64:
        raise RunError("searchsorted(): sorter must be a tensor of long dtype")
    places = array_of(sorter)
    if places.size and not (places.min() >= 0 and places.max() < rows.shape[-1]):
        raise RunError("searchsorted(): sorter index out of range")
    return places


def _must_search(rows: Array, values: Array) -> None:
    if rows.dtype != values.dtype:
        raise RunError("searchsorted(): input value tensor and boundaries tensor should have same dtype")
    if not rows.ndim:
        raise RunError("searchsorted(): boundaries tensor should have positive dimension")
    if rows.ndim > 1 and rows.shape[:-1] != values.shape[:-1]:
        raise RunError(
            "searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
            f"dimensions of boundaries tensor and input value tensor must match, but we got "
            f"boundaries tensor {list(rows.shape)} and input value tensor {list(values.shape)}"
        )


def _found(rows: Array, values: Array, side: Any) -> Array:
    if rows.ndim == 1:
        return np.asarray(np.searchsorted(rows, values, side))
    made = np.empty(values.shape, np.int64)
    for at in np.ndindex(rows.shape[:-1]):
        made[at] = np.searchsorted(rows[at], values[at], side)
    return made


@row(out=True)
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Between which boundaries elements lie

    >>> import weft
    >>> weft.bucketize(weft.tensor([0, 3, 9]), weft.tensor([1, 3, 5]))
    tensor([0, 1, 3])
    """
    must_be_real("bucketize", input)
    if boundaries.ndim != 1:
        raise RunError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    left, rows = promoted(input, boundaries)
    return searchsorted(rows, left, out_int32=out_int32, right=right)


@row(out=False)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each integer from 0 on is there, or the sum of its weights

    >>> import weft
    >>> weft.bincount(weft.tensor([0, 1, 1, 3]))
    tensor([1, 2, 0, 1])
    >>> weft.bincount(weft.tensor([0, 1, 1]), weights=weft.tensor([0.5, 1.0, 2.0]))
    tensor([0.5000, 3.0000])
    """
    array = array_of(input)
    if array.ndim != 1 or not is_integer(array.dtype) or (array.size and array.min() < 0):
        raise RunError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RunError("minlength should be >= 0")
    if weights is None:
        return wrap(np.bincount(array, minlength=minlength).astype(np.int64))
    if weights._shape != array.shape:
        raise RunError("weights should be 1-d and have the same length as input")
    made = np.bincount(array, array_of(weights).astype(np.float64), minlength)
    return wrap(made.astype(np.float32 if weights._dtype == np.float32 else np.float64))


@row(out=True)
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of so many intervals between two numbers

    >>> import weft
    >>> weft.histc(weft.tensor([1.0, 2.0, 1.0, 4.0]), bins=4, min=0, max=4)
    tensor([0., 2., 1., 1.])
    """
    must_be_real("histc", input)
    array = array_of(input)
    if bins <= 0:
        raise RunError("bins must be > 0")
    low, high = float(min), float(max)
    if low == high and array.size:
        low, high = float(array.min()), float(array.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RunError(f"histogramdd: range of [{low}, {high}] is not finite")
    if low > high:
        raise RunError("max must be larger than min")
    inside = array[(array >= low) & (array <= high)].astype(np.float64)
    places = np.minimum(((inside - low) * (bins / (high - low))).astype(np.int64), bins - 1)
    return wrap(np.bincount(places, minlength=bins).astype(array.dtype))


@row(method=False, out=True)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Which elements are among others"""
    must_be_real("isin", elements, test_elements)
    values, among = (array_of(x) if isinstance(x, Tensor) else np.asarray(x) for x in (elements, test_elements))
    return wrap(np.asarray(np.isin(values, among, invert=invert)))


# Distinct elements.


@row
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements, or slices of an axis, in order

    >>> import weft
    >>> x = weft.tensor([3, 1, 3, 2, 1])
    >>> weft.unique(x)
    tensor([1, 2, 3])
    >>> weft.unique(x, return_counts=True)
    (tensor([1, 2, 3]), tensor([2, 1, 2]))
    """
    must_be_real("unique", input)
    array, axis = _for_unique(input, dim)
    values, inverse, counts = np.unique(array, return_inverse=True, return_counts=True, axis=axis, equal_nan=False)
    inverse = inverse.reshape(input._shape if dim is None else -1)
    return _told(values, inverse, counts, return_inverse, return_counts)


def _for_unique(input: Tensor, dim: int | None) -> tuple[Array, int | None]:
    if dim is None:
        return array_of(input).reshape(-1), None
    axis = axis_of(dim, input.ndim)
    shape = input._shape
    if not input.numel() and shape[axis]:
        raise RunError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    return array_of(input), axis if shape else None


def _told(values: Array, inverse: Array, counts: Array, return_inverse: bool, return_counts: bool) -> Any:
    made = [wrap(np.ascontiguousarray(values))]
    if return_inverse:
        made.append(wrap(inverse.astype(np.int64)))
    if return_counts:
        made.append(wrap(counts.astype(np.int64)))
    return tuple(made) if len(made) > 1 else made[0]


@row
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements, or slices of an axis, that differ from the one before"""
    must_be_real("unique_consecutive", input)
    array, axis = _for_unique(input, dim)
    rows = np.moveaxis(array, axis, 0) if axis is not None else array.reshape(-1)
    count = len(rows)
    flat = rows.reshape(count, -1) if rows.size else rows.reshape(count, 0)
    starts = np.r_[np.ones(min(count, 1), bool), (flat[1:] != flat[:-1]).any(1)]
    first = np.flatnonzero(starts)
    values = np.moveaxis(rows[first], 0, axis or 0)
    inverse = np.cumsum(starts) - 1
    counts = np.diff(np.r_[first, count])
    inverse = inverse.reshape(input._shape if dim is None else -1)
    return _told(values, inverse, counts, return_inverse, return_counts)


@row
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Where elements are not zero: a row each, or a vector for each axis

    >>> import weft
    >>> weft.nonzero(weft.tensor([[0, 1], [2, 0]]))
    tensor([[0, 1],
            [1, 0]])
    >>> weft.nonzero(weft.tensor([0, 3, 4]), as_tuple=True)
    (tensor([1, 2]),)
    """
    array = array_of(input)
    if as_tuple:
        places = native.nonzero(array if array.ndim else array.reshape(1), True)
        return tuple(wrap(place) for place in places)
    return argwhere(input)


@row
def argwhere(input: Tensor) -> Tensor:
    """Where elements are not zero, a row each"""
    return wrap(native.nonzero(array_of(input)))
