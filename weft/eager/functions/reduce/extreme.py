"""Rows: the largest and the smallest along dimensions, and where they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import BOOL, INT64, is_complex
from ....base.errors import InvalidType, Unsupported
from ....core.op import Op
from ...tensor.inplace import write_out
from ...tensor.tensor import DimensionError, Tensor, axis_of, wrap
from ..math.arithmetic import maximum, minimum
from ..math.cast import clone
from ..reducing import dims_of, in_shape, must_not_be_empty, picked, reduce_by
from ..table import row

_MAX, _MIN, _ARGMAX, _ARGMIN = (Op.get(name) for name in "max min argmax argmin".split())


class ValuesIndices(NamedTuple):
    """What functions give that find elements: these, and where they stand."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The smallest and the largest."""

    min: Tensor
    max: Tensor


def must_be_ordered(name: str, input: Tensor) -> None:
    if is_complex(input._dtype):
        raise Unsupported(f"{name}: complex numbers have no order")


# Extremes.


@row(out=True)
def amax(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """the largest along dimensions; equal ones share the gradient

    >>> import weft
    >>> weft.amax(weft.tensor([[1, 5], [7, 3]]), dim=0)
    tensor([7, 5])
    """
    return _extreme("amax", _MAX, input, dim, keepdim)


@row(out=True)
def amin(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """the smallest along dimensions; equal ones share the gradient

    >>> import weft
    >>> weft.amin(weft.tensor([[1, 5], [7, 3]]), dim=0)
    tensor([1, 3])
    """
    return _extreme("amin", _MIN, input, dim, keepdim)


def _extreme(name: str, op: Op, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    must_be_ordered(name, input)
    axes = dims_of(dim, input.ndim)
    must_not_be_empty(name, input, axes, dim is not None and dim != ())
    return reduce_by(op, input, axes, keepdim)


@row(out="strict")
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """the smallest and the largest along a dimension, or of everything

    >>> import weft
    >>> least, greatest = weft.aminmax(weft.tensor([3, 1, 2]))
    >>> least, greatest
    (tensor(1), tensor(3))
    """
    axes = dims_of(dim, input.ndim)
    if not input.numel():
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
    max(input, other): the larger of both

    >>> import weft
    >>> x = weft.tensor([[1, 5], [7, 3]])
    >>> weft.max(x), x.max(dim=1).values, x.max(dim=1).indices
    (tensor(7), tensor([5, 7]), tensor([1, 0]))
    >>> weft.max(x, weft.tensor(4))
    tensor([[4, 5],
            [7, 4]])
    """
    return _of_one_or_two("max", _MAX, _ARGMAX, maximum, input, args, options)


@row
def min(input: Tensor, *args: Any, **options: Any) -> Any:
    """min(input): the smallest; min(input, dim, keepdim=False): with where it stands;
    min(input, other): the smaller of both

    >>> import weft
    >>> x = weft.tensor([[1, 5], [7, 3]])
    >>> weft.min(x), x.min(dim=1).values, x.min(dim=1).indices
    (tensor(1), tensor([1, 3]), tensor([0, 1]))
    >>> weft.min(x, weft.tensor(4))
    tensor([[1, 4],
            [4, 3]])
    """
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
        result = of_both(input, other)
    else:
        result = _found(name, op, arg, input, dim, keepdim)
    return result if out is None else write_out(out, result)


def _found(name: str, op: Op, arg: Op, input: Tensor, dim: Any, keepdim: bool) -> Any:
    must_be_ordered(name, input)
    rank = input.ndim
    if dim is None:
        must_not_be_empty(name, input, range(rank), False)
        return reduce_by(op, input, tuple(range(rank)), False)
    axis = axis_of(dim, rank)
    if not rank:
        return alone(input)
    must_not_be_empty(name, input, (axis,))
    places = reduce_by(arg, input, (axis,), True, dtype=INT64)
    return found_at(input, places, axis, keepdim)


def alone(input: Tensor) -> ValuesIndices:
    """What is found in a tensor without dimensions."""
    return ValuesIndices(clone(input), wrap(np.zeros((), np.int64)))


def found_at(input: Tensor, places: Tensor, axis: int, keepdim: bool) -> ValuesIndices:
    """The elements at one place along an axis each, and these places."""
    values = picked(input, places, axis, keepdim)
    return ValuesIndices(values, in_shape(places, values._shape))


@row(out=True)
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """where the largest stands along a dimension, or counted over everything

    >>> import weft
    >>> x = weft.tensor([[1, 5], [7, 3]])
    >>> weft.argmax(x), x.argmax(dim=1)
    (tensor(2), tensor([1, 0]))
    """
    return _place("argmax", _ARGMAX, input, dim, keepdim)


@row(out=True)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """where the smallest stands along a dimension, or counted over everything

    >>> import weft
    >>> x = weft.tensor([[1, 5], [7, 3]])
    >>> weft.argmin(x), x.argmin(dim=1)
    (tensor(0), tensor([0, 1]))
    """
    return _place("argmin", _ARGMIN, input, dim, keepdim)


def _place(name: str, op: Op, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    must_be_ordered(name, input)
    if input._dtype == BOOL:
        raise Unsupported(f"{name} is not implemented for 'Bool'")
    rank = input.ndim
    axes = tuple(range(rank)) if dim is None else dims_of(dim, rank)
    if dim is None and not input.numel():
        raise DimensionError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
    must_not_be_empty(name, input, axes)
    return reduce_by(op, input, axes, keepdim, dtype=INT64)
