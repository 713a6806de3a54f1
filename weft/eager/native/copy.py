"""Copies of large arrays whose elements have other neighbours in memory than those of the copy, and
copies of triangles."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from ...base.dtype import DTYPES, DType
from ...core.op import Op
from ...lower.cpu.open.transposed import BLOCK, row_copy, transposed_copy
from ...lower.cpu.open.triangle import triangle_kernel
from .calls import Declined, count_declined, native, not_empty
from .kernels import kernel
from .thresholds import FROM

Array = np.ndarray[Any, Any]

_Axis = tuple[int, int, int]  # extent, step of the source, step of the target

SHORTEST = 8  # extents along which squares are worth their borders
SHORTEST_ROW = 16
NANOSECONDS = 0.3  # of an element
# What elements of so many bytes are moved as.
MOVED: dict[int, DType] = {4: DTYPES["uint32"], 8: DTYPES["uint64"]}


def dense(array: Array) -> Array:
    """The array, or a copy with its elements in order."""
    return array if array.flags.c_contiguous else ordered_copy(array)


def ordered_copy(array: Array) -> Array:
    """A copy with its elements in order."""
    made = np.empty(array.shape, array.dtype)
    copy_into(made, array)
    return made


def copy_into(target: Array, source: Array) -> None:
    """target[...] = source, of the same shape and dtype."""
    large = source.size >= FROM.copies and not np.may_share_memory(target, source)
    if not large or not _copied(target, source):
        np.copyto(target, source)


def _copied(target: Array, source: Array) -> bool:
    """Whether elements were copied in squares or in rows that numpy walks slowly."""
    moved = MOVED.get(source.itemsize)
    if moved is None:
        count_declined("copy", "dtype")
        return False
    axes = _joined(target, source)
    if any([step % source.itemsize for axis in axes for step in axis[1:]]):
        count_declined("copy", "strides")
        return False
    steps = [(extent, here // source.itemsize, there // source.itemsize) for extent, here, there in axes]
    return _in_squares(target, source, moved, steps) or _in_rows(target, source, moved, steps)


def _in_squares(target: Array, source: Array, moved: DType, axes: Sequence[_Axis]) -> bool:
    """Whether there are two axes, along each of which one of the arrays has neighbours."""
    rows = next((axis for axis in axes if axis[1] == 1 and axis[2] != 1), None)
    columns = next((axis for axis in axes if axis[2] == 1 and axis[1] != 1), None)
    if rows is None or columns is None or min(rows[0], columns[0]) < SHORTEST:
        return False
    rest = [axis for axis in axes if axis is not rows and axis is not columns]
    scalars = [rows[0], columns[0], rows[2], columns[1], *chain(*rest)]
    turns = prod([axis[0] for axis in rest]) * -(-rows[0] // BLOCK)
    squares = kernel(transposed_copy, moved, len(rest))
    squares.run([source, target], scalars, turns, source.size * NANOSECONDS)
    return True


def _in_rows(target: Array, source: Array, moved: DType, axes: Sequence[_Axis]) -> bool:
    """Whether the source has one element for each row, or rows backwards."""
    *outer, (count, step, out_step) = axes
    if out_step != 1 or step not in (0, -1) or count < SHORTEST_ROW:
        return False
    turns = prod([axis[0] for axis in outer])
    rows = kernel(row_copy, moved, len(outer), step)
    rows.run([source, target], [count, *chain(*outer)], turns, source.size * NANOSECONDS)
    return True


def _joined(target: Array, source: Array) -> list[_Axis]:
    """The axes, those joined that both arrays walk in one go; the target's longest steps first."""
    joined: list[_Axis] = []
    steps = zip(source.shape, source.strides, target.strides)
    for extent, here, there in sorted(steps, key=lambda axis: -abs(axis[2])):
        if extent == 1:
            continue
        if joined and joined[-1][1:] == (here * extent, there * extent):
            joined[-1] = (joined[-1][0] * extent, here, there)
        else:
            joined.append((extent, here, there))
    return joined


@native("flip", from_=FROM.copies)
def run_flip(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    return ordered_copy(np.flip(arrays[0], params.axis))


@native("triangle", from_=FROM.triangles, takes=not_empty)
def run_triangle(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """The lower or upper triangle of matrices."""
    (x,) = arrays
    if x.itemsize not in MOVED or x.ndim < 2:
        raise Declined("rank" if x.ndim < 2 else "dtype")
    out = np.empty(x.shape, x.dtype)
    rows, columns = x.shape[-2:]
    scalars = [x.size // columns, rows, columns, params.diagonal]
    triangle = kernel(triangle_kernel, MOVED[x.itemsize], params.lower)
    triangle.run([dense(x), out], scalars, scalars[0], x.size * NANOSECONDS)
    return out
