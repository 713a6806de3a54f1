"""How long each kernel of a program takes: the steps run one by one, on one thread."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...base.plan import KernelStep, known
from ..inputs import as_input
from ..program import KernelInfo, Program
from .executor import aligned
from .jit import load_object

_Kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class KernelTime(NamedTuple):
    kernel: KernelInfo
    seconds: float
    bytes: int  # of all its buffers, each once


def profile(program: Program, inputs: Mapping[str, Any], rounds: int = 5) -> list[KernelTime]:
    """The best time of each kernel over some rounds, in the order they run in."""
    symbols = {step.kernel for step in program.plan.steps if isinstance(step, KernelStep)}
    library = load_object(program.objects, symbols)
    memory = _memory(program, [as_input(inputs[spec.name], spec) for spec in program.inputs])
    times = [float("inf")] * len(program.plan.steps)
    for _ in range(rounds):
        for number, step in enumerate(program.plan.steps):
            if isinstance(step, KernelStep):
                pointers = [memory[ref.slot] + known(ref.offset) for ref in step.buffers]
                table = (ctypes.c_void_p * len(pointers))(*pointers)
                scalars = (ctypes.c_int64 * max(len(step.scalars), 1))(*map(known, step.scalars))
                run = _Kernel(library.address(step.kernel))
                start = time.perf_counter()
                if step.launch.turns:
                    run(ctypes.addressof(table), ctypes.addressof(scalars), 0, step.launch.turns)
                times[number] = min(times[number], time.perf_counter() - start)
    steps = [(t, s) for t, s in zip(times, program.plan.steps) if isinstance(s, KernelStep)]
    slots = program.plan.slots
    return [
        KernelTime(info, seconds, sum(known(slots[ref.slot].size) for ref in step.buffers))
        for info, (seconds, step) in zip(program.kernels, steps)
    ]


class _Memory(dict[int, int]):
    """Addresses by slot, and the arrays that keep them valid."""

    kept: list[Any]


def _memory(program: Program, inputs: list[Any]) -> _Memory:
    made = _Memory()
    made.kept = []
    arena = aligned(np.zeros(max(known(program.plan.arena_bytes), 1), "uint8"))
    made.kept.append(arena)
    given = {"input": iter(inputs), "constant": iter(program.constants)}
    for number, slot in enumerate(program.plan.slots):
        if slot.role == "arena":
            made[number] = arena.address + known(slot.offset)
            continue
        source = given.get(slot.role)
        array = aligned(next(source) if source else np.zeros(max(known(slot.size), 1), "uint8"))
        made.kept.append(array)
        made[number] = array.address
    return made
