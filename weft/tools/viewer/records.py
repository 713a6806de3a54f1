"""What a page shows, as plain data: programs with their graphs, steps, kernels and memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...base.stages import Decision
from ...runtime.profile import Piece
from .scopes import Scope


class NodeRecord(NamedTuple):
    """A node as one graph has it. Names are numbers in the table of names, of the node itself and of what it reads."""

    name: int
    op: str
    scope: int
    inputs: tuple[int, ...]
    outputs: tuple[str, ...]  # as text: dtype, shape and layout
    attrs: tuple[tuple[str, str], ...]
    sources: tuple[int, ...]  # nodes of the model that it comes from
    step: int = -1  # of the program, where the node is one


class Snapshot(NamedTuple):
    """The graph at one moment: what has just happened, and the numbers of its nodes' records."""

    title: str
    note: str
    nodes: list[int]
    outputs: list[int]  # names of the nodes that give results


@dataclass(frozen=True)
class KernelView:
    """One piece of code, with what is known of it before it runs."""

    symbol: str
    loops: str
    llvm: str
    assembly: str
    operations: float  # on data, in one run
    cycles: float  # of one thread, as the compiler estimates them
    shape: tuple[tuple[str, str], ...]  # what was decided: loops over threads, vectors, register tiles
    decisions: tuple[Decision, ...]


class BufferView(NamedTuple):
    """Memory that a step uses."""

    slot: int
    offset: int
    bytes: int
    text: str  # dtype and shape
    written: bool


@dataclass(frozen=True)
class StepView:
    """A step of a program: a kernel, or work on the host."""

    name: str
    kernel: int  # among the kernels; -1 on the host
    operators: tuple[str, ...]
    nodes: tuple[int, ...]  # names of the nodes that it computes
    sources: tuple[int, ...]
    buffers: tuple[BufferView, ...]
    turns: int  # of its loop over threads
    nanoseconds: float  # of one thread, as the plan takes them
    decisions: tuple[Decision, ...] = ()  # about the form of its operators
    seconds: float | None = None  # measured, on one thread

    def measured(self, seconds: float) -> StepView:
        """The same with the time that it took."""
        return replace(self, seconds=seconds)


class SlotView(NamedTuple):
    """A piece of memory, and the first and last step that use it."""

    role: str
    name: str
    size: int
    offset: int
    first: int
    last: int


@dataclass
class ProgramView:
    """One program: most models are one, and those in which values decide what comes next are several."""

    title: str
    model: str  # the title of the whole model
    target: str
    isa: str
    rates: dict[str, float]  # of one core of the target, where they are known
    names: list[str] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    records: list[NodeRecord] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    kernels: list[KernelView] = field(default_factory=list)
    steps: list[StepView] = field(default_factory=list)
    slots: list[SlotView] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    arena_bytes: int = 0
    constant_bytes: int = 0
    code_bytes: int = 0
    compile_seconds: float = 0.0
    run_seconds: float | None = None  # of a whole run with all its threads
    threads: int = 0
    pieces: list[Piece] = field(default_factory=list)  # of a whole run, by its threads
