"""Open kernels that eliminate: some columns of matrices become columns of L and U, and systems with
triangular matrices are solved. Matrices are dense, rows are vectors."""

from __future__ import annotations

from .... import te
from ....base.cpu_target import CpuTarget
from ....base.dtype import INT32, INT64, DType
from ....te.build import UNBOUNDED, KernelBuilder
from ....te.expr import Expr, Var, as_expr, cast, minimum, select
from ....te.loops import Buffer, Kernel, Let, Seq, Store
from ....te.transform import lower_vectors
from ..nests.hoist import vector_loop

COLUMNS = 64  # of X that a turn takes


def panel_kernel(dtype: DType, pivot: bool, target: CpuTarget) -> Kernel:
    """Columns `start` to `end` of matrices (m, n) whose columns before those are done. Rows are
    swapped as a whole; what is right of the columns is right in the rows that they end, and not yet
    in those below.

    Buffers: the matrices, and for each column the row, counted from 1, that was swapped with its.
    Scalars: matrices, m, n, start, end, columns that have pivots.
    """
    b = KernelBuilder("eliminate_panel")
    names = ("count", "m", "n", "start", "end", "pivoted")
    count, m, n, start, end, pivoted = (b.scalar(name) for name in names)
    a, pivots = b.arg("a", dtype, (UNBOUNDED,)), b.arg("pivots", INT32, (UNBOUNDED,))
    lanes = target.lanes(dtype)
    with b.parallel("p", count) as p:
        base = b.let("base", p * m * n)
        with b.loop("c", end - start) as c:
            j = b.let("j", start + c)
            row = b.let("row", base + j * n)
            best = _best(b, a, row + j, n, m - 1 - j) if pivot else as_expr(0)
            b.store(pivots, p * pivoted + j, cast(j + best + 1, INT32))
            with b.when(best > 0):
                _swap(b, a, row, b.let("other", row + best * n), n, lanes)
            top = b.let("top", a[row + j])
            divisor = b.let("divisor", select(top.equal(0.0), 1.0, top))
            with b.loop("i", m - 1 - j) as i:
                other = b.let("other", row + (i + 1) * n)
                factor = b.let("factor", a[other + j] / divisor)
                b.store(a, other + j, factor)
                _subtract(b, a, other, factor, row, (j + 1, end), lanes)
        with b.loop("c", end - start) as c:
            j = b.let("j", start + c)
            row = b.let("row", base + j * n)
            with b.loop("i", end - 1 - j) as i:
                other = b.let("other", row + (i + 1) * n)
                _subtract(b, a, other, b.let("factor", a[other + j]), row, (end, n), lanes)
    return lower_vectors(b.finish())


def _best(b: KernelBuilder, a: Buffer, first: Expr, step: Expr, count: Expr) -> Expr:
    """How many rows after the first the largest element of a column is."""
    best, most = b.registers("best", INT64), b.registers("most", a.dtype, start=te.abs(a[first]))
    with b.loop("i", count) as i:
        size = b.let("size", te.abs(a[first + (i + 1) * step]))
        larger = b.let("larger", size > most[()])
        b.store(best, (), select(larger, i + 1, best[()]))
        b.store(most, (), select(larger, size, most[()]))
    return b.let("found", best[()])


def _swap(b: KernelBuilder, a: Buffer, row: Expr, other: Expr, n: Expr, lanes: int) -> None:
    k, kept = Var("k"), Var("kept", a.dtype)
    both = Seq((Store(a, (row + k,), a[other + k]), Store(a, (other + k,), kept)))
    b.emit(vector_loop(k, as_expr(0), n, lanes, Let(kept, a[row + k], both)))


def _subtract(
    b: KernelBuilder, a: Buffer, row: Expr, factor: Expr, other: Expr, between: tuple[Expr, Expr], lanes: int
) -> None:
    """row -= factor * other, between two columns."""
    k = Var("k")
    value = a[row + k] - factor * a[other + k]
    b.emit(vector_loop(k, *between, lanes, Store(a, (row + k,), value)))


def substitution_kernel(dtype: DType, unit: bool, target: CpuTarget) -> Kernel:
    """X becomes T^-1 X, where T is a triangle below the diagonal, which is 1 if `unit`; steps may
    be negative, which makes it one above. Columns of X are cut into blocks.

    Buffers: the triangles, the dense X. Scalars: matrices, blocks of columns, rows, columns; of T
    the step between matrices, where the first is, and the steps of its rows and columns; of X the
    step between matrices, where the first is, and the step of its rows.
    """
    b = KernelBuilder("substitute")
    names = ("count", "blocks", "m", "n", "t_item", "t_at", "t_row", "t_column")
    count, blocks, m, n, t_item, t_at, t_row, t_column = (b.scalar(name) for name in names)
    x_item, x_at, x_row = (b.scalar(name) for name in ("x_item", "x_at", "x_row"))
    t, x = b.arg("t", dtype, (UNBOUNDED,)), b.arg("x", dtype, (UNBOUNDED,))
    lanes = target.lanes(dtype)
    with b.parallel("p", count * blocks) as p:
        item, first = b.let("item", p // blocks), b.let("first", p % blocks * COLUMNS)
        between = first, b.let("last", minimum(first + COLUMNS, n))
        with b.loop("j", m) as j:
            own = b.let("own", t_at + item * t_item + j * (t_row + t_column))
            row = b.let("row", x_at + item * x_item + j * x_row)
            if not unit:
                k, pivot = Var("k"), b.let("pivot", t[own])
                b.emit(vector_loop(k, *between, lanes, Store(x, (row + k,), x[row + k] / pivot)))
            with b.loop("i", m - 1 - j) as i:
                factor = b.let("factor", t[own + (i + 1) * t_row])
                other = b.let("other", row + (i + 1) * x_row)
                _subtract(b, x, other, factor, row, between, lanes)
    return lower_vectors(b.finish())
