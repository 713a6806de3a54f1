"""A program for one image becomes one for several: its steps for each of them, on their parts of inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.plan import BufferRef, ExecPlan, HostStep, KernelStep, Slot, known
from ..runtime.program import Program, TensorSpec

MOST_IMAGES = 64  # each has steps of its own in the plan


def for_images(program: Program, count: int) -> Program | None:
    """The program that does for each of so many images what this does for one; None where it does more than run kernels
    on them."""
    plan = program.plan
    kernels = [step for step in plan.steps if isinstance(step, KernelStep)]
    if plan.is_open or program.written or len(kernels) < len(plan.steps) or not kernels:
        return None
    if any(isinstance(step, HostStep) for step in plan.steps):
        return None
    given = [slot.role in ("input", "output") for slot in plan.slots]
    slots = tuple(_grown(slot, count) if grows else slot for slot, grows in zip(plan.slots, given))
    bytes_each = [known(slot.size) if grows else 0 for slot, grows in zip(plan.slots, given)]
    steps = tuple(_moved(step, bytes_each, image) for image in range(count) for step in kernels)
    return replace(
        program,
        plan=ExecPlan(steps, slots, plan.arena_bytes, runs=count),
        inputs=_grown_specs(program.inputs, count),
        outputs=_grown_specs(program.outputs, count),
        kernels=program.kernels * count,
    )


def _grown(slot: Slot, count: int) -> Slot:
    return Slot(slot.role, known(slot.size) * count, slot.offset, slot.name, slot.device)


def _grown_specs(specs: Sequence[TensorSpec], count: int) -> tuple[TensorSpec, ...]:
    return tuple(spec._replace(shape=(count, *spec.shape[1:])) for spec in specs)


def _moved(step: KernelStep, bytes_each: Sequence[int], image: int) -> KernelStep:
    """The step for the image of a number."""
    refs = tuple(BufferRef(slot, known(offset) + image * bytes_each[slot]) for slot, offset in step.buffers)
    return replace(step, buffers=refs)
