"""Memory that is there before a function is recorded, of the processor or of a device: what is one memory, and how it
lies."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.op import Op
from ...eager.devices.memory import OnDevice
from ...eager.recording import StandIn
from ...eager.tensor.memory import start_of

Array = np.ndarray[Any, Any]


def is_real(memory: Any) -> bool:
    """Whether memory has values: numpy's, or that of a device."""
    return isinstance(memory, (np.ndarray, OnDevice))


def layout_of(memory: Any) -> Array:
    """An array that lies as memory does."""
    found: Array = memory if isinstance(memory, np.ndarray) else memory.layout
    return found


def owner_of(array: Any) -> Any:
    """The array whose memory an array is a part of, or what owns that of a device."""
    if isinstance(array, OnDevice):
        return array.owner
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def seen_in(whole: StandIn, array: Array) -> StandIn:
    """A view of memory that has become a stand-in."""
    if is_same(whole.layout, array):
        return whole
    width = array.itemsize
    numbers = np.full((1,) * array.ndim, (start_of(array) - start_of(whole.layout)) // width, np.int64)
    for axis, (extent, step) in enumerate(zip(array.shape, array.strides)):
        numbers = numbers + (np.arange(extent) * (step // width)).reshape(
            [-1 if at == axis else 1 for at in range(array.ndim)]
        )
    return StandIn(array, whole.storage, whole, Op.get("take"), numbers)


def is_same(one: Any, other: Any) -> bool:
    """Whether two arrays are the same elements."""
    starts_alike = start_of(layout_of(one)) == start_of(layout_of(other))
    return starts_alike and meta_of(one) == meta_of(other) and one.strides == other.strides


def laid_out_as(array: Array) -> Array:
    """Memory that lies as an array does."""
    if array.flags.c_contiguous:
        return np.empty(array.shape, array.dtype)
    spans = [(size - 1) * stride for size, stride in zip(array.shape, array.strides)]
    low, high = sum(s for s in spans if s < 0), sum(s for s in spans if s > 0) + array.itemsize
    memory = np.empty(max(high - low, 0), np.uint8)
    return np.ndarray(array.shape, array.dtype, memory, -low if array.size else 0, array.strides)


def meta_of(array: Array) -> Any:
    return array.shape, array.dtype
