"""A program of one kernel whose numbers are all given with the arrays, called from eager code."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.cpu_facts import THREADS
from ...base.plan import KernelStep
from ..addresses import address_of
from ..program import Program
from .executor import Loaded
from .pool import eager_threads, thread_pool

Array = np.ndarray[Any, np.dtype[Any]]
_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class OneStep:
    """Calls native code without looking at the arrays, and without a table of sizes: whoever computes the numbers
    knows them.

    `run` takes the arrays of the step in order, its scalars in order, how many turns its parallel loop has, and about
    how many nanoseconds all of it takes one thread.
    """

    __slots__ = ("_address", "_function", "_loaded", "_numbers", "_pointers", "_pool", "program")

    def __init__(self, program: Program) -> None:
        (step,) = program.plan.steps
        assert isinstance(step, KernelStep)
        self.program, self._loaded = program, Loaded.of(program, idle_bytes=0)
        assert self._loaded.library is not None
        self._address = self._loaded.library.address(step.kernel)
        self._function = _Function(self._address)
        self._pointers = ctypes.c_void_p * max(len(step.buffers), 1)
        self._numbers = ctypes.c_int64 * max(len(step.scalars), 1)
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
