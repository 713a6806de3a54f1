"""Chains of operators that only move elements, as a view: where in the first tensor of the chain
each element of the last one is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard

from ..base.shape import Dim, Shape, add_dims, floor_div_dims, is_known, mul_dims, normalize_axis
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry

SAME_ORDER = frozenset("reshape flatten squeeze expand_dims reshape_like".split())
FACTORS = {"__mul_scalar__": 1, "__div_scalar__": -1}

Number = int | str  # or an expression over names, which are at least 1
Numbers = tuple[Number, ...]


class View(NamedTuple):
    """Element (i, j, ...) is number start + i*steps[0] + j*steps[1] + ... of the source, times a
    factor."""

    source: NodeEntry
    shape: Numbers
    start: Number
    steps: Numbers
    factor: float = 1.0


def whole(graph: Graph, entry: NodeEntry) -> View | None:
    """The view that is the entry itself."""
    shape = graph.fact(entry).shape
    steps = dense_steps(shape) if _is_told(shape) else None
    return View(entry, shape, 0, steps) if steps is not None and _is_told(shape) else None


def view_of(graph: Graph, entry: NodeEntry) -> View | None:
    """The entry as a view of something as far back as there is one."""
    chain: list[NodeEntry] = []
    while _moves(entry.node):
        chain.append(entry)
        entry = entry.node.inputs[0]
    view = whole(graph, entry)
    for made in reversed(chain):
        shape = graph.fact(made).shape
        if not _is_told(shape) or 0 in shape:
            return None
        moved = None if view is None else _moved(view, made, shape)
        view = moved if moved is not None else whole(graph, made)
    return view


def _is_told(shape: Shape) -> TypeGuard[Numbers]:
    return is_known(shape)


def _moves(node: Node) -> bool:
    name = node.op_name
    return name in SAME_ORDER or name in FACTORS or name in ("transpose", "strided_slice", "split")


def _moved(view: View, made: NodeEntry, shape: Numbers) -> View | None:
    """The view after one more operator; None where that is no view."""
    node, params = made.node, made.node.params
    if node.op_name in FACTORS:
        return view._replace(factor=view.factor * params.scalar ** FACTORS[node.op_name])
    if node.op_name in SAME_ORDER:
        steps = _reshaped(view.shape, view.steps, shape)
        return None if steps is None else view._replace(shape=shape, steps=steps)
    if node.op_name == "transpose":
        rank = len(shape)
        axes = [normalize_axis(a, rank) for a in params.axes] or list(reversed(range(rank)))
        return view._replace(shape=shape, steps=tuple(view.steps[axis] for axis in axes))
    if node.op_name == "split":
        return _part(view, made, shape)
    taken = [_taken(params, axis, extent) for axis, extent in enumerate(view.shape)]
    found = [index for index in taken if index is not None]
    if len(found) < len(taken):
        return None
    start = add_dims(view.start, *(mul_dims(begin, step) for (begin, _), step in zip(found, view.steps)))
    return _placed(view, shape, start, [mul_dims(stride, step) for (_, stride), step in zip(found, view.steps)])


def _taken(params: Any, axis: int, extent: Number) -> tuple[int, int] | None:
    """The first index that a slice takes along an axis, and how far it is to the next; None where names decide on the
    first, or where it goes backwards."""
    begin = params.begin[axis] if axis < len(params.begin) else 0
    end = params.end[axis] if axis < len(params.end) else None
    stride = params.stride[axis] if axis < len(params.stride) else 1
    if isinstance(begin, str) or isinstance(stride, str) or stride < 0:
        return None
    if isinstance(extent, int) and not isinstance(end, str):
        return range(*slice(begin, end, stride).indices(extent)).start, stride
    return (begin, stride) if begin >= 0 else None


def _part(view: View, made: NodeEntry, shape: Numbers) -> View | None:
    params = made.node.params
    axis = normalize_axis(params.axis, len(shape))
    cuts = params.indices_or_sections
    first = mul_dims(made.index, shape[axis]) if isinstance(cuts, int) else (0, *cuts)[made.index]
    return _placed(view, shape, add_dims(view.start, mul_dims(first, view.steps[axis])), view.steps)


def _placed(view: View, shape: Numbers, start: Dim, steps: Iterable[Dim]) -> View | None:
    """The view of a part; None where it is too complicated to say where that is."""
    told = [step for step in steps if step is not None]
    return (
        None if start is None or len(told) < len(shape) else View(view.source, shape, start, tuple(told), view.factor)
    )


def _reshaped(shape: Sequence[Number], steps: Sequence[Number], wanted: Sequence[Number]) -> Numbers | None:
    """The steps of the same elements in another shape; None where no steps lead to them.

    >>> _reshaped((4, 6), (12, 1), (2, 2, 6)), _reshaped((4, 6), (12, 1), (24,))
    ((24, 12, 1), None)
    >>> _reshaped(("n", "s", 6), ("6*s", 6, 1), ("n*s", 2, 3))
    (6, 3, 1)
    """
    merged: list[tuple[Dim, Number]] = []  # (extent, step) of axes that are walked in one go
    for extent, step in zip(shape, steps):
        if extent == 1:
            continue
        if merged and merged[-1][1] == mul_dims(extent, step):
            merged[-1] = (mul_dims(merged[-1][0], extent), step)
        else:
            merged.append((extent, step))
    found: list[Number] = []
    left: Dim = 1
    at: Dim = 1
    for extent in reversed(wanted):
        if left == 1 and extent != 1:
            if not merged:
                return None
            left, at = merged.pop()
        rest = floor_div_dims(left, extent)
        if at is None or rest is None or mul_dims(rest, extent) != left:
            return None
        found.append(at)
        left, at = rest, mul_dims(at, extent)
    return tuple(reversed(found)) if left == 1 and not merged else None


def dense_steps(shape: Sequence[Number]) -> Numbers | None:
    """Row-major steps; None where they are too complicated to say."""
    steps: list[Number] = []
    total: Dim = 1
    for extent in reversed(shape):
        if total is None:
            return None
        steps.append(total)
        total = total if extent == 0 else mul_dims(total, extent)
    return tuple(reversed(steps))
