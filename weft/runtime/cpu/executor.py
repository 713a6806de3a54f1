"""Runs programs on a CPU: one native call for each run of kernels. Each call has a workspace of its own, so that many
threads may call an executor."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from typing import Any

from ...base.device import Device
from ...base.dtype import DType
from ...base.ndarray import ALIGNMENT, NDArray, empty
from ...base.plan import HostStep
from ...base.target import Target
from ..executor import Executor, address_of, view_at
from ..functions import get_global_func
from ..program import Array, Program
from ..registry import Runtime
from .compatible import check_target
from .jit import load_object
from .pool import thread_count, thread_pool

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class CpuExecutor(Executor):
    """A program whose code is linked into this process."""

    def __init__(self, program: Program, threads: int | None = None) -> None:
        check_target(program.target)
        super().__init__(program)
        self.threads = thread_count(threads)
        self._library = load_object(program.objects, program.entries) if program.objects else None
        self._segments = self._load_segments()
        self._constants = [constant(array) for array in program.constants]
        slots = program.plan.slots
        self._arena_slots = [(i, s.offset) for i, s in enumerate(slots) if s.role == "arena"]
        self._slots_of = {
            role: [i for i, slot in enumerate(slots) if slot.role == role] for role in ("input", "output", "constant")
        }
        self._workspaces: deque[_Workspace] = deque()
        self._pool = thread_pool()

    def _load_segments(self) -> list[Any]:
        """Native functions and host steps, in order."""
        segments: list[Any] = []
        names = iter(self.program.entries)
        for part in self.program.plan.segments():
            if isinstance(part, HostStep):
                segments.append(part)
            else:
                assert self._library is not None
                segments.append(_Entry(self._library.address(next(names))))
        return segments

    @property
    def workspace_bytes(self) -> int:
        """Memory that idle workspaces hold."""
        return sum(space.arena.nbytes for space in tuple(self._workspaces))

    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Runs on arrays that fit already: dense, of the right shapes and dtypes, in order."""
        self.run_at([*map(address_of, inputs)], [*map(address_of, outputs)])

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """The same by addresses."""
        try:
            space = self._workspaces.pop()
        except IndexError:
            space = _Workspace(self)
        try:
            space.run(self, inputs, outputs)
        finally:
            self._workspaces.append(space)


class _Workspace:
    """What one call at a time uses: the arena, and the addresses that native code reads."""

    def __init__(self, executor: CpuExecutor) -> None:
        plan = executor.program.plan
        self.arena = empty((max(plan.arena_bytes, 1),), "uint8")
        self.table = (ctypes.c_void_p * max(len(plan.slots), 1))()
        self.address = ctypes.addressof(self.table)
        base = self.arena.address
        for slot, offset in executor._arena_slots:
            self.table[slot] = base + offset
        for slot, array in zip(executor._slots_of["constant"], executor._constants):
            self.table[slot] = array.address

    def run(self, executor: CpuExecutor, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        table = self.table
        for slot, address in zip(executor._slots_of["input"], inputs):
            table[slot] = address
        for slot, address in zip(executor._slots_of["output"], outputs):
            table[slot] = address
        pool = executor._pool
        pool.ensure(executor.threads)
        for segment in executor._segments:
            if isinstance(segment, HostStep):
                self._host_step(executor, segment)
            else:
                segment(self.address, pool.pointer, executor.threads)

    def _host_step(self, executor: CpuExecutor, step: HostStep) -> None:
        function = get_global_func(step.function)
        assert function is not None
        views = [
            view_at((self.table[ref.slot] or 0) + ref.offset, tuple(shape), dtype)
            for ref, (shape, dtype) in zip(step.buffers, step.attrs["tensors"])
        ]
        function(views, step.attrs)


def constant(array: Array) -> NDArray:
    """A constant of a program, which never changes: copied only if no cache line starts with it."""
    at_line = address_of(array) % ALIGNMENT == 0
    return NDArray(array) if at_line and array.flags.carray else aligned(array)


def aligned(array: Array) -> NDArray:
    """A copy of the array in memory that starts at a cache line."""
    copy = empty(array.shape, array.dtype)
    copy.numpy()[...] = array
    return copy


def _check(target: Target, threads: int | None) -> None:
    check_target(str(target))
    thread_count(threads)


def _allocate(shape: tuple[int, ...], dtype: DType, device: Device) -> NDArray:
    return empty(shape, dtype, device)


def _copy(source: Array, destination: NDArray) -> None:
    destination.copyfrom(source)


RUNTIME = Runtime("cpu", _check, CpuExecutor, _allocate, _copy, dlpack_code=1)
