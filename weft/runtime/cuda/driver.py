"""The CUDA driver: entry points of libcuda with their types, and what its codes mean. Every call is checked, and what
fails is a typed error."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint32, c_uint64, c_void_p
from typing import Any

from ...base.errors import Error, NoDevice, NoDriver, OutOfMemory, RunError, Unsupported

LIBRARIES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")


class LaunchAttribute(ctypes.Structure):
    """One of a launch, or of a kernel in a graph: its number, and a union of 64 bytes."""

    _fields_ = [("id", c_int), ("pad", c_int), ("value", c_uint32 * 16)]


class LaunchConfig(ctypes.Structure):
    _fields_ = [
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", POINTER(LaunchAttribute)),
        ("count", c_uint),
    ]


class KernelNodeParams(ctypes.Structure):
    _fields_ = [
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("parameters", POINTER(c_void_p)),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]


class EdgeData(ctypes.Structure):
    """What an edge of a graph waits for: by default, that a node ends."""

    _fields_ = [("from_port", c_ubyte), ("to_port", c_ubyte), ("type", c_ubyte), ("reserved", c_ubyte * 5)]


_HANDLE, _ADDRESS, _INTO = c_void_p, c_uint64, POINTER(c_void_p)
_COUNT, _SIZE = POINTER(c_int), POINTER(c_size_t)

# Parameters by the exported name: that is the version of an entry point that the types are those of.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_COUNT,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (_COUNT,),
    "cuDeviceGet": (_COUNT, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceTotalMem_v2": (_SIZE, c_int),
    "cuDeviceGetAttribute": (_COUNT, c_int, c_int),
    "cuDeviceGetDefaultMemPool": (_INTO, c_int),
    "cuDevicePrimaryCtxRetain": (_INTO, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxGetCurrent": (_INTO,),
    "cuCtxPushCurrent_v2": (_HANDLE,),
    "cuCtxPopCurrent_v2": (_INTO,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_SIZE, _SIZE),
    "cuMemAlloc_v2": (POINTER(_ADDRESS), c_size_t),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemAllocAsync": (POINTER(_ADDRESS), c_size_t, _HANDLE),
    "cuMemFreeAsync": (_ADDRESS, _HANDLE),
    "cuMemPoolSetAttribute": (_HANDLE, c_int, c_void_p),
    "cuMemPoolGetAttribute": (_HANDLE, c_int, c_void_p),
    "cuMemPoolTrimTo": (_HANDLE, c_size_t),
    "cuMemHostAlloc": (_INTO, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, c_void_p, c_size_t, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (c_void_p, _ADDRESS, c_size_t, _HANDLE),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, c_size_t, _HANDLE),
    "cuMemsetD8Async": (_ADDRESS, c_ubyte, c_size_t, _HANDLE),
    "cuPointerGetAttribute": (c_void_p, c_int, _ADDRESS),
    "cuStreamCreateWithPriority": (_INTO, c_uint, c_int),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamQuery": (_HANDLE,),
    "cuStreamWaitEvent": (_HANDLE, _HANDLE, c_uint),
    "cuEventCreate": (_INTO, c_uint),
    "cuEventDestroy_v2": (_HANDLE,),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventSynchronize": (_HANDLE,),
    "cuEventQuery": (_HANDLE,),
    "cuEventElapsedTime": (POINTER(c_float), _HANDLE, _HANDLE),
    "cuLinkCreate_v2": (c_uint, _COUNT, _INTO, _INTO),
    "cuLinkAddData_v2": (_HANDLE, c_int, c_char_p, c_size_t, c_char_p, c_uint, _COUNT, _INTO),
    "cuLinkComplete": (_HANDLE, _INTO, _SIZE),
    "cuLinkDestroy": (_HANDLE,),
    "cuModuleLoadData": (_INTO, c_char_p),
    "cuModuleUnload": (_HANDLE,),
    "cuModuleGetFunction": (_INTO, _HANDLE, c_char_p),
    "cuFuncGetAttribute": (_COUNT, c_int, _HANDLE),
    "cuFuncSetAttribute": (_HANDLE, c_int, c_int),
    "cuLaunchKernelEx": (POINTER(LaunchConfig), _HANDLE, _INTO, _INTO),
    "cuGraphCreate": (_INTO, c_uint),
    "cuGraphDestroy": (_HANDLE,),
    "cuGraphAddKernelNode_v2": (_INTO, _HANDLE, _INTO, c_size_t, POINTER(KernelNodeParams)),
    "cuGraphAddEventRecordNode": (_INTO, _HANDLE, _INTO, c_size_t, _HANDLE),
    "cuGraphAddDependencies": (_HANDLE, _INTO, _INTO, c_size_t),
    "cuGraphAddDependencies_v2": (_HANDLE, _INTO, _INTO, POINTER(EdgeData), c_size_t),
    "cuGraphKernelNodeSetAttribute": (_HANDLE, c_int, c_void_p),
    "cuGraphInstantiateWithFlags": (_INTO, _HANDLE, c_uint64),
    "cuGraphExecDestroy": (_HANDLE,),
    "cuGraphExecKernelNodeSetParams_v2": (_HANDLE, _HANDLE, POINTER(KernelNodeParams)),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuTensorMapEncodeTiled": (
        *(c_void_p, c_int, c_uint32, c_void_p, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint32)),
        *(POINTER(c_uint32), c_int, c_int, c_int, c_int),
    ),
    "cuTensorMapEncodeIm2col": (
        *(c_void_p, c_int, c_uint32, c_void_p, POINTER(c_uint64), POINTER(c_uint64), _COUNT, _COUNT),
        *(c_uint32, c_uint32, POINTER(c_uint32), c_int, c_int, c_int, c_int),
    ),
}

NOT_READY, OUT_OF_MEMORY = 600, 2
_NO_DEVICE = {100, 101, 46, 802, 803, 804}
_GONE = {4, 201, 709}  # the driver shuts down, or a context is no more
_LOST = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 720}  # from then on a context refuses everything
_FOREIGN_CODE = {209, 218, 220, 221, 222, 223}


class CudaError(RunError):
    """A call of the driver failed: `code` is its number."""

    code = 0


class DeviceLost(CudaError):
    """A GPU, or what ran on it, failed so that nothing more runs on it in this process."""


class Driver:
    """The entry points of a library, each of which raises what its code means."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self._functions = _Typed(library)

    def has(self, name: str) -> bool:
        """Whether the driver is new enough to have an entry point."""
        return hasattr(self.library, name)

    def entry(self, name: str) -> Any:
        """An entry point that is called over and over: what it gives is a code, which the caller looks at."""
        return self._functions[name]

    def code(self, name: str, *arguments: Any) -> int:
        """Calls an entry point, and gives its code."""
        code: int = self._functions[name](*arguments)
        return code

    def call(self, name: str, *arguments: Any) -> None:
        """Calls an entry point, and raises unless that went well."""
        code = self._functions[name](*arguments)
        if code:
            raise self.failure(name, code)

    def failure(self, name: str, code: int) -> Error:
        """The error that a code of an entry point is."""
        what, told = f"CUDA's {name} failed", self._described(code)
        if code == OUT_OF_MEMORY:
            return OutOfMemory(what, why=told, hint="free device arrays, or take smaller extents")
        if code in _NO_DEVICE:
            return NoDevice(what, why=told, hint="see what nvidia-smi lists, and CUDA_VISIBLE_DEVICES")
        if code in _FOREIGN_CODE:
            return Unsupported(what, why=told, hint="compile for this GPU, or install a newer driver")
        kind = DeviceLost if code in _LOST else CudaError
        hint = "start another process: nothing runs on the device in this one any more" if code in _LOST else None
        if code in _GONE:
            hint = "do not use the GPU while the process ends, or after its context was destroyed"
        error = kind(what, why=told, hint=hint)
        error.code = code
        return error

    def _described(self, code: int) -> str:
        words = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            if self.code(name, code, ctypes.byref(text)) == 0 and text.value:
                words.append(text.value.decode())
        return ": ".join(words) or f"error {code}"


class _Typed(dict[str, Any]):
    """The entry points of a library that were asked for, with their types."""

    def __init__(self, library: Any) -> None:
        super().__init__()
        self._library = library

    def __missing__(self, name: str) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise Unsupported(
                f"the driver has no {name}", why="it is older than CUDA 12", hint="install a newer driver"
            ) from None
        function.argtypes, function.restype = SIGNATURES[name], c_int
        self[name] = function
        return function


def found_driver() -> Driver:
    """The driver of this machine; NoDriver if it has none."""
    for name in LIBRARIES:
        try:
            return Driver(ctypes.CDLL(name))
        except OSError:
            continue
    raise NoDriver(
        "a CUDA device is needed, and there is none",
        why=f"no driver was found: {LIBRARIES[0]} cannot be loaded",
        hint="install NVIDIA's driver, or use device='cpu'; weft.cuda.is_available() tells",
    )
