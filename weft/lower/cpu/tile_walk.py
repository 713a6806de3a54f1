"""How kernels walk over register tiles: numbers of tiles of several sizes become first rows and columns, and rows
become indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from ...te.build import KernelBuilder
from ...te.expr import Expr, as_expr
from ...te.extents import is_open

Sizes = Sequence[tuple[int, Any]]  # (size of a tile, how many)


def total_of(sizes: Sizes) -> Any:
    return sum(count for _, count in sizes)


def tiles_and_rest(extent: Any, size: int) -> Sizes:
    """Tiles that cover an extent which is an argument: as many as there are of the size, and a few for the rest."""
    tiles: list[tuple[int, Any]] = [(size, extent // size)]
    rest = extent % size
    for part in (4, 2, 1):
        if part < size:
            tiles.append((part, rest // part))
            rest = rest % part
    return tuple(tiles)


@contextmanager
def counted(b: KernelBuilder, first: Expr, turns: Any, total: Any) -> Iterator[Expr]:
    """The numbers from `first` on, some of them, below a total."""
    with b.loop("turn", turns) as turn:
        number = b.let("number", first + turn)
        if is_open(total) or total % turns:
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


def leading_index(b: KernelBuilder, row: Expr, extents: Sequence[Any]) -> list[Expr]:
    """The index of a row along all axes but the last."""
    found: list[Expr] = []
    if any(map(is_open, extents)):
        for extent in reversed(extents[1:]):
            found.append(b.let("at", row % extent))
            row = b.let("row", row // extent)
        return [row, *found[::-1]]
    left = prod(extents)
    for extent in reversed(extents):
        found.append(b.let("at", row % extent) if extent < left else row)
        row = row // extent if extent > 1 else row
        left //= extent
        if left == 1:
            break
    return [as_expr(0)] * (len(extents) - len(found)) + found[::-1]
