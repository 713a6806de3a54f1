"""Rows: the largest, the smallest and the middle, where they stand, and running results."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import BOOL, INT64, is_complex, is_float
from ....base.errors import InvalidType, RunError, Unsupported
from ....core.op import Op
from ....ops.nn.recurrence import AxisAttrs, CumprodAttrs
from ....ops.reduce.scan import CumsumAttrs
from ....ops.shape.index import GatherAttrs
from ....ops.shape.sort import order_of
from ...dispatch import apply
from ...tensor.inplace import write_out
from ...tensor.tensor import Array, DimensionError, Tensor, axis_of, wrap
from ...tensor.types import as_dtype
from ..math.arithmetic import maximum, minimum, sub
from ..math.compare import ne
from ..operands import must_be_real, must_be_tensors
from ..reducing import dims_of, in_shape, must_not_be_empty, picked, reduce_by
from ..shape.join import cat
from ..shape.parts import narrow
from ..table import row

_MAX, _MIN, _ARGMAX, _ARGMIN = (Op.get(name) for name in "max min argmax argmin".split())
_CUMSUM, _CUMPROD, _LOGCUMSUMEXP = (Op.get(n) for n in ("cumsum", "cumprod", "logcumsumexp"))
_CUMMAX, _CUMMIN, _GATHER = (Op.get(n) for n in ("cummax_index", "cummin_index", "gather_elements"))


class ValuesIndices(NamedTuple):
    """What functions give that find elements: these, and where they stand."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The smallest and the largest."""

    min: Tensor
    max: Tensor


def _must_be_ordered(name: str, input: Tensor) -> None:
    if is_complex(input._array.dtype):
        raise Unsupported(f"{name}: complex numbers have no order")


# Extremes.


@row(out=True)
def amax(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """the largest along dimensions; equal ones share the gradient"""
    return _extreme("amax", _MAX, input, dim, keepdim)


@row(out=True)
def amin(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """the smallest along dimensions; equal ones share the gradient"""
    return _extreme("amin", _MIN, input, dim, keepdim)


def _extreme(name: str, op: Op, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    _must_be_ordered(name, input)
    axes = dims_of(dim, input._array.ndim)
    must_not_be_empty(name, input, axes, dim is not None and dim != ())
    return reduce_by(op, input, axes, keepdim)


@row(out="strict")
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """the smallest and the largest along a dimension, or of everything"""
    axes = dims_of(dim, input._array.ndim)
    if not input._array.size:
        must_not_be_empty("aminmax", input, axes, dim is not None)
    return MinMax(*(reduce_by(op, input, axes, keepdim) for op in (_MIN, _MAX)))


def _arguments(args: Any, options: dict[str, Any]) -> tuple[Any, Any, bool]:
    """`other` or `dim`, and `keepdim`, of max and min."""
    other = options.pop("other", None)
    dim, keepdim = options.pop("dim", None), options.pop("keepdim", False)
    if options:
        raise InvalidType(f"got an unexpected keyword argument {next(iter(options))!r}")
    if args and isinstance(args[0], Tensor):
        other = args[0]
    elif args:
        dim = args[0]
        keepdim = args[1] if len(args) > 1 else keepdim
    return other, dim, keepdim


@row
def max(input: Tensor, *args: Any, **options: Any) -> Any:
    """max(input): the largest; max(input, dim, keepdim=False): with where it stands;
    max(input, other): the larger of both"""
    return _of_one_or_two("max", _MAX, _ARGMAX, maximum, input, args, options)


@row
def min(input: Tensor, *args: Any, **options: Any) -> Any:
    """min(input): the smallest; min(input, dim, keepdim=False): with where it stands;
    min(input, other): the smaller of both"""
    return _of_one_or_two("min", _MIN, _ARGMIN, minimum, input, args, options)


def _of_one_or_two(
    name: str,
    op: Op,
    arg: Op,
    of_both: Callable[[Tensor, Tensor], Tensor],
    input: Tensor,
    args: Sequence[Any],
    options: dict[str, Any],
) -> Any:
    out = options.pop("out", None)
    other, dim, keepdim = _arguments(args, options)
    if other is not None:
        made = of_both(input, other)
    else:
        made = _found(name, op, arg, input, dim, keepdim)
    return made if out is None else write_out(out, made)


def _found(name: str, op: Op, arg: Op, input: Tensor, dim: Any, keepdim: bool) -> Any:
    _must_be_ordered(name, input)
    rank = input._array.ndim
    if dim is None:
        must_not_be_empty(name, input, range(rank), False)
        return reduce_by(op, input, tuple(range(rank)), False)
    axis = axis_of(dim, rank)
    if not rank:
        return ValuesIndices(input.clone(), wrap(np.zeros((), np.int64)))
    must_not_be_empty(name, input, (axis,))
    places = reduce_by(arg, input, (axis,), True, dtype=INT64)
    return _at(input, places, axis, keepdim)


def _at(input: Tensor, places: Tensor, axis: int, keepdim: bool) -> ValuesIndices:
    values = picked(input, places, axis, keepdim)
    return ValuesIndices(values, in_shape(places, values._array.shape))


@row(out=True)
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """where the largest stands along a dimension, or counted over everything"""
    return _place("argmax", _ARGMAX, input, dim, keepdim)


@row(out=True)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """where the smallest stands along a dimension, or counted over everything"""
    return _place("argmin", _ARGMIN, input, dim, keepdim)


def _place(name: str, op: Op, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    _must_be_ordered(name, input)
    if input._array.dtype == BOOL:
        raise Unsupported(f"{name} is not implemented for 'Bool'")
    rank = input._array.ndim
    axes = tuple(range(rank)) if dim is None else dims_of(dim, rank)
    if dim is None and not input._array.size:
        raise DimensionError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
    must_not_be_empty(name, input, axes)
    return reduce_by(op, input, axes, keepdim, dtype=INT64)


# The middle, and what is most frequent.


def _ranked(name: str, input: Tensor, dim: Any, keepdim: bool, place: Any) -> Any:
    """The element whose place along a dimension is `place(rows)`, of arrays with it last."""
    _must_be_ordered(name, input)
    rank = input._array.ndim
    axis = axis_of(dim, rank)
    if not rank:
        return ValuesIndices(input.clone(), wrap(np.zeros((), np.int64)))
    if not input._array.shape[axis]:
        raise DimensionError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
    places = np.expand_dims(place(np.moveaxis(input._array, axis, -1)), axis)
    return _at(input, wrap(places.astype(np.int64)), axis, keepdim)


def _isnan(rows: Array) -> Array:
    return rows != rows


def _median_place(rows: Array) -> Array:
    """Of an even number the lower middle; a NaN, if there is one."""
    order = order_of(rows, -1, False)
    middle = order[..., (rows.shape[-1] - 1) // 2]
    nan = _isnan(rows)
    return np.where(nan.any(-1), nan.argmax(-1), middle)


def _nanmedian_place(rows: Array) -> Array:
    order = order_of(rows, -1, False)
    count = rows.shape[-1] - _isnan(rows).sum(-1, keepdims=True)
    return np.take_along_axis(order, np.maximum(count - 1, 0) // 2, -1)[..., 0]


def _middle(name: str, input: Tensor, dim: Any, keepdim: bool, place: Any) -> Any:
    if dim is not None:
        return _ranked(name, input, dim, keepdim, place)
    flat = in_shape(input, (input._array.size,))
    if not input._array.size:
        if not is_float(input._array.dtype):
            raise RunError(f"{name}() operation does not have an identity for empty input")
        return flat.sum() + math.nan  # type: ignore[attr-defined]
    return _ranked(name, flat, 0, False, place).values


@row(out=True)
def median(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """the middle of everything; along a dimension, with where it stands"""
    return _middle("median", input, dim, keepdim, _median_place)


@row(out=True)
def nanmedian(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """the middle of what is not NaN; along a dimension, with where it stands"""
    return _middle("nanmedian", input, dim, keepdim, _nanmedian_place)


def _mode_place(rows: Array) -> Array:
    """The last place of the value that stands most often; of several, of the smallest."""
    flat = rows.reshape(-1, rows.shape[-1])
    made = np.empty(len(flat), np.int64)
    for number, line in enumerate(flat):
        values, counts = np.unique(line, return_counts=True)
        made[number] = np.flatnonzero(line == values[counts.argmax()])[-1:].sum()
    return made.reshape(rows.shape[:-1])


@row(out=True)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """the value that stands most often along a dimension, and where"""
    return _ranked("mode", input, dim, keepdim, _mode_place)


@row(out="apart")
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """the k-th smallest along a dimension, and where it stands"""
    rank = input._array.ndim
    size = input._array.shape[axis_of(dim, rank)] if rank else 1
    if not 1 <= k <= size and size:
        raise RunError("kthvalue(): selected number k out of range for dimension")
    find = lambda rows: order_of(rows, -1, False)[..., k - 1]
    return _ranked("kthvalue", input, dim, keepdim, find)


# Running results.


def _summed(input: Tensor, dtype: Any) -> Tensor:
    if dtype is not None:
        return input._cast(as_dtype(dtype).numpy)
    return input._cast(INT64) if input._array.dtype.kind in "biu" else input


@row(inplace=True, out=True)
def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """the sum of all elements up to each one"""
    axis, values = axis_of(dim, input._array.ndim), _summed(input, dtype)
    if not input._array.ndim:
        return values.clone()
    return apply(_CUMSUM, CumsumAttrs(axis=axis), [values])[0]


@row(inplace=True, out=True)
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """the product of all elements up to each one"""
    axis, values = axis_of(dim, input._array.ndim), _summed(input, dtype)
    if not input._array.ndim:
        return values.clone()
    return apply(_CUMPROD, CumprodAttrs(axis=axis), [values])[0]


@row(out=True)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log of the sum of exp of all elements up to each one"""
    axis = axis_of(dim, input._array.ndim)
    if not is_float(input._array.dtype):
        raise Unsupported(f"logcumsumexp is not implemented for {input.dtype.title!r}")
    if not input._array.ndim:
        return input.clone()
    return apply(_LOGCUMSUMEXP, AxisAttrs(axis=axis), [input])[0]


def _running(op: Op, input: Tensor, dim: int) -> ValuesIndices:
    must_be_real(op.name, input)
    axis = axis_of(dim, input._array.ndim)
    if not input._array.ndim:
        return ValuesIndices(input.clone(), wrap(np.zeros((), np.int64)))
    places = apply(op, AxisAttrs(axis=axis), [input])[0]
    return ValuesIndices(apply(_GATHER, GatherAttrs(axis=axis), [input, places])[0], places)


@row(out=True)
def cummax(input: Tensor, dim: int) -> ValuesIndices:
    """the largest of all elements up to each one, and where it stands"""
    return _running(_CUMMAX, input, dim)


@row(out=True)
def cummin(input: Tensor, dim: int) -> ValuesIndices:
    """the smallest of all elements up to each one, and where it stands"""
    return _running(_CUMMIN, input, dim)


@row(out=True)
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """the differences of neighbours along a dimension, n times"""
    must_be_tensors("diff", input=input)
    if not input._array.ndim:
        raise RunError("diff expects input to be at least one-dimensional")
    axis = axis_of(dim, input._array.ndim)
    if n < 0:
        raise RunError(f"order must be non-negative but got {n}")
    parts = [part for part in (prepend, input, append) if part is not None]
    for part in parts:
        if part._array.ndim != input._array.ndim:
            raise RunError("diff expects prepend or append to be the same dimension as input")
    if not n:
        return input.clone()
    made = cat(parts, axis) if len(parts) > 1 else input
    for _ in range(builtins.min(n, made._array.shape[axis])):
        made = _stepwise(made, axis)
    return made


def _stepwise(input: Tensor, axis: int) -> Tensor:
    size = input._array.shape[axis]
    if size == 0:
        return input
    after, before = narrow(input, axis, 1, size - 1), narrow(input, axis, 0, size - 1)
    return ne(after, before) if input._array.dtype == BOOL else sub(after, before)
