"""How kernels walk over register tiles: numbers of tiles of several sizes become first rows and columns, and rows
become indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from ...te.build import KernelBuilder
from ...te.expr import Expr, ExprLike, Ramp, as_expr, maximum, minimum, select
from ...te.extents import greater, is_open
from ...te.visit import same
from .nest import coordinates
from .tile import Sizes


def total_of(sizes: Sizes) -> Any:
    return sum(count for _, count in sizes)


def even_groups(vectors: Any, size: int) -> Sizes:
    """Groups of `size` vectors or one less: 10 in groups of 3 are 3, 3, 2, 2, as one alone would wait for what it
    loads. A single vector has one beside it that is not there."""
    count = (vectors + (size - 1)) // size
    wide = vectors - count * (size - 1)
    wide = maximum(wide, 0) if isinstance(wide, Expr) else greater(wide, 0)
    return ((size, wide), (size - 1, count - wide))


@contextmanager
def counted(b: KernelBuilder, first: Expr, turns: Any, total: Any) -> Iterator[Expr]:
    """The numbers from `first` on, some of them, below a total."""
    with b.loop("turn", turns) as turn:
        number = b.let("number", first + turn)
        known = type(total) is int and type(turns) is int
        if total % turns if known else not (same(first, as_expr(0)) and same(as_expr(turns), as_expr(total))):
            with b.when(number < total):
                yield number
        else:
            yield number


def choose(
    b: KernelBuilder, number: Expr, sizes: Sizes, write: Callable[[int, Expr], None], done: Any = 0, units: Any = 0
) -> None:
    """What happens to a number: sizes hold for as many numbers as stand beside them."""
    (size, count), *others = sizes
    first = (number - done) * size + units
    if not others:
        write(size, first)
        return
    with b.when(number < done + count):
        write(size, first)
    with b.otherwise():
        choose(b, number, others, write, done + count, units + size * count)


def place_of(number: Expr, sizes: Sizes, done: Any = 0, units: Any = 0) -> tuple[Expr, Expr]:
    """The size of a tile and where it begins, as values."""
    (size, count), *others = sizes
    first = (number - done) * size + units
    if not others:
        return as_expr(size), first
    here, (other, later) = number < done + count, place_of(number, others, done + count, units + size * count)
    return select(here, size, other), select(here, first, later)


def leading_index(b: KernelBuilder, row: Expr, extents: Sequence[Any]) -> list[Expr]:
    """The index of a row along all axes but the last."""
    if any(map(is_open, extents)):
        return coordinates(b, row, extents)
    found: list[Expr] = []
    left = prod(extents)
    for extent in reversed(extents):
        found.append(b.let("at", row % extent) if extent < left else row)
        row = row // extent if extent > 1 else row
        left //= extent
        if left == 1:
            break
    return [as_expr(0)] * (len(extents) - len(found)) + found[::-1]


# Indices


def ceil_div(a: Expr, count: Any) -> Expr:
    return (a + (count - 1)) // count


def lanes_from(first: ExprLike, lanes: int, step: ExprLike = 1) -> Expr:
    """The index of evenly spaced elements."""
    return Ramp(as_expr(first), as_expr(step), lanes)


def clamped(row: ExprLike, rows: Expr) -> Expr:
    """A row, or the last one for those beyond it."""
    return minimum(row, rows - 1)


def opaque(b: KernelBuilder, values: Sequence[Expr]) -> list[Expr]:
    """The values by way of memory: LLVM would try all ways to derive one address from another."""
    places = b.alloc("places", "int64", (len(values),))
    for number, value in enumerate(values):
        b.store(places, number, value)
    return [b.let("place", places[number]) for number in range(len(values))]
