"""UntypedStorage: the bytes that tensors are views of. It knows which tensors look at it, so that
they follow when it grows into other memory."""

from __future__ import annotations

import functools
import gc
import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from numpy.lib.array_utils import byte_bounds as byte_bounds
except ImportError:  # numpy 1
    from numpy import byte_bounds as byte_bounds  # type: ignore[attr-defined, no-redef]

from ...base.errors import InvalidType, InvalidValue, OutOfMemory, OutOfRange, RunError
from ...base.memory import LARGE, memory_bytes
from ...base.ndarray import ALIGNMENT
from .device import device, require_cpu
from .memory import device_of, start_of
from .shared_memory import File, mapped, shared_bytes

Bytes = NDArray[np.uint8]


def allocate(nbytes: int) -> Bytes:
    """That many bytes, not set, that start at a multiple of 64."""
    if not 0 <= nbytes <= LARGE:
        _check_large(nbytes)
    try:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise OutOfMemory(f"cannot allocate {nbytes} bytes", why=str(error)) from None
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + nbytes]


def _check_large(nbytes: int) -> None:
    """The system gives more than it has, and the process ends when that is used."""
    if not 0 <= nbytes <= memory_bytes():
        why = f"this machine has {memory_bytes():.0f} bytes"
        raise OutOfMemory(f"cannot allocate {nbytes} bytes", why=why)


class _Extent:
    """The memory between the ends of an array, which it keeps alive."""

    def __init__(self, array: NDArray[Any]) -> None:
        low, high = byte_bounds(array)
        self.array = array
        self.__array_interface__ = {
            "data": (low, not array.flags.writeable),
            "shape": (high - low,),
            "typestr": "|u1",
            "version": 3,
        }


def bytes_of(array: NDArray[Any]) -> Bytes:
    """All bytes from the first to the last element of an array, sharing its memory."""
    if not isinstance(array, np.ndarray):
        return array.whole()
    if array.size == 0:
        return allocate(0)
    if array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8)
    return np.asarray(_Extent(array))


def interface_of(elements: NDArray[Any]) -> dict[str, Any]:
    """What numpy needs to see elements; it then keeps their memory alive, not the storage, which
    may move."""
    return {"version": 3, "shape": elements.shape, "typestr": elements.dtype.str, "data": bytes_of(elements)}


def as_asked(elements: NDArray[Any], dtype: Any, copy: bool | None) -> NDArray[Any]:
    """The elements as numpy's `__array__` protocol asks for them."""
    if dtype is None or np.dtype(dtype) == elements.dtype:
        return elements.copy() if copy else elements
    if copy is False:
        raise InvalidValue(f"an array of {np.dtype(dtype)} cannot share {elements.dtype} memory")
    return elements.astype(dtype)


class UntypedStorage:
    """Bytes that can be shared by tensors and by storages of any element type.

    >>> s = UntypedStorage([1, 2, 3])
    >>> s.resize_(2).tolist()
    [1, 2]
    """

    __module__ = "weft"
    __slots__ = ("__weakref__", "_bytes", "_file", "_prune_at", "_resizable", "_shared", "_tensors")

    is_sparse = False

    def __init__(self, data: Any = 0, /, *, device: Any = None) -> None:
        require_cpu(device)
        self._bytes: Bytes = _initial_bytes(data)
        self._tensors: list[weakref.ref[Any]] = []
        self._prune_at = 16
        self._shared = False
        self._file: File | None = None  # by which other processes get shared memory
        self._resizable = True

    @classmethod
    def _over(cls, memory: Bytes, *, resizable: bool = False, shared: bool = False) -> Any:
        """A storage over memory that is already there."""
        made = cls()
        made._bytes = memory
        made._resizable = resizable
        made._shared = shared
        return made

    @classmethod
    def _of_array(cls, array: NDArray[Any], *, resizable: bool = True) -> Any:
        """A storage over all bytes between the first and the last element of an array."""
        return cls._over(bytes_of(array), resizable=resizable)

    def _adopt(self, tensor: Any) -> None:
        """Remembers a tensor that looks at these bytes, for as long as that tensor lives."""
        if len(self._tensors) >= self._prune_at:
            self._tensors = [known for known in self._tensors if known() is not None]
            self._prune_at = 2 * len(self._tensors) + 16
        self._tensors.append(weakref.ref(tensor))

    def _move(self, memory: Bytes) -> None:
        """Goes on in other memory, and all tensors with it."""
        if self._bytes.size:
            self._adopt_views()
        self._bytes = memory
        for tensor in self._alive():
            # one that reaches beyond the end, since the storage shrank, keeps the memory it has
            with suppress(TypeError, ValueError):
                tensor._moved(self)

    def _alive(self) -> list[Any]:
        return [tensor for known in self._tensors if (tensor := known()) is not None]

    def _adopt_views(self) -> None:
        """Finds the views that never asked for their storage. That takes a look at all objects, but
        only here, so that making views is quick."""
        roots = {id(root): root for tensor in self._alive() if (root := _root_of(tensor)) is not None}
        for root in roots.values():
            for tensor in (root, *_views_of(root)):
                tensor.untyped_storage()

    def nbytes(self) -> int:
        return self._bytes.size

    size = nbytes
    __len__ = nbytes

    def __bool__(self) -> bool:
        return self._bytes.size != 0

    def element_size(self) -> int:
        return 1

    def data_ptr(self) -> int:
        """The address of the first byte, 0 if there is none."""
        return start_of(_geometry(self._bytes)) if self._bytes.size else 0

    def _spans(self, array: NDArray[Any]) -> bool:
        """Whether the first element of an array lies in this memory."""
        return 0 <= start_of(_geometry(array)) - self.data_ptr() < self.nbytes()

    @property
    def device(self) -> device:
        return device_of(self._bytes)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def get_device(self) -> int:
        return -1 if self.device.index is None else self.device.index

    def _read(self) -> Bytes:
        """The bytes, to be read: of a device a copy."""
        return self._bytes if isinstance(self._bytes, np.ndarray) else self._bytes.read()

    def type(self) -> str:
        return "weft.UntypedStorage"

    def untyped(self) -> UntypedStorage:
        return self

    def cpu(self) -> UntypedStorage:
        return self if isinstance(self._bytes, np.ndarray) else type(self)._over(self._read(), resizable=True)

    def __getitem__(self, index: Any) -> Any:
        """A byte, or the storage of some neighbouring bytes, which shares memory."""
        if isinstance(index, slice):
            return type(self)._over(self._bytes[neighbours(index, len(self))])
        return int(self._read()[position(self, index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        where = index if isinstance(index, slice) else position(self, index)
        self._bytes[where] = _byte(value)

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        return list(self._read().tobytes())

    def fill_(self, value: Any) -> UntypedStorage:
        self._bytes.fill(_byte(value))
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> UntypedStorage:
        """Takes over the bytes of a storage of the same size."""
        if not hasattr(source, "untyped"):
            raise InvalidType(
                f"copy_(): argument 'source' (position 1) must be weft.UntypedStorage, not {type(source).__name__}"
            )
        theirs = source.untyped()._bytes
        if theirs.size != self._bytes.size:
            raise RunError(f"size does not match, self was {self._bytes.size} bytes but src was {theirs.size} bytes")
        self._bytes[...] = theirs
        return self

    def clone(self) -> UntypedStorage:
        if isinstance(self._bytes, np.ndarray):
            return type(self)(len(self)).copy_(self)
        return type(self)._over(self._bytes.copy(), resizable=True)

    def new(self, data: Any = 0, /) -> UntypedStorage:
        return type(self)(data)

    def byteswap(self, dtype: Any) -> None:
        """Reverses the bytes of every element of that dtype, of both parts if it is complex."""
        if not hasattr(dtype, "to_real"):
            raise InvalidType(f"byteswap takes a weft.dtype, not {dtype!r:.60}")
        width = dtype.to_real().itemsize
        if len(self) % dtype.itemsize:
            raise RunError(f"byteswap: {len(self)} bytes are no whole number of {dtype.name} elements")
        self._bytes[...] = self._bytes.reshape(-1, width)[:, ::-1].reshape(-1)

    def resizable(self) -> bool:
        return self._resizable

    def resize_(self, nbytes: int) -> UntypedStorage:
        """Changes the size and keeps the first bytes; tensors follow into the new memory."""
        if isinstance(nbytes, bool) or not isinstance(nbytes, (int, np.integer)):
            raise RunError(f"resize_ expects an int, but got {type(nbytes).__name__}")
        if not self._resizable:
            raise RunError("Trying to resize storage that is not resizable")
        if 0 <= nbytes <= self._bytes.size:
            self._bytes = self._bytes[:nbytes]
            return self
        if isinstance(self._bytes, np.ndarray):
            memory = allocate(int(nbytes))
            memory[: self._bytes.size] = self._bytes
        else:
            memory = self._bytes.grown(int(nbytes))
        self._move(memory)
        return self

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def pin_memory(self, device: Any = None) -> UntypedStorage:
        raise RunError("Cannot access accelerator device when none is available.")

    def is_shared(self) -> bool:
        return self._shared

    def share_memory_(self) -> UntypedStorage:
        """Moves the bytes into memory that processes share: forked ones, and those that it is sent to by
        `multiprocessing`."""
        if self._shared or not isinstance(self._bytes, np.ndarray):  # processes share the memory of devices
            return self
        if not self._resizable:
            raise RunError(
                "this storage cannot move to shared memory",
                why="its bytes belong to another storage or library",
                hint="clone() it first",
            )
        memory, self._file = shared_bytes(len(self))
        memory[...] = self._bytes
        _send_by_file()
        self._shared, self._resizable = True, False
        self._move(memory)
        return self

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """A storage over a file. With `shared`, writes go into the file, which is made or made
        longer if need be; without it they stay in this process."""
        made: UntypedStorage = cls._over(map_file(filename, shared, nbytes), shared=shared)
        return made

    @classmethod
    def from_buffer(
        cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0
    ) -> UntypedStorage:
        """A storage with a copy of bytes from an object that has the buffer protocol."""
        made = cls()
        made._bytes = read_buffer(buffer, 1, byte_order, count, offset)
        return made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return as_asked(self._bytes, dtype, copy)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return interface_of(self._bytes)

    def __buffer__(self, flags: int) -> memoryview:
        return self._bytes.data

    def __deepcopy__(self, memo: dict[int, Any]) -> UntypedStorage:
        if id(self) not in memo:
            memo[id(self)] = self.clone()
        found: UntypedStorage = memo[id(self)]
        return found

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return _rebuild, (self._read().tobytes(),)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + len(self)

    def __repr__(self) -> str:
        lines = "\n ".join(map(str, self.tolist()))
        return f" {lines}\n[weft.UntypedStorage of size {len(self)}]"


def _geometry(memory: Any) -> Any:
    """An array that lies as memory does."""
    return memory if isinstance(memory, np.ndarray) else memory.layout


def _root_of(tensor: Any) -> Any:
    """The tensor that owns the memory that a tensor looks at."""
    while (root := getattr(tensor, "_root", None)) is not None:
        tensor = root
    return tensor if hasattr(tensor, "untyped_storage") else None


def _views_of(root: Any) -> Iterator[Any]:
    """All tensors that are views of another, and views of theirs."""
    for holder in gc.get_referrers(root):
        owners = gc.get_referrers(holder) if isinstance(holder, dict) else [holder]
        for owner in owners:
            if hasattr(type(owner), "_moved") and owner._root is root:
                yield owner
                if owner._grad_fn is not None:  # it may have owned the memory when views of it were made
                    yield from _views_of(owner)


def _rebuild(content: bytes) -> UntypedStorage:
    return UntypedStorage.from_buffer(content)


@functools.cache
def _send_by_file() -> None:
    """From now on, `multiprocessing` sends the file of shared memory in place of its bytes."""
    from multiprocessing.reduction import ForkingPickler  # which takes its time to load

    ForkingPickler.register(UntypedStorage, _sent)


def _sent(storage: UntypedStorage) -> tuple[Any, tuple[Any, ...]]:
    if storage._file is None or not len(storage):
        return storage.__reduce__()
    from multiprocessing.reduction import DupFd

    return _opened, (DupFd(storage._file.fd), len(storage))


def _opened(sent: Any, nbytes: int) -> UntypedStorage:
    _send_by_file()
    file = File(sent.detach())
    storage: UntypedStorage = UntypedStorage._over(mapped(file, nbytes), shared=True)
    storage._file = file
    return storage


def _initial_bytes(data: Any) -> Bytes:
    if isinstance(data, (int, np.integer)) and not isinstance(data, bool):
        return allocate(int(data))
    if isinstance(data, (str, bytes)) or not hasattr(data, "__iter__"):
        raise InvalidType(f"UntypedStorage() takes a size in bytes or a sequence, not {type(data).__name__}")
    values = [_byte(value) for value in data]
    memory = allocate(len(values))
    memory[...] = values
    return memory


def _byte(value: Any) -> int:
    if not isinstance(value, (int, np.integer)):
        raise InvalidType(f"can only set storage content with an int, but got {type(value).__name__} instead")
    if not 0 <= value <= 255:
        raise RunError("value cannot be converted to type uint8 without overflow")
    return int(value)


def position(storage: Any, index: Any) -> int:
    """The position that an index means, counted from the start."""
    if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
        name = f"weft.{type(storage).__name__}"
        raise InvalidType(f"can't index a {name} with {type(index).__name__}")
    size = len(storage)
    if not -size <= index < size:
        raise OutOfRange(f"index {index} out of range for storage of size {size}")
    return int(index) % size


def neighbours(index: slice, size: int) -> slice:
    """The slice with its ends counted from the start; every element of it is wanted."""
    start, stop, step = index.indices(size)
    if step != 1:
        raise RunError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
    return slice(start, max(start, stop))


def map_file(filename: Any, shared: bool, nbytes: int) -> Bytes:
    """The first bytes of a file, mapped into memory."""
    if not isinstance(filename, (str, bytes, os.PathLike)):
        raise InvalidType(f"a file is named by a path, not by {filename!r:.60}")
    if isinstance(nbytes, bool) or not isinstance(nbytes, (int, np.integer)):
        raise InvalidType(f"a storage has a whole number of bytes, not {nbytes!r:.60}")
    if nbytes < 0:
        raise InvalidValue(f"a storage of {nbytes} bytes")
    flags = os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY
    file = os.open(os.fspath(filename), flags, 0o600)
    try:
        there = os.fstat(file).st_size
        if there < nbytes and not shared:
            raise RunError(f"file {filename!r} has {there} bytes, {nbytes} are asked for")
        if there < nbytes:
            os.truncate(file, nbytes)
        if nbytes == 0:
            return allocate(0)
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        return np.frombuffer(mmap.mmap(file, nbytes, access=access), np.uint8)
    finally:
        os.close(file)


def read_buffer(buffer: Any, width: int, byte_order: str | None, count: int, offset: int, parts: int = 1) -> Bytes:
    """A copy of `count` elements of a buffer (all, if negative) in this machine's byte order;
    an element is `width` bytes in that many equal parts."""
    try:
        source = np.frombuffer(buffer, np.uint8)
    except TypeError:
        kind = type(buffer).__name__
        raise InvalidType(f"a bytes-like object is required, not '{kind}'") from None
    _check_order(byte_order, width)
    if not 0 <= offset <= source.size:
        raise InvalidValue(
            f"offset must be non-negative and no greater than buffer length ({source.size}), but got {offset}"
        )
    there = source.size - offset
    if count < 0:
        if there % width:
            raise InvalidValue(f"buffer size ({source.size}) must be a multiple of element size ({width})")
        count = there // width
    if count * width > there:
        raise InvalidValue(
            f"buffer has only {there // width} elements after offset {offset}, but specified a size of {count}"
        )
    memory = allocate(count * width)
    memory[...] = source[offset : offset + count * width]
    native = "little" if np.little_endian else "big"
    if byte_order not in (None, "native", native):
        memory[...] = memory.reshape(-1, width // parts)[:, ::-1].reshape(-1)
    return memory


def _check_order(byte_order: str | None, width: int) -> None:
    if byte_order is None and width > 1:
        raise InvalidType("function missing required argument 'byte_order' (pos 2)")
    if byte_order not in (None, "native", "little", "big"):
        raise InvalidValue(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
