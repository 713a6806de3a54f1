"""Memory: what a tensor asks of the strided memory that it is a view of. In comes a tensor, out goes the array that
kernels and references take; nothing else needs to know what the memory is."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NoReturn, Protocol

import numpy as np

from ...base.dtype import DType
from ...base.errors import RunError
from .device import CPU, device

Array = np.ndarray[Any, Any]
CHANNELS_LAST = {"channels_last": 4, "channels_last_3d": 5}  # ranks, by the names of memory formats


class Memory(Protocol):
    """Elements of one dtype, some bytes apart along each axis, and views of them. On the CPU it is numpy's array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> Any: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def transpose(self, axes: Any, /) -> Any: ...


class ForeignMemory:
    """The base of memory that is not numpy's: its elements are not for kernels of the processor to read."""

    @property
    def elements(self) -> Array:
        """All that it holds, for checks of each."""
        raise NotImplementedError

    def refuse(self) -> NoReturn:
        """Says why nobody can have the elements."""
        raise NotImplementedError

    @property
    def flags(self) -> Any:
        """Whether elements are in order, and may be written to."""
        raise NotImplementedError

    def detached(self) -> Any:
        """The same memory outside of all graphs."""
        raise NotImplementedError

    def stretched(self, shape: tuple[int, ...]) -> Any:
        """Memory with axes of size 1 repeated, and new ones before them."""
        raise NotImplementedError

    def seen_by(self, view: Callable[[Array], Array]) -> Any:
        """What a function of arrays that gives a view shows of it."""
        raise NotImplementedError

    def must_be_writable(self) -> None:
        """Refuses a write that would go wrong."""
        raise NotImplementedError

    def overwrite(self, target: Any, result: Any) -> None:
        """Writes a result into a tensor; one of the two has this memory."""
        raise NotImplementedError


def answer(name: str) -> Any:
    """A property of a tensor that its memory answers, without a frame of Python: every call asks."""
    return property(attrgetter(f"_array.{name}"))


def device_of(memory: Memory) -> device:
    """Where memory is; numpy's own answer, of some versions only, is a string."""
    where: device = CPU if isinstance(memory, np.ndarray) else memory.device
    return where


def in_memory(value: Memory) -> Memory:
    """A numpy scalar, which has no memory, gets some; numpy's own kinds of arrays are seen as plain ones."""
    return np.array(value, subok=False) if isinstance(value, (np.generic, np.ndarray)) else value


def in_format(array: Array, memory_format: Any) -> Array:
    """The array, or a copy with its elements in the order of a memory format."""
    name = getattr(memory_format, "name", "preserve_format")
    if name == "preserve_format":
        return array
    if name == "contiguous_format":
        return np.require(array, requirements="C")  # which leaves a scalar without axes
    if array.ndim != CHANNELS_LAST[name]:
        raise RunError(f"required rank {CHANNELS_LAST[name]} tensor to use {name} format")
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def memory_of(tensor: Any) -> Any:
    """The memory of a tensor, whatever it is: for views of it, which all memory has."""
    return tensor._array


def is_foreign(tensor: Any) -> bool:
    """Whether the memory of a tensor is not numpy's."""
    return isinstance(tensor._array, ForeignMemory)


def checked_elements(tensor: Any) -> Array:
    """All elements of a tensor, or of all that its memory holds, for a check that asks the same of each."""
    memory = tensor._array
    return memory.elements if isinstance(memory, ForeignMemory) else array_of(tensor)


def array_of(tensor: Any) -> Array:
    """The elements of a tensor in the memory of the processor, for kernels and references."""
    memory = tensor._array
    if isinstance(memory, np.ndarray):
        return memory
    if isinstance(memory, ForeignMemory):
        memory.refuse()
    memory.shape  # noqa: B018  (memory that is not there yet says so)
    raise RunError(
        f"a tensor on {str(device_of(memory))!r} is asked for its elements on the processor",
        why="kernels and references compute on 'cpu'",
        hint="copy the tensor there first: tensor.cpu()",
    )
