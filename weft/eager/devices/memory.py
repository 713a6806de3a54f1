"""Memory of a device as tensors see it. Where its elements lie is numpy's array at the device's addresses, which nobody
reads: views of it are views of the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_ubyte
from math import prod
from operator import attrgetter
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
    streams use it; a view knows the memory it is a part of by `base`. Without a layout they are all that the owner has,
    in order: that takes an array only where somebody looks at it as one. `address` is what kernels are given: of no
    elements, that of the memory they are none of. `is_dense` says whether elements lie in order, from an address that
    kernels read by vectors."""

    __slots__ = ("_layout", "address", "base", "dtype", "is_dense", "owner", "shape")
    __array_ufunc__ = None  # numpy leaves it alone

    def __init__(
        self,
        owner: Any,
        shape: tuple[int, ...],
        dtype: DType,
        layout: Array | None = None,
        base: OnDevice | None = None,
    ) -> None:
        self.owner, self.shape, self.dtype, self._layout, self.base = owner, shape, dtype, layout, base
        if layout is None:
            self.address, self.is_dense = owner.address, True
        elif layout.size:
            self.address = address = address_of(layout)
            self.is_dense = layout.flags.c_contiguous and address % _ALIGNMENT == 0
        else:
            self.address, self.is_dense = getattr(owner, "address", 0), True

    @property
    def layout(self) -> Array:
        """Where the elements are, as an array."""
        found = self._layout
        if found is None:
            found = self._layout = laid_out(self.address, self.shape, self.dtype)
        return found

    # What tensors ask of memory.

    storage = property(attrgetter("owner"))
    index = property(attrgetter("owner.context.index"))
    device = property(lambda self: numbered(self.owner.context.index))
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: prod(self.shape))
    nbytes = property(lambda self: prod(self.shape) * self.dtype.itemsize)

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
        return OnDevice(self.owner, seen.shape, seen.dtype, seen, self)

    # Elements.

    def copy(self) -> OnDevice:
        """The same elements in memory of its own, in order."""
        made = empty_on(self.index, self.shape, self.dtype)
        copy_elements(made, self)
        return made

    def dense(self) -> OnDevice:
        """Itself where elements lie as kernels read them, else a copy."""
        return self if self.is_dense else self.copy()

    def as_array(self) -> DeviceArray:
        """The same memory as the runtime has it."""
        read_only = not self.layout.flags.writeable
        return DeviceArray(self.owner, self.address, self.shape, self.dtype, self.strides, read_only)

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
    layout = laid_out(array.address, array.shape, array.dtype, array.strides, array.read_only)
    return OnDevice(array.memory, layout.shape, layout.dtype, layout)


def empty_on(index: int, shape: Sequence[int], dtype: DType) -> OnDevice:
    """New memory, whose elements are not set."""
    made = device_empty([int(extent) for extent in shape], dtype, stream_on(index))
    return OnDevice(made.memory, made.shape, made.dtype)


def uploaded(index: int, array: Array) -> OnDevice:
    """A copy of an array of the host."""
    made = empty_on(index, array.shape, array.dtype)
    made.as_array().copyfrom(np.asarray(array))
    return made


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
    memory: Any = (c_ubyte * (before + after)).from_address(address - before)
    made: Array = np.ndarray(extents, dtype, memory, before, strides)
    made.flags.writeable = not read_only
    return made
