"""The plain-data contract between compiler and runtime: kernels as object code, and the plan of a
compiled graph as steps over slots of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .dtype import DType
from .errors import InvalidValue

# Below this many nanoseconds of work, waking another thread costs more than it saves.
PARALLEL_WORK = 50_000.0

# After so many nanoseconds of work, a run of kernels returns to Python, which then sees signals.
CALL_WORK = 50e6


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
    """One kernel as object code. `extent` is that of its parallel loop, None if it depends on the
    scalars; a kernel without one has extent 1."""

    name: str
    code: bytes
    buffers: tuple[BufferSpec, ...]
    scalars: tuple[tuple[str, DType], ...] = ()
    extent: int | None = 1


class BufferRef(NamedTuple):
    """Memory that a step uses: bytes from `offset` on of a slot. Strides and halos are known to the
    kernel; the offset is where its element (0, 0, ...) lies."""

    slot: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class KernelStep:
    """Run a kernel over its whole extent. `work` is an estimate of the
    nanoseconds that one thread takes."""

    kernel: str
    buffers: tuple[BufferRef, ...]
    scalars: tuple[int, ...] = ()
    extent: int = 1
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
    """A piece of memory that steps refer to by its number.

    `arena`: at `offset` in the arena that one run owns. `input`, `output`, `constant`: given from
    outside, in the order of the slots of that role.
    """

    role: str
    size: int
    offset: int = 0
    name: str = ""

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
