"""Conditions on loop variables decided ahead: where a body asks `i < c`, the loop over i is cut at
c, and each part gets a body that need not ask."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ...te.expr import Compare, Var
from ...te.extents import is_open
from ...te.loops import Stmt
from ...te.simplify_loops import simplify_statement
from ...te.visit import postorder, substitute
from ..access import linear
from ..axes import Axis, turns_of

MAX_LEAVES = 256

# var + d <op> 0 changes where var passes this: (smallest var for which it has changed) + d
_FLIP = {"lt": 0, "ge": 0, "le": 1, "gt": 1}
_MIRROR = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


class AxisRange(NamedTuple):
    """Turns start .. start + extent - 1 of an axis."""

    start: int
    extent: Any


def condition_splits(axes: Sequence[Axis], body: Stmt) -> list[list[AxisRange]]:
    """For each axis the parts in which no condition on it changes; one part where there is none."""
    cuts: dict[Var, set[int]] = {axis.var: set() for axis in axes}
    for node in postorder((body,)):
        if isinstance(node, Compare) and node.lanes == 1:
            cut = _cut(node)
            if cut is not None and cut[0] in cuts:
                cuts[cut[0]].add(cut[1])
    ranges = [_between(axis, cuts[axis.var]) for axis in axes]
    leaves = 1
    for number, parts in enumerate(ranges):
        leaves *= len(parts)
        if leaves > MAX_LEAVES:
            ranges[number] = [AxisRange(0, axes[number].extent)]
            leaves //= len(parts)
    return ranges


def _cut(node: Compare) -> tuple[Var, int] | None:
    a, b = linear(node.a), linear(node.b)
    if a is None or b is None or node.op not in _FLIP:
        return None
    difference = a.plus(b, -1)
    if len(difference.terms) != 1:
        return None
    ((var, factor),) = difference.terms.items()
    if factor not in (1, -1):
        return None
    op = node.op if factor == 1 else _MIRROR[node.op]
    return var, _FLIP[op] - factor * difference.constant


def _between(axis: Axis, cuts: set[int]) -> list[AxisRange]:
    if is_open(axis.extent):
        return [AxisRange(0, axis.extent)]
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < axis.extent), axis.extent]
    return [AxisRange(low, high - low) for low, high in pairwise(edges)]


def at_ranges(body: Stmt, axes: Sequence[Axis], parts: Sequence[AxisRange]) -> Stmt:
    """The body where each axis counts from the start of its part."""
    moved = {axis.var: axis.var + part.start for axis, part in zip(axes, parts) if part.start}
    ranges = turns_of(Axis(axis.var, part.extent) for axis, part in zip(axes, parts))
    return simplify_statement(substitute(body, moved), ranges)
