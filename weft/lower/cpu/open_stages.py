"""Stages whose sizes are arguments: each becomes a loop nest, and several one kernel where all of them run in one go
for each row."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from ...base.cpu_facts import COSTS
from ...base.cpu_target import CpuTarget
from ...te.expr import Call, Expr, Load, Reduce, as_expr
from ...te.extents import Trace
from ...te.loops import For, Stmt, buffer
from ...te.schedule import inline, loop_nest
from ...te.tensor import Tensor
from ...te.visit import loads, postorder, substitute
from ..group import LoweredKernel, Strides, Temporary, reached_tensors
from .nest import Axis
from .open.nest import Nest, nest_kernel
from .open.reuse import with_reuse


def reductions(output: Tensor, stored: Container[Tensor]) -> list[Reduce]:
    """What a stage reduces, itself or in what it computes on the way."""
    inside = [t for t in reached_tensors(output, stored) if t not in stored]
    nodes = [node for t in (output, *inside) if t.body is not None for node in postorder((t.body,))]
    return [node for node in nodes if isinstance(node, Reduce)]


def extents_of(reduced: Iterable[Reduce]) -> list[Any]:
    return [axis.extent for node in reduced for axis in node.axes]


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


def open_kernels(
    name: str, order: Sequence[Tensor], places: dict[Tensor, Hashable], target: CpuTarget, trace: Trace
) -> list[LoweredKernel]:
    """The kernels of stages in order: one, if all of them can run for each row, or one for each. What has no place yet
    gets one between them."""
    for tensor in order:
        places.setdefault(tensor, Temporary(len(places), tensor.shape, tensor.dtype))
    rows = _common_rows(order, places)
    groups = [order] if rows else [[tensor] for tensor in order]
    return [nests_kernel(f"{name}_{group[-1].name}", group, rows, places, target, trace) for group in groups]


def nests_kernel(
    name: str,
    stages: Sequence[Tensor],
    rows: int,
    places: Mapping[Tensor, Hashable],
    target: CpuTarget,
    trace: Trace,
    strides: Strides | None = None,
) -> LoweredKernel:
    """The kernel of some stages, one after the other for each of the first `rows` axes."""
    read = {t: None for stage in stages for t in reached_tensors(stage, places) if t in places}
    steps = strides or {}
    buffers = {
        t: buffer(f"b{n}", t.dtype, [_known(extent, trace) for extent in t.shape], strides=steps.get(places[t]))
        for n, t in enumerate(dict.fromkeys([*read, *stages]))
    }
    nests = [peeled(substitute(loop_nest([stage], buffers), trace.equal), stage.shape) for stage in stages]
    if rows:
        nests = with_reuse(nests, rows)
    kernel = nest_kernel(name, list(buffers.values()), nests, rows, target, trace)
    elements: Any = prod([*stages[-1].shape, *extents_of(reductions(stages[-1], buffers))])
    each = sum(_cost(node) for nest in nests for node in postorder((nest.body,)))
    work = elements * max(round(each / target.facts.nanoseconds_per_operation), 1)
    return LoweredKernel(kernel, tuple(places[t] for t in buffers), work)


def _cost(node: Any) -> float:
    return COSTS.loaded if isinstance(node, Load) else COSTS.called if isinstance(node, Call) else 0.0


def _known(extent: Any, trace: Trace) -> Expr:
    return substitute(as_expr(extent), trace.equal)


def peeled(nest: Stmt, shape: Sequence[Any]) -> Nest:
    """The loops over the output's axes, and what stands in them."""
    axes = []
    for extent in shape:
        assert isinstance(nest, For)
        axes.append(Axis(nest.var, extent))
        nest = nest.body
    return Nest(axes, nest)
