"""Views: tensors over memory that is there, with a place in the autograd graph. Comes in a tensor
and the numpy view of its memory, goes out the tensor of that view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.op import Op
from ..ops.broadcast import BroadcastToAttrs
from ..ops.index import TakeAttrs
from ..ops.part import PartAttrs
from ..ops.transform import TransposeAttrs
from ..ops.views import ReshapeAttrs
from .dispatch import kernel_of, record
from .modes import modes
from .tensor import Tensor, as_view, wrap

Array = np.ndarray[Any, Any]
_RESHAPE, _TRANSPOSE, _BROADCAST, _PART, _TAKE = (
    Op.get(name) for name in ("reshape", "transpose", "broadcast_to", "part", "take")
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


def viewed(op: Op, params: Any, source: Tensor, array: Array) -> Tensor:
    """A view that an operator describes: its gradient is the operator's."""
    output = as_view(array, source)
    if modes.grad and source._requires_grad:
        record(kernel_of(op), params, (source,), (output,))
    return output


def reshaped(source: Tensor, array: Array) -> Tensor:
    """A view with the same elements in the same order."""
    return viewed(_RESHAPE, _reshape_attrs(array.shape), source, array)


def permuted(source: Tensor, axes: Sequence[int]) -> Tensor:
    """A view with the axes in another order."""
    return viewed(_TRANSPOSE, _axes_attrs(tuple(axes)), source, source._array.transpose(axes))


def stretched(source: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view with axes of size 1 repeated, and new ones before them."""
    array = np.broadcast_to(source._array, shape)
    if not array.flags.writeable and source._array.flags.writeable:
        array = np.lib.stride_tricks.as_strided(source._array, array.shape, array.strides)
    return viewed(_BROADCAST, BroadcastToAttrs(shape=shape), source, array)


def part_of(source: Tensor, slices: Sequence[tuple[int, int, int]], array: Array) -> Tensor:
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
    output = as_view(view(source._array), source)
    if modes.grad and source._requires_grad:
        record_taken(source, view(positions_of(source._array.shape)), output)
    return output


def record_taken(source: Tensor, positions: Array, output: Tensor) -> None:
    """Records an output as the elements at given positions of its source."""
    record(kernel_of(_TAKE), TakeAttrs(axis=None), (source, wrap(positions)), (output,))
