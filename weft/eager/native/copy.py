"""Copies of large arrays whose elements have other neighbours in memory than those of the copy, and
copies of triangles."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...compiler.open.kernels import open_kernel
from ...core.op import Op
from ...lower.cpu.open.matrices.triangle import triangle_kernel
from ...lower.cpu.open.transposed import BLOCK, row_copy, transposed_copy

Array = np.ndarray[Any, Any]

COPY_FROM = 1 << 13  # elements
TRIANGLE_FROM = 1 << 9
SHORTEST = 8  # extents along which squares are worth their borders
SHORTEST_ROW = 16
NANOSECONDS = 0.3  # of an element
# What elements of so many bytes are moved as.
MOVED = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


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
    large = source.size >= COPY_FROM and not np.may_share_memory(target, source)
    if not large or not (_transposed(target, source) or _by_rows(target, source)):
        np.copyto(target, source)


def _transposed(target: Array, source: Array) -> bool:
    """Whether squares were copied: there are two axes, along each of which one of the arrays has
    neighbours."""
    size = source.itemsize
    moved = MOVED.get(size)
    if moved is None:
        return False
    axes = _joined(target, source)
    rows = next((axis for axis in axes if axis[1] == size and axis[2] != size), None)
    columns = next((axis for axis in axes if axis[2] == size and axis[1] != size), None)
    if rows is None or columns is None or min(rows[0], columns[0]) < SHORTEST:
        return False
    if any([step % size for axis in axes for step in axis[1:]]):
        return False
    rest = [axis for axis in axes if axis is not rows and axis is not columns]
    scalars = [rows[0], columns[0], rows[2] // size, columns[1] // size]
    scalars += [n for axis in rest for n in (axis[0], axis[1] // size, axis[2] // size)]
    turns = prod([axis[0] for axis in rest]) * -(-rows[0] // BLOCK)
    key = ("transposed copy", moved, len(rest))
    kernel = open_kernel(key, lambda machine: transposed_copy(moved, len(rest), machine))
    kernel.run([source, target], scalars, turns, source.size * NANOSECONDS)
    return True


def _by_rows(target: Array, source: Array) -> bool:
    """Whether rows were copied, of which the source has one element, or which are backwards."""
    size = source.itemsize
    moved, axes = MOVED.get(size), _joined(target, source)
    if moved is None or any([step % size for axis in axes for step in axis[1:]]):
        return False
    count, step, out_step = axes.pop()
    if out_step != size or step not in (0, -size) or count < SHORTEST_ROW:
        return False
    scalars = [count]
    scalars += [n for axis in axes for n in (axis[0], axis[1] // size, axis[2] // size)]
    key = ("row copy", moved, len(axes), step // size)
    kernel = open_kernel(key, lambda machine: row_copy(moved, len(axes), step // size, machine))
    turns = prod([axis[0] for axis in axes])
    kernel.run([source, target], scalars, turns, source.size * NANOSECONDS)
    return True


def _joined(target: Array, source: Array) -> list[tuple[int, int, int]]:
    """(extent, step of the source, step of the target) of the axes, those joined that both arrays
    walk in one go; the target's longest steps first."""
    found: list[tuple[int, int, int]] = []
    steps = zip(source.shape, source.strides, target.strides)
    for extent, here, there in sorted(steps, key=lambda axis: -abs(axis[2])):
        if extent == 1:
            continue
        if found and found[-1][1] == here * extent and found[-1][2] == there * extent:
            found[-1] = (found[-1][0] * extent, here, there)
        else:
            found.append((extent, here, there))
    return found


def run_flip(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    return ordered_copy(np.flip(arrays[0], params.axis))


def run_triangle(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """The lower or upper triangle of matrices."""
    (x,) = arrays
    moved = MOVED.get(x.itemsize)
    if moved is None or x.ndim < 2 or not x.size:
        return None
    made = np.empty(x.shape, x.dtype)
    rows, columns = x.shape[-2:]
    kernel = open_kernel(("triangle", moved, params.lower), lambda t: triangle_kernel(moved, params.lower, t))
    scalars = [x.size // columns, rows, columns, params.diagonal]
    kernel.run([dense(x), made], scalars, scalars[0], x.size * NANOSECONDS)
    return made


CALLS = {"triangle": (TRIANGLE_FROM, run_triangle), "flip": (COPY_FROM, run_flip)}
