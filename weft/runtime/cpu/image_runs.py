"""Equal runs of a plan, as for each of some images, that threads share: each is one thread's, in an arena of its own.
So no thread waits for another between two kernels, and what a kernel reads is in the cache of the core that wrote it.

    void weft_runs(ptr buffers, ptr job, i64 first, i64 last)

is a kernel in all respects. Its buffers are all slots, then a word in which bits stand for arenas that are free. A job
is the number of slots, room behind them for what a kernel is given, the address of how many bytes each slot moves from
arena to arena, and the address of the addresses of tables, one for each run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...base.cpu_facts import ThreadFacts
from ...base.ndarray import ALIGNMENT
from ...base.plan import CALL_WORK, BufferRef, ExecPlan, KernelStep, Launch, known
from .jit import Library
from .walk_code import Words, run_table

RUNS_IR = """
declare i64 @llvm.cttz.i64(i64, i1)

define void @weft_runs(ptr %buffers, ptr %job, i64 %first, i64 %last) nounwind {
entry:
  %at.room = getelementptr i64, ptr %job, i64 1
  %at.steps = getelementptr i64, ptr %job, i64 2
  %at.tables = getelementptr i64, ptr %job, i64 3
  %count = load i64, ptr %job, align 8
  %room = load i64, ptr %at.room, align 8
  %steps = load ptr, ptr %at.steps, align 8
  %tables = load ptr, ptr %at.tables, align 8
  %words = add i64 %count, %room
  %slots = alloca i64, i64 %words, align 16
  %at.free = getelementptr ptr, ptr %buffers, i64 %count
  %free = load ptr, ptr %at.free, align 8
  br label %look
look:
  %seen = load atomic i64, ptr %free monotonic, align 8
  %none = icmp eq i64 %seen, 0
  br i1 %none, label %look, label %claim
claim:
  %place = call i64 @llvm.cttz.i64(i64 %seen, i1 true)
  %bit = shl i64 1, %place
  %rest = xor i64 %seen, %bit
  %pair = cmpxchg ptr %free, i64 %seen, i64 %rest seq_cst seq_cst
  %claimed = extractvalue { i64, i1 } %pair, 1
  br i1 %claimed, label %fill, label %look
fill:
  %slot = phi i64 [ 0, %claim ], [ %slot.next, %fill ]
  %at.given = getelementptr i64, ptr %buffers, i64 %slot
  %at.step = getelementptr i64, ptr %steps, i64 %slot
  %given = load i64, ptr %at.given, align 8
  %step = load i64, ptr %at.step, align 8
  %shift = mul i64 %step, %place
  %moved = add i64 %given, %shift
  %at.moved = getelementptr i64, ptr %slots, i64 %slot
  store i64 %moved, ptr %at.moved, align 8
  %slot.next = add i64 %slot, 1
  %more = icmp slt i64 %slot.next, %count
  br i1 %more, label %fill, label %run
run:
  %number = phi i64 [ %first, %fill ], [ %following, %run ]
  %at.table = getelementptr ptr, ptr %tables, i64 %number
  %table = load ptr, ptr %at.table, align 8
  call void @weft_walk(ptr %table, ptr %slots, ptr null, i64 1)
  %following = add i64 %number, 1
  %going = icmp slt i64 %following, %last
  br i1 %going, label %run, label %end
end:
  %old = atomicrmw or ptr %free, i64 %bit seq_cst
  ret void
}
"""
KERNEL = "weft_runs"
MOST_ARENAS = 62  # bits of a word that is above 0


class SharedRuns(NamedTuple):
    """`segments`: steps, each of which is some runs, then those of runs that are left over, as threads share kernels.
    `held` is memory that they hold the addresses of; `arenas`, how many, are `arena_bytes` apart."""

    segments: list[tuple[KernelStep, ...]]
    held: list[Words]
    arenas: int
    arena_bytes: int

    @property
    def all_free(self) -> int:
        return (1 << self.arenas) - 1


def shared_runs(plan: ExecPlan, library: Library, threads: int, costs: ThreadFacts) -> SharedRuns | None:
    """How threads share the runs of a plan; None where there are not several for each."""
    arenas = min(threads, plan.runs, MOST_ARENAS)
    if plan.runs < 2 or arenas < 2:
        return None
    size = len(plan.steps) // plan.runs
    kernels = [step for step in plan.steps if isinstance(step, KernelStep)]
    assert len(kernels) == len(plan.steps)
    runs = [kernels[start : start + size] for start in range(0, len(kernels), size)]
    whole = plan.runs // arenas * arenas
    tables = [run_table(run, len(plan.slots), library.address, costs) for run in runs[:whole]]
    made = [table for table in tables if table is not None]
    if len(made) < whole:
        return None
    apart = -(-known(plan.arena_bytes) // ALIGNMENT) * ALIGNMENT
    steps = np.array([apart if slot.role == "arena" else 0 for slot in plan.slots], np.int64)
    addresses = np.array([table.ctypes.data for table in made], np.int64)
    work = sum(step.nanoseconds for step in runs[0])
    together = max(int(CALL_WORK // max(work, 1.0)), 1) * arenas  # so that an interrupt is seen now and then
    room = max(len(step.buffers) for step in runs[0])
    refs = tuple(BufferRef(slot) for slot in range(len(plan.slots) + 1))
    segments: list[tuple[KernelStep, ...]] = []
    for start in range(0, whole, together):
        count = min(together, whole - start)
        job = (len(plan.slots), room, steps.ctypes.data, addresses.ctypes.data + start * addresses.itemsize)
        segments.append((KernelStep(KERNEL, refs, job, Launch((count, 1, 1)), count * max(work, costs.share)),))
    left = ExecPlan(tuple(step for run in runs[whole:] for step in run), plan.slots, plan.arena_bytes)
    segments += [segment for segment in left.segments() if isinstance(segment, tuple)]
    return SharedRuns(segments, [*made, steps, addresses], arenas, apart)
