"""Reductions: what combines two values, what an empty one gives, and the Reduce expressions.

The names follow how operator bodies read (`te.sum(x[i, k.var], k)`), so some shadow builtins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..base.dtype import BOOL, FLOAT32, DType, is_float
from ..base.errors import DTypeError, InvalidValue
from .expr import Const, Expr, Number, Reduce, ReduceAxis, as_expr, binary


class Combiner(NamedTuple):
    op: str  # the binary expression
    empty: Callable[[DType], Number]  # the value of a reduction over nothing


def _lowest(dtype: DType) -> Number:
    return -float("inf") if is_float(dtype) else False if dtype == BOOL else int(np.iinfo(dtype).min)


def _highest(dtype: DType) -> Number:
    return float("inf") if is_float(dtype) else True if dtype == BOOL else int(np.iinfo(dtype).max)


COMBINERS: dict[str, Combiner] = {
    "sum": Combiner("add", lambda dtype: 0),
    "prod": Combiner("mul", lambda dtype: 1),
    "max": Combiner("max", _lowest),
    "min": Combiner("min", _highest),
    "any": Combiner("or", lambda dtype: False),
    "all": Combiner("and", lambda dtype: True),
}


def identity(combiner: str, dtype: DType) -> Const:
    """What a reduction starts from.

    >>> identity("max", np.dtype("int8")).value
    -128
    """
    made = as_expr(COMBINERS[combiner].empty(dtype), dtype)
    assert isinstance(made, Const)
    return made


def combine(combiner: str, a: Expr, b: Expr) -> Expr:
    """One step of a reduction."""
    return binary(COMBINERS[combiner].op, a, b)


def accumulator_dtype(combiner: str, dtype: DType) -> DType:
    """Sums and products of 16-bit floats are kept in float32 until they are complete."""
    narrow = is_float(dtype) and dtype.itemsize == 2 and combiner in ("sum", "prod")
    return FLOAT32 if narrow else dtype


def reduce(combiner: str, body: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """The reduction of a body over axes; the root of a compute.

    >>> from .tensor import placeholder, reduce_axis
    >>> x, k = placeholder((4, 8), "float32", "x"), reduce_axis(8)
    >>> reduce("sum", x[0, k.var], k).dtype
    dtype('float32')
    """
    if combiner not in COMBINERS:
        raise InvalidValue(f"unknown reduction {combiner!r}", why="weft has " + ", ".join(COMBINERS))
    if combiner in ("any", "all") and body.dtype != BOOL:
        raise DTypeError(f"{combiner} of {body.dtype}", why="it reduces bools", hint="compare with 0")
    if combiner in ("sum", "prod") and body.dtype == BOOL:
        raise DTypeError(f"{combiner} of bool", hint="te.cast to an integer, or use any or all")
    return Reduce(combiner, body, (axes,) if isinstance(axes, ReduceAxis) else tuple(axes))


def sum(body: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """The sum over axes; 0 over nothing."""
    return reduce("sum", body, axes)


def prod(body: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """The product over axes; 1 over nothing."""
    return reduce("prod", body, axes)


def max_of(body: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """The largest value, NaN if there is one; the lowest of the dtype over nothing."""
    return reduce("max", body, axes)


def min_of(body: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """The smallest value, NaN if there is one; the highest of the dtype over nothing."""
    return reduce("min", body, axes)


def any(body: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """Whether one is true; False over nothing."""
    return reduce("any", body, axes)


def all(body: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """Whether every one is true; True over nothing."""
    return reduce("all", body, axes)
