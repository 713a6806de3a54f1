"""What single threads do in a run: a program is walked as it always is, and each piece of each kernel is written down
with the thread that ran it, its beginning and its end.

Nothing of this is in the code of ordinary runs. The table of a recorded walk has `weft_recorded` in the place of each
kernel and a job in the place of its scalars: the kernel, its scalars, the log, the number of the step.
"""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

import numpy as np

from ...base.plan import HostStep
from ..addresses import address_of
from ..profile import Piece
from .jit import Library, load_ir
from .pool_code import CLOCK, PIECES_PER_THREAD, has_threads
from .stepping import Stepper
from .walk_code import HEAD_WORDS, ROW_WORDS, Words

MOST_PIECES = 1 << 18  # of a run; later ones are not written down
_LOG_HEAD, _PIECE_WORDS = 2, 4  # how many there were, how many fit; then thread, step, begin and end of each
_KERNEL, _SCALARS = 0, 3  # words of a row

_RECORDED = """
declare i64 @pthread_self()

define void @weft_recorded(ptr %buffers, ptr %job, i64 %first, i64 %last) nounwind {
entry:
  %time = alloca [2 x i64], align 8
  %at.scalars = getelementptr i8, ptr %job, i64 8
  %at.log = getelementptr i8, ptr %job, i64 16
  %at.step = getelementptr i8, ptr %job, i64 24
  %kernel = load ptr, ptr %job, align 8
  %scalars = load ptr, ptr %at.scalars, align 8
  %log = load ptr, ptr %at.log, align 8
  %step = load i64, ptr %at.step, align 8
  %began = call i64 @now(ptr %time)
  call void %kernel(ptr %buffers, ptr %scalars, i64 %first, i64 %last)
  %ended = call i64 @now(ptr %time)
  %number = atomicrmw add ptr %log, i64 1 seq_cst
  %at.most = getelementptr i8, ptr %log, i64 8
  %most = load i64, ptr %at.most, align 8
  %fits = icmp ult i64 %number, %most
  br i1 %fits, label %write, label %leave
write:
  %rows = getelementptr i8, ptr %log, i64 16
  %row = getelementptr [4 x i64], ptr %rows, i64 %number
  %at.step.told = getelementptr i8, ptr %row, i64 8
  %at.began = getelementptr i8, ptr %row, i64 16
  %at.ended = getelementptr i8, ptr %row, i64 24
  %thread = call i64 @pthread_self()
  store i64 %thread, ptr %row, align 8
  store i64 %step, ptr %at.step.told, align 8
  store i64 %began, ptr %at.began, align 8
  store i64 %ended, ptr %at.ended, align 8
  br label %leave
leave:
  ret void
}
"""


@cache
def _library() -> Library:
    return load_ir(CLOCK + _RECORDED, ["weft_recorded"])


class RecordedRun:
    """A program in the memory of a stepper, whose runs are recorded. Where there are no native threads, nothing is."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._kept: list[Any] = []
        turning = [step for step in stepper.program.plan.steps if not isinstance(step, HostStep)]
        most = sum(min(max(step.launch.turns, 1), stepper.threads * PIECES_PER_THREAD) for step in turning)
        self._log = np.zeros(_LOG_HEAD + _PIECE_WORDS * min(most, MOST_PIECES), np.int64)
        self._log[1] = min(most, MOST_PIECES)
        self._segments = self._tables() if has_threads() else []

    def _tables(self) -> list[tuple[int, Words | HostStep]]:
        """The number of its first step, and a table or a step on the host, in order."""
        made: list[tuple[int, Words | HostStep]] = []
        number = 0
        for part in self._stepper.program.plan.segments():
            if isinstance(part, HostStep):
                made.append((number, part))
                number += 1
                continue
            words = self._stepper.table(part)
            if words is not None:
                numbers = [number + place for place, step in enumerate(part) if step.launch.blocks[0] != 0]
                self._record(words, numbers)
                made.append((number, words))
            number += len(part)
        return made

    def _record(self, words: Words, numbers: list[int]) -> None:
        rows = words[HEAD_WORDS : HEAD_WORDS + ROW_WORDS * len(numbers)].reshape(-1, ROW_WORDS)
        jobs = np.empty((len(numbers), 4), np.int64)
        jobs[:, 0], jobs[:, 1] = rows[:, _KERNEL], rows[:, _SCALARS]
        jobs[:, 2], jobs[:, 3] = address_of(self._log), numbers
        rows[:, _KERNEL] = _library().address("weft_recorded")
        rows[:, _SCALARS] = address_of(jobs) + jobs.strides[0] * np.arange(len(numbers))
        self._kept += [words, jobs]

    def run(self) -> list[Piece]:
        """Runs all steps and gives what threads did, by the time it began. Steps on the host are the caller's."""
        hosted: list[Piece] = []
        self._log[0] = 0
        start = time.perf_counter_ns()
        for number, segment in self._segments:
            if isinstance(segment, HostStep):
                began = time.perf_counter_ns()
                self._stepper.run(number)
                spent = time.perf_counter_ns() - began
                hosted.append(Piece(number, 0, (began - start) / 1e9, spent / 1e9))
            else:
                self._stepper.walk(segment)
        return sorted([*self._pieces(start), *hosted], key=lambda piece: piece.began)

    def _pieces(self, start: int) -> list[Piece]:
        known = min(int(self._log[0]), int(self._log[1]))
        rows = self._log[_LOG_HEAD : _LOG_HEAD + _PIECE_WORDS * known].reshape(-1, _PIECE_WORDS).tolist()
        lanes = {thread: place for place, thread in enumerate((_this_thread(), *self._stepper.worker_threads()))}
        return [
            Piece(step, lanes.setdefault(thread, len(lanes)), (began - start) / 1e9, (ended - began) / 1e9)
            for thread, step, began, ended in rows
        ]


def _this_thread() -> int:
    """What pthread_self gives."""
    return threading.get_ident()
