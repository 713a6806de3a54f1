"""DLPack: numpy arrays go out as capsules, capsules of any library come in, without a copy.

Capsules going out are made by numpy, whose deleter and destructor are native code and so may run in
any thread and at any time; the element types that numpy does not export are written into them here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike
from numpy.typing import NDArray as NumpyArray

from .dtype import DTYPES, DType, dtype_name
from .errors import InvalidType, RunError
from .forks import held_lock

CPU = (1, 0)
READ_ONLY, IS_COPIED = 1, 2
_MAX_RANK = 32
_NEWEST = (1, 1)
_NUMPY_HAS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"

_DEVICE_NAMES = {2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm"}
_KIND_CODE = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT16 = (4, 16)


def _element(dtype: DType) -> tuple[int, int]:
    """DLPack's code and number of bits."""
    if dtype == DTYPES["bfloat16"]:
        return _BFLOAT16
    return _KIND_CODE[dtype.kind], dtype.itemsize * 8


_DTYPE_OF_ELEMENT = {_element(dtype): dtype for dtype in DTYPES.values()}


class DLPackError(RunError, BufferError):
    """An array cannot be handed over through DLPack."""


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


class Exporter(Protocol):
    def __dlpack__(self, **options: Any) -> object: ...


# A handle of our own: argument types set on ctypes.pythonapi would be seen by every other library.
_python = ctypes.PyDLL(None, handle=ctypes.pythonapi._handle)


def _capsule_call(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(_python, name)
    function.restype, function.argtypes = result, arguments
    return cast("Callable[..., Any]", function)


_is_valid = _capsule_call("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _capsule_call("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _capsule_call("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_keep_forever = _capsule_call("Py_IncRef", None, ctypes.py_object)

_LEGACY, _VERSIONED = b"dltensor", b"dltensor_versioned"
_STRUCT_OF = {_LEGACY: DLManagedTensor, _VERSIONED: DLManagedTensorVersioned}
_USED = {name: b"used_" + name for name in _STRUCT_OF}
for _name in _USED.values():  # a capsule points at its name, and may outlive this module
    _keep_forever(_name)


def to_dlpack(data: ArrayLike, max_version: tuple[int, int] | None = None, *, copied: bool = False) -> object:
    """A capsule that shares the array's memory and keeps it alive until it is done with.

    It is named "dltensor_versioned" when the consumer understands version 1, else "dltensor". The
    array may be strided but not backwards: some consumers abort the process on that. `copied` tells
    the consumer that nobody else sees this memory.

    >>> "dltensor_versioned" in repr(to_dlpack(np.zeros(3), max_version=(1, 0)))
    True
    """
    array = np.asarray(data)
    element = _element(DTYPES[dtype_name(array.dtype)])
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        raise DLPackError(
            "an array that runs backwards or between its elements is not exported", hint="make a contiguous copy"
        )
    plain = array.view(f"u{array.itemsize}") if element[0] in (4, 6) else array
    try:
        capsule = _numpy_capsule(plain, _wants_versions(max_version))
    except BufferError as error:
        raise DLPackError("the array is not exported", why=str(error)) from None
    managed = _managed(capsule)
    managed.tensor.code, managed.tensor.bits = element
    if copied and isinstance(managed, DLManagedTensorVersioned):
        managed.flags |= IS_COPIED
    return capsule


def _wants_versions(max_version: tuple[int, int] | None) -> bool:
    if max_version is None:
        return False
    if not (isinstance(max_version, tuple) and len(max_version) == 2):
        raise InvalidType(f"max_version is a pair such as (1, 0), not {max_version!r}")
    return max_version[0] >= 1


def _numpy_capsule(array: NumpyArray[Any], versioned: bool) -> object:
    if versioned and _NUMPY_HAS_VERSIONS:
        return array.__dlpack__(max_version=(1, 0))
    return array.__dlpack__()


# Of two threads with one capsule one gets it; a finaliser that runs meanwhile may import another.
_consuming = held_lock("table")


def from_dlpack(source: Exporter | object) -> NumpyArray[Any]:
    """A numpy array that shares the memory of an object with `__dlpack__`, or of a raw capsule.

    Strides of any sign, memory that is not aligned to its element, and zero-size arrays come in as
    they are. The result is read-only where the producer said so. A capsule is good for one call.

    >>> from_dlpack(np.arange(6)[::-2])
    array([5, 3, 1])
    """
    capsule = source if _is_capsule(source) else _export(source)
    with _consuming:
        managed = _managed(capsule)
        dtype = _check(managed)
        array = _array(managed, dtype)
        _consume(capsule, managed, array)
    return array.view(dtype) if array.dtype != dtype else array


def _is_capsule(value: object) -> bool:
    return type(value).__name__ == "PyCapsule"


def _export(source: object, **options: Any) -> object:
    if not hasattr(source, "__dlpack__"):
        raise InvalidType(
            f"a {type(source).__name__} cannot come in through DLPack",
            why="expected an object with __dlpack__, or a capsule named dltensor",
        )
    if hasattr(source, "__dlpack_device__") and not options:
        _check_device(*source.__dlpack_device__())
    try:
        try:
            return source.__dlpack__(max_version=_NEWEST, **options)
        except TypeError:  # producers older than version 1 do not take the argument
            return source.__dlpack__(**options)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DLPackError(f"the {type(source).__name__} refused to be exported", why=str(error)) from error


def _managed(capsule: object) -> Any:
    for name, struct in _STRUCT_OF.items():
        if _is_capsule(capsule) and _is_valid(capsule, name):
            return struct.from_address(_pointer(capsule, name))
    if _is_capsule(capsule) and any(_is_valid(capsule, name) for name in _USED.values()):
        raise DLPackError("this DLPack capsule was consumed already", hint="export the array again")
    raise DLPackError(f"expected a capsule named dltensor or dltensor_versioned, got {capsule!r}")


def _check_device(kind: int, index: int) -> None:
    if kind != CPU[0]:
        name = _DEVICE_NAMES.get(int(kind), f"device type {int(kind)}")
        raise DLPackError(
            f"the array lives on {name}({index}), weft takes arrays of the CPU", hint="copy it to the CPU first"
        )


def _check(managed: Any, device: tuple[int, int] | None = None) -> DType:
    """The dtype of a tensor all of whose fields make sense, on the CPU if no device is told."""
    if isinstance(managed, DLManagedTensorVersioned) and managed.major != 1:
        raise DLPackError(f"DLPack version {managed.major}.{managed.minor} is not understood")
    tensor = managed.tensor
    if device is None:
        _check_device(tensor.device_type, tensor.device_id)
    elif (tensor.device_type, tensor.device_id) != device:
        raise DLPackError(f"a tensor of device {(tensor.device_type, tensor.device_id)}, said to be on {device}")
    if not 0 <= tensor.ndim <= _MAX_RANK or (tensor.ndim and not tensor.shape):
        raise DLPackError(f"a tensor of {tensor.ndim} dimensions", why=f"at most {_MAX_RANK} fit")
    if any(extent < 0 for extent in tensor.shape[: tensor.ndim]):
        raise DLPackError(f"a tensor of negative extent: {tensor.shape[: tensor.ndim]}")
    dtype = _DTYPE_OF_ELEMENT.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise DLPackError(
            f"elements of DLPack code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes",
            why="weft has " + ", ".join(DTYPES),
        )
    return dtype


def _array(managed: Any, dtype: DType) -> NumpyArray[Any]:
    """The tensor's memory as an array whose base is a `_Memory`."""
    tensor = managed.tensor
    shape = tuple(tensor.shape[: tensor.ndim])
    if 0 in shape:
        return np.empty(shape, dtype)
    if not tensor.data:
        raise DLPackError(f"a tensor of shape {shape} without memory")
    read_only = bool(getattr(managed, "flags", 0) & READ_ONLY)
    interface = {
        "version": 3,
        "shape": shape,
        "typestr": f"<u{dtype.itemsize}" if dtype.kind == "V" else dtype.str,
        "data": (tensor.data + tensor.byte_offset, read_only),
    }
    if tensor.strides:
        strides = tensor.strides[: tensor.ndim]
        interface["strides"] = tuple(stride * dtype.itemsize for stride in strides)
    return np.asarray(_Memory(interface))


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Memory:
    """Memory of another library: what an imported array has as its base."""

    __slots__ = ("__array_interface__", "deleter", "managed")

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface
        self.managed = 0
        self.deleter = 0

    def __del__(self, call: Any = _DELETER) -> None:  # globals are gone when Python ends
        if self.deleter:
            call(self.deleter)(self.managed)


def _consume(capsule: object, managed: Any, array: NumpyArray[Any]) -> None:
    """Take the tensor over from its capsule: its deleter runs when the array's memory is let go."""
    _take_over(capsule, managed, array.base if isinstance(array.base, _Memory) else _Memory({}))


def _take_over(capsule: object, managed: Any, memory: _Memory) -> None:
    name = next(name for name in _STRUCT_OF if _is_valid(capsule, name))
    _rename(capsule, _USED[name])
    memory.managed = ctypes.addressof(managed)
    memory.deleter = managed.deleter or 0


# Memory of other devices, of which nobody reads elements here


class DeviceTensor(NamedTuple):
    """A tensor on another device: where it is, with strides in bytes (None: dense), and what keeps it alive. What it
    holds is there for a `stream`, if that is known."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: DType
    read_only: bool
    owner: object
    stream: int | None = None


def device_tensor(source: Exporter | object, device: tuple[int, int], stream: int) -> DeviceTensor:
    """The tensor of an object with `__dlpack__` on a device, (DLPack's code, number), made ready for a stream."""
    capsule = source if _is_capsule(source) else _export(source, stream=stream)
    with _consuming:
        managed = _managed(capsule)
        dtype = _check(managed, device)
        tensor = managed.tensor
        shape, steps = tuple(tensor.shape[: tensor.ndim]), None
        if not tensor.data and 0 not in shape:
            raise DLPackError(f"a tensor of shape {shape} without memory")
        if tensor.strides:
            steps = tuple(stride * dtype.itemsize for stride in tensor.strides[: tensor.ndim])
        read_only = bool(getattr(managed, "flags", 0) & READ_ONLY)
        owner = _Memory({})
        address = (tensor.data or 0) + tensor.byte_offset
        _take_over(capsule, managed, owner)
    return DeviceTensor(address, shape, steps, dtype, read_only, owner, stream)


def interface_tensor(owner: object, interface: Mapping[str, Any]) -> DeviceTensor:
    """The tensor that an object with `__cuda_array_interface__` describes."""
    try:
        shape = tuple(int(extent) for extent in interface["shape"])
        dtype = np.dtype(interface["typestr"])
        address, read_only = interface["data"]
        strides, stream = interface.get("strides"), interface.get("stream")
        steps = None if strides is None else tuple(int(step) for step in strides)
        where = int(address or 0)
    except (KeyError, TypeError, ValueError) as error:
        raise DLPackError("__cuda_array_interface__ is not understood", why=repr(error)) from None
    if interface.get("mask") is not None or min(shape, default=0) < 0 or (not where and 0 not in shape):
        raise DLPackError(f"__cuda_array_interface__ of shape {shape} at {where:#x}", why="it is no plain array")
    if steps is not None and len(steps) != len(shape):
        raise DLPackError(f"__cuda_array_interface__ has {len(steps)} strides for {len(shape)} axes")
    if (_KIND_CODE.get(dtype.kind), dtype.itemsize * 8) not in _DTYPE_OF_ELEMENT:
        raise DLPackError(f"elements of {dtype}", why="weft has " + ", ".join(DTYPES))
    return DeviceTensor(where, shape, steps, dtype, bool(read_only), owner, stream)


class _Held:
    """What an array of numpy has as its base: it only holds the place of memory that numpy never reads."""

    def __init__(self, owner: object, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def device_capsule(tensor: DeviceTensor, device: tuple[int, int], max_version: tuple[int, int] | None = None) -> object:
    """A capsule of a tensor on another device, which keeps its owner alive until it is done with.

    numpy makes it, of an array at that address which nobody reads: so what frees it is native code.
    """
    dtype = tensor.dtype
    strides = tensor.strides
    if strides is not None and any(step < 0 or step % dtype.itemsize for step in strides):
        raise DLPackError("an array that runs between its elements is not exported", hint="make a contiguous copy")
    plain = f"<u{dtype.itemsize}" if dtype.kind in "Vb" else dtype.str
    interface = {"version": 3, "shape": tensor.shape, "typestr": plain, "data": (tensor.address, False)}
    if strides is not None:
        interface["strides"] = strides
    capsule = _numpy_capsule(np.asarray(_Held(tensor.owner, interface)), _wants_versions(max_version))
    managed = _managed(capsule)
    made = managed.tensor
    made.code, made.bits = _element(dtype)
    made.device_type, made.device_id = device
    made.data, made.byte_offset = tensor.address, 0
    if tensor.read_only and isinstance(managed, DLManagedTensorVersioned):
        managed.flags |= READ_ONLY
    return capsule
