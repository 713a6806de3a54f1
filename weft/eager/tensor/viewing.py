"""Views: tensors over memory that is there, with a place in the autograd graph. Comes in a tensor
and the numpy view of its memory, goes out the tensor of that view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from ...core.op import Op
from ...ops.math.broadcast import BroadcastToAttrs
from ...ops.shape.index import TakeAttrs
from ...ops.shape.join import SplitAttrs
from ...ops.shape.part import PartAttrs
from ...ops.shape.transform import TransposeAttrs
from ...ops.shape.views import ReshapeAttrs
from .. import native
from ..autograd.modes import modes
from ..dispatch import kernel_of, record
from .memory import Array, Memory, positions_by, seen_as, stretched_to
from .tensor import Tensor, as_view, wrap

_RESHAPE, _TRANSPOSE, _BROADCAST, _PART, _TAKE, _COPY, _SPLIT = (
    Op.get(name) for name in ("reshape", "transpose", "broadcast_to", "part", "take", "copy", "split")
)


@lru_cache(maxsize=4096)
def _reshape_attrs(shape: tuple[int, ...]) -> Any:
    return ReshapeAttrs(shape=shape)


@lru_cache(maxsize=4096)
def _axes_attrs(axes: tuple[int, ...]) -> Any:
    return TransposeAttrs(axes=axes)


@lru_cache(maxsize=4096)
def _part_attrs(start: Any, length: Any, step: Any, shape: tuple[int, ...]) -> Any:
    return PartAttrs(start=start, length=length, step=step, shape=shape)


@lru_cache(maxsize=4096)
def _split_attrs(cuts: tuple[int, ...], axis: int) -> Any:
    return SplitAttrs(indices_or_sections=cuts, axis=axis)


def viewed(op: Op, params: Any, source: Tensor, array: Memory) -> Tensor:
    """A view that an operator describes: its gradient is the operator's."""
    output = as_view(array, source)
    if modes.grad and source._requires_grad:
        record(kernel_of(op), params, (source,), (output,))
    return output


def in_order(source: Tensor) -> Tensor:
    """A copy in memory of its own, with its elements in order."""
    memory: Any = source._array
    output = wrap(native.ordered_copy(memory) if isinstance(memory, np.ndarray) else memory.copy())
    if modes.grad and source.requires_grad:
        record(kernel_of(_COPY), None, (source,), (output,))
    return output


def reshaped(source: Tensor, array: Memory) -> Tensor:
    """A view with the same elements in the same order."""
    return viewed(_RESHAPE, _reshape_attrs(array.shape), source, array)


def permuted(source: Tensor, axes: Sequence[int]) -> Tensor:
    """A view with the axes in another order."""
    return viewed(_TRANSPOSE, _axes_attrs(tuple(axes)), source, source._array.transpose(axes))


def stretched(source: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view with axes of size 1 repeated, and new ones before them."""
    return viewed(_BROADCAST, BroadcastToAttrs(shape=shape), source, stretched_to(source._array, shape))


def part_of(source: Tensor, slices: Sequence[tuple[int, int, int]], array: Memory) -> Tensor:
    """The view at (start, length, step) along every axis, seen in the array's shape."""
    if not (modes.grad and source._requires_grad):
        return as_view(array, source)
    start, length, step = zip(*slices) if slices else ((), (), ())
    return viewed(_PART, _part_attrs(start, length, step, array.shape), source, array)


def slice_of(source: Tensor, axis: int, start: int, length: int) -> Tensor:
    """A run of neighbours along an axis."""
    array = source._array
    view = array[(slice(None),) * axis + (slice(start, start + length),)]
    if not (modes.grad and source._requires_grad):
        return as_view(view, source)
    slices = [(0, dim, 1) for dim in array.shape]
    slices[axis] = (start, length, 1)
    return part_of(source, slices, view)


def pieces_of(source: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
    """Runs of neighbours along an axis, which they fill: one node gives them all."""
    array, ends = source._array, list(accumulate(sizes))
    head = (slice(None),) * axis
    made = [as_view(array[(*head, slice(end - size, end))], source) for size, end in zip(sizes, ends)]
    if modes.grad and source._requires_grad and made:
        params = _split_attrs(tuple(ends[:-1]), axis)
        record(kernel_of(_SPLIT), params, (source,), made)
    return made


def place_of(source: Tensor, axis: int, index: int) -> Tensor:
    """What is at one index of an axis; the axis goes."""
    array = source._array
    view = array[(slice(None),) * axis + (index, ...)]
    if not (modes.grad and source._requires_grad):
        return as_view(view, source)
    slices = [(0, dim, 1) for dim in array.shape]
    slices[axis] = (index, 1, 1)
    return part_of(source, slices, view)


def positions_of(shape: Sequence[int]) -> Array:
    """The numbers of the elements of a tensor of that shape."""
    return np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)


def seen_by(source: Tensor, view: Callable[[Array], Array]) -> Tensor:
    """A view by any function of arrays; where gradients are wanted, it is recorded as the elements
    that it takes."""
    output = as_view(seen_as(source._array, view), source)
    if modes.grad and source._requires_grad:
        record_taken(source, positions_by(view, source._shape), output)
    return output


def record_taken(source: Tensor, positions: Array, output: Tensor) -> None:
    """Records an output as the elements at given positions of its source."""
    record(kernel_of(_TAKE), TakeAttrs(axis=None), (source, wrap(positions)), (output,))
