"""Memory that several processes see: an anonymous file of the system, mapped by each of them. No file system has a name
for it, so it goes with the last process that uses it, however that one ends."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import OutOfMemory

HAS_FILES = hasattr(os, "memfd_create")  # Linux
_FAILED = ctypes.c_void_p(-1).value


class File:
    """An open file, which is closed with the last reference to this."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, close: Any = os.close) -> None:
        close(self.fd)


def anonymous_file(nbytes: int) -> File:
    """A file of so many zeros that is in memory and has no name."""
    file = File(os.memfd_create("weft", os.MFD_CLOEXEC))
    os.ftruncate(file.fd, nbytes)
    return file


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def mapped(file: File, nbytes: int) -> NDArray[np.uint8]:
    """The first bytes of a file as memory. They keep no file open, as Python's own maps do: thousands may be alive."""
    if not nbytes:
        return np.empty(0, np.uint8)
    flags, library = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0), _library()
    address = library.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, file.fd, 0)
    if address == _FAILED:
        raise OutOfMemory(f"cannot map {nbytes} bytes", why=os.strerror(ctypes.get_errno()))
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    # Not at the end of the process: whoever still looks at the memory then would crash.
    weakref.finalize(memory, library.munmap, address, nbytes).atexit = False
    return np.frombuffer(memoryview(memory), np.uint8)


def shared_bytes(nbytes: int) -> tuple[NDArray[np.uint8], File | None]:
    """Memory that forked processes share, and the file by which others get it, where the system has such files."""
    if not HAS_FILES:
        return np.frombuffer(mmap.mmap(-1, max(nbytes, 1)), np.uint8)[:nbytes], None
    file = anonymous_file(nbytes)
    return mapped(file, nbytes), file
