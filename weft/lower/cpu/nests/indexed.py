"""Open kernels that write at positions which other elements name: single elements, whole rows; and the positions of
elements that are not zero.

An index below zero counts from the end; one that is still outside is moved to the nearest place.
"""

from __future__ import annotations

from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import BOOL, INT64, DType
from ....te.build import UNBOUNDED, KernelBuilder
from ....te.expr import Expr, Var, binary, cast, select
from ....te.loops import For, Kernel, Stmt, Store
from ....te.schedule import bind_shared
from ....te.transform import lower_vectors
from ..nest import coordinates, row_starts
from .hoist import vector_loop

ROW_BLOCK = 512  # elements of rows that a turn writes


def _within(index: Expr, extent: Expr) -> Expr:
    """The position that an index means."""
    counted = select(index < 0, index + extent, index)
    return binary("max", binary("min", counted, extent - 1), 0)


def elements_kernel(dtype: DType, rank: int, adds: bool, row_step: int | None, target: CpuTarget) -> Kernel:
    """x[at(i)] = y[i], or += where it adds, for all indices i of y, in order; at(i) is i with its place along one axis
    named by an element of `indices`. `row_step`: where that is the second of three axes, and one element names all of a
    row, which lies side by side in x, the step of y along it, 1 or 0.

    Scalars: turns, the blocks that a row is cut into, rows of a turn; for each axis its extent and the steps of x (0
    along the named axis), y and indices; the extent of x along the named axis, and its step.
    """
    b = KernelBuilder("add_elements" if adds else "put_elements")
    turns, blocks, rows = b.scalar("turns"), b.scalar("blocks"), b.scalar("rows")
    axes = [[b.scalar(f"{name}{axis}") for name in "nxyi"] for axis in range(rank)]
    extent, step = b.scalar("extent"), b.scalar("step")
    x, indices = b.arg("x", dtype, (UNBOUNDED,)), b.arg("indices", INT64, (UNBOUNDED,))
    y = b.arg("y", dtype, (UNBOUNDED,))
    extents, *steps = zip(*axes)
    x_step, y_step, index_step = (own[-1] for own in steps)
    i = Var("i")

    def moved(place: Expr, at: Expr, value: Expr) -> Stmt:
        where = at + place * step
        return bind_shared([Store(x, (where,), x[where] + value if adds else value)])

    with b.parallel("p", turns) as p:
        block, first = b.let("block", p // blocks), b.let("first", p % blocks * ROW_BLOCK)
        with b.loop("row", rows) as row:
            if row_step is None:
                here, there, start = row_starts(b, block * rows + row, extents[:-1], [own[:-1] for own in steps])
                place = _within(indices[start + i * index_step], extent)
                b.emit(For(i, extents[-1], moved(place, here + i * x_step, y[there + i * y_step])))
            else:
                here, there, start = (b.let("start", block * own[0] + row * own[1]) for own in steps)
                place = b.let("place", _within(indices[start], extent))
                value = y[there + i] if row_step else b.let("same", y[there])
                last = binary("min", first + ROW_BLOCK, extents[-1])
                b.emit(vector_loop(i, first, last, target.lanes(dtype), moved(place, here + i, value)))
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
        at = b.registers("at", INT64)
        with b.loop("row", (limit + extents[-1] - 1) // extents[-1]) as row:
            index: list[Any] = coordinates(b, row, extents[:-1])
            start = b.let("start", row * extents[-1])
            with b.loop("i", binary("min", extents[-1], limit - start)) as i:
                to = b.let("to", at[()] * step)
                for d, place in enumerate([*index, i]):
                    b.store(out, to + d * plane, place)
                b.store(at, (), at[()] + cast(mask[start + i], INT64))
    return lower_vectors(b.finish())
