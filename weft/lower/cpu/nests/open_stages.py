"""Stages whose sizes may be arguments: each becomes a loop nest."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from ....base.cpu_facts import COSTS
from ....base.cpu_target import CpuTarget
from ....te.expr import Call, Expr, ExprLike, Load, Var, as_expr
from ....te.extents import Trace, is_open, stays_open
from ....te.jam import jam
from ....te.loops import Buffer, For, If, Kernel, Let, Seq, Stmt, buffer
from ....te.schedule import loop_nest
from ....te.simplify_loops import statements
from ....te.tensor import Tensor
from ....te.visit import free_of, loads, postorder, substitute
from ...access import accessed, step
from ...axes import Axis, Nest, extents_of, peeled, reductions
from ...group import LoweredKernel, Strides, reached_tensors
from ..nest import BLOCK_ELEMENTS, finished_kernel, in_blocks
from ..pointwise import vector_lanes
from ..squares import OPEN_BYTES, in_open_squares, squares_of
from .hoist import hoist, hoisted, vector_loop
from .joined import join_axes, join_loops
from .sums import calls, cascaded, in_lanes, widened

SUMMED = 8  # vectors side by side where each is a reduction
SHORT, SHORT_CALLS = 16, 32  # turns of a loop that is not worth lanes, and of one that computes functions


def nest_kernel(
    name: str,
    stage: Tensor,
    places: Mapping[Tensor, Hashable],
    target: CpuTarget,
    trace: Trace,
    strides: Strides | None = None,
    computes: bool = False,
) -> LoweredKernel:
    """The kernel of a stage. `computes` says that there are functions in a stage beside it: all of them ask the same
    about sizes, so that few programs serve all."""
    steps = strides or {}
    buffers = {
        t: buffer(f"b{n}", t.dtype, [_known(extent, trace) for extent in t.shape], strides=steps.get(places[t]))
        for n, t in enumerate([*[t for t in reached_tensors(stage, places) if t in places], stage])
    }
    nest = peeled(substitute(loop_nest([stage], buffers), trace.equal), stage.shape)
    elements: Any = prod([*stage.shape, *extents_of(reductions(stage, buffers))])
    each = sum(_cost(node) for node in postorder((nest.body,)))
    work = elements * max(round(each / target.facts.nanoseconds_per_operation), 1)
    now = {buffer: buffer for buffer in buffers.values()}
    axes, body = nest = _without_ones(nest)
    if not any(places[tensor] in steps for tensor in buffers):  # axes of what has gaps are not one
        nest = Nest(*join_axes(axes, join_loops(body, now), now, trace))
    kernel = walked_kernel(name, list(now.values()), nest, target, trace, computes)
    return LoweredKernel(kernel, tuple(places[t] for t in buffers), work)


def _cost(node: Any) -> float:
    return COSTS.loaded if isinstance(node, Load) else COSTS.called if isinstance(node, Call) else 0.0


def _known(extent: Any, trace: Trace) -> Expr:
    return substitute(as_expr(extent), trace.equal)


# Nests of loops


def walked_kernel(
    name: str, buffers: Sequence[Buffer], nest: Nest, target: CpuTarget, trace: Trace, computes: bool = False
) -> Kernel:
    """The kernel of a nest, in lanes."""
    lanes = _lanes(nest.body, target)
    widest = max([node.dtype.itemsize for node in loads(nest.body)], default=1)
    squares = squares_of(*nest, min(lanes, OPEN_BYTES // widest))
    if squares is not None:
        return finished_kernel(name, buffers, *in_open_squares(nest.axes, squares, nest.body))
    vector, outer, body = _in_vectors(nest, lanes, trace, computes or calls(nest.body))
    if vector is not None:
        outer, body = _in_turns(vector, outer, body, lanes)
    return finished_kernel(name, buffers, outer, body)


def _in_turns(vector: Axis, outer: list[Axis], body: Stmt, lanes: int) -> tuple[list[Axis], Stmt]:
    """The axes that are walked outside, and what is done inside, where the elements of one axis lie in lanes."""
    lanes = lanes if is_open(vector.extent) else max(min(lanes, vector.extent), 1)
    reduces = any(isinstance(s, For) for s in statements(body))
    walk = _side_by_side if reduces and not calls(body) else vector_loop
    body = hoisted(body) if calls(body) else body
    if outer:
        return outer, walk(vector.var, 0, vector.extent, lanes, body)
    block, body = in_blocks(vector, lanes, body, SUMMED * lanes if reduces else BLOCK_ELEMENTS, walk)
    return [block], body


def _lanes(body: Stmt, target: CpuTarget) -> int:
    """As many as what is read in each turn of a sum allows, which may be of a wider dtype."""
    turning = [s.var for s in statements(body) if isinstance(s, For)]
    reads = [load for load in loads(body) if accessed(load).scope == "arg" and not free_of(load, turning)]
    if not reads:
        return vector_lanes(body, target)
    return min(target.lanes(load.dtype) for load in reads)


def _without_ones(nest: Nest) -> Nest:
    ones = {a.var: as_expr(0) for a in nest.axes if type(a.extent) is int and a.extent == 1}
    axes = [axis for axis in nest.axes if axis.var not in ones]
    return Nest(axes, substitute(nest.body, ones) if ones else nest.body)


def _in_vectors(nest: Nest, lanes: int, trace: Trace, computes: bool) -> tuple[Axis | None, list[Axis], Stmt]:
    """The axis whose elements lie in lanes, the others, and the body; no axis where the body has
    its lanes itself."""
    axes, (body, totals) = nest.axes, widened(nest.body)
    vector = _vector_axis(axes, body, trace, computes) if lanes > 1 else None
    if vector is not None and vector not in axes:
        return None, list(axes), hoisted(in_lanes(body, vector.var, lanes, totals))
    return vector, [axis for axis in axes if axis is not vector], cascaded(body, totals)


def _vector_axis(axes: Sequence[Axis], body: Stmt, trace: Trace, computes: bool) -> Axis | None:
    """The innermost axis of the output where neighbours in it are neighbours in memory, else the
    innermost that is reduced, if it is one, else the innermost there is."""
    reads = [load for load in loads(body) if accessed(load).scope == "arg"]
    reduced = [s for s in statements(body) if isinstance(s, For)]
    last = axes[-1] if axes and all(free_of(loop.extent, [axes[-1].var]) for loop in reduced) else None
    if last is not None and _is_dense(reads, last.var):
        return last
    one_nest = all(outer.body is inner for outer, inner in pairwise(reduced))
    if reduced and one_nest and not (axes and _is_short(reduced[-1].extent, trace, computes)):
        inner = Axis(reduced[-1].var, reduced[-1].extent)
        if _is_dense(reads, inner.var):
            return inner
    return last  # none where the length of a sum depends on it


def _is_short(extent: Expr, trace: Trace, computes: bool) -> bool:
    """Whether a loop has but a few turns, which compute functions or do not, and is not worth lanes: as far as that is
    known or may be asked, which it may not be where code is to serve all sizes."""
    if any(isinstance(node, Var) and node not in trace.arguments for node in postorder((extent,))):
        return False
    size = trace.extent_of(extent)
    return not stays_open(size) and bool(size < (SHORT_CALLS if computes else SHORT))


def _is_dense(reads: Sequence[Load], var: Var) -> bool:
    steps = [step(load, var) for load in reads]
    return 1 in steps and all(s in (0, 1) for s in steps)


def _side_by_side(var: Var, start: ExprLike, end: ExprLike, lanes: int, body: Stmt) -> Stmt:
    """A loop in lanes of a body that reduces: vectors in groups, which read each row one after the other; then those
    left."""
    body, around = hoist(body, (var,))
    start, end = as_expr(start), as_expr(end)
    group, turn, lane, full, last, rest, late = map(Var, ("group", "turn", "lane", "full", "last", "rest", "lane"))
    size = SUMMED * lanes
    own = For(turn, as_expr(SUMMED), substitute(body, {var: start + group * size + turn * lanes + lane}), "unroll")
    main = For(group, full, For(lane, as_expr(lanes), jam(own), "vector"))
    at = last + rest * lanes + late
    tail = For(late, as_expr(lanes), If(at < end, substitute(hoisted(body), {var: at})), "vector")
    both = Seq((main, For(rest, (end - last + (lanes - 1)) // lanes, tail)))
    return around(Let(full, (end - start) // size, Let(last, start + full * size, both)))
