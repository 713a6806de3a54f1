"""How arrays lie in memory: steps from element to element, and axes that are walked in one go."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

from ...lower.axes import in_one_go
from .calls import Array


class Axis(NamedTuple):
    """An axis that is walked: each array's step along it, in elements."""

    extent: int
    steps: tuple[int, ...]
    reduced: bool = False


def joined(extents: Sequence[int], steps: Sequence[Sequence[int]], reduced: Collection[int] = ()) -> list[Axis]:
    """The axes without those of one element, neighbours of one kind that all arrays walk in one go joined. `steps` are
    those of each array along the axes.

    >>> joined((2, 3, 1, 5), [(15, 5, 5, 1), (1, 0, 0, 0)])
    [Axis(extent=2, steps=(15, 1), reduced=False), Axis(extent=15, steps=(1, 0), reduced=False)]
    """
    axes = [Axis(extent, tuple(each), number in reduced) for number, (extent, *each) in enumerate(zip(extents, *steps))]

    def joins(outer: Axis, inner: Axis) -> bool:
        across = tuple([step * inner.extent for step in inner.steps])
        return outer.reduced == inner.reduced and outer.steps == across

    return [group[-1]._replace(extent=prod([axis.extent for axis in group])) for group in in_one_go(axes, joins)]


def steps_of(array: Array) -> list[int]:
    """The strides in elements."""
    return [stride // array.itemsize for stride in array.strides]


def has_steps(array: Array) -> bool:
    """Whether strides are whole elements."""
    return not any([stride % array.itemsize for stride in array.strides])


def is_dense_inside(array: Array) -> bool:
    """Whether neighbours along the last long axis are side by side, or one and the same."""
    long = [stride for stride, extent in zip(array.strides, array.shape) if extent > 1]
    return not long or (long[-1] in (0, array.itemsize) and not any([step % array.itemsize for step in long]))


def is_writable(array: Array) -> bool:
    """Whether results can be written to an array where it lies."""
    if array.flags.c_contiguous:
        return True
    long = [stride for stride, extent in zip(array.strides, array.shape) if extent > 1]
    return min(long, key=abs) == array.itemsize and not any([step % array.itemsize for step in long])


def memory_order(array: Array) -> tuple[int, ...]:
    """The axes as they lie in memory, longest strides first."""
    axes = range(array.ndim)
    return tuple(axes if array.flags.c_contiguous else sorted(axes, key=lambda axis: -abs(array.strides[axis])))
