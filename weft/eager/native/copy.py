"""Copies of large arrays whose elements have other neighbours in memory than those of the copy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod

import numpy as np

from ...base.cpu_facts import COSTS
from ...base.dtype import DTYPES, DType
from ...lower.cpu.nest import BLOCK_ELEMENTS
from ...lower.cpu.nests.element import Walk, copy_kernel
from ...lower.cpu.nests.transposed_copy import BLOCK, transposed_copy
from .calls import Array, count_declined
from .kernels import kernel
from .strides import Axis, has_steps, joined, memory_order, steps_of
from .thresholds import FROM

SHORTEST = 8  # extents along which squares are worth their borders
SHORTEST_ROW = 16
NANOSECONDS = COSTS.copied
# What elements of so many bytes are moved as.
MOVED: dict[int, DType] = {4: DTYPES["uint32"], 8: DTYPES["uint64"]}


def dense(array: Array) -> Array:
    """The array, or a copy with its elements in order."""
    return array if array.flags.c_contiguous else ordered_copy(array)


def ordered_copy(array: Array) -> Array:
    """A copy with its elements in order."""
    copy = np.empty(array.shape, array.dtype)
    copy_into(copy, array)
    return copy


def copy_into(target: Array, source: Array) -> None:
    """target[...] = source, of the same shape and dtype."""
    large = source.size >= FROM.copies and not np.may_share_memory(target, source)
    if not large or not _copied(target, source):
        np.copyto(target, source)


def _copied(target: Array, source: Array) -> bool:
    """Whether elements were copied in squares or in rows that numpy walks slowly."""
    moved = MOVED.get(source.itemsize)
    if moved is None or not has_steps(source) or not has_steps(target):
        count_declined("copy", "dtype" if moved is None else "strides")
        return False
    order = memory_order(target)
    turned = [array.transpose(order) for array in (source, target)]
    axes = joined(turned[0].shape, list(map(steps_of, turned)))
    return _in_squares(target, source, moved, axes) or _in_rows(target, source, moved, axes)


def _in_squares(target: Array, source: Array, moved: DType, axes: Sequence[Axis]) -> bool:
    """Whether there are two axes, along each of which one of the arrays has neighbours."""
    rows = next((axis for axis in axes if axis.steps[0] == 1 and axis.steps[1] != 1), None)
    columns = next((axis for axis in axes if axis.steps[1] == 1 and axis.steps[0] != 1), None)
    if rows is None or columns is None or min(rows.extent, columns.extent) < SHORTEST:
        return False
    rest = [axis for axis in axes if axis is not rows and axis is not columns]
    scalars = [rows.extent, columns.extent, rows.steps[1], columns.steps[0], *_walked(rest)]
    turns = prod([axis.extent for axis in rest]) * -(-rows.extent // BLOCK)
    squares = kernel(transposed_copy, moved, len(rest))
    squares.run([source, target], scalars, turns, source.size * NANOSECONDS)
    return True


def _in_rows(target: Array, source: Array, moved: DType, axes: Sequence[Axis]) -> bool:
    """Whether the source has one element for each row, or rows backwards."""
    row = axes[-1]
    if row.steps not in ((0, 1), (-1, 1)) or row.extent < SHORTEST_ROW:
        return False
    rows = kernel(copy_kernel, moved, Walk(len(axes), row.steps[:1], placed=True))
    rows.run([source, target], *rows_of(axes), source.size * NANOSECONDS)
    return True


def rows_of(axes: Sequence[Axis]) -> tuple[tuple[int, ...], int]:
    """The scalars of an element kernel that walks axes, and its turns."""
    extents = [axis.extent for axis in axes]
    turns = prod(extents[:-1]) if len(axes) > 1 else -(-extents[0] // BLOCK_ELEMENTS)
    return (*extents, *chain(*zip(*[axis.steps for axis in axes[:-1]]))), turns


def _walked(axes: Sequence[Axis]) -> list[int]:
    return [number for axis in axes for number in (axis.extent, *axis.steps)]
