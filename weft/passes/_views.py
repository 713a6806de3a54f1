"""Chains of operators that only move elements, as a view: where in the first tensor of the chain
each element of the last one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..base.shape import is_static, normalize_axis
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..ops.shape.slicing import taken_indices

SAME_ORDER = frozenset("reshape flatten squeeze expand_dims reshape_like".split())
FACTORS = {"__mul_scalar__": 1, "__div_scalar__": -1}


class View(NamedTuple):
    """Element (i, j, ...) is number start + i*steps[0] + j*steps[1] + ... of the source, times a
    factor."""

    source: NodeEntry
    shape: tuple[int, ...]
    start: int
    steps: tuple[int, ...]
    factor: float = 1.0


def whole(graph: Graph, entry: NodeEntry) -> View | None:
    """The view that is the entry itself."""
    shape = graph.fact(entry).shape
    return View(entry, shape, 0, dense_steps(shape)) if is_static(shape) else None


def view_of(graph: Graph, entry: NodeEntry) -> View | None:
    """The entry as a view of something as far back as there is one."""
    chain: list[NodeEntry] = []
    while _moves(entry.node):
        chain.append(entry)
        entry = entry.node.inputs[0]
    view = whole(graph, entry)
    for made in reversed(chain):
        shape = graph.fact(made).shape
        if not is_static(shape) or 0 in shape:
            return None
        moved = None if view is None else _moved(view, made, shape)
        view = moved if moved is not None else whole(graph, made)
    return view


def _moves(node: Node) -> bool:
    name = node.op_name
    return name in SAME_ORDER or name in FACTORS or name in ("transpose", "strided_slice", "split")


def _moved(view: View, made: NodeEntry, shape: tuple[int, ...]) -> View | None:
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
    indices = taken_indices(params, view.shape)
    start = view.start + sum(r.start * step for r, step in zip(indices, view.steps))
    steps = tuple(r.step * step for r, step in zip(indices, view.steps))
    return None if min(steps) < 0 else view._replace(shape=shape, start=start, steps=steps)


def _part(view: View, made: NodeEntry, shape: tuple[int, ...]) -> View:
    params = made.node.params
    axis = normalize_axis(params.axis, len(shape))
    cuts = params.indices_or_sections
    first = made.index * shape[axis] if isinstance(cuts, int) else (0, *cuts)[made.index]
    return view._replace(shape=shape, start=view.start + first * view.steps[axis])


def _reshaped(shape: Sequence[int], steps: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """The steps of the same elements in another shape; None where no steps lead to them.

    >>> _reshaped((4, 6), (12, 1), (2, 2, 6)), _reshaped((4, 6), (12, 1), (24,))
    ((24, 12, 1), None)
    """
    merged: list[tuple[int, int]] = []  # (extent, step) of axes that are walked in one go
    for extent, step in zip(shape, steps):
        if extent == 1:
            continue
        if merged and merged[-1][1] == extent * step:
            merged[-1] = (merged[-1][0] * extent, step)
        else:
            merged.append((extent, step))
    found: list[int] = []
    left, step = 1, 1
    for extent in reversed(wanted):
        if left == 1 and extent != 1:
            left, step = merged.pop()
        if left % extent:
            return None
        found.append(step)
        left, step = left // extent, step * extent
    return tuple(reversed(found))


def dense_steps(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major steps."""
    steps, total = [], 1
    for extent in reversed(shape):
        steps.append(total)
        total *= max(extent, 1)
    return tuple(reversed(steps))
