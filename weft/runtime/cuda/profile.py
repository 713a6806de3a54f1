"""How long each step of a program takes on a GPU: events of the device between its kernels, the host's clock around
steps of the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

from ...base.plan import HostStep, KernelStep, known
from ...base.target import Target
from ..inputs import as_input
from ..profile import DENSE, Machine, Profile, step_times
from ..program import Program
from .array import DeviceArray, device_empty, to_device
from .context import Context
from .executor import CudaExecutor
from .graph import Graph, runs
from .memory import Arena
from .stream import Event, Stream, current_stream
from .workspace import Given


def profile(
    program: Program,
    inputs: Mapping[str, Any],
    rounds: int = 5,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    call: Callable[[], object] | None = None,
) -> Profile:
    """The best time of each step over some rounds, in the order they run in, and of a whole run, which is `call` where
    that is given. Kernels are timed one after the other: none starts before the one ahead of it ends."""
    executor = CudaExecutor(program)
    arrays = {spec.name: as_input(inputs[spec.name], spec) for spec in program.inputs}
    stream = current_stream(executor.device.index)
    timed = _TimedRun(executor, [arrays[spec.name] for spec in program.inputs], stream)
    for turn in range(rounds + 1):  # the first warms up
        timed.run(counts=turn > 0)
        if progress is not None:
            progress(turn, rounds)
    total = float("inf")
    whole = call if call is not None else partial(executor.run_arrays, arrays)
    for turn in range(rounds + 1):
        start = time.perf_counter()
        whole()
        stream.synchronize()
        total = min(total, time.perf_counter() - start if turn else float("inf"))
    machine = _machine(executor.loaded.context, str(Target.create(program.target)))
    return Profile(step_times(_rows(program, timed.best), machine), total, rounds, machine)


class _TimedKernels(NamedTuple):
    """Kernels of the steps of some numbers, with an event before them and one after each."""

    numbers: list[int]
    graph: Graph
    events: list[Event]


class _TimedRun:
    """A program with all its memory on the device, whose steps are timed."""

    def __init__(self, executor: CudaExecutor, inputs: Sequence[Given], stream: Stream) -> None:
        program, loaded = executor.program, executor.loaded
        self.best = [0.0 if isinstance(s, KernelStep) and not runs(s) else inf for s in program.plan.steps]
        self._stream, self._space = stream, executor.new_workspace()
        self._arena = Arena(loaded.context, known(program.plan.arena_bytes))
        self._arrays = [a if isinstance(a, DeviceArray) else to_device(a, stream) for a in inputs]
        self._arrays += [device_empty(spec.extents, spec.dtype, stream) for spec in program.outputs]
        count = len(program.inputs)
        self._space.begin(self._arrays[:count], self._arrays[count:], self._arena, stream)
        self._segments: list[_TimedKernels | tuple[int, HostStep]] = []
        numbers: list[int] = []
        for number, step in enumerate(program.plan.steps):
            if isinstance(step, HostStep):
                self._add(program, numbers)
                self._segments.append((number, step))
                numbers = []
            elif runs(step):
                numbers.append(number)
        self._add(program, numbers)

    def _add(self, program: Program, numbers: list[int]) -> None:
        if not numbers:
            return
        events = [Event(enable_timing=True) for _ in range(len(numbers) + 1)]
        for event in events:
            event.record(self._stream)
        steps = [program.plan.steps[number] for number in numbers]
        kernels = [self._space.prepared(step) for step in steps if isinstance(step, KernelStep)]
        self._segments.append(_TimedKernels(numbers, Graph(self._stream.context, kernels, events), events))

    def run(self, counts: bool) -> None:
        """All steps in order; times count from the second run on."""
        for segment in self._segments:
            if isinstance(segment, _TimedKernels):
                segment.graph.launch(self._stream)
                self._stream.synchronize()
                ends = zip(segment.events, segment.events[1:])
                spent = {n: a.elapsed_time(b) / 1e3 for n, (a, b) in zip(segment.numbers, ends)}
            else:
                start = time.perf_counter()
                self._space.host_step(segment[1], self._stream)
                spent = {segment[0]: time.perf_counter() - start}
            for number, seconds in spent.items() if counts else ():
                self.best[number] = min(self.best[number], seconds)


def _rows(program: Program, best: list[float]) -> list[Any]:
    kernels, rows = iter(program.kernels), list[Any]()
    for step, seconds in zip(program.plan.steps, best):
        moved = sum(known(program.plan.slots[ref.slot].size) for ref in step.buffers)
        if isinstance(step, HostStep):
            name, node = str(step.attrs.get("op", step.function)), str(step.attrs.get("node", ""))
            rows.append((name, (name,), (node,), seconds, moved, None, False))
            continue
        info = next(kernels, None)
        named = (info.name, info.operators, info.sources) if info is not None else (step.kernel, (), ())
        rows.append((*named, seconds, moved, _flops(step, program, moved), True))
    return rows


def _flops(step: KernelStep, program: Program, moved: int) -> float | None:
    """Operations by the estimate of the step's work, which counts those of sums of products."""
    flops = 2 * step.nanoseconds / Target.create(program.target).nanoseconds_per_operation
    return flops if flops > DENSE * moved else None


def _machine(context: Context, target: str) -> Machine:
    facts = context.facts
    return Machine(facts.flops, facts.bytes_a_second, facts.sms * facts.sm_threads, f"{facts.name}, {target}")
