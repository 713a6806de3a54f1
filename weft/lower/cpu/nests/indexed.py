"""Open kernels that read and write at positions which other elements name: single elements, whole
rows, and the positions of elements that are not zero.

An index below zero counts from the end; one that is still outside is moved to the nearest place.
"""

from __future__ import annotations

from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import BOOL, INT64, DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, Var, as_expr, binary, cast, select
from ....te.loops import For, Kernel, Store
from ....te.schedule import bind_shared
from ....te.transform import lower_vectors
from ..matrices.open_tile import ceil_div
from ..matrices.product_operands import UNBOUNDED
from ..nest import coordinates, row_starts
from .hoist import vector_loop

ROW_BLOCK = 512  # elements of rows that a turn adds


def _within(index: Expr, extent: Expr) -> Expr:
    """The position that an index means."""
    counted = select(index < 0, index + extent, index)
    return binary("max", binary("min", counted, extent - 1), 0)


def elements_kernel(dtype: DType, rank: int, what: str, target: CpuTarget) -> Kernel:
    """get: y[i] = x[at(i)]; put: x[at(i)] = y[i]; add: x[at(i)] += y[i]. For all indices i of y,
    in order; at(i) is i with its place along one axis named by an element of `indices`.

    Scalars: turns, rows of a turn; for each axis its extent and the steps of x (0 along the named
    axis), y and indices; the extent of x along the named axis, and its step.
    """
    b = KernelBuilder(f"{what}_elements")
    turns, rows = b.scalar("turns"), b.scalar("rows")
    axes = [[b.scalar(f"{name}{axis}") for name in "nxyi"] for axis in range(rank)]
    extent, step = b.scalar("extent"), b.scalar("step")
    x, indices = b.arg("x", dtype, (UNBOUNDED,)), b.arg("indices", INT64, (UNBOUNDED,))
    y = b.arg("y", dtype, (UNBOUNDED,))
    extents, *steps = zip(*axes)
    x_step, y_step, index_step = (own[-1] for own in steps)
    with b.parallel("p", turns) as p, b.loop("row", rows) as row:
        number = b.let("number", p * rows + row)
        here, there, start = row_starts(b, number, extents[:-1], [own[:-1] for own in steps])
        i = Var("i")
        place = _within(indices[start + i * index_step], extent)
        at, to = here + i * x_step + place * step, there + i * y_step
        if what == "get":
            lanes = target.lanes(INT64)
            b.emit(vector_loop(i, as_expr(0), extents[-1], lanes, Store(y, (to,), x[at])))
        else:
            value = x[at] + y[to] if what == "add" else y[to]
            b.emit(For(i, extents[-1], bind_shared([Store(x, (at,), value)])))
    return lower_vectors(b.finish())


def add_rows_kernel(dtype: DType, dense: bool, target: CpuTarget) -> Kernel:
    """x[o, indices[k], i] += y[o, k, i], where x and indices are dense, and y along i unless all
    of its row is one element.

    Scalars: extents of o, k, i, that of x in the middle, and the steps of y along o and k.
    """
    b = KernelBuilder("add_rows")
    names = ("outer", "count", "inner", "extent", "outer_step", "row_step")
    outer, count, inner, extent, outer_step, row_step = [b.scalar(name) for name in names]
    x, indices = b.arg("x", dtype, (UNBOUNDED,)), b.arg("indices", INT64, (UNBOUNDED,))
    y = b.arg("y", dtype, (UNBOUNDED,))
    blocks = ceil_div(inner, ROW_BLOCK)
    with b.parallel("p", outer * blocks) as p:
        o, first = b.let("o", p // blocks), b.let("first", p % blocks * ROW_BLOCK)
        last = b.let("last", binary("min", first + ROW_BLOCK, inner))
        with b.loop("k", count) as k:
            row = b.let("row", (o * extent + _within(indices[k], extent)) * inner)
            start = b.let("start", o * outer_step + k * row_step)
            i = Var("i")
            value = y[start + i] if dense else b.let("same", y[start])
            add = Store(x, (row + i,), x[row + i] + value)
            b.emit(vector_loop(i, first, last, target.lanes(dtype), add))
    return lower_vectors(b.finish())


def nonzero_kernel(rank: int, target: CpuTarget) -> Kernel:
    """The indices of elements that hold, in order. Element d of the n-th goes to out[n * step +
    d * plane]. None may hold after the first `limit` elements.

    Scalars: step, plane, limit and the extents.
    """
    b = KernelBuilder("nonzero")
    step, plane, limit = (b.scalar(name) for name in ("step", "plane", "limit"))
    extents = [b.scalar(f"n{axis}") for axis in range(rank)]
    mask, out = b.arg("mask", BOOL, (UNBOUNDED,)), b.arg("out", INT64, (UNBOUNDED,))
    with b.parallel("p", 1):
        at = b.alloc("at", INT64, (1,), scope="register")
        b.store(at, 0, 0)
        with b.loop("row", (limit + extents[-1] - 1) // extents[-1]) as row:
            index: list[Any] = coordinates(b, row, extents[:-1])
            start = b.let("start", row * extents[-1])
            with b.loop("i", binary("min", extents[-1], limit - start)) as i:
                to = b.let("to", at[0] * step)
                for d, place in enumerate([*index, i]):
                    b.store(out, to + d * plane, place)
                b.store(at, 0, at[0] + cast(mask[start + i], INT64))
    return lower_vectors(b.finish())
