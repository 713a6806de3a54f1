"""How long each step of a program takes: run one by one, by its own kernels and threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ...base.cpu_target import CpuTarget
from ...base.plan import HostStep, KernelStep, known
from ..inputs import as_input
from ..profile import DENSE, Machine, Piece, Profile, end_of, step_times
from ..program import Program
from .recording import RecordedRun
from .stepping import Stepper


def profile(
    program: Program,
    inputs: Mapping[str, Any],
    rounds: int = 5,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    call: Callable[[], object] | None = None,
) -> Profile:
    """The best time of each step over some rounds, in the order they run in, and of a whole run, which is `call` where
    that is given."""
    arrays = [as_input(inputs[spec.name], spec) for spec in program.inputs]
    stepper = Stepper(program, arrays, threads)
    steps = program.plan.steps
    best, total = [float("inf")] * len(steps), float("inf")
    for turn in range(rounds + 1):  # the first warms up
        for number, run in enumerate(stepper.calls):
            start = time.perf_counter()
            run()
            spent = time.perf_counter() - start
            best[number] = min(best[number], spent if turn else float("inf"))
        if progress is not None:
            progress(turn, rounds)
    for _ in range(rounds):
        start = time.perf_counter()
        if call is not None:
            call()
        else:
            stepper.run_all()
        total = min(total, time.perf_counter() - start)
    machine = _machine(program, stepper.threads)
    kernels = iter(program.kernels)
    rows: list[Any] = []
    for step, seconds in zip(steps, best):
        moved = sum(known(program.plan.slots[ref.slot].size) for ref in step.buffers)
        if isinstance(step, HostStep):
            name, node = str(step.attrs.get("op", step.function)), str(step.attrs.get("node", ""))
            rows.append((name, (name,), (node,), seconds, moved, None, False))
            continue
        info = next(kernels)
        rows.append((info.name, info.operators, info.sources, seconds, moved, _flops(step, program, moved), True))
    return Profile(step_times(rows, machine), total, rounds, machine, _recorded(stepper, rounds))


def thread_pieces(program: Program, inputs: Mapping[str, Any], rounds: int, threads: int | None = None) -> list[Piece]:
    """What single threads do in the shortest of some whole runs."""
    arrays = [as_input(inputs[spec.name], spec) for spec in program.inputs]
    return _recorded(Stepper(program, arrays, threads), rounds)


def _recorded(stepper: Stepper, rounds: int) -> list[Piece]:
    """What threads did in the shortest of some runs."""
    run = RecordedRun(stepper)
    return min([run.run() for _ in range(rounds)], key=end_of)


def _flops(step: KernelStep, program: Program, moved: int) -> float | None:
    """Operations by the estimate of the step's work, which counts those of sums of products."""
    flops = 2 * step.nanoseconds / CpuTarget.create(program.target).nanoseconds_per_operation
    return flops if flops > DENSE * moved else None


def _machine(program: Program, threads: int) -> Machine:
    target = CpuTarget.create(program.target)
    facts, slots = target.facts, program.plan.slots
    everything = sum(known(slot.size) for slot in slots)
    rate = facts.near_rate if everything <= facts.caches[1] else facts.last_rate
    rate = facts.far_rate if everything > facts.caches[2] else rate
    return Machine(facts.flops * threads, rate * threads, threads, f"{target.cpu}, {target.isa}")
