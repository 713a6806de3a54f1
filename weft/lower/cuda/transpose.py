"""Stages that read across: neighbours of the result are far apart in what is read, whose own neighbours belong to
another axis. A block reads a square of it along its lines into shared memory, and takes it from there across."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ...te.build import KernelBuilder
from ...te.expr import Expr, Load, Var
from ...te.extents import is_open
from ...te.loops import Buffer, Kernel, Stmt, Store
from ...te.visit import postorder, rewrite, substitute
from ..access import accessed, step
from ..axes import Axis
from .grid import quotient, ready, remainder

SIDE = 32  # elements of a square
THREADS_DOWN = 8  # of a block, which are as wide as the square


class Across(NamedTuple):
    """What is read across, and the axis along which its neighbours are."""

    load: Load
    along: Axis


def found_across(axes: Sequence[Axis], body: Stmt) -> Across | None:
    """The only load of a body that goes across; None where there is none, or where squares would be mostly empty."""
    if len(axes) < 2 or not _has_squares(axes[-1]):
        return None
    inner, found = axes[-1], list[Across]()
    for node in postorder((body,)):
        if not isinstance(node, (Load, Store)) or accessed(node).scope != "arg":
            continue
        far = step(node, inner.var)
        if far in (0, 1):
            continue
        along = next((a for a in axes[:-1] if step(node, a.var) == 1 and _has_squares(a)), None)
        if not isinstance(node, Load) or node.mask is not None or along is None:
            return None
        found.append(Across(node, along))
    return found[0] if len(found) == 1 else None


def _has_squares(axis: Axis) -> bool:
    """Whether an axis is known to be as long as a square is wide."""
    return not is_open(axis.extent) and axis.extent >= SIDE


def across_kernel(name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt, across: Across) -> Kernel:
    """The kernel: a square a block, a column of some rows a thread."""
    inner, along = axes[-1], across.along
    others = [axis for axis in axes[:-1] if axis is not along]
    extents = {axis.var: axis.extent for axis in others}
    extents |= {axis.var: -(-axis.extent // SIDE) for axis in (along, inner)}  # squares
    count: Any = prod(extents.values())
    b = KernelBuilder(name)
    with b.block("square", count) as square:
        tile = b.alloc("tile", across.load.dtype, (SIDE, SIDE + 1), scope="shared")
        with b.thread("down", THREADS_DOWN, "y") as down, b.thread("right", SIDE) as right:
            at = _located(b, square, extents, count)
            rows, columns = at.pop(along.var) * SIDE, at.pop(inner.var) * SIDE
            for part in range(0, SIDE, THREADS_DOWN):
                place = {along.var: rows + right, inner.var: columns + down + part}
                with b.when(_inside(place, along, inner)):
                    b.store(tile, (down + part, right), substitute(across.load, {**at, **place}))
            b.barrier()
            for part in range(0, SIDE, THREADS_DOWN):
                place = {along.var: rows + down + part, inner.var: columns + right}
                held = tile[right, down + part]
                with b.when(_inside(place, along, inner)):
                    b.emit(substitute(_with(body, across.load, held), {**at, **place}))
    return ready(Kernel(name, tuple(buffers), b.finish().body))


def _located(b: KernelBuilder, number: Expr, extents: dict[Var, Any], count: Any) -> dict[Var, Expr]:
    """The index along each of some axes, from a row-major number."""
    at: dict[Var, Expr] = {}
    for var, extent in reversed(extents.items()):
        at[var] = b.let(var.name, remainder(number, extent, count))
        number = b.let("rest", quotient(number, extent, count))
    return at


def _inside(place: dict[Var, Expr], along: Axis, inner: Axis) -> Expr:
    return (place[along.var] < along.extent) & (place[inner.var] < inner.extent)


def _with(body: Stmt, load: Load, held: Expr) -> Stmt:
    return rewrite(body, lambda node: held if node is load else node)
