"""Copies of large arrays whose elements have other neighbours in memory than those of the copy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from ...base.cpu_facts import COSTS
from ...base.dtype import DTYPES, DType
from ...lower.cpu.nests.element import Walk, copy_kernel, numbers_of
from ...runtime.cpu.open_program import Call
from .calls import Array, Reason, count_declined
from .kernels import kernel
from .strides import Axis, joined
from .thresholds import FROM

SHORTEST = 8  # extents along which squares are worth their borders
SHORTEST_ROW = 16
PLANS = 1024
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
    plan = _planned(source.shape, source.strides, target.strides, source.itemsize)
    if plan is None:
        return False
    if isinstance(plan, str):
        count_declined("copy", plan)
        return False
    plan.run([source, target])
    return True


@lru_cache(PLANS)
def _planned(
    shape: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...], itemsize: int
) -> Call | Reason | None:
    """How elements are copied, by the strides of both; or why not; None where numpy is as fast."""
    moved = MOVED.get(itemsize)
    if moved is None:
        return "dtype"
    if any([stride % itemsize for stride in (*source, *target)]):
        return "strides"
    order = sorted(range(len(shape)), key=lambda axis: -abs(target[axis]))
    steps = [[strides[axis] // itemsize for axis in order] for strides in (source, target)]
    axes = joined([shape[axis] for axis in order], steps)
    squares = _with_squares(axes)
    if squares is None and (axes[-1].steps not in ((0, 1), (-1, 1)) or axes[-1].extent < SHORTEST_ROW):
        return None
    walk = Walk(len(axes), (axes[-1].steps[0] if squares is None else None,), placed=True)
    return kernel(copy_kernel, moved, walk).given(*walked(squares or axes, walk), prod(shape) * NANOSECONDS)


def _with_squares(axes: Sequence[Axis]) -> list[Axis] | None:
    """The axes with those last along each of which one of the arrays has neighbours, if there are two."""
    rows = next((axis for axis in axes if axis.steps[0] == 1 and axis.steps[1] != 1), None)
    columns = next((axis for axis in axes if axis.steps[1] == 1 and axis.steps[0] != 1), None)
    if rows is None or columns is None or min(rows.extent, columns.extent) < SHORTEST:
        return None
    return [*[axis for axis in axes if axis is not rows and axis is not columns], rows, columns]


def walked(axes: Sequence[Axis], walk: Walk) -> tuple[tuple[int, ...], int]:
    """The scalars of an element kernel that walks axes, and its turns."""
    return numbers_of(walk, [axis.extent for axis in axes], [*zip(*[axis.steps for axis in axes])])
