"""Runs programs on a CPU: one native call for each run of kernels. Each call has a workspace of its own, so that many
threads may call an executor; those of one program at several sizes share all but the addresses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int64, c_void_p
from functools import partial
from itertools import chain
from math import inf
from typing import NamedTuple

import numpy as np

from ...base.cpu_facts import ThreadFacts
from ...base.cpu_target import CpuTarget
from ...base.device import Device
from ...base.dtype import DType
from ...base.ndarray import ALIGNMENT, NDArray, empty
from ...base.plan import BufferRef, HostStep, KernelStep, Launch, Launched, known
from ...base.target import Target
from ..addresses import address_of
from ..executor import Executor, Move, view_at
from ..functions import get_global_func
from ..program import Array, Program
from ..registry import Runtime
from .arenas import NONE, Arenas
from .compatible import check_target
from .image_runs import KERNEL, SharedRuns, shared_runs
from .jit import Library, load_object
from .pool import thread_count, thread_pool
from .walk_code import Words, run_table


class Loaded(NamedTuple):
    """What executors of a program share, whatever sizes they are bound to."""

    library: Library | None
    constants: list[NDArray]
    arenas: Arenas
    costs: ThreadFacts

    @classmethod
    def of(cls, program: Program, idle_bytes: float) -> Loaded:
        check_target(program.target)
        kernels = {step.kernel for step in program.plan.steps if isinstance(step, KernelStep)}
        library = load_object(program.objects, kernels) if kernels else None
        constants, facts = [constant(array) for array in program.constants], CpuTarget.create(program.target).facts
        return cls(library, constants, Arenas(idle_bytes), facts.threads)


class CpuExecutor(Executor):
    """A program whose code is linked into this process. Memory of calls stays for the next ones, up to
    so many bytes for each that there is at once."""

    def __init__(
        self, program: Program, threads: int | None = None, loaded: Loaded | None = None, idle_bytes: float = inf
    ) -> None:
        self._loaded = loaded or Loaded.of(program, idle_bytes)
        super().__init__(program)
        self.threads = thread_count(threads)
        self._runs: list[Words] = []  # what the segments hold the addresses of
        self._pool = thread_pool()
        if not program.plan.is_open:
            self._prepare()

    def _prepare(self) -> None:
        """Makes what depends on the sizes."""
        plan, slots = self.program.plan, self.program.plan.slots
        library = self._loaded.library
        self._shared: SharedRuns | None = None
        if library is not None:
            self._shared = shared_runs(plan, library, self.threads, self._loaded.costs)
        self._segments = self._tables()
        self._slots_of = {
            role: [i for i, slot in enumerate(slots) if slot.role == role]
            for role in ("input", "output", "constant", "arena")
        }
        self._arena_bytes = known(plan.arena_bytes)
        if self._shared is not None:
            self._arena_bytes = self._shared.arenas * self._shared.arena_bytes
        self._arena_offsets = np.array([known(slots[i].offset) for i in self._slots_of["arena"]], np.int64)
        self._workspaces: deque[_Workspace] = deque()

    def bound(self, sizes: Sequence[int]) -> CpuExecutor | None:
        """An executor for these sizes, None if the program does not serve them. It shares code, constants and the
        memory of calls with its siblings."""
        program = self.program.bound(sizes)
        return None if program is None else self.sharing(program)

    def sharing(self, program: Program) -> CpuExecutor:
        """An executor of another program, with the code, the constants and the memory of calls of this one."""
        return CpuExecutor(program, self.threads, self._loaded)

    def _tables(self) -> list[int | HostStep]:
        """Addresses of tables of kernels, and host steps, in order."""
        segments: list[int | HostStep] = []
        for part in self.program.plan.segments() if self._shared is None else self._shared.segments:
            if isinstance(part, HostStep):
                segments.append(part)
                continue
            words = run_table(part, self._slot_count, self._address, self._loaded.costs)
            if words is not None:
                self._runs.append(words)
                segments.append(words.ctypes.data)
        return segments

    def _address(self, kernel: str) -> int:
        library = self._loaded.library
        assert library is not None
        return self._pool.address(kernel) if kernel == KERNEL else library.address(kernel)

    @property
    def _slot_count(self) -> int:
        """Slots that a table is walked over: those of the plan, and where runs are shared one for what is free."""
        return len(self.program.plan.slots) + (self._shared is not None)

    @property
    def workspace_bytes(self) -> int:
        """Memory of calls that is idle, here and in executors of the same program at other sizes."""
        return self._loaded.arenas.idle_bytes

    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Runs on arrays that fit already: dense, of the right shapes and dtypes, in order."""
        self.run_at([*map(address_of, inputs)], [*map(address_of, outputs)])

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """The same by addresses."""
        try:
            space = self._workspaces.pop()
        except IndexError:
            space = _Workspace(self)
        arena = self._loaded.arenas.take(self._arena_bytes)
        try:
            space.use(self, arena.address)
            space.place(self, inputs, outputs)
            space.run(self)
        finally:
            self._loaded.arenas.give(arena)
            self._workspaces.append(space)

    def repeated(self, fixed: Mapping[int, int], then: Sequence[Launched] = ()) -> Callable[[Sequence[int]], None]:
        """`run_at` in workspaces that nobody else uses: what never moves is filled in once."""
        slots, spaces = self._slots_of, deque[_Workspace]()
        table = _Extended(self, then) if then else None
        places = [slot for number, slot in enumerate(slots["input"]) if number not in fixed] + slots["output"]
        known = {slots["input"][number]: address for number, address in fixed.items()}
        if table is not None:
            places += table.moving
            known |= table.known
        arenas, arena_bytes = self._loaded.arenas, self._arena_bytes
        pool, threads, is_native = self._pool, self.threads, self.is_native

        def new_space() -> _Workspace:
            made = _Workspace(self, table)
            for slot, address in known.items():
                made.table[slot] = address
            return made

        def run(addresses: Sequence[int]) -> None:
            try:
                space = spaces.pop()
            except IndexError:
                space = new_space()
            arena = arenas.take(arena_bytes) if arena_bytes else NONE
            try:
                if arena.address != space.arena:
                    space.use(self, arena.address)
                words = space.table
                for place, address in zip(places, addresses):
                    words[place] = address
                if is_native:
                    if threads > 1:
                        pool.ensure(threads)
                    pool.walk(*space.arguments)
                else:
                    space.run(self)
            finally:
                if arena_bytes:
                    arenas.give(arena)
                spaces.append(space)

        return run

    def turning(
        self, fixed: Mapping[int, int], moves: Sequence[Move], goes_on: Move | None = None
    ) -> Callable[[int, Mapping[int, int]], int]:
        if not self.is_native:
            return super().turning(fixed, moves, goes_on)
        slots, space = self._slots_of, _Workspace(self)
        places = [slot for number, slot in enumerate(slots["input"]) if number not in fixed] + slots["output"]
        for number, address in fixed.items():
            space.table[slots["input"][number]] = address
        for place, move in zip(places, moves):
            space.table[place] = move.address
        rows = [(place, move.step, move.returns) for place, move in zip(places, moves)]
        byte = goes_on or Move(0)
        job = np.array([0, len(rows), byte.address, byte.step, *chain(*rows)], np.int64)
        arenas, pool, threads = self._loaded.arenas, self._pool, self.threads

        def some(count: int, starts: Mapping[int, int]) -> int:
            for number, address in starts.items():
                space.table[places[number]] = address
            arena = arenas.take(self._arena_bytes)
            try:
                space.use(self, arena.address)
                job[0] = count
                pool.ensure(threads)
                done: int = pool.turns(self._segments[0], space.address, pool.pointer, threads, job.ctypes.data)
                return done
            finally:
                arenas.give(arena)

        return some

    @property
    def is_native(self) -> bool:
        """Whether all of it is one native call."""
        return len(self._segments) == 1 and not isinstance(self._segments[0], HostStep)

    def bound_call(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], object]:
        """Runs on these arrays, which the caller keeps; their addresses are looked up once."""
        space, arena = _Workspace(self), empty((max(self._arena_bytes, 1),), "uint8")
        space.use(self, arena.address)
        space.keeps = arena
        space.place(self, [*map(address_of, inputs)], [*map(address_of, outputs)])
        if not self.is_native:
            return partial(space.run, self)
        table, pool = self._segments[0], self._pool

        def call() -> None:
            pool.ensure(self.threads)
            pool.walk(table, space.address, pool.pointer, self.threads)

        return call


class _Extended:
    """The table of a program with more kernels at its end, whose memory has slots behind the program's."""

    def __init__(self, executor: CpuExecutor, then: Sequence[Launched]) -> None:
        plan = executor.program.plan
        steps: list[KernelStep] = [step for step in plan.steps if isinstance(step, KernelStep)]
        own: dict[str, int] = {}
        self.held = then  # the memory, and the code
        self.moving: list[int] = []
        self.known: dict[int, int] = {}
        slot = len(plan.slots)
        for number, launched in enumerate(then):
            name = f"then {number}"
            own[name] = launched.address
            last = slot + len(launched.memory)
            for place, array in zip(range(slot, last), launched.memory):
                if array is None:
                    self.moving.append(place)
                else:
                    self.known[place] = address_of(array)
            refs = tuple([BufferRef(place) for place in range(slot, last)])
            launch = Launch((launched.turns, 1, 1))
            steps.append(KernelStep(name, refs, launched.scalars, launch, launched.work))
            slot = last
        self.slots = slot + max(len(step.buffers) for step in steps)
        library = executor._loaded.library
        assert library is not None
        words = run_table(steps, slot, lambda name: own.get(name) or library.address(name), executor._loaded.costs)
        assert words is not None
        self.words = words


class _Workspace:
    """The addresses that native code reads, for one call at a time."""

    def __init__(self, executor: CpuExecutor, table: _Extended | None = None) -> None:
        plan = executor.program.plan
        most = max((len(step.buffers) for step in plan.steps), default=0)
        shared = executor._shared
        most = most if shared is None else max(most, executor._slot_count)
        self.words = np.zeros(executor._slot_count + most if table is None else table.slots, np.int64)
        self.address = self.words.ctypes.data
        self.table = memoryview(self.words.data)  # faster for single ones
        first = table.words.ctypes.data if table is not None else executor._segments[0] if executor.is_native else None
        pointers = [c_void_p(at) for at in (first, self.address, executor._pool.pointer)]  # type: ignore[arg-type]
        self.arguments = (*pointers, c_int64(executor.threads))  # of a walk; numbers would be made into these each time
        self.arena = 0  # where that of the last call is
        self.keeps: NDArray | None = None  # an arena that no other call uses
        for slot, array in zip(executor._slots_of["constant"], executor._loaded.constants):
            self.table[slot] = array.address
        if shared is not None:
            self.free = np.array([shared.all_free], np.int64)
            self.table[len(plan.slots)] = self.free.ctypes.data

    def use(self, executor: CpuExecutor, arena: int) -> None:
        """Has the values between inputs and outputs in an arena."""
        if arena != self.arena:
            self.words[executor._slots_of["arena"]] = executor._arena_offsets + arena
            self.arena = arena

    def place(self, executor: CpuExecutor, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Fills in where inputs and outputs are."""
        table = self.table
        for slot, address in zip(executor._slots_of["input"], inputs):
            table[slot] = address
        for slot, address in zip(executor._slots_of["output"], outputs):
            table[slot] = address

    def run(self, executor: CpuExecutor) -> None:
        """Runs on what was placed."""
        pool, threads = executor._pool, executor.threads
        if threads > 1:
            pool.ensure(threads)
        for segment in executor._segments:
            if isinstance(segment, HostStep):
                self._host_step(executor, segment)
            else:
                pool.walk(segment, self.address, pool.pointer, threads)

    def _host_step(self, executor: CpuExecutor, step: HostStep) -> None:
        function = get_global_func(step.function)
        assert function is not None
        views = [
            view_at(self.table[ref.slot] + known(ref.offset), tuple(shape), dtype)
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
    thread_count(threads)
    check_target(str(target))


def _allocate(shape: tuple[int, ...], dtype: DType, device: Device) -> NDArray:
    return empty(shape, dtype, device)


def _copy(source: Array, destination: NDArray) -> None:
    destination.copyfrom(source)


RUNTIME = Runtime("cpu", _check, CpuExecutor, _allocate, _copy, dlpack_code=1)
