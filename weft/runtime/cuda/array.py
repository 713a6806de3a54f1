"""Arrays on a device: a shape and strides over memory that lives as long as somebody has it. Elements are copied to the
host and back; other libraries share the memory by DLPack and `__cuda_array_interface__`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...base import dlpack
from ...base.device import Device
from ...base.dtype import BOOL, DType, as_dtype, dtype_name
from ...base.errors import DTypeError, InvalidType, InvalidValue, ShapeError
from ..addresses import address_of
from ..program import Array
from .context import platform
from .memory import Borrowed, Pooled
from .stream import Stream, current_stream

CUDA = 2  # DLPack's code


class Flags(NamedTuple):
    """How the elements of an array lie, and whether they may be written to."""

    c_contiguous: bool
    carray: bool
    aligned: bool
    writeable: bool


class DeviceArray:
    """Elements in the memory of a device; strides count bytes.

    `numpy()` copies them to the host, `copyfrom` from there.
    """

    __slots__ = (
        "__weakref__",
        "address",
        "dtype",
        "is_dense",
        "memory",
        "nbytes",
        "read_only",
        "shape",
        "size",
        "strides",
    )
    __array_ufunc__ = None  # numpy leaves it alone
    is_of_device = True

    def __init__(
        self,
        memory: Pooled | Borrowed,
        address: int,
        shape: Sequence[int],
        dtype: DType,
        strides: Sequence[int] | None = None,
        read_only: bool = False,
    ) -> None:
        self.memory, self.address, self.dtype, self.read_only = memory, address, dtype, read_only
        self.shape = tuple(shape)
        self.size = prod(self.shape)
        self.nbytes = self.size * dtype.itemsize
        dense = dense_strides(self.shape, dtype.itemsize)
        self.strides = dense if strides is None else tuple(strides)
        self.is_dense = strides is None or _are_dense(self.shape, self.strides, dense)  # row by row without gaps

    @property
    def device(self) -> Device:
        return Device("cuda", self.memory.context.index)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def flags(self) -> Flags:
        """What numpy's arrays tell by the same names."""
        dense = self.is_dense
        aligned = self.address % self.dtype.itemsize == 0
        return Flags(dense, dense and aligned and not self.read_only, aligned, not self.read_only)

    def __len__(self) -> int:
        if not self.shape:
            raise InvalidType("an array of rank 0 has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={dtype_name(self.dtype)}, device={self.device})"

    def numpy(self) -> Array:
        """A copy of the elements in the memory of the host, when all is done that they wait for."""
        found = np.empty(self.shape, self.dtype)
        self.copyto(found)
        return found

    asnumpy = numpy

    def copyto(self, target: Array) -> None:
        """Copies the elements to an array of the host, and waits."""
        self._check_alike(target)
        self._require_dense()
        dense = target if target.flags.c_contiguous else np.empty(self.shape, self.dtype)
        if self.size:
            stream = current_stream(self.memory.context.index)
            self.memory.ready_on(stream)
            with stream.context as context:
                context.driver.call("cuMemcpyDtoHAsync_v2", address_of(dense), self.address, self.nbytes, stream.handle)
                context.driver.call("cuStreamSynchronize", stream.handle)
        if dense is not target:
            target[...] = dense

    def copyfrom(self, source: Array | DeviceArray) -> DeviceArray:
        """Fills the array from another of the same shape and dtype, of the host or of the same device."""
        self._check_alike(source)
        self._require_dense()
        if self.read_only:
            raise InvalidValue("a read-only array is not written to", where=repr(self))
        if not self.size:
            return self
        stream = current_stream(self.memory.context.index)
        self.memory.ready_on(stream)
        if isinstance(source, DeviceArray):
            self._copy_within(source, stream)
        else:
            dense = np.ascontiguousarray(source)
            with stream.context as context:
                context.driver.call("cuMemcpyHtoDAsync_v2", self.address, address_of(dense), self.nbytes, stream.handle)
        self.memory.used_on(stream)
        return self

    def _copy_within(self, source: DeviceArray, stream: Stream) -> None:
        source._require_dense()
        if source.memory.context is not self.memory.context:
            raise InvalidValue(
                f"an array of {source.device} is copied to {self.device}",
                why="copies between two GPUs go through the host",
                hint="copy source.numpy()",
            )
        source.memory.ready_on(stream)
        with stream.context as context:
            context.driver.call("cuMemcpyDtoDAsync_v2", self.address, source.address, self.nbytes, stream.handle)
        source.memory.used_on(stream)

    def _check_alike(self, other: Any) -> None:
        if not isinstance(other, (np.ndarray, DeviceArray)):
            raise InvalidType(f"elements are copied between arrays, not to or from a {type(other).__name__}")
        if other.shape != self.shape:
            raise ShapeError(f"an array of shape {other.shape} and one of shape {self.shape} are no copies")
        if other.dtype != self.dtype:
            raise DTypeError(f"an array of {other.dtype} and one of {self.dtype} are no copies")

    def _require_dense(self) -> None:
        if not self.is_dense:
            raise InvalidValue(
                "elements with gaps between them are not copied",
                where=repr(self),
                why=f"strides are {self.strides} bytes",
                hint="make a contiguous copy where the array comes from",
            )

    def __array__(self, *asked: Any, **how: Any) -> Array:
        raise InvalidType(
            "an array of a GPU does not become one of numpy by itself", where=repr(self), hint="array.numpy() copies it"
        )

    # Sharing

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.kind == "V":  # the protocol has no name for bfloat16
            raise AttributeError("__cuda_array_interface__: bfloat16 goes through DLPack")
        stream = self.memory.stream
        self.memory.ready_on(stream)
        self._lent(stream.handle)
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if self.size else 0, self.read_only),
            "strides": None if self.is_dense else self.strides,
            "stream": stream.handle or 1,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.memory.context.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise dlpack.DLPackError(f"cannot export to device {tuple(dl_device)}", hint="array.numpy() is on the CPU")
        if copy:
            raise dlpack.DLPackError("a copy is not exported", hint="let the other library copy it")
        if stream != -1:
            handle = 0 if stream in (None, 1) else int(stream or 0)
            self.memory.ready_on(Stream.at(self.memory.context, handle))
            self._lent(handle)
        tensor = dlpack.DeviceTensor(self.address, self.shape, self.strides, self.dtype, self.read_only, self.memory)
        return dlpack.device_capsule(tensor, self.__dlpack_device__(), max_version)

    def _lent(self, handle: int) -> None:
        if isinstance(self.memory, Pooled):
            self.memory.lent_to(handle)


def dense_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Bytes between neighbours along each axis, row by row without gaps.

    >>> dense_strides((2, 3), 4)
    (12, 4)
    """
    steps, step = [], itemsize
    for extent in reversed(shape):
        steps.append(step)
        step *= extent
    return tuple(reversed(steps))


def _are_dense(shape: Sequence[int], strides: Sequence[int], dense: Sequence[int]) -> bool:
    return 0 in shape or all(n == 1 or step == wanted for n, step, wanted in zip(shape, strides, dense))


def device_empty(shape: Sequence[int], dtype: object = "float32", stream: Stream | None = None) -> DeviceArray:
    """A new array on the current device, or that of a stream, whose elements are not set (booleans are False)."""
    at = current_stream() if stream is None else stream
    kind, extents = as_dtype(dtype), tuple(shape)
    memory = Pooled(at, prod(extents) * kind.itemsize)
    if kind == BOOL and memory.nbytes:  # a byte other than 0 and 1 is no boolean
        with at.context as context:
            context.driver.call("cuMemsetD8Async", memory.address, 0, memory.nbytes, at.handle)
    return DeviceArray(memory, memory.address, extents, kind)


def to_device(array: Array, stream: Stream | None = None) -> DeviceArray:
    """A copy of an array of the host on the current device, or that of a stream."""
    dense = np.asarray(array)  # of a number too
    return device_empty(dense.shape, dense.dtype, stream).copyfrom(dense)


def shared_from(value: Any) -> DeviceArray:
    """The memory of an array of another library on a device, ready for the stream that this thread works in."""
    if isinstance(value, DeviceArray):
        return value
    if hasattr(value, "__dlpack__"):
        index = int(value.__dlpack_device__()[1])
        stream = current_stream(index)
        found = dlpack.device_tensor(value, (CUDA, index), stream.handle or 1)
    else:
        found = dlpack.interface_tensor(value, value.__cuda_array_interface__)
        stream = current_stream()
        _await(found.stream, stream)
    memory = Borrowed(stream.context, stream, found.owner)
    return DeviceArray(memory, found.address, found.shape, found.dtype, found.strides, found.read_only)


def _await(handle: int | None, stream: Stream) -> None:
    """Has our stream wait for what another library's was given."""
    if handle is not None:
        stream.wait_stream(Stream.at(stream.context, 0 if handle == 1 else handle))


def on_device(device: Device) -> Stream:
    """The stream that this thread works in on a device."""
    platform()
    return current_stream(device.index)
