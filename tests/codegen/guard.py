"""Arrays that end, or begin, at a page which may not be touched: a stray access kills the test."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_NO_ACCESS, _READ_WRITE = 0, 3


def guarded(array: np.ndarray, front: bool = False) -> np.ndarray:
    """A copy whose last byte (or first, with `front`) is next to a guard page."""
    array = np.ascontiguousarray(array)
    pages = -(-max(array.nbytes, 1) // _PAGE)
    memory = _GuardedMemory(pages)
    offset = _PAGE if front else _PAGE * (1 + pages) - array.nbytes
    made = np.frombuffer(memory.view, np.uint8, array.nbytes, offset).view(array.dtype)
    made = made.reshape(array.shape)
    made[...] = array
    return made


class _GuardedMemory:
    """Pages between two that are closed."""

    def __init__(self, pages: int) -> None:
        self.view = mmap.mmap(-1, _PAGE * (pages + 2))
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.view))
        for page in (start, start + _PAGE * (pages + 1)):
            if _libc.mprotect(page, _PAGE, _NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect")
