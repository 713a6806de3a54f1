"""Memory of a device as tensors see it. Where its elements lie is numpy's array at the device's addresses, which nobody
reads: views of it are views of the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...base.dtype import DType
from ...base.errors import RunError
from ...runtime.addresses import address_of
from ...runtime.cuda.array import DeviceArray, device_empty
from ...runtime.cuda.context import platform
from ...runtime.cuda.stream import Stream, current_stream
from ..autograd.modes import modes
from ..tensor.device import numbered
from ..tensor.memory import Array, LaidOut, start_of
from ..tensor.storage import byte_bounds
from .copies import copy_elements
from .told import tell_host


class OnDevice(LaidOut):
    """Elements in the memory of a device: an implementation of `Memory`. `owner` keeps the memory, and knows which
    streams use it; a view knows the memory it is a part of by `base`."""

    __slots__ = ("base", "owner")
    __array_ufunc__ = None  # numpy leaves it alone

    def __init__(self, layout: Array, owner: Any, base: OnDevice | None = None) -> None:
        self.layout, self.owner, self.base = layout, owner, base

    # What tensors ask of memory.

    storage = property(lambda self: self.owner)
    index = property(lambda self: self.owner.context.index)
    device = property(lambda self: numbered(self.owner.context.index))
    address = property(lambda self: address_of(self.layout))

    def __getitem__(self, index: Any) -> OnDevice:
        return self._view(self.layout[index])

    def transpose(self, axes: Any) -> OnDevice:
        return self._view(self.layout.transpose(axes))

    def squeeze(self, axes: Any) -> OnDevice:
        return self._view(self.layout.squeeze(axes))

    def reshape(self, shape: Any, copy: bool | None = None) -> OnDevice:
        """The elements in another shape; a view, or with a copy where that takes one."""
        try:
            return self._view(self.layout.reshape(shape, copy=False))
        except ValueError:
            if copy is False:
                raise
            return self.copy().reshape(shape)

    def broadcast(self, shape: tuple[int, ...]) -> OnDevice:
        seen = np.broadcast_to(self.layout, shape)
        return self._view(np.lib.stride_tricks.as_strided(self.layout, seen.shape, seen.strides))

    def seen_by(self, view: Callable[[Array], Array]) -> OnDevice:
        """A view by any function that gives views of arrays."""
        return self._view(view(self.layout))

    def view(self, dtype: DType) -> OnDevice:
        """The same bytes as elements of another dtype."""
        return self._view(self.layout.view(dtype))

    def whole(self) -> OnDevice:
        """All bytes from the first to the last element."""
        if not self.size:
            return self._view(np.empty(0, np.uint8))
        low, high = byte_bounds(self.layout)
        return self._view(laid_out(low, (high - low,), np.dtype(np.uint8)))

    def part(self, shape: Sequence[int], dtype: DType, start: int, strides: Sequence[int] | None) -> OnDevice:
        """Elements of some bytes: the first at one of them, the others so many apart."""
        return self._view(laid_out(self.address + start, shape, dtype, strides))

    def grown(self, nbytes: int) -> OnDevice:
        """More bytes, of which the first are those of this memory."""
        made = empty_on(self.index, (nbytes,), self.dtype)
        copy_elements(made[: self.size], self)
        return made

    def _view(self, seen: Array) -> OnDevice:
        return OnDevice(seen, self.owner, self)

    # Elements.

    def copy(self) -> OnDevice:
        """The same elements in memory of its own, in order."""
        made = empty_on(self.index, self.shape, self.dtype)
        copy_elements(made, self)
        return made

    @property
    def start(self) -> int:
        """The address that kernels are given: of no elements, that of the memory they are none of."""
        return self.address if self.size else getattr(self.owner, "address", 0)

    @property
    def is_dense(self) -> bool:
        """Whether elements lie in order, from an address that kernels read by vectors."""
        return not self.size or (self.layout.flags.c_contiguous and self.address % _ALIGNMENT == 0)

    def dense(self) -> OnDevice:
        """Itself where elements lie as kernels read them, else a copy."""
        return self if self.is_dense else self.copy()

    def as_array(self) -> DeviceArray:
        """The same memory as the runtime has it."""
        read_only = not self.layout.flags.writeable
        return DeviceArray(self.owner, self.start, self.shape, self.dtype, self.strides, read_only)

    def read(self) -> Array:
        """A copy of the elements on the host, when all is done that they wait for."""
        if not self.size:
            return np.empty(self.shape, self.dtype)
        if self.layout.flags.c_contiguous:
            return self.as_array().numpy()
        low, high = byte_bounds(self.layout)
        if high - low > max(_GAPS * self.nbytes, _FEW_BYTES):
            return self.copy().read()
        found = DeviceArray(self.owner, low, (high - low,), np.dtype(np.uint8)).numpy()
        part: Array = np.ndarray(self.shape, self.dtype, found, start_of(self.layout) - low, self.strides)
        return part.copy()

    def write(self, values: Array) -> None:
        """Fills it from an array of the host of the same shape and dtype."""
        if self.layout.flags.c_contiguous:
            self.as_array().copyfrom(values)
        else:
            copy_elements(self, uploaded(self.index, values))

    def values(self) -> Array:
        """The elements for what the host computes in a call of a function; elsewhere nobody is to ask."""
        if modes.trace is None:
            raise RunError(
                f"a tensor on {str(self.device)!r} is asked for its elements on the processor",
                hint="copy the tensor there first: tensor.cpu()",
            )
        tell_host("elements are read")
        found = self.read()
        found.flags.writeable = False  # nobody would see what is written there
        return found


_ALIGNMENT = 16  # bytes
_GAPS, _FEW_BYTES = 4, 1 << 20  # elements with gaps are copied with all between them, if that is not much more


def stream_on(index: int) -> Stream:
    """The stream that this thread works in on a device."""
    return current_stream(platform().checked(index))


def over(array: DeviceArray) -> OnDevice:
    """The memory of an array of the runtime."""
    owner = array.memory
    return OnDevice(laid_out(array.address, array.shape, array.dtype, array.strides, array.read_only), owner)


def empty_on(index: int, shape: Sequence[int], dtype: DType) -> OnDevice:
    """New memory, whose elements are not set."""
    made = device_empty(shape, dtype, stream_on(index))
    return OnDevice(laid_out(made.address, made.shape, dtype), made.memory)


def uploaded(index: int, array: Array) -> OnDevice:
    """A copy of an array of the host."""
    made = empty_on(index, array.shape, array.dtype)
    made.as_array().copyfrom(np.asarray(array))
    return made


class _Addresses:
    """Some bytes at an address, for numpy."""

    def __init__(self, address: int, nbytes: int, read_only: bool) -> None:
        self.__array_interface__ = {"data": (address, read_only), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def laid_out(
    address: int, shape: Sequence[int], dtype: DType, strides: Sequence[int] | None = None, read_only: bool = False
) -> Array:
    """An array over memory that nobody may read by it."""
    extents = tuple(shape)
    count = prod(extents)
    if not count:
        return np.empty(extents, dtype)
    spans = [] if strides is None else [(n - 1) * step for n, step in zip(extents, strides)]
    before = -sum(span for span in spans if span < 0)
    after = sum(span for span in spans if span > 0) + dtype.itemsize if strides is not None else count * dtype.itemsize
    memory = np.asarray(_Addresses(address - before, before + after, read_only))
    return np.ndarray(extents, dtype, memory, before, strides)
