"""A compiled kernel whose extents are arguments, called on numpy arrays from eager code."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.cpu_facts import THREADS
from ...base.plan import KernelCode
from ..addresses import address_of
from .jit import Library, load_object
from .pool import eager_threads, thread_pool

Array = np.ndarray[Any, np.dtype[Any]]
_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class OpenKernel:
    """Calls native code without looking at the arrays: whoever computes the scalars knows them.

    `run` takes the arrays of the kernel's buffers in order, its scalars in order, how many turns
    its parallel loop has, and about how many nanoseconds all of it takes one thread.
    """

    __slots__ = ("_address", "_function", "_library", "_numbers", "_pointers", "_pool", "name")

    def __init__(self, code: KernelCode, library: Library | None = None) -> None:
        self.name = code.name
        self._library = library or load_object(code.code, [code.name])
        self._address = self._library.address(code.name)
        self._function = _Function(self._address)
        self._pointers = ctypes.c_void_p * max(len(code.buffers), 1)
        self._numbers = ctypes.c_int64 * max(len(code.scalars), 1)
        self._pool = thread_pool()

    @property
    def address(self) -> int:
        """Where its code is."""
        return self._address

    def run(self, arrays: Sequence[Array], scalars: Sequence[int], extent: int, work: float) -> None:
        pointers = self._pointers(*[address_of(a) for a in arrays])
        numbers = self._numbers(*scalars)
        buffers, sizes = ctypes.addressof(pointers), ctypes.addressof(numbers)
        if work >= THREADS.wake and extent > 1:
            self._pool.run(self._address, buffers, sizes, extent, eager_threads())
        else:
            self._function(buffers, sizes, 0, extent)
