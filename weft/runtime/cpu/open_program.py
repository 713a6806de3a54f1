"""Programs for calls that are short: bound to sizes, they run on arrays that nobody looks at."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import CFUNCTYPE, c_int64, c_void_p
from struct import Struct

from ...base.cpu_facts import THREADS
from ...base.plan import KernelStep, OpenWork, resolved
from ..addresses import address_of
from ..program import Array, Program, TensorSpec
from .executor import CpuExecutor, Loaded
from .pool import eager_threads, thread_pool

IDLE_BYTES = 1 << 16  # calls are of one program after another, so none keeps much memory

_Function = CFUNCTYPE(None, c_void_p, c_void_p, c_int64, c_int64)
_FIRST = c_int64(0)


class OpenProgram:
    """A loaded program, and what runs it at certain sizes: a call of the native function where all of it is one kernel
    that has no memory but the arrays of a call."""

    def __init__(self, program: Program) -> None:
        self.program, self._loaded = program, Loaded.of(program, IDLE_BYTES)
        self._step = _only_kernel(program)
        self._executor = CpuExecutor(program, loaded=self._loaded) if self._step is None else None
        if self._step is not None:
            assert self._loaded.library is not None
            self.address = self._loaded.library.address(self._step.kernel)
            self.function, self.pool = _Function(self.address), thread_pool()
            self.places = tuple([ref.slot for ref in self._step.buffers])
            self.pointers, self.scalars = (Struct(f"{n}q").pack for n in (len(self.places), len(self._step.scalars)))

    def at(self, sizes: Sequence[int]) -> Call | None:
        """What runs it at these sizes; None if it does not serve them."""
        step, table = self._step, self.program.plan.sizes
        if step is None:
            assert self._executor is not None
            bound = self._executor.bound(sizes)
            return None if bound is None else Walk(bound)
        numbers = () if table is None else table.numbers(sizes)
        if numbers is None:
            return None
        scalars = [resolved(scalar, numbers) for scalar in step.scalars]
        work = step.work.each * numbers[step.work.elements.row] if isinstance(step.work, OpenWork) else step.work
        outputs = [spec.with_numbers(numbers) for spec in self.program.outputs]
        return KernelCall(self, scalars, resolved(step.launch.blocks[0], numbers), work, outputs)

    def given(self, scalars: Sequence[int], turns: int, work: float) -> KernelCall:
        """A call of the only kernel, all of whose numbers are given: its scalars in order, how many turns its parallel
        loop has, and about how many nanoseconds all of it takes one thread."""
        return KernelCall(self, scalars, turns, work, ())


class KernelCall:
    """A kernel with its numbers. `run` takes inputs, then outputs, of which it reads and writes some."""

    __slots__ = ("_end", "_kernel", "_scalars", "_turns", "_work", "outputs")

    def __init__(
        self, kernel: OpenProgram, scalars: Sequence[int], turns: int, work: float, outputs: Sequence[TensorSpec]
    ) -> None:
        self._kernel, self._turns, self._work, self.outputs = kernel, turns, work, outputs
        self._scalars, self._end = kernel.scalars(*scalars), c_int64(turns)

    @property
    def used(self) -> frozenset[int]:
        """The arrays that are read and written, by their numbers."""
        return frozenset(self._kernel.places)

    def run(self, arrays: Sequence[Array]) -> None:
        kernel, work = self._kernel, self._work
        pointers = kernel.pointers(*[address_of(arrays[place]) for place in kernel.places])
        if self._turns > 1 and (work >= THREADS.wake or (work >= THREADS.share and kernel.pool.is_awake)):
            kernel.pool.run(kernel.address, pointers, self._scalars, self._turns, eager_threads())
        else:
            kernel.function(pointers, self._scalars, _FIRST, self._end)


class Walk:
    """The same for a program of several kernels, which is run as those of models are."""

    __slots__ = ("_executor", "outputs", "used")

    def __init__(self, executor: CpuExecutor) -> None:
        self._executor, program = executor, executor.program
        self.outputs: Sequence[TensorSpec] = program.outputs
        self.used = frozenset([ref.slot for step in program.plan.steps for ref in step.buffers])

    def run(self, arrays: Sequence[Array]) -> None:
        count = len(arrays) - len(self.outputs)
        addresses = [address_of(array) for array in arrays]
        self._executor.threads = eager_threads()
        self._executor.run_at(addresses[:count], addresses[count:])


Call = KernelCall | Walk


def _only_kernel(program: Program) -> KernelStep | None:
    """The kernel of a program that is nothing else: all memory is inputs and outputs, from their first bytes on."""
    plan = program.plan
    step = plan.steps[0] if len(plan.steps) == 1 else None
    roles = [slot.role for slot in plan.slots]
    if not isinstance(step, KernelStep) or any([offset != 0 for _, offset in step.buffers]):
        return None
    return step if roles == ["input"] * len(program.inputs) + ["output"] * len(program.outputs) else None
