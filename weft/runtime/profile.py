"""What a profile tells of a program: each step with its time, the bytes it moves and the operations it does, and how
near that is to what the machine can do. It shows itself as a table, a trace for Perfetto or Chrome, and a page."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..base.shown import Shown, bytes_text, table

# Operations a byte from which on a kernel sums products: for others the estimate of their work is no count of
# operations.
DENSE = 4
SLOWEST = 20  # rows of the text
PROFILE_ROUNDS = 5


class Machine(NamedTuple):
    """What bounds kernels: operations and bytes a second, by the table of facts for this kind of machine."""

    flops: float  # of all threads
    bytes: float  # read from the cache that holds all of it, by all threads
    threads: int
    target: str


@dataclass(frozen=True)
class StepTime:
    """A step of a program in the order they run in: its best time, its share of all, what it came from. `flops` is None
    where the kernel sums no products. `began` is seconds from the beginning of its round."""

    name: str
    operators: tuple[str, ...]
    sources: tuple[str, ...]
    seconds: float
    share: float
    bytes: int
    flops: float | None
    roofline: float  # its least time by the machine's rates, over the time it took
    native: bool
    began: float

    @property
    def gflops(self) -> float | None:
        """Billions of operations a second."""
        return None if self.flops is None or not self.seconds else self.flops / self.seconds / 1e9

    @property
    def gbytes(self) -> float:
        """Billions of bytes a second."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0


class Piece(NamedTuple):
    """What one thread did at a stretch in a whole run: a part of a step's parallel loop, or all of it. Thread 0 is the
    one that called; `began` is seconds from the beginning of the run."""

    step: int
    thread: int
    began: float
    seconds: float


def end_of(pieces: Sequence[Piece]) -> float:
    """When the last piece of a run ended."""
    return max((piece.began + piece.seconds for piece in pieces), default=0.0)


@dataclass(frozen=True, repr=False)
class Profile(Shown):
    """The times of a program's steps, of `rounds` runs the best; `total` is that of a whole run as users call it.
    `pieces` are what single threads did in the shortest of as many whole runs, by the time they began."""

    steps: list[StepTime]
    total: float
    rounds: int
    machine: Machine
    pieces: list[Piece] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Of all steps one after the other."""
        return sum(step.seconds for step in self.steps)

    @property
    def slowest(self) -> list[StepTime]:
        """The steps, those that take longest first."""
        return sorted(self.steps, key=lambda step: -step.seconds)

    def to_dict(self) -> dict[str, Any]:
        made = super().to_dict()
        rates = [{"gflops": step.gflops, "gbytes": step.gbytes} for step in self.steps]
        return {**made, "seconds": self.seconds, "steps": [{**s, **r} for s, r in zip(made["steps"], rates)]}

    def text(self, width: int | None = None) -> str:
        """The steps that take longest."""
        shown = self.slowest[:SLOWEST]
        more = f"\n... and {len(self.steps) - len(shown)} more steps" if len(self.steps) > len(shown) else ""
        head = (
            f"{1e3 * self.total:.3f} ms a run; {1e3 * self.seconds:.3f} ms in {len(self.steps)} steps, "
            f"one by one, on {self.machine.threads} threads, best of {self.rounds}"
        )
        made = table(_HEADERS, [_cells(step) for step in shown], width)
        return f"{head}\n{made}{more}"

    def trace(self) -> dict[str, Any]:
        """Chrome's trace format, which Perfetto opens. One process has the steps as they were timed, one by one, in a
        lane for kernels and one for steps in Python; the other is a whole run, with a lane for each thread."""
        events = [
            _named(_ALONE, None, f"weft, steps one by one, {self.machine.target}"),
            _named(_ALONE, 0, f"kernels, each on up to {self.machine.threads} threads"),
            _named(_ALONE, 1, "steps in Python"),
        ]
        for step in self.steps:
            rates = {"GFLOP/s": step.gflops, "GB/s": step.gbytes, "of roofline": step.roofline}
            lane = 0 if step.native else 1
            events.append(_event(step, (_ALONE, lane), step.began, step.seconds, {"bytes": step.bytes, **rates}))
        if self.pieces:
            events.append(_named(_WHOLE, None, "weft, a whole run"))
        for thread in sorted({piece.thread for piece in self.pieces}):
            events.append(_named(_WHOLE, thread, thread_title(thread)))
        for piece in self.pieces:
            step = self.steps[piece.step]
            events.append(_event(step, (_WHOLE, piece.thread), piece.began, piece.seconds, {}))
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace as a file."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.trace(), file)

    def page(self, title: str = "profile") -> str:
        """A page of HTML that needs nothing else: a bar and a row for each step, those that take longest first."""
        longest = max((step.seconds for step in self.steps), default=0.0) or 1.0
        lines = []
        for step in self.slowest:
            cells = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in _cells(step))
            bar = f'<td><div class="bar" style="width:{100 * step.seconds / longest:.1f}%"></div></td>'
            lines.append(f"<tr>{cells}{bar}</tr>")
        head = "".join(f"<th>{html.escape(name)}</th>" for name in (*_HEADERS, ""))
        about = html.escape(self.text().splitlines()[0])
        rows = "\n".join(lines)
        return _PAGE.format(title=html.escape(title), about=about, head=head, rows=rows)

    def save_page(self, path: str | os.PathLike[str], title: str = "profile") -> None:
        """Writes the page as a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.page(title))


def host_profile(name: str, seconds: float) -> Profile:
    """The profile of a step in Python between programs."""
    step = StepTime(name, (name,), (), seconds, 1.0, 0, None, 0.0, False, 0.0)
    return Profile([step], seconds, 1, Machine(1.0, 1.0, 1, "Python"), [Piece(0, 0, 0.0, seconds)])


def joined(profiles: Sequence[Profile]) -> Profile:
    """One profile of programs, and steps between them, that ran one after the other."""
    steps = [step for found in profiles for step in found.steps]
    total = sum(step.seconds for step in steps) or 1.0
    made, at = [], 0.0
    for step in steps:
        made.append(replace(step, share=step.seconds / total, began=at))
        at += step.seconds
    first = max(profiles, key=lambda found: found.machine.flops)
    return Profile(made, sum(found.total for found in profiles), first.rounds, first.machine, _joined_pieces(profiles))


def _joined_pieces(profiles: Sequence[Profile]) -> list[Piece]:
    made, steps, at = [], 0, 0.0
    for found in profiles:
        made += [piece._replace(step=piece.step + steps, began=piece.began + at) for piece in found.pieces]
        steps += len(found.steps)
        at += end_of(found.pieces)
    return made


_HEADERS = ("kernel", "from", "ms", "share", "GFLOP/s", "GB/s", "of roofline", "bytes")


def _cells(step: StepTime) -> tuple[str, ...]:
    gflops = step.gflops
    return (
        step.name if step.native else f"{step.name} (in Python)",
        ", ".join(step.sources),
        f"{1e3 * step.seconds:.4f}",
        f"{step.share:.1%}",
        "" if gflops is None else f"{gflops:.1f}",
        f"{step.gbytes:.1f}",
        f"{step.roofline:.0%}",
        bytes_text(step.bytes),
    )


def thread_title(thread: int) -> str:
    return f"thread {thread}" if thread else "thread 0, which called"


_ALONE, _WHOLE = 0, 1  # processes of a trace


def _named(process: int, lane: int | None, name: str) -> dict[str, Any]:
    """Gives a process of a trace, or a lane of it, a name."""
    if lane is None:
        return {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
    return {"ph": "M", "pid": process, "tid": lane, "name": "thread_name", "args": {"name": name}}


def _event(
    step: StepTime, place: tuple[int, int], began: float, seconds: float, told: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": step.name,
        "cat": "kernel" if step.native else "host",
        "pid": place[0],
        "tid": place[1],
        "ts": began * 1e6,
        "dur": seconds * 1e6,
        "args": {"operators": list(step.operators), "sources": list(step.sources), **told},
    }


def step_times(
    steps: Sequence[tuple[str, tuple[str, ...], tuple[str, ...], float, int, float | None, bool]], machine: Machine
) -> list[StepTime]:
    """Steps as (name, operators, sources, seconds, bytes, flops, native), with what follows from the others."""
    total = sum(row[3] for row in steps) or 1.0
    made, at = [], 0.0
    for name, operators, sources, seconds, moved, flops, native in steps:
        least = max(moved / machine.bytes, (flops or 0.0) / machine.flops)
        near = min(least / seconds, 1.0) if seconds and native else 0.0
        made.append(StepTime(name, operators, sources, seconds, seconds / total, moved, flops, near, native, at))
        at += seconds
    return made


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px system-ui, sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; }}
td, th {{ padding: 2px 8px; text-align: right; border-bottom: 1px solid #ddd; }}
td:first-child, td:nth-child(2), th:first-child, th:nth-child(2) {{ text-align: left; }}
td:last-child {{ width: 20em; }}
.bar {{ background: #4a7; height: 1em; }}
</style></head><body><h1>{title}</h1><p>{about}</p>
<table><tr>{head}</tr>
{rows}
</table></body></html>
"""
