"""Products with few rows or columns, as plans of lower/cpu/product.py: every element of the larger matrix is read in
place, and about as fast as memory gives it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, Shuffle, Var, as_expr, call, const, minimum, widen
from ....te.loops import Buffer
from ....te.visit import masked_load
from ..product import Part, Product
from ..tile import TileSize, registers
from ..tile_walk import ceil_div, clamped, counted, lanes_from, opaque, total_of

MAX_ROWS = 12  # of a skinny product
RUN_BYTES = 2048  # of the columns of a turn
DEEP = 4  # products that a pass over the columns adds
ACROSS = 4  # columns of a tile of dot products


def skinny_columns(dtype: DType) -> int:
    """How many columns a turn has at most."""
    return RUN_BYTES // dtype.itemsize


def skinny_size(target: CpuTarget, dtype: DType) -> TileSize:
    """Each of the rows has its factors in registers."""
    return TileSize(4 if registers(target) == 32 else 2, 1, target.lanes(dtype))


def dot_size(target: CpuTarget) -> TileSize:
    return TileSize(4 if registers(target) > 16 else 2, 1, ACROSS)


class SkinnyProduct(Product):
    """At most MAX_ROWS rows times a matrix whose columns are side by side: some products at a time
    are added to all columns of a turn, which makes for long runs of memory; sums stay in the first
    cache."""

    def _parts(self) -> None:
        b, plan, depth = self.b, self.plan, self.plan.depth
        self.columns = b.let("columns", minimum(plan.turn_columns, plan.columns - self.first_column))
        self.run = b.let("run", self.w_start + self.first_column)
        self.sums = b.alloc("sums", self.dtype, (MAX_ROWS * skinny_columns(self.dtype),), alignment=64)
        with self._vectors() as (row, column):
            value: Expr = widen(const(0, self.dtype), plan.lanes)
            if self.begin is not None:
                value = self.begin(lanes_from(self.first_column + column, plan.lanes), as_expr(0))
            b.store(self.sums, self._place(row, column), value)
        whole = b.let("whole", depth // DEEP)
        with b.loop("group", whole) as group:
            self._add(b.let("k", group * DEEP), DEEP, (2 * self.size.rows, self.size.rows, 1))
        with b.loop("rest", depth - whole * DEEP) as rest:
            self._add(b.let("k", whole * DEEP + rest), 1, (1,))
        with self._vectors() as (row, column):
            value = self.sums[self._place(row, column)]
            self._store_row(Part(as_expr(0), depth, 0, True), row, [self.first_column + column], [value])

    @contextmanager
    def _vectors(self) -> Iterator[tuple[Var, Var]]:
        """All vectors of all rows."""
        b, lanes = self.b, self.plan.lanes
        with b.loop("row", self.plan.rows) as row, b.loop("vector", ceil_div(self.columns, lanes)) as vector:
            yield row, b.let("column", vector * lanes)

    def _place(self, row: Expr, column: Expr) -> Expr:
        return lanes_from(row * skinny_columns(self.dtype) + column, self.plan.lanes)

    def _add(self, k: Expr, deep: int, sizes: Sequence[int]) -> None:
        """Adds some products, in tiles of so many rows; each size as often as there are rows."""
        b, done = self.b, as_expr(0)
        for rows in sizes:
            count = b.let("count", (self.plan.rows - done) // rows)
            with b.loop("tile", count) as tile:
                self._add_tile(b.let("row", done + tile * rows), rows, k, deep)
            done = b.let("done", done + count * rows)

    def _add_tile(self, row: Expr, rows: int, k: Expr, deep: int) -> None:
        """sums[row + i, :] += a[row + i, k + j] * w[k + j, :]."""
        b, lanes, step = self.b, self.plan.lanes, self.w.row_step
        runs = opaque(b, [self.run + (k + j) * step for j in range(deep)])
        factors = self._factors(row, rows, k, deep)
        whole = b.let("whole", self.columns // lanes)
        with b.loop("vector", whole) as vector:
            column = b.let("column", vector * lanes)
            for run in runs:
                b.prefetch(self.w.buffer, run + step * DEEP + column)
            self._add_vector(row, column, runs, factors, None)
        done = b.let("done", whole * lanes)
        with b.when(done < self.columns):
            self._add_vector(row, done, runs, factors, lanes_from(done, lanes) < self.columns)

    def _factors(self, row: Expr, rows: int, k: Expr, deep: int) -> list[list[Expr]]:
        b, a = self.b, self.a
        first = b.let("first", self.a_start + row * a.row_step + k * a.column_step)

        def factor(i: int, j: int) -> Expr:
            return b.let("x", widen(a.buffer[first + i * a.row_step + j * a.column_step], self.plan.lanes))

        return [[factor(i, j) for j in range(deep)] for i in range(rows)]

    def _add_vector(
        self, row: Expr, column: Expr, runs: Sequence[Expr], factors: Sequence[Sequence[Expr]], mask: Expr | None
    ) -> None:
        b, index = self.b, [lanes_from(run + column, self.plan.lanes) for run in runs]
        vectors = [b.let("v", masked_load(self.w.buffer, (at,), mask)) for at in index]
        for i, along in enumerate(factors):
            total = self.sums[self._place(row + i, column)]
            for x, vector in zip(along, vectors):
                total = call("fma", x, vector, total)
            b.store(self.sums, self._place(row + i, column), total)


class DotProduct(Product):
    """Rows times columns that lie in one run of memory each: lanes are products, `lanes` of them, summed at the end. A
    vector of the plan has ACROSS columns."""

    def __init__(self, lanes: int, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.lanes = lanes

    def _parts(self) -> None:
        b, plan, w = self.b, self.plan, self.w
        count = b.let("columns", minimum(plan.turn_columns, plan.columns - self.first_column))
        with b.loop("across", ceil_div(count, ACROSS)) as across:
            column = b.let("column", self.first_column + across * ACROSS)
            there = b.let("there", plan.columns - column)
            places = [column + clamped(j, there) for j in range(ACROSS)]
            columns = opaque(b, [self.w_start + place * w.column_step for place in places])
            with counted(b, self.first_tile, plan.chunk, total_of(plan.tiles)) as tile:
                self._dots(b.let("row", tile * self.size.rows), column, columns)

    def _dots(self, row: Expr, column: Expr, columns: Sequence[Expr]) -> None:
        b, depth, lanes, number = self.b, self.plan.depth, self.lanes, self.size.rows
        left = b.let("left", self.plan.rows - row)
        places = [row + clamped(i, left) for i in range(number)]
        rows = opaque(b, [self.a_start + place * self.a.row_step for place in places])
        sums = b.registers("sums", self.dtype, (number * ACROSS,), lanes=lanes)
        whole = b.let("whole", depth // lanes)
        with b.loop("k", whole) as k:
            self._step(sums, rows, columns, k * lanes, None)
        done = b.let("done", whole * lanes)
        with b.when(done < depth):
            self._step(sums, rows, columns, done, lanes_from(done, lanes) < depth)
        start = as_expr(0)
        begin = None if self.begin is None else b.let("y", self.begin(lanes_from(column, ACROSS), start))
        for i in range(number):
            with b.when(left > i):
                total = totals(b, [sums[i * ACROSS + j] for j in range(ACROSS)])
                value = total if begin is None else total + begin
                self._store_row(Part(start, depth, 0, True), row + i, [column], [value])

    def _step(self, sums: Buffer, rows: Sequence[Expr], columns: Sequence[Expr], k: Expr, mask: Expr | None) -> None:
        b = self.b

        def run(source: Buffer, at: Expr) -> Expr:
            return masked_load(source, (lanes_from(at + k, self.lanes),), mask)

        vectors = [b.let("v", run(self.w.buffer, at)) for at in columns]
        for i, at in enumerate(rows):
            x = b.let("x", run(self.a.buffer, at))
            for j, vector in enumerate(vectors):
                place = i * ACROSS + j
                b.store(sums, place, call("fma", x, vector, sums[place]))


def totals(b: KernelBuilder, vectors: Sequence[Expr]) -> Expr:
    """One lane for each vector: the sum of its lanes."""
    sums, groups = list(vectors), 1
    while len(sums) > 1:
        sums = [_folded(b, x, y, groups) for x, y in zip(sums[::2], sums[1::2])]
        groups *= 2
    while sums[0].lanes > groups:
        sums = [_folded(b, sums[0], None, groups)]
    return sums[0]


def _folded(b: KernelBuilder, x: Expr, y: Expr | None, groups: int) -> Expr:
    """The groups of lanes of x and then those of y, each with its upper half added to its lower."""
    whole = x.lanes // groups
    if whole == 1:
        assert y is not None
        return b.let("t", Shuffle(x, y, tuple(range(2 * x.lanes))))
    firsts = range(0, x.lanes if y is None else 2 * x.lanes, whole)
    low = [first + lane for first in firsts for lane in range(whole // 2)]
    high = [lane + whole // 2 for lane in low]
    other = x if y is None else y
    return b.let("t", Shuffle(x, other, tuple(low)) + Shuffle(x, other, tuple(high)))
