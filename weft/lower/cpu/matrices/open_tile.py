"""Register tiles of matrix products whose extents are arguments: panels of one operand, packed by
the caller, and a way to read the other come in; sums stay in registers until the caller takes them.

A convolution is written around three things:

    size = tile_size(target, dtype)
    panels = b.alloc("panels", dtype, (...,), alignment=64)     # packed: [panel][k][size.width]
    ... the caller stores a block of some products of all panels, 0 where there are no columns ...
    with row_tiles(b, size, rows) as (row, left):               # rows of A, size.rows at a time
        with even_panels(b, size, vectors) as panel:            # vectors of columns, as panels
            def write(part: TileSize) -> None:                  # is called for each kind of tile
                sums = Sums(b, dtype, part)
                sums.fill(lambda i, v: ...)                     # zeros, or what is there already
                sums.add_products(depth, read, panels, first, size.width)
                ... the caller stores sums[i, v] where row + i is a row, and columns are columns ...
            choose_tile(b, size, left, panel.vectors, write)

All lanes and rows of a tile are computed: `read` must give the element of some row for rows that
are not there (the last one: `clamped`), and stores must leave out what is not there. Columns of
a matrix are packed by pack.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, ExprLike, Ramp, Var, as_expr, binary, call, select, widen
from ....te.loops import Buffer
from ..tile import registers

FEW = 2  # how many times fewer rows the smaller tile has


class TileSize(NamedTuple):
    """`rows` times `vectors` sums of `lanes` lanes."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes


def tile_size(target: CpuTarget, dtype: DType) -> TileSize:
    """The tile that fills the registers: 8 x 3 sums, 3 vectors and a broadcast of 32."""
    return TileSize(8 if registers(target) > 16 else 4, 3, target.lanes(dtype))


def lanes_from(first: ExprLike, lanes: int, step: ExprLike = 1) -> Expr:
    """The index of evenly spaced elements."""
    return Ramp(as_expr(first), as_expr(step), lanes)


def ceil_div(a: Expr, count: int) -> Expr:
    return (a + (count - 1)) // count


def clamped(row: ExprLike, rows: Expr) -> Expr:
    """A row, or the last one for those beyond it."""
    return binary("min", row, rows - 1)


def opaque(b: KernelBuilder, values: Sequence[Expr]) -> list[Expr]:
    """The values by way of memory: LLVM would try all ways to derive one address from another."""
    places = b.alloc("places", "int64", (len(values),))
    for number, value in enumerate(values):
        b.store(places, number, value)
    return [b.let("place", places[number]) for number in range(len(values))]


class Sums:
    """The sums of one tile, in registers."""

    def __init__(self, b: KernelBuilder, dtype: DType, size: TileSize) -> None:
        self.b, self.dtype, self.size = b, dtype, size
        count = size.rows * size.vectors
        self.registers = b.alloc("sums", dtype, (count,), scope="register", lanes=size.lanes)

    def fill(self, value: Callable[[int, int], Expr]) -> None:
        """What sums start from, by row and vector; inside a `when` as well."""
        for i, v in self._places():
            given = widen(value(i, v), self.size.lanes)
            self.b.store(self.registers, i * self.size.vectors + v, given)

    def __getitem__(self, place: tuple[int, int]) -> Expr:
        """The sums of a row and vector as they are now."""
        i, v = place
        return self.registers[i * self.size.vectors + v]

    def add_products(
        self, depth: Expr, read: Callable[[int, Expr], Expr], panels: Buffer, first: Expr, stride: ExprLike
    ) -> None:
        """sums[i, v] += read(i, k) * panels[first + k * stride + v * lanes ...] for k below depth."""
        b, size = self.b, self.size
        with b.loop("k", depth) as k:
            at = b.let("at", first + k * stride)
            vectors = [b.let("v", panels[lanes_from(at + v * size.lanes, size.lanes)]) for v in range(size.vectors)]
            for i in range(size.rows):
                x = widen(b.let("x", read(i, k)), size.lanes)
                for v, vector in enumerate(vectors):
                    place = i * size.vectors + v
                    b.store(self.registers, place, call("fma", x, vector, self.registers[place]))

    def _places(self) -> Iterator[tuple[int, int]]:
        for i in range(self.size.rows):
            for v in range(self.size.vectors):
                yield i, v


@contextmanager
def row_tiles(b: KernelBuilder, size: TileSize, rows: Expr) -> Iterator[tuple[Var, Var]]:
    """The first row of each tile, and how many rows there are from it on."""
    with b.loop("tile", ceil_div(rows, size.rows)) as tile:
        row = b.let("row", tile * size.rows)
        yield row, b.let("left", rows - row)


class Panel(NamedTuple):
    """Its number, the vector of columns it begins with, and how many it has."""

    number: Var
    first: Var
    vectors: Var


@contextmanager
def even_panels(b: KernelBuilder, size: TileSize, vectors: Expr) -> Iterator[Panel]:
    """Panels of nearly as many vectors: 10 vectors in panels of 3 are 3, 3, 2, 2, as one alone would
    wait for what it loads."""
    count = b.let("panels", ceil_div(vectors, size.vectors))
    full = b.let("full", binary("max", vectors - count * (size.vectors - 1), 0))
    with b.loop("panel", count) as number:
        first = b.let("first", number * (size.vectors - 1) + binary("min", number, full))
        wide = binary("min", vectors - first, select(number < full, size.vectors, size.vectors - 1))
        yield Panel(number, first, b.let("wide", wide))


def choose_tile(
    b: KernelBuilder, size: TileSize, left: Expr, wide: Expr, write: Callable[[TileSize], None], least: int = 1
) -> None:
    """Writes a tile for each number of vectors from the `least` on, and one for few rows; the one
    that suits runs."""
    with b.when(left <= size.rows // FEW):
        write(size._replace(rows=size.rows // FEW))
    with b.otherwise():
        _choose_vectors(b, size, wide, size.vectors, write, least)


def _choose_vectors(
    b: KernelBuilder, size: TileSize, wide: Expr, vectors: int, write: Callable[[TileSize], None], least: int
) -> None:
    if vectors == least:
        write(size._replace(vectors=least))
        return
    with b.when(wide >= vectors):
        write(size._replace(vectors=vectors))
    with b.otherwise():
        _choose_vectors(b, size, wide, vectors - 1, write, least)
