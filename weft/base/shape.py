"""Dimensions and shapes.

A dimension is an int (0 is a real, empty extent), a str (a named symbol such as "batch"), or None
(unknown). A shape is a tuple of dimensions, or None when not even the rank is known. Shapes form a
lattice with None at the top: `unify` meets two facts about the same shape.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard, overload

from .errors import InvalidType, OpenShapes, OutOfRange, ShapeError

Dim = int | str | None
Ranked = tuple[Dim, ...]
Shape = Ranked | None
StaticShape = tuple[int, ...]


def is_known(shape: Shape) -> bool:
    """Whether the rank and every dimension are known; a named symbol counts as known."""
    return shape is not None and None not in shape


def is_static(shape: Shape) -> TypeGuard[StaticShape]:
    """Whether every dimension is a number."""
    return shape is not None and all(type(dim) is int for dim in shape)


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


def checked_shape(shape: Any, name: str) -> Shape:
    """What is given as the shape of something called `name`: a tuple of ints, names and None."""
    if shape is None:
        return None
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        raise InvalidType(f"the shape of {name!r} must be a tuple, not {shape!r}", hint="(1, 3, 8, 8)")
    return tuple(dim if isinstance(dim, (str, type(None))) else _extent(dim, name) for dim in shape)


def _extent(dim: Any, name: str) -> int:
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
    """The meet of two facts about one dimension; a number wins over a symbol."""
    if a is None or a == b:
        return b
    if b is None:
        return a
    if isinstance(a, str) or isinstance(b, str):
        return b if isinstance(a, str) and not isinstance(b, str) else a
    raise ShapeError(f"dimension {a} is not dimension {b}")


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

    An unknown or a symbol beside a number n > 1 or 0 can only be 1 or n, so the result is n.
    Beside each other either may turn out to be 1, so the result is unknown.

    >>> broadcast_dim(None, 5), broadcast_dim("n", "n"), broadcast_dim("n", None)
    (5, 'n', None)
    """
    if a == 1:
        return b
    if b == 1 or a == b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        raise ShapeError(f"dimensions {a} and {b} do not broadcast")
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) else None


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
    """Sum of dimensions; unknown if any is not a number (a symbol plus zeros stays)."""
    rest = [dim for dim in dims if dim != 0]
    if len(rest) == 1:
        return rest[0]
    return sum(d for d in rest if isinstance(d, int)) if all_numbers(rest) else None


def mul_dims(*dims: Dim) -> Dim:
    """Product of dimensions; unknown if any is not a number (zero wins, ones vanish)."""
    if 0 in dims:
        return 0
    rest = [dim for dim in dims if dim != 1]
    if len(rest) == 1:
        return rest[0]
    return math.prod(d for d in rest if isinstance(d, int)) if all_numbers(rest) else None


def all_numbers(dims: Iterable[Dim]) -> bool:
    return all(type(dim) is int for dim in dims)


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
