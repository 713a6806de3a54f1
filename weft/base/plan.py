"""The plain-data contract between compiler and runtime: kernels as code, and the plan of a compiled graph as steps over
slots of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .device import Device, cpu
from .dtype import DType
from .errors import InvalidValue

# After so many nanoseconds of work, a run of kernels returns to Python, which then sees signals.
CALL_WORK = 50e6


Extents = tuple[int, int, int]  # along x, y and z


class Launch(NamedTuple):
    """What a kernel is started over: so many blocks, of so many threads each. On a CPU the blocks along x are the
    turns of its parallel loop."""

    blocks: Extents = (1, 1, 1)
    threads: Extents = (1, 1, 1)


ONCE = Launch()
HOST = cpu()


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """What a kernel expects of one of its buffers. A None depends on the kernel's scalars."""

    name: str
    dtype: DType
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    alignment: int = 0
    written: bool = False


@dataclass(frozen=True, slots=True)
class KernelCode:
    """One kernel as code, whose format its target's runtime knows. What it is launched over is None if that depends on
    the scalars."""

    name: str
    code: bytes
    buffers: tuple[BufferSpec, ...]
    scalars: tuple[tuple[str, DType], ...] = ()
    launch: Launch | None = ONCE
    format: str = "object"


class BufferRef(NamedTuple):
    """Memory that a step uses: bytes from `offset` on of a slot. Strides and halos are known to the
    kernel; the offset is where its element (0, 0, ...) lies."""

    slot: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class KernelStep:
    """Run a kernel over its whole launch. `work` is an estimate of the nanoseconds that one thread takes."""

    kernel: str
    buffers: tuple[BufferRef, ...]
    scalars: tuple[int, ...] = ()
    launch: Launch = ONCE
    work: float = 0.0


@dataclass(frozen=True, slots=True)
class HostStep:
    """Call a global function of the runtime by name, between two runs of kernels."""

    function: str
    buffers: tuple[BufferRef, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


Step = KernelStep | HostStep


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of a device's memory that steps refer to by its number.

    `arena`: at `offset` in the arena that one run owns. `input`, `output`, `constant`: given from
    outside, in the order of the slots of that role.
    """

    role: str
    size: int
    offset: int = 0
    name: str = ""
    device: Device = HOST

    def __post_init__(self) -> None:
        if self.role not in ("input", "output", "constant", "arena"):
            raise InvalidValue(f"a slot has the role {self.role!r}")
        if self.size < 0 or self.offset < 0:
            raise InvalidValue(f"a slot of {self.size} bytes at {self.offset}")


@dataclass(frozen=True, slots=True)
class ExecPlan:
    """A compiled graph: its steps in order, the slots they use, and the bytes of the arena.

    >>> plan = ExecPlan((KernelStep("k", (BufferRef(0),)),), (Slot("output", 16),))
    >>> [len(segment) for segment in plan.segments()]
    [1]
    """

    steps: tuple[Step, ...]
    slots: tuple[Slot, ...]
    arena_bytes: int = 0

    def __post_init__(self) -> None:
        for number, step in enumerate(self.steps):
            for ref in step.buffers:
                if not 0 <= ref.slot < len(self.slots):
                    raise InvalidValue(f"step {number} uses slot {ref.slot} of {len(self.slots)}")
                if not 0 <= ref.offset <= self.slots[ref.slot].size:
                    raise InvalidValue(f"step {number} uses byte {ref.offset} of slot {ref.slot}")
        for number, slot in enumerate(self.slots):
            if slot.role == "arena" and slot.offset + slot.size > self.arena_bytes:
                raise InvalidValue(f"slot {number} ends outside the arena")

    def segments(self) -> list[tuple[KernelStep, ...] | HostStep]:
        """The steps as runs of kernels, each one native call, and host steps between them. Long
        runs are cut, so that an interrupt is seen between two kernels."""
        result: list[tuple[KernelStep, ...] | HostStep] = []
        run: list[KernelStep] = []
        work = 0.0
        for step in self.steps:
            if isinstance(step, HostStep):
                result += [tuple(run), step] if run else [step]
                run, work = [], 0.0
                continue
            run.append(step)
            work += step.work
            if work >= CALL_WORK:
                result.append(tuple(run))
                run, work = [], 0.0
        return result + ([tuple(run)] if run else [])
