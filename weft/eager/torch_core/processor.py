"""The processor as eager tensors use it: how many threads, what happens to the smallest floats, and
which libraries there are."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.errors import RunError
from ...runtime.cpu.jit import load_ir
from ...runtime.cpu.pool import choose_threads, restart_workers, thread_count

_FLUSH_TO_ZERO, _DENORMALS_ARE_ZERO = 1 << 15, 1 << 6
_IR = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define i32 @weft_exchange_mxcsr(i32 %keep, i32 %set) nounwind {
  %word = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %before = load volatile i32, ptr %word, align 4
  %kept = and i32 %before, %keep
  %after = or i32 %kept, %set
  store volatile i32 %after, ptr %word, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret i32 %before
}
"""


class FatalError(Exception):
    """A device failed in a way that the process cannot recover from."""

    __module__ = "weft"


def get_num_threads() -> int:
    """How many threads a kernel is split over."""
    return thread_count()


def set_num_threads(num: int) -> None:
    """Says how many threads a kernel is split over, for the whole process."""
    if isinstance(num, bool) or not isinstance(num, (int, np.integer)):
        raise RunError(f"set_num_threads expects an int, but got {type(num).__name__}")
    if num <= 0:
        raise RunError("set_num_threads expects a positive integer")
    choose_threads(int(num))


@functools.cache
def _exchange() -> Callable[[int, int], int]:
    """The native function that changes bits of the floating-point unit's control register."""
    library = load_ir(_IR, ["weft_exchange_mxcsr"])
    kind = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)
    function = kind(library.address("weft_exchange_mxcsr"))
    return lambda keep, bits, _library=library: int(function(keep, bits))  # type: ignore[misc]


def set_flush_denormal(mode: bool) -> bool:
    """Whether floats too small for a full mantissa count as zero, on this thread and on the workers
    of the pool. False if the processor has no such switch.
    """
    if not isinstance(mode, bool):
        raise RunError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    bits = _FLUSH_TO_ZERO | _DENORMALS_ARE_ZERO
    _exchange()(~bits & 0xFFFFFFFF, bits if mode else 0)
    restart_workers()
    return True


def _numpy_library(kind: str) -> dict[str, Any]:
    """What numpy was built with for "blas" or "lapack"."""
    found: Any = np.show_config(mode="dicts")
    part: dict[str, Any] = found.get("Build Dependencies", {}).get(kind, {})
    return part


# What systems have where a driver of NVIDIA's has found a device: Linux, Windows inside of which Linux runs, Windows.
_DEVICE_FILES = ("/dev/nvidiactl", "/dev/dxg", r"C:\Windows\System32\nvcuda.dll")


def _has_cuda() -> bool:
    """Whether the system shows CUDA devices, as far as that can be told without loading the driver."""
    return any(os.path.exists(path) for path in _DEVICE_FILES)


_FLAGS: dict[str, Callable[[], bool]] = {
    "has_mkl": lambda: "mkl" in str(_numpy_library("blas").get("name", "")),
    "has_mkldnn": lambda: "dnn" in str(_numpy_library("blas").get("name", "")),
    "has_openmp": lambda: "USE_OPENMP" in str(_numpy_library("blas")),
    "has_lapack": lambda: bool(_numpy_library("lapack").get("found", False)),
    "has_cuda": _has_cuda,
    "has_cudnn": lambda: False,  # weft has kernels of its own
}


@functools.cache
def features() -> dict[str, bool]:
    """What there is in this process: flags by name, such as `has_lapack`."""
    return {name: found() for name, found in _FLAGS.items()}
