"""Programs become the JSON of a page. The page itself is built from viewer/ and holds no data."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...runtime.profile import Piece, end_of
from ...version import __version__
from .records import KernelView, NodeRecord, ProgramView, Snapshot, StepView
from .snapshots import Names, runs

TEMPLATE = Path(__file__).with_name("page.html")
GAP = 2e-6  # seconds between two pieces that nobody sees
MOST_PIECES = 20_000


def page(programs: Sequence[ProgramView]) -> str:
    """The whole page."""
    texts = _Texts()
    data = {"version": __version__, "programs": [_program(program, texts) for program in programs]}
    whole = TEMPLATE.read_text(encoding="utf-8")
    before, rest = whole.split("{{data}}", 1)
    between, after = rest.split("{{texts}}", 1)
    return before + script_json(data) + between + script_json(texts.packed) + after


def script_json(value: Any) -> str:
    """JSON that may stand in a script of an HTML page, whatever its texts say.

    >>> script_json(["</script><!--"])
    '["\\\\u003c/script>\\\\u003c!--"]'
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


class _Texts:
    """Long texts, each once, compressed as browsers inflate them."""

    def __init__(self) -> None:
        self.packed: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.packed)
            self.packed.append(base64.b64encode(zlib.compress(text.encode(), 9)).decode())
        return self._numbers[text]


def _program(program: ProgramView, texts: _Texts) -> dict[str, Any]:
    strings = Names()
    plain = "title model target isa rates names inputs outputs threads".split()
    sizes = "arena_bytes constant_bytes code_bytes compile_seconds run_seconds".split()
    made = {name: getattr(program, name) for name in (*plain, *sizes)}
    return {
        **made,
        "scopes": [(scope.label, scope.parent) for scope in program.scopes],
        "records": [_record(record, strings) for record in program.records],
        "snapshots": [_snapshot(snapshot, program) for snapshot in program.snapshots],
        "kernels": [_kernel(kernel, texts) for kernel in program.kernels],
        "steps": [_step(step, strings) for step in program.steps],
        "slots": program.slots,
        "pieces": _pieces(program.pieces),
        "strings": strings.list,
    }


def _pieces(pieces: Sequence[Piece]) -> list[Piece]:
    """What threads did, as far as one can see it: what a thread did of a step at a stretch is one piece, and of very
    many the longest are left."""
    made: list[Piece] = []
    last: dict[int, int] = {}  # the place of each thread's last piece
    for piece in pieces:
        before = made[last[piece.thread]] if piece.thread in last else None
        if before is not None and before.step == piece.step and piece.began - end_of([before]) < GAP:
            seconds = piece.began + piece.seconds - before.began
            made[last[piece.thread]] = before._replace(seconds=seconds)
        else:
            last[piece.thread] = len(made)
            made.append(piece)
    shown = sorted(made, key=lambda piece: -piece.seconds)[:MOST_PIECES]
    return [Piece(p.step, p.thread, round(p.began, 9), round(p.seconds, 9)) for p in sorted(shown, key=_began)]


def _began(piece: Piece) -> float:
    return piece.began


def _record(record: NodeRecord, strings: Names) -> list[Any]:
    number = strings.number
    attrs = [number(text) for pair in record.attrs for text in pair]
    outputs = [*map(number, record.outputs)]
    return [record.name, number(record.op), record.scope, record.inputs, outputs, attrs, record.sources, record.step]


def _snapshot(snapshot: Snapshot, program: ProgramView) -> dict[str, Any]:
    operators = sum(program.records[number].op != "variable" for number in snapshot.nodes)
    return {**snapshot._asdict(), "nodes": runs(snapshot.nodes), "operators": operators}


def _kernel(kernel: KernelView, texts: _Texts) -> dict[str, Any]:
    made = asdict(kernel)
    for name in ("loops", "llvm", "assembly"):
        made[name] = texts.number(made[name])
    return {**made, "decisions": [decision._asdict() for decision in kernel.decisions]}


def _step(step: StepView, strings: Names) -> dict[str, Any]:
    made = {name: getattr(step, name) for name in ("name", "kernel", "nodes", "sources", "buffers", "turns")}
    return {
        **made,
        "nanoseconds": step.nanoseconds,
        "seconds": step.seconds,
        "operators": [*map(strings.number, step.operators)],
        "decisions": [decision._asdict() for decision in step.decisions],
    }
