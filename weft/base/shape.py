"""Dimensions and shapes.

A dimension is an int (0 is a real, empty extent), a str (a name such as "batch", or an expression over
names such as "2*n + 1" in its canonical form, see extents.py), or None (unknown). A shape is a tuple of
dimensions, or None when not even the rank is known. Shapes form a lattice with None at the top: `unify`
meets two facts about the same shape.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeGuard, overload

from .errors import InvalidType, OpenShapes, OutOfRange, ShapeError
from .extents import Extent, Untold, ceil_div, greatest, least

Dim = int | str | None
Ranked = tuple[Dim, ...]
Shape = Ranked | None
StaticShape = tuple[int, ...]


def is_known(shape: Shape) -> bool:
    """Whether the rank and every dimension are known; an expression over names counts as known."""
    return shape is not None and None not in shape


def is_static(shape: Shape) -> TypeGuard[StaticShape]:
    """Whether every dimension is a number, or stands for one while code is made."""
    return shape is not None and all_numbers(shape)


def show(shape: Shape) -> str:
    """A shape as people write it.

    >>> show((2, None, "n")), show(None), show((3,))
    ('(2, ?, n)', '(...)', '(3,)')
    """
    inner = show_dims(shape)
    return f"({inner},)" if shape is not None and len(shape) == 1 else f"({inner})"


def show_dims(shape: Shape) -> str:
    """The same without brackets around it.

    >>> show_dims((2, None, "n")), show_dims(None)
    ('2, ?, n', '...')
    """
    return "..." if shape is None else ", ".join("?" if d is None else str(d) for d in shape)


def given_shapes(shapes: Any) -> dict[str, tuple[Dim, ...]]:
    """Shapes of inputs as callers give them, checked; None in place of a shape says nothing.

    >>> given_shapes({"x": ["batch", None, 8], "y": None})
    {'x': ('batch', None, 8)}
    """
    if not isinstance(shapes, Mapping | None):
        raise InvalidType(
            f"shapes are given by the names of inputs, not as a {type(shapes).__name__}",
            hint='shape={"x": (1, 3, 8, 8)}',
        )
    checked = {name: checked_shape(dims, name) for name, dims in (shapes or {}).items()}
    return {name: dims for name, dims in checked.items() if dims is not None}


def freed(name: str, dims: Sequence[Dim], axis: int) -> str:
    """What to try where an input does not agree with others that have a dimension of the same name.

    >>> freed("h", ("n", 3), 0)
    'if the two may differ, compile with shape={"h": (None, 3)}, or run with --shape h=?,3'
    """
    free = [None if place == axis else dim for place, dim in enumerate(dims)]
    code = ", ".join(f'"{dim}"' if isinstance(dim, str) else str(dim) for dim in free) + ("," if len(free) == 1 else "")
    text = ",".join(str(dim) if isinstance(dim, int) else "?" for dim in free)
    return f'if the two may differ, compile with shape={{"{name}": ({code})}}, or run with --shape {name}={text}'


def checked_shape(shape: Any, name: str) -> Shape:
    """What is given as the shape of something called `name`: a tuple of ints, expressions and None.

    >>> checked_shape((2, "1 + n", None), "x")
    (2, 'n + 1', None)
    """
    if shape is None:
        return None
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        raise InvalidType(f"the shape of {name!r} must be a tuple, not {shape!r}", hint="(1, 3, 8, 8)")
    return tuple(None if dim is None else _extent(dim, name) for dim in shape)


def _extent(dim: Any, name: str) -> int | str:
    if isinstance(dim, str):
        dim = Extent.of(dim).dim
        if isinstance(dim, str):
            return dim
    try:
        extent = operator.index(dim)
    except TypeError:
        raise InvalidType(
            f"a dimension of {name!r} cannot be {dim!r}",
            why='it is a whole number, a name such as "batch", or None for any',
        ) from None
    if extent < 0:
        raise ShapeError(
            f"a dimension of {name!r} cannot be {extent}",
            hint='None, or a name such as "batch", leaves a dimension open',
        )
    return extent


def open_shapes(what: str, inputs: Mapping[str, Shape], *, why: str | None = None) -> OpenShapes:
    """The error for what cannot be done before the shapes of these inputs are numbers.

    >>> print(open_shapes("the shape of 'y' is not known", {"x": (None, 3), "z": (2,)}))
    the shape of 'y' is not known
      try:   give the shape with numbers where it is open: shape={'x': (?, 3)}
    """
    wanted = {name: shape for name, shape in inputs.items() if not is_static(shape)}
    told = ", ".join(f"{name!r}: {show(shape)}" for name, shape in wanted.items())
    hint = f"give the shape with numbers where it is open: shape={{{told}}}" if wanted else None
    return OpenShapes(what, wanted, why=why, hint=hint)


def unify_dim(a: Dim, b: Dim) -> Dim:
    """The meet of two facts about one dimension; a number wins over an expression."""
    if a is None or a == b:
        return b
    if b is None:
        return a
    if (isinstance(a, str) or isinstance(b, str)) and may_equal(a, b):
        return b if isinstance(a, str) and not isinstance(b, str) else a
    raise ShapeError(f"dimension {a} is not dimension {b}")


@lru_cache(maxsize=4096)
def may_equal(a: int | str, b: int | str) -> bool:
    """Whether some values of the names make both the same, as far as is easily told."""
    try:
        return Extent.of(a).equals(Extent.of(b))
    except Untold:
        return True


@overload
def unify(a: Ranked, b: Shape) -> Ranked: ...
@overload
def unify(a: Shape, b: Ranked) -> Ranked: ...
@overload
def unify(a: Shape, b: Shape) -> Shape: ...
def unify(a: Shape, b: Shape) -> Shape:
    """The meet of two facts about one shape.

    >>> unify((2, None), (None, 3))
    (2, 3)
    """
    if a is None or a == b:
        return b
    if b is None:
        return a
    if len(a) != len(b):
        raise ShapeError(
            f"shapes {show(a)} and {show(b)} cannot be the same", why=f"one has {len(a)} dimensions, the other {len(b)}"
        )
    try:
        return tuple(map(unify_dim, a, b))
    except ShapeError as error:
        raise ShapeError(f"shapes {show(a)} and {show(b)} cannot be the same", why=error.what) from None


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """numpy's rule for one dimension, with unknowns: 1 stretches, equal stays.

    An unknown or an expression beside a number n > 1 or 0 can only be 1 or n, so the result is n.
    Of two expressions either may turn out to be 1.

    >>> broadcast_dim(None, 5), broadcast_dim("n", "n"), broadcast_dim("n", None)
    (5, 'n', None)
    >>> broadcast_dim("n", "min(n, 512)"), broadcast_dim("n", "m")
    ('n', 'max(m, n)*min(1, m, n)')
    """
    if a == 1:
        return b
    if b == 1 or a == b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        raise ShapeError(f"dimensions {a} and {b} do not broadcast")
    if all_numbers((a, b)):  # one stands for a number, which has to be known to tell
        return broadcast_dim(int(a), int(b))  # type: ignore[arg-type]
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) else _combined(_broadcast, (a, b))


def broadcast(*shapes: Shape) -> Shape:
    """The shape that several shapes broadcast to, or None while a rank is unknown.

    >>> broadcast((2, 1, 4), (3, 1))
    (2, 3, 4)
    """
    if any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    rank = max((len(shape) for shape in known), default=0)
    result: list[Dim] = [1] * rank
    for shape in known:
        for axis in range(-len(shape), 0):
            try:
                result[axis] = broadcast_dim(result[axis], shape[axis])
            except ShapeError as error:
                raise ShapeError(
                    "operands could not be broadcast together with shapes " + " ".join(show(s) for s in shapes),
                    why=error.what,
                    hint="insert size-1 axes with expand_dims, or reshape",
                ) from None
    return tuple(result)


def add_dims(*dims: Dim) -> Dim:
    """Sum of dimensions; unknown if any is.

    >>> add_dims(2, 3), add_dims("n", 2, "n"), add_dims("n", None)
    (5, '2*n + 2', None)
    """
    if all_numbers(dims):
        return sum(dims)  # type: ignore[arg-type]
    rest = [dim for dim in dims if dim != 0]
    return rest[0] if len(rest) == 1 else _combined(_sum, dims)


def sub_dims(a: Dim, b: Dim) -> Dim:
    """Difference of dimensions; unknown if one is."""
    if b == 0:
        return a
    return a - b if all_numbers((a, b)) else _combined(operator.sub, (a, b))  # type: ignore[operator]


def mul_dims(*dims: Dim) -> Dim:
    """Product of dimensions; unknown if any is, but zero wins.

    >>> mul_dims("n", 2, "m"), mul_dims(None, 0)
    ('2*m*n', 0)
    """
    if 0 in dims:
        return 0
    if all_numbers(dims):
        return math.prod(dims)  # type: ignore[arg-type]
    rest = [dim for dim in dims if dim != 1]
    return rest[0] if len(rest) == 1 else _combined(_product, dims)


def floor_div_dims(a: Dim, b: Dim) -> Dim:
    """Quotient of dimensions rounded down; unknown if one is.

    >>> floor_div_dims("6*n", "n"), floor_div_dims("n", 2), floor_div_dims(7, 2)
    (6, 'n//2', 3)
    """
    if b == 1:
        return a
    return a // b if all_numbers((a, b)) else _combined(operator.floordiv, (a, b))  # type: ignore[operator]


def ceil_div_dims(a: Dim, b: Dim) -> Dim:
    """Quotient of dimensions rounded up; unknown if one is."""
    if b == 1:
        return a
    return -(-a // b) if all_numbers((a, b)) else _combined(ceil_div, (a, b))  # type: ignore[operator]


def min_dims(*dims: Dim) -> Dim:
    """The least of some dimensions; unknown if any is."""
    return min(dims) if all_numbers(dims) else _combined(least, dims)  # type: ignore[type-var]


def max_dims(*dims: Dim) -> Dim:
    """The greatest of some dimensions; unknown if any is.

    >>> max_dims("n", "n + 1"), max_dims("n", 0)
    ('n + 1', 'n')
    """
    return max(dims) if all_numbers(dims) else _combined(greatest, dims)  # type: ignore[type-var]


@lru_cache(maxsize=4096)
def _combined(how: Callable[..., Extent], dims: tuple[Dim, ...]) -> Dim:
    known = [dim for dim in dims if isinstance(dim, (int, str))]
    if len(known) < len(dims):
        return None
    try:
        return how(*map(Extent.of, known)).dim
    except Untold:
        return None


def _sum(*extents: Extent) -> Extent:
    return functools.reduce(operator.add, extents)


def _product(*extents: Extent) -> Extent:
    return functools.reduce(operator.mul, extents)


def _broadcast(a: Extent, b: Extent) -> Extent:
    """Where both fit together: the larger one, or 0 where one is 0 and the other 1."""
    return greatest(a, b) * least(1, a, b)


def all_numbers(dims: Iterable[Dim]) -> bool:
    """Whether dimensions are numbers, or stand for some while code is made."""
    return all(dim is not None and type(dim) is not str for dim in dims)


def numel(shape: Sequence[int]) -> int:
    """How many elements an array of this shape has."""
    return math.prod(shape)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a dense row-major array.

    >>> row_major_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def normalize_axis(axis: int, rank: int, *, what: str = "axis") -> int:
    """An axis counted from the front, or an error naming the range.

    >>> normalize_axis(-1, 3)
    2
    """
    if not -rank <= axis < rank:
        raise OutOfRange(
            f"{what} {axis} is outside a tensor of {rank} dimensions",
            hint=f"use {-rank} to {rank - 1}" if rank else "the tensor is a scalar",
        )
    return axis % rank
