"""Matrix products with few rows or columns, over product_operands.py: every element of the larger
matrix is read in place, and about as fast as memory gives it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, Shuffle, Var, as_expr, call, const, widen
from ....te.loops import Buffer, Kernel
from ....te.visit import masked_load
from ..matrices.open_tile import ceil_div, clamped, lanes_from, opaque
from ..tile import registers
from .product_operands import Operands

MAX_ROWS = 12  # of a skinny product
RUN_BYTES = 2048  # of the columns of a turn
DEEP = 4  # products that a pass over the columns adds
ACROSS = 4  # columns of a tile of dot products


def skinny_columns(dtype: DType) -> int:
    """How many columns a turn has at most."""
    return RUN_BYTES // dtype.itemsize


def skinny_kernel(target: CpuTarget, dtype: DType) -> Kernel:
    """At most MAX_ROWS rows times a matrix whose columns are side by side: some products at a time
    are added to all columns of a turn, which makes for long runs of memory; sums stay in the first
    cache."""
    return _SkinnyProduct(target, dtype).kernel()


def dot_kernel(target: CpuTarget, dtype: DType) -> Kernel:
    """Rows times columns that lie in one run of memory each: lanes are products, summed at the
    end."""
    return _Dot(target, dtype).kernel()


class _SkinnyProduct:
    def __init__(self, target: CpuTarget, dtype: DType) -> None:
        self.b = KernelBuilder(f"open_product_{dtype.name}_skinny")
        self.operands, self.dtype = Operands(self.b, dtype), dtype
        self.arguments, self.lanes = self.operands.arguments, target.lanes(dtype)
        self.rows = 4 if registers(target) == 32 else 2  # each has its factors in registers

    def kernel(self) -> Kernel:
        b, depth = self.b, self.arguments.depth
        with b.parallel("turn", self.arguments.turns) as turn:
            self.block = self.operands.block(turn)
            count = MAX_ROWS * skinny_columns(self.dtype)
            self.sums = b.alloc("sums", self.dtype, (count,), alignment=64)
            self._begin()
            whole = b.let("whole", depth // DEEP)
            with b.loop("group", whole) as group:
                self._add(b.let("k", group * DEEP), DEEP, (2 * self.rows, self.rows, 1))
            with b.loop("rest", depth - whole * DEEP) as rest:
                self._add(b.let("k", whole * DEEP + rest), 1, (1,))
            self._end()
        return b.finish()

    def _begin(self) -> None:
        with self._vectors() as (row, column):
            columns = lanes_from(self.block.column + column, self.lanes)
            mask = columns < self.arguments.bias_columns
            value = masked_load(self.operands.bias, (columns,), mask)
            self.b.store(self.sums, self._place(row, column), value)

    def _end(self) -> None:
        with self._vectors() as (row, column):
            first = self.block.out + row * self.arguments.out_row_step + column
            mask = lanes_from(column, self.lanes) < self.block.columns
            value = self.sums[self._place(row, column)]
            self.b.store(self.operands.out, lanes_from(first, self.lanes), value, mask)

    @contextmanager
    def _vectors(self) -> Iterator[tuple[Var, Var]]:
        """All vectors of all rows."""
        b, count = self.b, ceil_div(self.block.columns, self.lanes)
        with b.loop("row", self.block.rows) as row, b.loop("vector", count) as vector:
            yield row, b.let("column", vector * self.lanes)

    def _place(self, row: Expr, column: Expr) -> Expr:
        return lanes_from(row * skinny_columns(self.dtype) + column, self.lanes)

    def _add(self, k: Expr, deep: int, sizes: Sequence[int]) -> None:
        """Adds some products, in tiles of so many rows; each size as often as there are rows."""
        b, done = self.b, as_expr(0)
        for rows in sizes:
            count = b.let("count", (self.block.rows - done) // rows)
            with b.loop("tile", count) as tile:
                self._tile(b.let("row", done + tile * rows), rows, k, deep)
            done = b.let("done", done + count * rows)

    def _tile(self, row: Expr, rows: int, k: Expr, deep: int) -> None:
        """sums[row + i, :] += a[row + i, k + j] * b[k + j, :]."""
        b, arguments, lanes = self.b, self.arguments, self.lanes
        runs = opaque(b, [self.block.b + (k + j) * arguments.b_depth_step for j in range(deep)])
        factors = self._factors(row, rows, k, deep)
        whole = b.let("whole", self.block.columns // lanes)
        with b.loop("vector", whole) as vector:
            column = b.let("column", vector * lanes)
            for run in runs:
                b.prefetch(self.operands.b, run + arguments.b_depth_step * DEEP + column)
            self._vector(row, column, runs, factors, None)
        done = b.let("done", whole * lanes)
        with b.when(done < self.block.columns):
            mask = lanes_from(done, lanes) < self.block.columns
            self._vector(row, done, runs, factors, mask)

    def _factors(self, row: Expr, rows: int, k: Expr, deep: int) -> list[list[Expr]]:
        b, arguments = self.b, self.arguments
        first = self.block.a + row * arguments.a_row_step + k * arguments.a_depth_step
        first = b.let("first", first)

        def factor(i: int, j: int) -> Expr:
            x = self.operands.a[first + i * arguments.a_row_step + j * arguments.a_depth_step]
            return b.let("x", widen(x, self.lanes))

        return [[factor(i, j) for j in range(deep)] for i in range(rows)]

    def _vector(
        self, row: Expr, column: Expr, runs: Sequence[Expr], factors: Sequence[Sequence[Expr]], mask: Expr | None
    ) -> None:
        b = self.b
        index = [lanes_from(run + column, self.lanes) for run in runs]
        vectors = [b.let("v", masked_load(self.operands.b, (at,), mask)) for at in index]
        for i, along in enumerate(factors):
            total = self.sums[self._place(row + i, column)]
            for x, vector in zip(along, vectors):
                total = call("fma", x, vector, total)
            b.store(self.sums, self._place(row + i, column), total)


class _Dot:
    def __init__(self, target: CpuTarget, dtype: DType) -> None:
        self.b = KernelBuilder(f"open_product_{dtype.name}_dot")
        self.operands, self.dtype = Operands(self.b, dtype), dtype
        self.arguments, self.lanes = self.operands.arguments, target.lanes(dtype)
        self.rows = 4 if registers(target) > 16 else 2

    def kernel(self) -> Kernel:
        b, arguments = self.b, self.arguments
        with b.parallel("turn", arguments.turns) as turn:
            self.block = block = self.operands.block(turn)
            with b.loop("across", ceil_div(block.columns, ACROSS)) as across:
                column = b.let("column", across * ACROSS)
                there = b.let("there", block.columns - column)
                places = [column + clamped(j, there) for j in range(ACROSS)]
                columns = opaque(b, [block.b + place * arguments.b_column_step for place in places])
                with b.loop("tile", ceil_div(block.rows, self.rows)) as tile:
                    self._tile(b.let("row", tile * self.rows), column, columns)
        return b.finish()

    def _tile(self, row: Expr, column: Expr, columns: Sequence[Expr]) -> None:
        b, arguments, lanes = self.b, self.arguments, self.lanes
        left = b.let("left", self.block.rows - row)
        places = [row + clamped(i, left) for i in range(self.rows)]
        rows = opaque(b, [self.block.a + place * arguments.a_row_step for place in places])
        count = self.rows * ACROSS
        sums = b.alloc("sums", self.dtype, (count,), scope="register", lanes=lanes)
        for place in range(count):
            b.store(sums, place, const(0, self.dtype))
        whole = b.let("whole", arguments.depth // lanes)
        with b.loop("k", whole) as k:
            self._step(sums, rows, columns, k * lanes, None)
        done = b.let("done", whole * lanes)
        with b.when(done < arguments.depth):
            self._step(sums, rows, columns, done, lanes_from(done, lanes) < arguments.depth)
        self._write(sums, row, left, column)

    def _step(self, sums: Buffer, rows: Sequence[Expr], columns: Sequence[Expr], k: Expr, mask: Expr | None) -> None:
        b, operands = self.b, self.operands

        def run(source: Buffer, at: Expr) -> Expr:
            return masked_load(source, (lanes_from(at + k, self.lanes),), mask)

        vectors = [b.let("v", run(operands.b, at)) for at in columns]
        for i, at in enumerate(rows):
            x = b.let("x", run(operands.a, at))
            for j, vector in enumerate(vectors):
                place = i * ACROSS + j
                b.store(sums, place, call("fma", x, vector, sums[place]))

    def _write(self, sums: Buffer, row: Expr, left: Expr, column: Expr) -> None:
        b, arguments, operands = self.b, self.arguments, self.operands
        columns = lanes_from(self.block.column + column, ACROSS)
        there = columns < arguments.bias_columns
        bias = b.let("bias", masked_load(operands.bias, (columns,), there))
        mask = b.let("mask", columns < arguments.columns)
        for i in range(self.rows):
            with b.when(left > i):
                total = totals(b, [sums[i * ACROSS + j] for j in range(ACROSS)])
                first = self.block.out + (row + i) * arguments.out_row_step + column
                b.store(operands.out, lanes_from(first, ACROSS), total + bias, mask)


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
