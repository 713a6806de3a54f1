"""Stages whose sizes are arguments: each becomes a loop nest, and several one kernel where all of them run in one go
for each row."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from ...base.cpu_facts import COSTS
from ...base.cpu_target import CpuTarget
from ...te.expr import Call, Expr, ExprLike, Load, Var, as_expr
from ...te.extents import Trace, is_open, stays_open
from ...te.jam import jam
from ...te.loops import Buffer, For, If, Kernel, Let, Seq, Stmt, buffer
from ...te.schedule import inline, loop_nest
from ...te.simplify_loops import sequence, statements
from ...te.tensor import Tensor
from ...te.visit import free_of, loads, postorder, substitute
from ..access import accessed, step
from ..axes import Axis, Nest, extents_of, peeled, reductions
from ..group import LoweredKernel, Strides, Temporary, reached_tensors
from .nest import BLOCK_ELEMENTS, finished_kernel, in_blocks
from .open.hoist import hoist, hoisted, vector_loop
from .open.joined import join_axes, join_loops
from .open.reuse import with_reuse
from .open.sums import calls, cascaded, in_lanes, widened
from .pointwise import vector_lanes

SUMMED = 8  # vectors side by side where each is a reduction
SHORT, SHORT_CALLS = 16, 32  # turns of a loop that is not worth lanes, and of one that computes functions


def _common_rows(order: Sequence[Tensor], places: Mapping[Tensor, Hashable]) -> int:
    """How many leading axes number rows, for each of which all stages can run in one go: first
    reductions to one value, then elements that read those of their own row. 0: it is not so."""
    if len(order) < 2 or not all(_row_axes(tensor) for tensor in order[:-1]):
        return 0
    rows = min(_row_axes(tensor) for tensor in order[:-1])
    if any(tensor.shape[:rows] != order[0].shape[:rows] for tensor in order):
        return 0
    for tensor in order:
        for load in _all_loads(tensor, places):
            own = zip(load.indices[:rows], tensor.axes)
            if load.source in order and not all(index is axis for index, axis in own):
                return 0
    return rows


def _row_axes(tensor: Tensor) -> int:
    """The leading axes of a stage after which there is but one element."""
    rank = tensor.rank
    while rank and type(tensor.shape[rank - 1]) is int and tensor.shape[rank - 1] == 1:
        rank -= 1
    return rank


def _all_loads(tensor: Tensor, places: Mapping[Tensor, Hashable]) -> list[Load]:
    """What a stage reads, through what is computed on the way."""
    between = [t for t in reached_tensors(tensor, places) if t not in places and not t.is_reduction]
    body = inline(tensor, between).body
    assert body is not None
    direct = loads(body)
    sources = [load.source for load in direct if load.source not in places]
    nested = [source for source in sources if isinstance(source, Tensor)]
    return direct + [load for source in nested for load in _all_loads(source, places)]


def _are_short(order: Sequence[Tensor], places: Mapping[Tensor, Hashable], computes: bool) -> bool:
    """Whether rows are better reduced side by side."""
    extents = [extents_of(reductions(tensor, places)) for tensor in order]
    return any(is_short(prod(each), computes) for each in extents if each)


def open_kernels(
    name: str, order: Sequence[Tensor], places: dict[Tensor, Hashable], target: CpuTarget, trace: Trace
) -> list[LoweredKernel]:
    """The kernels of stages in order: one, if all of them can run for each row, or one for each. What has no place yet
    gets one between them."""
    for tensor in order:
        places.setdefault(tensor, Temporary(len(places), tensor.shape, tensor.dtype))
    computes = any(isinstance(node, Call) for node in postorder([t.body for t in order if t.body is not None]))
    rows = _common_rows(order, places)
    if rows and _are_short(order[:-1], places, computes):
        rows = 0
    groups = [order] if rows else [[tensor] for tensor in order]
    named = [(f"{name}_{group[-1].name}", group) for group in groups]
    return [nests_kernel(own, group, rows, places, target, trace, computes=computes) for own, group in named]


def nests_kernel(
    name: str,
    stages: Sequence[Tensor],
    rows: int,
    places: Mapping[Tensor, Hashable],
    target: CpuTarget,
    trace: Trace,
    strides: Strides | None = None,
    computes: bool = False,
) -> LoweredKernel:
    """The kernel of some stages, one after the other for each of the first `rows` axes. `computes` says that there are
    functions in a stage beside it: all of them ask the same about sizes, so that few programs serve all."""
    read = {t: None for stage in stages for t in reached_tensors(stage, places) if t in places}
    steps = strides or {}
    buffers = {
        t: buffer(f"b{n}", t.dtype, [_known(extent, trace) for extent in t.shape], strides=steps.get(places[t]))
        for n, t in enumerate(dict.fromkeys([*read, *stages]))
    }
    nests = [peeled(substitute(loop_nest([stage], buffers), trace.equal), stage.shape) for stage in stages]
    if rows:
        nests = with_reuse(nests, rows)
    computes = computes or any(calls(nest.body) for nest in nests)
    kernel = nest_kernel(name, list(buffers.values()), nests, rows, target, trace, computes)
    elements: Any = prod([*stages[-1].shape, *extents_of(reductions(stages[-1], buffers))])
    each = sum(_cost(node) for nest in nests for node in postorder((nest.body,)))
    work = elements * max(round(each / target.facts.nanoseconds_per_operation), 1)
    return LoweredKernel(kernel, tuple(places[t] for t in buffers), work)


def _cost(node: Any) -> float:
    return COSTS.loaded if isinstance(node, Load) else COSTS.called if isinstance(node, Call) else 0.0


def _known(extent: Any, trace: Trace) -> Expr:
    return substitute(as_expr(extent), trace.equal)


# Nests of loops


def nest_kernel(
    name: str,
    buffers: Sequence[Buffer],
    nests: Sequence[Nest],
    rows: int,
    target: CpuTarget,
    trace: Trace,
    computes: bool = False,
) -> Kernel:
    """The kernel of some nests, one after the other. The first `rows` axes are the same for all of them, and what later
    ones read is of their own row."""
    lanes = min(_lanes(nest.body, target) for nest in nests)
    if not rows and len(nests) == 1:
        axes, body = _without_ones(nests[0])
        now = {buffer: buffer for buffer in buffers}
        axes, body = join_axes(axes, join_loops(body, now), now, trace)
        buffers = list(now.values())
        vector, outer, body = _in_vectors(Nest(axes, body), lanes, trace, computes)
        if vector is not None:
            lanes = lanes if is_open(vector.extent) else max(min(lanes, vector.extent), 1)
            reduces = any(isinstance(s, For) for s in statements(body))
            walk = _side_by_side if reduces and not calls(body) else vector_loop
            body = hoisted(body) if calls(body) else body
            if outer:
                body = walk(vector.var, 0, vector.extent, lanes, body)
            else:
                block, body = in_blocks(vector, lanes, body, SUMMED * lanes if reduces else BLOCK_ELEMENTS, walk)
                outer = [block]
    else:
        outer = _without_ones(Nest(nests[0].axes[:rows], Seq(()))).axes
        body = sequence([_row(nest, nests[0].axes[:rows], rows, lanes, trace, computes) for nest in nests])
    return finished_kernel(name, buffers, outer, body)


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


def _row(nest: Nest, shared: Sequence[Axis], rows: int, lanes: int, trace: Trace, computes: bool) -> Stmt:
    """What a nest does in one row: the axes that are its own as serial loops."""
    known: dict[Var, Expr] = {
        own.var: as_expr(0) if type(row.extent) is int and row.extent == 1 else row.var
        for own, row in zip(nest.axes[:rows], shared)
    }
    own = _without_ones(Nest(nest.axes[rows:], substitute(nest.body, known)))
    vector, axes, body = _in_vectors(own, lanes, trace, computes)
    if vector is not None:
        body = vector_loop(vector.var, 0, vector.extent, lanes, body)
    for axis in reversed(axes):
        body = For(axis.var, as_expr(axis.extent), body)
    return body


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
    """Whether a loop has but a few turns, as far as that is known or may be asked."""
    if any(isinstance(node, Var) and node not in trace.arguments for node in postorder((extent,))):
        return False
    return is_short(trace.extent_of(extent), computes)


def is_short(size: Any, computes: bool) -> bool:
    """Whether so many turns, which compute functions or do not, are not worth lanes; not asked where code is to serve
    all sizes."""
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
