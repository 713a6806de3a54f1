"""Memory: what a tensor asks of the strided memory that it is a view of. In comes a tensor, out goes the array that
kernels and references take; nothing else needs to know what the memory is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class LaidOut:
    """The base of memory that says by an array nobody reads where its elements are."""

    __slots__ = ()
    layout: Any  # an array

    shape: Any = property(attrgetter("layout.shape"))  # without a frame of Python, as `answer` is
    strides = property(attrgetter("layout.strides"))
    dtype: Any = property(attrgetter("layout.dtype"))
    ndim = property(attrgetter("layout.ndim"))
    size = property(attrgetter("layout.size"))
    itemsize = property(attrgetter("layout.itemsize"))
    nbytes = property(attrgetter("layout.nbytes"))
    flags = property(attrgetter("layout.flags"))


class ForeignMemory:
    """The base of memory whose elements are for no kernel of the processor to read."""

    @property
    def elements(self) -> Array:
        """All that it holds, for checks of each."""
        raise NotImplementedError

    def refuse(self) -> NoReturn:
        """Says why nobody can have the elements."""
        raise NotImplementedError

    def detached(self) -> Any:
        """The same memory outside of all graphs."""
        raise NotImplementedError


def answer(name: str) -> Any:
    """A property of a tensor that its memory answers, without a frame of Python: every call asks."""
    return property(attrgetter(f"_array.{name}"))


def device_of(memory: Memory) -> device:
    """Where memory is; numpy's own answer, of some versions only, is a string."""
    where: device = CPU if isinstance(memory, np.ndarray) else memory.device
    return where


def index_of(memories: Sequence[Any]) -> int | None:
    """The number of the GPU that memory is on, if some is."""
    for memory in memories:
        if type(memory) is not np.ndarray:
            index: int | None = getattr(memory, "index", None)
            if index is not None:
                return index
    return None


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
    if hasattr(memory, "values"):
        computed: Array = memory.values()  # of what is being recorded
        return computed
    raise RunError(
        f"a tensor on {str(device_of(memory))!r} is asked for its elements on the processor",
        why="kernels and references compute on 'cpu'",
        hint="copy the tensor there first: tensor.cpu()",
    )


def read_from(tensor: Any) -> Array:
    """The elements of a tensor, to be read: on a device a copy."""
    memory = tensor._array
    if isinstance(memory, np.ndarray):
        return memory
    read = getattr(memory, "read", None)
    found: Array = array_of(tensor) if read is None else read()
    return found


def memory_of(tensor: Any) -> Any:
    """The memory of a tensor, wherever it is, for views of it."""
    return tensor._array


def may_share(one: Any, other: Any) -> bool:
    """Whether writing to one memory may change the other."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.may_share_memory(one, other)
    shared: bool = getattr(one, "storage", one) is getattr(other, "storage", other)
    return shared


def shares(one: Any, other: Any) -> bool:
    """Whether some element is one of both."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.shares_memory(one, other)
    return may_share(one, other)


def layout_of(tensor: Any) -> Array:
    """An array that lies as a tensor does, whatever is in it: for geometry alone."""
    memory = tensor._array
    found: Any = memory if isinstance(memory, np.ndarray) else getattr(memory, "layout", None)
    return array_of(tensor) if found is None else found


def stretched_to(memory: Memory, shape: tuple[int, ...]) -> Memory:
    """The memory with axes of size 1 repeated, and new ones before them."""
    if not isinstance(memory, np.ndarray):
        found: Memory = memory.broadcast(shape)  # type: ignore[attr-defined]
        return found
    array = np.broadcast_to(memory, shape)
    if not array.flags.writeable and memory.flags.writeable:
        array = np.lib.stride_tricks.as_strided(memory, array.shape, array.strides)
    return array


def seen_as(memory: Memory, view: Callable[[Array], Array]) -> Memory:
    """What a function that gives views of arrays gives of memory."""
    if isinstance(memory, np.ndarray):
        return view(memory)
    found: Memory = memory.seen_by(view)  # type: ignore[attr-defined]
    return found


def start_of(array: Array) -> int:
    """Where an array begins."""
    address: int = array.__array_interface__["data"][0]
    return address


def positions_by(view: Callable[[Array], Array], shape: Sequence[int]) -> Array:
    """The numbers of the elements that a view of an array of that shape shows."""
    bytes_ = np.empty(shape, np.uint8)  # whose strides count elements; nobody reads it
    seen = view(bytes_)
    numbers = np.full((1,) * seen.ndim, start_of(seen) - start_of(bytes_) if seen.size else 0, np.int64)
    for axis, (extent, step) in enumerate(zip(seen.shape, seen.strides)):
        steps = np.arange(extent) * step
        numbers = numbers + steps.reshape([-1 if at == axis else 1 for at in range(seen.ndim)])
    return numbers
