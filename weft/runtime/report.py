"""What `report()` tells about compiled code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..base.plan import At, HostStep
from ..base.shown import Shown, bytes_text
from .program import KernelInfo, Program

_PADS, _LAYOUT = frozenset({"pad", "_halo"}), frozenset({"__layout_transform__"})


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """Prints itself as a short text. Of a model that has no code yet all counts are 0, and
    `waiting_for` names the inputs whose shapes are open."""

    kernels: tuple[KernelInfo, ...]
    distinct_kernels: int
    host_steps: tuple[str, ...]
    compile_seconds: float
    cache_hits: int
    arena_bytes: int
    constant_bytes: int
    code_bytes: int
    layout_transforms: int
    pad_copies: int
    concat_copies: int
    target: str
    waiting_for: tuple[str, ...] = ()
    known: tuple[str, ...] = ()  # of a model that has no code yet
    specialised: tuple[str, ...] = ()  # what came of making programs for sizes that are seen often
    images: int = 1  # that are computed one by one, each by all kernels

    def text(self, width: int | None = None) -> str:
        if self.waiting_for:
            return "\n".join(
                [
                    f"nothing is compiled yet: the shape of {', '.join(self.waiting_for)} is open",
                    "code is made in the first run, or by compile(shape={...})",
                    *self.known,
                ]
            )
        isa = Counter(kernel.isa for kernel in self.kernels)
        hosts = Counter(self.host_steps)
        lines = [
            f"{len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)} ({self.distinct_kernels} distinct; "
            + ", ".join(f"{count} {name}" for name, count in isa.items())
            + f"), {len(self.host_steps)} host steps"
            + ("".join(f"\n  host: {name} x{count}" for name, count in hosts.items())),
            f"compiled in {self.compile_seconds:.2f} s, {self.cache_hits} cache hits",
            f"memory: arena {bytes_text(self.arena_bytes)}, constants {bytes_text(self.constant_bytes)}, "
            f"code {bytes_text(self.code_bytes)}",
            f"{self.layout_transforms} layout transforms, {self.pad_copies} pad copies, "
            f"{self.concat_copies} concat copies",
            *([f"{self.images} images, one by one"] if self.images > 1 else []),
            *self.specialised,
        ]
        return "\n".join(lines)


def report_of(programs: Sequence[Program], between: Sequence[str] = (), specialised: Sequence[object] = ()) -> Report:
    """The report of programs that run one after the other, with host steps between them."""
    hosts = [s.attrs["op"] for program in programs for s in program.plan.steps if isinstance(s, HostStep)]
    kernels = [k for program in programs for k in program.kernels[: len(program.kernels) // program.plan.runs]]
    constants = {id(array): array.nbytes for program in programs for array in program.constants}

    def fact(name: str) -> float:
        return float(sum(program.facts.get(name, 0) for program in programs))

    return Report(
        kernels=tuple(kernels),
        distinct_kernels=int(fact("distinct_kernels")),
        host_steps=(*hosts, *between),
        compile_seconds=fact("total_seconds"),
        cache_hits=int(fact("cache_hits")),
        arena_bytes=sum(_arena_bytes(program) for program in programs),
        constant_bytes=sum(constants.values()),
        code_bytes=sum(len(code) for program in programs for code in program.objects),
        layout_transforms=sum("__layout_transform__" in k.operators for k in kernels),
        pad_copies=sum(map(_is_pad_copy, kernels)),
        concat_copies=sum(map(_is_concat_copy, kernels)),
        target=programs[0].target,
        specialised=tuple(map(str, specialised)),
        images=max(program.plan.runs for program in programs),
    )


def _arena_bytes(program: Program) -> int:
    """Those of an open program that has not run yet are not known: they follow from the sizes of a call."""
    arena_bytes = program.plan.arena_bytes
    return 0 if isinstance(arena_bytes, At) else arena_bytes


def open_report(
    waiting_for: Sequence[object], target: str, known: Sequence[str] = (), constant_bytes: int = 0
) -> Report:
    """The report of a model whose inputs are open, before its first run."""
    names = tuple(map(str, waiting_for))
    return Report((), 0, (), 0.0, 0, 0, constant_bytes, 0, 0, 0, 0, target, names, tuple(known))


def _is_pad_copy(kernel: KernelInfo) -> bool:
    """Whether a kernel only puts something around what another one computed."""
    moves = set(kernel.operators)
    if kernel.name.endswith("_rim"):  # zeros around what stands in its place already
        return False
    return kernel.name.endswith("_padded") or bool(moves & _PADS and moves <= _PADS | _LAYOUT)


def _is_concat_copy(kernel: KernelInfo) -> bool:
    """Whether a kernel only moves tensors beside each other."""
    return {"concatenate"} <= set(kernel.operators) <= {"concatenate"} | _LAYOUT
