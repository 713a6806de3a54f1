"""The generic schedule of a stage without a reduction: every output element from a few inputs.

Axes that all tensors walk through in one go become one axis; the innermost is vectorised, the
outer ones are shared by threads. Loops are cut where a condition on them changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from ...base.cpu_target import CpuTarget
from ...te.expr import Binary, Const, Load, Var, as_expr
from ...te.extents import fewest, is_open
from ...te.loops import Buffer, For, If, Kernel, Stmt, Store
from ...te.simplify_loops import sequence
from ...te.visit import postorder, substitute
from ..access import accessed, step
from ..axes import Axis, simplified
from ..collapse import addresses, collapsed, flat_buffers, joined
from .condition_splits import AxisRange, at_ranges, condition_splits
from .nest import BLOCK_ELEMENTS, cut, finished_kernel, in_blocks, lane_loop
from .squares import LEAST_LANES, in_squares, squares_of

NEAR = 1 / 2  # of the first cache, which the lines of a row may take
NEAR_STEP = 512  # bytes between neighbours that are not far apart
PARALLEL_TURNS = 16  # fewer turns of the outer loops than this cannot keep threads busy


def pointwise_kernel(
    name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt, target: CpuTarget
) -> Kernel:
    """The kernel of a body that stores elements at `axes`."""
    body = simplified(body, axes)
    parts = condition_splits(axes, body)
    if any(len(part) > 1 for part in parts):
        return _split_kernel(name, buffers, axes, body, parts, target)
    buffers, axes, body = collapsed(buffers, *axes_without_blocks(axes, body))
    lanes = vector_lanes(body, target)
    if not axes:
        return finished_kernel(name, buffers, [], body)
    squares = squares_of(axes, body, lanes) if lanes >= LEAST_LANES else None
    if squares is not None:
        return finished_kernel(name, buffers, *in_squares(axes, squares, body))
    jump = _jump(axes, body, target)
    if jump is not None:
        return finished_kernel(name, buffers, *_tiled(axes, jump, body, lanes))
    inner, outer = axes[-1], list(axes[:-1])
    few = fewest(axis.extent for axis in outer) < PARALLEL_TURNS
    if not outer or (few and not is_open(inner.extent) and inner.extent > BLOCK_ELEMENTS):
        block, body = in_blocks(inner, lanes, body)
        return finished_kernel(name, buffers, [*outer, block], body)
    return finished_kernel(name, buffers, outer, lane_loop(inner.var, 0, inner.extent, lanes, body))


def axes_without_blocks(axes: Sequence[Axis], body: Stmt) -> tuple[list[Axis], Stmt]:
    """The same with an axis whose index is used as i // c and i % c as two axes, or as more."""
    made: list[Axis] = []
    pending = list(reversed(axes))
    while pending:
        axis = pending.pop()
        block = None if is_open(axis.extent) else _block_of(axis, body)
        if block is None:
            made.append(axis)
            continue
        outer = Axis(Var(f"{axis.var.name}_b"), axis.extent // block)
        inner = Axis(Var(axis.var.name), block)
        pending += [inner, outer]
        body = simplified(substitute(body, {axis.var: outer.var * block + inner.var}), (outer, inner))
    return made, body


def _block_of(axis: Axis, body: Stmt) -> int | None:
    for node in postorder((body,)):
        if not isinstance(node, Binary) or node.op not in ("floordiv", "floormod"):
            continue
        if node.a is axis.var and isinstance(node.b, Const):
            block = int(node.b.value)
            if 1 < block < axis.extent and axis.extent % block == 0:
                return block
    return None


# Transposition: neighbours in the output are far apart in an input.


class _Jump(NamedTuple):
    """A load that goes from line to line of memory along the innermost axis: how far, in bytes, and
    along which axis the elements of a line are, and how many."""

    distance: int
    along: Axis
    elements: int


def _jump(axes: Sequence[Axis], body: Stmt, target: CpuTarget) -> _Jump | None:
    """None where no load jumps, or where all lines it touches on the way stay in the cache."""
    inner = axes[-1]
    line = target.facts.line_bytes
    if is_open(inner.extent) or inner.extent * line <= NEAR * target.caches[0]:
        return None
    for node in postorder((body,)):
        if not isinstance(node, Load) or accessed(node).scope != "arg":
            continue
        distance, size = step(node, inner.var), node.dtype.itemsize
        known = [axis for axis in axes[:-1] if not is_open(axis.extent)]
        along = next((axis for axis in known if step(node, axis.var) == 1), None)
        if along is not None and distance is not None and abs(distance) > 1:
            return _Jump(abs(distance) * size, along, max(line // size, 1))
    return None


def _tiled(axes: Sequence[Axis], jump: _Jump, body: Stmt, lanes: int) -> tuple[list[Axis], Stmt]:
    """Outer loops, and what they do: a tile that uses up the lines it reads. Its rows, along the
    innermost axis, are some lines of the output; fewer where what is read lies so far apart that
    it would compete for the same places in the cache."""
    row = (4 if jump.distance <= NEAR_STEP else 2) * jump.elements
    across, body = cut(axes[-1], row, body, lambda part, stmt: lane_loop(part.var, 0, part.extent, lanes, stmt))
    lines, body = cut(jump.along, jump.elements, body, _serial)
    outer = [axis for axis in axes[:-1] if axis is not jump.along]
    return [*outer, lines, across], body


def _serial(axis: Axis, body: Stmt) -> Stmt:
    return For(axis.var, as_expr(axis.extent), body)


# Bodies with conditions on the axes: concatenation, padding.


def _split_kernel(
    name: str,
    buffers: Sequence[Buffer],
    axes: Sequence[Axis],
    body: Stmt,
    parts: Sequence[Sequence[AxisRange]],
    target: CpuTarget,
) -> Kernel:
    """Threads share the axes up to the first that is cut; inside, every part has its own loops."""
    first = next(number for number, part in enumerate(parts) if len(part) > 1)
    shared = first + 1 if first + 1 < len(axes) else first
    chosen_parts = [list(enumerate(part)) for part in parts]
    leaves = {
        tuple(number for number, _ in choice): at_ranges(body, axes, [part for _, part in choice])
        for choice in product(*chosen_parts)
    }
    flat = flat_buffers(buffers) if _all_linear(axes, leaves.values()) else None

    def nest(number: int, chosen: tuple[int, ...]) -> Stmt:
        if number == len(axes):
            inner = [axis._replace(extent=part[at].extent) for axis, part, at in zip(axes, parts, chosen)]
            return _leaf(inner[shared:], leaves[chosen], flat, target)
        choices = [nest(number + 1, (*chosen, at)) for at in range(len(parts[number]))]
        if number >= shared:
            return sequence(choices)
        starts = [part.start for part in parts[number]]
        moved = [
            substitute(stmt, {axes[number].var: axes[number].var - start}) if start else stmt
            for stmt, start in zip(choices, starts)
        ]
        result = moved[-1]
        for stmt, start in reversed(list(zip(moved[:-1], starts[1:]))):
            result = If(axes[number].var < start, stmt, result)
        return result

    used = list(flat.values()) if flat is not None else buffers
    return finished_kernel(name, used, list(axes[:shared]), nest(0, ()))


def _leaf(axes: Sequence[Axis], body: Stmt, flat: dict[Buffer, Buffer] | None, target: CpuTarget) -> Stmt:
    """Serial loops over the axes, the innermost in vectors."""
    if flat is not None:
        axes, body = joined(axes, body, flat)
    lanes = vector_lanes(body, target)
    if not axes:
        return body
    body = lane_loop(axes[-1].var, 0, axes[-1].extent, lanes, body)
    for axis in reversed(axes[:-1]):
        body = For(axis.var, as_expr(axis.extent), body)
    return body


def _all_linear(axes: Sequence[Axis], bodies: Iterable[Stmt]) -> bool:
    return all(addresses(body, axes) is not None for body in bodies)


def vector_lanes(body: Stmt, target: CpuTarget) -> int:
    """As many lanes as the widest element type in the body allows."""
    dtypes = {node.dtype for node in postorder((body,)) if isinstance(node, Load)}
    dtypes |= {node.buffer.dtype for node in postorder((body,)) if isinstance(node, Store)}
    return min((target.lanes(dtype) for dtype in dtypes), default=1)
