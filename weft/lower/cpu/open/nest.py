"""Loop nests over extents that are arguments: one axis in lanes, the others shared by threads.
Nests come in as axes and the body at one element, a kernel goes out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from ....base.cpu_target import CpuTarget
from ....te.expr import Const, Expr, Load, Var, as_expr, minimum
from ....te.extents import Trace
from ....te.loops import Buffer, For, Kernel, Let, Parallel, Seq, Stmt
from ....te.simplify_loops import sequence, statements
from ....te.transform import lower_vectors
from ....te.visit import loads, substitute
from ...access import accessed, step
from ..nest import Axis, open_vector_loop
from ..pointwise import vector_lanes
from .hoist import hoist, hoisted
from .joined import join_axes, join_loops
from .sums import cascaded, in_lanes

BLOCK = 4096  # elements of one turn where there is only one axis
SUMMED = 4  # vectors of one turn where each is a reduction
SHORT = 16  # turns of a loop that is not worth lanes


class Nest(NamedTuple):
    """Axes, and what happens at one element of them."""

    axes: list[Axis]
    body: Stmt


def nest_kernel(
    name: str, buffers: Sequence[Buffer], nests: Sequence[Nest], rows: int, target: CpuTarget, trace: Trace
) -> Kernel:
    """The kernel of some nests, one after the other. The first `rows` axes are the same for all of them, and what later
    ones read is of their own row."""
    lanes = min(_lanes(nest.body, target) for nest in nests)
    if not rows and len(nests) == 1:
        axes, body = _without_ones(nests[0])
        now = {buffer: buffer for buffer in buffers}
        axes, body = join_axes(axes, join_loops(body, now), now, trace)
        buffers = list(now.values())
        outer, body = _shared_axes(*_in_vectors(Nest(axes, body), lanes), lanes)
    else:
        outer = _without_ones(Nest(nests[0].axes[:rows], Seq(()))).axes
        body = sequence([_row(nest, nests[0].axes[:rows], rows, lanes) for nest in nests])
    return _finished(name, buffers, outer, body, trace)


def _lanes(body: Stmt, target: CpuTarget) -> int:
    """As many as what is read allows; a sum may be of a wider dtype."""
    reads = [load for load in loads(body) if accessed(load).scope == "arg"]
    if not reads or not any(isinstance(s, For) for s in statements(body)):
        return vector_lanes(body, target)
    return min(target.lanes(load.dtype) for load in reads)


def _without_ones(nest: Nest) -> Nest:
    ones = {a.var: as_expr(0) for a in nest.axes if type(a.extent) is int and a.extent == 1}
    axes = [axis for axis in nest.axes if axis.var not in ones]
    return Nest(axes, substitute(nest.body, ones) if ones else nest.body)


def _row(nest: Nest, shared: Sequence[Axis], rows: int, lanes: int) -> Stmt:
    """What a nest does in one row: the axes that are its own as serial loops."""
    known: dict[Var, Expr] = {
        own.var: as_expr(0) if type(row.extent) is int and row.extent == 1 else row.var
        for own, row in zip(nest.axes[:rows], shared)
    }
    own = _without_ones(Nest(nest.axes[rows:], substitute(nest.body, known)))
    vector, axes, body = _in_vectors(own, lanes)
    if vector is not None:
        body = vector_loop(vector.var, as_expr(0), as_expr(vector.extent), lanes, body)
    for axis in reversed(axes):
        body = For(axis.var, as_expr(axis.extent), body)
    return body


def _in_vectors(nest: Nest, lanes: int) -> tuple[Axis | None, list[Axis], Stmt]:
    """The axis whose elements lie in lanes, the others, and the body; no axis where the body has
    its lanes itself."""
    axes, body = nest
    vector = _vector_axis(axes, body) if lanes > 1 else None
    if vector is not None and vector not in axes:
        return None, list(axes), hoisted(in_lanes(body, vector.var, lanes))
    return vector, [axis for axis in axes if axis is not vector], cascaded(body)


def _vector_axis(axes: Sequence[Axis], body: Stmt) -> Axis | None:
    """The innermost axis of the output where neighbours in it are neighbours in memory, else the
    innermost that is reduced, if it is one, else the innermost there is."""
    reads = [load for load in loads(body) if accessed(load).scope == "arg"]
    reduced = [s for s in statements(body) if isinstance(s, For)]
    if axes and _is_dense(reads, axes[-1].var):
        return axes[-1]
    one_nest = all(outer.body is inner for outer, inner in pairwise(reduced))
    if reduced and one_nest and not _is_short(reduced[-1]):
        inner = Axis(reduced[-1].var, reduced[-1].extent)
        if _is_dense(reads, inner.var):
            return inner
    return axes[-1] if axes else None


def _is_short(loop: For) -> bool:
    return isinstance(loop.extent, Const) and int(loop.extent.value) < SHORT


def _is_dense(reads: Sequence[Load], var: Var) -> bool:
    steps = [step(load, var) for load in reads]
    return 1 in steps and all(s in (0, 1) for s in steps)


def _shared_axes(vector: Axis | None, outer: list[Axis], body: Stmt, lanes: int) -> tuple[list[Axis], Stmt]:
    """The axes of the parallel loop and what one turn does; a single axis is cut into blocks."""
    if vector is None:
        return outer, body
    extent = as_expr(vector.extent)
    if outer:
        return outer, vector_loop(vector.var, as_expr(0), extent, lanes, body)
    block = SUMMED * lanes if any(isinstance(s, For) for s in statements(body)) else BLOCK
    number, first = Var("block"), Var("first")
    end = minimum(first + block, extent)
    inner = Let(first, number * block, vector_loop(vector.var, first, end, lanes, body))
    return [Axis(number, (vector.extent + (block - 1)) // block)], inner


def vector_loop(var: Var, start: Expr, end: Expr, lanes: int, body: Stmt) -> Stmt:
    """var = start .. end - 1 in lanes, with what is the same in all turns before them."""
    body, around = hoist(body, (var,))
    return around(open_vector_loop(var, start, end, lanes, body))


def _finished(name: str, buffers: Sequence[Buffer], outer: Sequence[Axis], body: Stmt, trace: Trace) -> Kernel:
    """The kernel whose parallel loop goes through all axes in `outer`."""
    number = Var("p")
    left: Expr = number
    for axis in reversed(outer[1:]):
        body = Let(axis.var, left % as_expr(axis.extent), body)
        left = left // as_expr(axis.extent)
    if outer:
        body = Let(outer[0].var, left, body)
    parallel = Parallel(number, as_expr(prod([axis.extent for axis in outer])))
    return lower_vectors(Kernel(name, tuple(buffers), body, parallel, tuple(trace.arguments)))
