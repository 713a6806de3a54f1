"""A program that is walked step by step, by its own kernels and threads, so that somebody can look at times and values
between two of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...base.cpu_target import CpuTarget
from ...base.errors import InvalidValue
from ...base.ndarray import NDArray, empty, own_array
from ...base.plan import BufferRef, HostStep, KernelStep, Slot, known
from ..addresses import address_of
from ..executor import view_at
from ..functions import get_global_func
from ..program import Array, Program
from .executor import aligned, constant
from .jit import load_object
from .pool import thread_count, thread_pool
from .walk_code import Words, run_table


class Stepper:
    """Memory of one run and what runs each step in it. `run(number)` does one, and must be called in order; `value`
    shows what stands somewhere. Memory is that of an ordinary run: values go when later ones take their place. Inputs
    are copied, unless outputs are given; then those that start at a cache line are read where they are."""

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Array],
        threads: int | None = None,
        outputs: Sequence[Array] | None = None,
    ) -> None:
        if program.plan.is_open:
            raise InvalidValue("a program with open sizes has no steps yet", hint="program.bound(sizes)")
        self.program = program
        self.threads = thread_count(threads)
        plan = program.plan
        kernels = {step.kernel for step in plan.steps if isinstance(step, KernelStep)}
        self._library = load_object(program.objects, kernels) if kernels else None
        self._kept: list[Any] = []
        self._read: dict[int, NDArray] = {}  # inputs and constants, by slot
        self._taken = aligned if outputs is None else constant
        self._given = outputs
        self._pool = thread_pool()
        self._slots = self._placed(inputs)
        self._costs = CpuTarget.create(program.target).facts.threads
        self._pool.ensure(self.threads)
        self.calls = [self._call(step) for step in plan.steps]

    def _placed(self, inputs: Sequence[Array]) -> Words:
        """The address of each slot, and room for as many as any step has buffers."""
        plan = self.program.plan
        arena = empty((max(known(plan.arena_bytes), 1),), "uint8")
        most = max((len(step.buffers) for step in plan.steps), default=0)
        words: Words = np.zeros(len(plan.slots) + most, np.int64)
        given = {"input": iter(map(self._taken, inputs)), "constant": iter(map(constant, self.program.constants))}
        self.outputs: list[Array] = []
        for number, slot in enumerate(plan.slots):
            if slot.role == "arena":
                words[number] = arena.address + known(slot.offset)
            elif slot.role == "output":
                words[number] = self._output(slot, len(self.outputs))
            else:
                array: NDArray = next(given[slot.role])
                self._read[number] = array
                words[number] = array.address
        self._kept.append(arena)
        return words

    def _output(self, slot: Slot, number: int) -> int:
        spec = self.program.outputs[number]
        made = empty(spec.extents, spec.dtype) if self._given is None else NDArray(self._given[number])
        self._kept.append(made)
        self.outputs.append(made.numpy())
        return made.address

    def _call(self, step: KernelStep | HostStep) -> Callable[[], object]:
        """What runs a step as an ordinary run does, with all that can be looked up looked up."""
        if isinstance(step, HostStep):
            return partial(self._host_step, step)
        table = self.table((step,))
        if table is None:
            return _nothing
        self._kept.append(table)
        return partial(self._pool.walk, address_of(table), address_of(self._slots), self._pool.pointer, self.threads)

    def table(self, steps: Sequence[KernelStep]) -> Words | None:
        """The table of some steps, for `walk`; None if nothing of them runs."""
        assert self._library is not None
        return run_table(steps, len(self.program.plan.slots), self._library.address, self._costs)

    def walk(self, table: Words) -> None:
        """Runs the steps of a table in one native call."""
        self._pool.walk(address_of(table), address_of(self._slots), self._pool.pointer, self.threads)

    def worker_threads(self) -> list[int]:
        """What tells the threads of the pool apart, in their order, the caller not among them."""
        return self._pool.worker_threads

    def _host_step(self, step: HostStep) -> None:
        function = get_global_func(step.function)
        assert function is not None
        tensors = zip(step.buffers, step.attrs["tensors"])
        function([self.value(ref, tuple(shape), dtype) for ref, (shape, dtype) in tensors], step.attrs)

    def run(self, number: int) -> None:
        """Runs a step."""
        self.calls[number]()

    def run_all(self) -> None:
        """Runs all steps in order."""
        for call in self.calls:
            call()

    def release(self, slot: int) -> None:
        """Lets go of an input or constant that no later step reads."""
        self._read.pop(slot, None)

    def value(self, ref: BufferRef, shape: tuple[int, ...], dtype: Any, strides: Sequence[int] | None = None) -> Array:
        """What stands at a place, as an array over that memory; strides count elements."""
        address = int(self._slots[ref.slot]) + known(ref.offset)
        if strides is None:
            return view_at(address, shape, dtype)
        span = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides)) if all(shape) else 0
        flat = view_at(address, (span,), dtype)
        return np.lib.stride_tricks.as_strided(flat, shape, [stride * flat.itemsize for stride in strides])


def run_spending(program: Program, inputs: list[Array]) -> list[Array]:
    """The outputs of a program that computes weights. `inputs` is emptied: each goes after the step that reads it last,
    if nobody else has it, so that all inputs never stand beside all outputs."""
    stepper = Stepper(program, inputs, outputs=[own_array(spec.extents, spec.dtype) for spec in program.outputs])
    inputs.clear()
    last = {ref.slot: number for number, step in enumerate(program.plan.steps) for ref in step.buffers}
    for number, step in enumerate(program.plan.steps):
        stepper.run(number)
        for slot in {ref.slot for ref in step.buffers if last[ref.slot] == number}:
            stepper.release(slot)
    return stepper.outputs


def _nothing() -> None:
    """A kernel that is launched over no blocks."""
