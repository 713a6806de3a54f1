"""NDArray: what the runtime takes and gives. Any array-like data comes in; numpy, DLPack and
everything that reads them comes out, without a copy.
"""

from __future__ import annotations

import mmap
import operator
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from . import dlpack
from .device import Device, cpu
from .dtype import BOOL, DTYPES, NAMED_DTYPES, DType, as_dtype, dtype_name
from .errors import DTypeError, InvalidType, InvalidValue, OutOfMemory, OutOfRange, ShapeError
from .memory import LARGE, memory_bytes

__all__ = ["NDArray", "array", "cpu", "empty", "from_dlpack"]


def __dir__() -> list[str]:
    return list(__all__)


ALIGNMENT = 64
OWN_PAGES = 1 << 17  # bytes of a weight that has pages of its own: what glibc takes for large, too
# What may be written into what without being asked for: a kind into its own or a later one.
_KIND_ORDER = "buifc"


class NDArray:
    """A dense, row-major, writable array on a device.

    The memory that weft allocates starts at a multiple of 64 bytes; memory that is shared with
    another library keeps the alignment it has there, see `aligned`.

    >>> a = array([[1, 2], [3, 4]], dtype="float32")
    >>> a.shape, a.dtype, str(a.device)
    ((2, 2), 'float32', 'cpu(0)')
    >>> a
    NDArray([[1., 2.],
             [3., 4.]], shape=(2, 2), dtype=float32, device=cpu(0))
    """

    __slots__ = ("__weakref__", "_array", "address", "device")

    def __init__(self, memory: NumpyArray[Any], device: Device | None = None) -> None:
        """Wrap a numpy array and share its memory; `array` makes a copy."""
        if not isinstance(memory, np.ndarray):
            raise InvalidType(
                f"NDArray wraps a numpy array, not a {type(memory).__name__}",
                hint="weft.base.ndarray.array copies anything array-like",
            )
        dtype_name(memory.dtype)
        if not memory.flags.carray:
            raise InvalidValue(
                f"NDArray wraps row-major, writable, aligned memory; strides are {memory.strides}, "
                f"writable is {memory.flags.writeable}, aligned is {memory.flags.aligned}",
                hint="weft.base.ndarray.array copies it",
            )
        self._array = memory.view(np.ndarray)
        self.device = _device(device)
        self.address: int = memory.__array_interface__["data"][0]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._array.shape)

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        return dtype_name(self._array.dtype)

    @property
    def ctx(self) -> Device:
        """The device, under the name that TVM and MXNet gave it."""
        return self.device

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        return self._array.size

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    @property
    def aligned(self) -> bool:
        """Whether the memory starts at a multiple of 64 bytes."""
        return self.address % ALIGNMENT == 0

    def numpy(self) -> NumpyArray[Any]:
        """The array as numpy sees it, sharing memory."""
        return self._array.view()

    def asnumpy(self) -> NumpyArray[Any]:
        """A copy as a numpy array."""
        return self._array.copy()

    def copyto(self, target: NDArray | Device) -> NDArray:
        """Copy into an array of the same shape and dtype, or into a new one on a device."""
        if isinstance(target, Device):
            return array(self, target)
        if not isinstance(target, NDArray):
            raise InvalidType(f"copyto takes an NDArray or a Device, not a {type(target).__name__}")
        _same_shape(expected=target.shape, given=self.shape)
        if target.dtype != self.dtype:
            raise DTypeError(
                f"copyto an array of dtype {target.dtype} from one of dtype {self.dtype}",
                hint=f"array(source, dtype={target.dtype!r}) converts",
            )
        target._array[...] = self._array
        return target

    def copyfrom(self, source: object) -> NDArray:
        """Fill from array-like data of the same shape. Precision may be lost, the kind may not:
        float64 goes into float32, but not into int32.

        >>> array([0, 0]).copyfrom([5, 6]).asnumpy()
        array([5, 6])
        """
        data = _as_numpy(source)
        _same_shape(expected=self.shape, given=data.shape)
        exact = not isinstance(source, np.ndarray | NDArray) and _kind(data.dtype) in "ui"
        if exact and _kind(self._array.dtype) in "ui":
            data = _as_numpy(source, self._array.dtype)
        elif _KIND_ORDER.index(_kind(data.dtype)) > _KIND_ORDER.index(_kind(self._array.dtype)):
            raise DTypeError(
                f"an array of dtype {self.dtype} is not filled from dtype {dtype_name(data.dtype)}",
                why="what does not fit would be lost",
                hint=f"convert the source to {self.dtype} first",
            )
        self._array[...] = data
        return self

    def same_as(self, other: object) -> bool:
        """Whether the other one is a view of the same elements."""
        if not isinstance(other, NDArray) or self is other:
            return self is other
        mine, its = ((self.address, self.shape, self.dtype), (other.address, other.shape, other.dtype))
        return self.size > 0 and mine == its

    def __getitem__(self, key: Any) -> Any:
        """A numpy scalar, or a numpy array which shares memory for slices."""
        try:
            return self._array[key]
        except IndexError as error:
            raise OutOfRange(f"index {key!r} of shape {self.shape}", why=str(error)) from None

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(value, int | float | complex):
            value = _as_numpy(value)
            _keep_imaginary(value.dtype, self._array.dtype)
        try:
            self._array[key] = value
        except IndexError as error:
            raise OutOfRange(f"index {key!r} of shape {self.shape}", why=str(error)) from None
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidValue(
                f"cannot set {key!r} of an array of shape {self.shape} and dtype {self.dtype}", why=str(error)
            ) from None

    def __len__(self) -> int:
        if not self.shape:
            raise InvalidType("an array of rank 0 has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise InvalidType("an array of rank 0 cannot be iterated over")
        return iter(self._array)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise InvalidValue(
                f"an array of shape {self.shape} is neither true nor false",
                hint="compare it, or use .numpy().any() or .all()",
            )
        return bool(self._array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NumpyArray[Any]:
        wanted = self._array.dtype if dtype is None else np.dtype(dtype)
        if wanted == self._array.dtype:
            return self.asnumpy() if copy else self.numpy()
        if copy is False:
            raise InvalidValue(f"an array of dtype {self.dtype} becomes {wanted} only as a copy")
        return self._array.astype(wanted)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self._array.dtype.kind == "V":  # numpy's protocol has no name for bfloat16
            raise AttributeError("__array_interface__: bfloat16 goes through __array__")
        return self._array.__array_interface__

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        if stream is not None:
            raise dlpack.DLPackError(f"an array of the CPU has no streams, got stream={stream!r}")
        if dl_device is not None and tuple(dl_device) != dlpack.CPU:
            raise dlpack.DLPackError(
                f"cannot export to device {tuple(dl_device)}", why="weft exports to the CPU, (1, 0)"
            )
        memory = array(self)._array if copy else self._array
        return dlpack.to_dlpack(memory, max_version, copied=bool(copy))

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU

    def __reduce__(self) -> tuple[Any, ...]:
        return array, (self._array, self.device)

    def __repr__(self) -> str:
        values = np.array2string(self._array, separator=", ", prefix="NDArray(")
        return f"NDArray({values}, shape={self.shape}, dtype={self.dtype}, device={self.device})"


def empty(shape: int | Sequence[int], dtype: object = "float32", device: Device | None = None) -> NDArray:
    """A new array whose elements are not set (booleans are False).

    >>> empty((2, 0, 3), "bfloat16").shape
    (2, 0, 3)
    """
    return NDArray(_allocate(_extents(shape), as_dtype(dtype)), device)


def array(data: object, device: Device | None = None, dtype: object = None) -> NDArray:
    """A copy of array-like data in memory of our own, converted if a dtype is given.

    >>> array(3.5).asnumpy()
    array(3.5)
    """
    wanted = None if dtype is None else as_dtype(dtype)
    source = _as_numpy(data, wanted)
    target = _allocate(source.shape, wanted or as_dtype(source.dtype))
    _keep_imaginary(source.dtype, target.dtype)
    target[...] = source
    return NDArray(target, device)


def own_copy(value: NumpyArray[Any]) -> NumpyArray[Any]:
    """A copy of a weight, from a cache line on, whose memory goes back to the system as soon as nobody has it.

    >>> own_copy(np.arange(4).reshape(2, 2).T)
    array([[0, 2],
           [1, 3]])
    """
    if value.nbytes < OWN_PAGES:
        return array(value).numpy()
    made = own_array(value.shape, value.dtype)
    made[...] = value
    return made


def own_array(shape: tuple[int, ...], dtype: DType) -> NumpyArray[Any]:
    """Zeros in pages of their own, which are large ones where the system has some. malloc would keep freed memory of up
    to 32 MB for what is made next.

    >>> own_array((2,), np.dtype("float32"))
    array([0., 0.], dtype=float32)
    """
    nbytes = prod(shape) * dtype.itemsize
    anonymous = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    try:
        pages = mmap.mmap(-1, max(nbytes, 1), **anonymous)
    except (OSError, ValueError, OverflowError) as error:
        raise OutOfMemory(f"cannot allocate {nbytes} bytes for a weight", why=str(error)) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the system has none
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8, nbytes).view(dtype).reshape(shape)


def from_dlpack(source: object) -> NDArray:
    """An NDArray that shares the memory of an object with `__dlpack__`, or of a DLPack capsule.

    What is not row-major, writable and aligned to its element is copied, because an NDArray is.

    >>> theirs = np.zeros(3)
    >>> ours = from_dlpack(theirs)
    >>> ours[1] = 7
    >>> theirs
    array([0., 7., 0.])
    """
    memory = dlpack.from_dlpack(source)
    return NDArray(memory) if memory.flags.carray else array(memory)


def _device(device: Device | None) -> Device:
    if device is None:
        return cpu()
    if not isinstance(device, Device):
        raise InvalidType(f"expected a Device such as cpu(0), got {device!r}")
    if device.type == "cuda":
        raise InvalidValue(
            f"an NDArray is in the memory of the host, and not on {device}", hint="weft.cuda.to_device(array)"
        )
    return device


def _extents(shape: int | Sequence[int]) -> tuple[int, ...]:
    try:
        given = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        extents = tuple(operator.index(extent) for extent in given)
    except TypeError:
        raise InvalidType(f"a shape is whole numbers, not {shape!r}") from None
    if any(extent < 0 for extent in extents):
        raise ShapeError(f"shape {extents} has a negative extent")
    return extents


def _allocate(shape: tuple[int, ...], dtype: DType) -> NumpyArray[Any]:
    nbytes = dtype.itemsize
    for extent in shape:
        nbytes *= extent
    try:
        if nbytes > LARGE and nbytes > memory_bytes():
            raise MemoryError(f"this machine has {memory_bytes():.0f} bytes")
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -raw.__array_interface__["data"][0] % ALIGNMENT
        memory: NumpyArray[Any] = np.ndarray(shape, dtype, buffer=raw, offset=start)
    except (MemoryError, ValueError) as error:
        raise OutOfMemory(
            f"cannot allocate {nbytes} bytes for shape {shape} of {dtype_name(dtype)}",
            why=str(error),
            hint="take smaller extents, or fewer at a time",
        ) from None
    if dtype == BOOL:  # a byte other than 0 and 1 is no boolean
        memory.fill(False)
    return memory


def _as_numpy(data: object, dtype: DType | None = None) -> NumpyArray[Any]:
    """Data as a numpy array of one of our dtypes; Python numbers take the dtype that is given."""
    if isinstance(data, NDArray):
        return data._array
    if not isinstance(data, np.ndarray | np.generic):
        data = _from_foreign(data, dtype)
    result = np.asarray(data)
    native = result.dtype.newbyteorder("=")
    if native not in NAMED_DTYPES.values():
        raise DTypeError(f"an array of {result.dtype}", why="weft has " + ", ".join(DTYPES))
    return result if result.dtype == native else result.astype(native)


def _from_foreign(data: object, dtype: DType | None) -> NumpyArray[Any]:
    if hasattr(data, "__dlpack__"):
        return dlpack.from_dlpack(data)
    try:
        return np.asarray(data, dtype)
    except (OverflowError, TypeError, ValueError) as error:
        name = f" of dtype {dtype_name(dtype)}" if dtype is not None else ""
        raise InvalidValue(f"a {type(data).__name__} does not make an array{name}", why=str(error)) from None


def _keep_imaginary(source: DType, target: DType) -> None:
    if source.kind == "c" and target.kind != "c":
        raise DTypeError(
            f"{dtype_name(source)} does not become {dtype_name(target)}",
            why="the imaginary parts would be lost",
            hint="take the real part or the absolute value first",
        )


def _kind(dtype: DType) -> str:
    return "f" if dtype.kind == "V" else dtype.kind


def _same_shape(*, expected: tuple[int, ...], given: tuple[int, ...]) -> None:
    if expected != given:
        raise ShapeError(f"expected data of shape {expected}, got shape {given}")
