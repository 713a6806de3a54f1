"""The native function that runs the steps of any plan, as LLVM IR text, and the tables that it walks.

    void weft_walk(ptr run, ptr slots, ptr pool, i64 threads)

A run is a table of 64-bit words: a head (address of the rows, how many there are, address of the refs, how many slots
there are), a row for each step (address of the kernel, its first ref, the end of its refs, address of its scalars,
turns, whether threads share it), the refs (slot, bytes from its start on) and the scalars. `slots` are addresses, and
behind them is room for as many as any step has refs, where the function puts what it gives to a kernel.

    i64 weft_turns(ptr run, ptr slots, ptr pool, i64 threads, ptr job)

runs the table again and again, and says how often. A job is how many turns there are at most, how many rows follow, the
address of a byte that is not 0 as long as turns go on (or 0), and what is added to that address after each turn, with
the sign changing from turn to turn. A row is a slot, what is added to its address, and whether that changes its sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...base.cpu_facts import ThreadFacts
from ...base.plan import KernelStep, Number
from .pool_state import with_offsets

NEVER, IF_AWAKE, ALWAYS = 0, 1, 2  # whether threads share a step
HEAD_WORDS, ROW_WORDS, _WORD_BYTES = 4, 6, 8

Words = np.ndarray[tuple[int], np.dtype[np.int64]]


def run_table(
    steps: Sequence[KernelStep], slots: int, address: Callable[[str], int], threads: ThreadFacts
) -> Words | None:
    """The table of some steps in which nothing is open; None if nothing of them runs. Its address is in it, so it must
    not move."""
    turning = [step for step in steps if step.launch.blocks[0] != 0]
    if not turning:
        return None
    addresses = {kernel: address(kernel) for kernel in {step.kernel for step in turning}}
    rows: list[Number] = []
    refs: list[Number] = []
    scalars: list[Number] = []
    scalars_at = HEAD_WORDS + ROW_WORDS * len(turning) + 2 * sum([len(step.buffers) for step in turning])
    words = np.empty(scalars_at + sum([len(step.scalars) for step in turning]), np.int64)
    base = words.ctypes.data
    for step in turning:
        first = len(refs) // 2
        for ref in step.buffers:
            refs += ref
        place = base + _WORD_BYTES * (scalars_at + len(scalars))
        scalars += step.scalars
        turns = step.launch.turns
        rows += (addresses[step.kernel], first, len(refs) // 2, place, turns, _shared(turns, step.nanoseconds, threads))
    rows_at = base + _WORD_BYTES * HEAD_WORDS
    head = [rows_at, len(turning), rows_at + _WORD_BYTES * len(rows), slots]
    words[:] = head + rows + refs + scalars
    return words


def _shared(turns: int, work: float, threads: ThreadFacts) -> int:
    if turns < 2 or work < threads.share:
        return NEVER
    return ALWAYS if work >= threads.wake else IF_AWAKE


_ROW = "{ ptr, i64, i64, ptr, i64, i64 }"
_WALK = """
define void @weft_walk(ptr %run, ptr %slots, ptr %pool, i64 %threads) nounwind {
entry:
  %at.count = getelementptr i8, ptr %run, i64 8
  %at.refs = getelementptr i8, ptr %run, i64 16
  %at.known = getelementptr i8, ptr %run, i64 24
  %rows = load ptr, ptr %run, align 8
  %count = load i64, ptr %at.count, align 8
  %refs = load ptr, ptr %at.refs, align 8
  %known = load i64, ptr %at.known, align 8
  %pointers = getelementptr ptr, ptr %slots, i64 %known
  %several = icmp sgt i64 %threads, 1
  %asleep = getelementptr i8, ptr %pool, i64 POOL.ASLEEP
  %pulse = getelementptr i8, ptr %pool, i64 POOL.PULSE
  br label %step
step:
  %number = phi i64 [ 0, %entry ], [ %following, %next ]
  %at.kernel = getelementptr ROW, ptr %rows, i64 %number, i32 0
  %at.first = getelementptr ROW, ptr %rows, i64 %number, i32 1
  %at.last = getelementptr ROW, ptr %rows, i64 %number, i32 2
  %at.scalars = getelementptr ROW, ptr %rows, i64 %number, i32 3
  %at.extent = getelementptr ROW, ptr %rows, i64 %number, i32 4
  %at.shared = getelementptr ROW, ptr %rows, i64 %number, i32 5
  %kernel = load ptr, ptr %at.kernel, align 8
  %first = load i64, ptr %at.first, align 8
  %last = load i64, ptr %at.last, align 8
  %scalars = load ptr, ptr %at.scalars, align 8
  %extent = load i64, ptr %at.extent, align 8
  %shared = load i64, ptr %at.shared, align 8
  %any = icmp slt i64 %first, %last
  br i1 %any, label %fill, label %ready
fill:
  %ref = phi i64 [ %first, %step ], [ %ref.next, %fill ]
  %at.slot = getelementptr { i64, i64 }, ptr %refs, i64 %ref, i32 0
  %at.offset = getelementptr { i64, i64 }, ptr %refs, i64 %ref, i32 1
  %slot = load i64, ptr %at.slot, align 8
  %offset = load i64, ptr %at.offset, align 8
  %at.base = getelementptr ptr, ptr %slots, i64 %slot
  %base = load ptr, ptr %at.base, align 8
  %pointer = getelementptr i8, ptr %base, i64 %offset
  %place = sub i64 %ref, %first
  %at.pointer = getelementptr ptr, ptr %pointers, i64 %place
  store ptr %pointer, ptr %at.pointer, align 8
  %ref.next = add i64 %ref, 1
  %more = icmp slt i64 %ref.next, %last
  br i1 %more, label %fill, label %ready
ready:
  br i1 %several, label %choose, label %alone
choose:
  %sleepers = load atomic i32, ptr %asleep monotonic, align 4
  %awake = icmp eq i32 %sleepers, 0
  %least = select i1 %awake, i64 1, i64 2
  %split = icmp sge i64 %shared, %least
  br i1 %split, label %together, label %busy
together:
  call void @weft_parallel(ptr %pool, ptr %kernel, ptr %pointers, ptr %scalars, i64 %extent, i64 %threads)
  br label %next
busy:
  %beat = trunc i64 %number to i32
  store atomic i32 %beat, ptr %pulse monotonic, align 4
  br label %alone
alone:
  call void %kernel(ptr %pointers, ptr %scalars, i64 0, i64 %extent)
  br label %next
next:
  %following = add i64 %number, 1
  %going = icmp slt i64 %following, %count
  br i1 %going, label %step, label %end
end:
  ret void
}
"""

_TURNS = """
define i64 @weft_turns(ptr %run, ptr %slots, ptr %pool, i64 %threads, ptr %job) nounwind {
entry:
  %at.count = getelementptr i64, ptr %job, i64 1
  %at.byte = getelementptr i64, ptr %job, i64 2
  %at.away = getelementptr i64, ptr %job, i64 3
  %rows = getelementptr i64, ptr %job, i64 4
  %turns = load i64, ptr %job, align 8
  %count = load i64, ptr %at.count, align 8
  %moves = icmp sgt i64 %count, 0
  br label %turn
turn:
  %number = phi i64 [ 0, %entry ], [ %following, %moved ]
  %going = icmp slt i64 %number, %turns
  br i1 %going, label %ask, label %end
ask:
  %byte = load ptr, ptr %at.byte, align 8
  %free = icmp eq ptr %byte, null
  br i1 %free, label %walk, label %look
look:
  %answer = load i8, ptr %byte, align 1
  %holds = icmp ne i8 %answer, 0
  br i1 %holds, label %walk, label %end
walk:
  call void @weft_walk(ptr %run, ptr %slots, ptr %pool, i64 %threads)
  %away = load i64, ptr %at.away, align 8
  %byte.next = getelementptr i8, ptr %byte, i64 %away
  %back = sub i64 0, %away
  store ptr %byte.next, ptr %at.byte, align 8
  store i64 %back, ptr %at.away, align 8
  br i1 %moves, label %move, label %moved
move:
  %row = phi i64 [ 0, %walk ], [ %row.next, %move ]
  %at.slot = getelementptr { i64, i64, i64 }, ptr %rows, i64 %row, i32 0
  %at.step = getelementptr { i64, i64, i64 }, ptr %rows, i64 %row, i32 1
  %at.turning = getelementptr { i64, i64, i64 }, ptr %rows, i64 %row, i32 2
  %slot = load i64, ptr %at.slot, align 8
  %step = load i64, ptr %at.step, align 8
  %turning = load i64, ptr %at.turning, align 8
  %place = getelementptr i64, ptr %slots, i64 %slot
  %address = load i64, ptr %place, align 8
  %address.next = add i64 %address, %step
  store i64 %address.next, ptr %place, align 8
  %turned = icmp ne i64 %turning, 0
  %other = sub i64 0, %step
  %step.next = select i1 %turned, i64 %other, i64 %step
  store i64 %step.next, ptr %at.step, align 8
  %row.next = add i64 %row, 1
  %more = icmp slt i64 %row.next, %count
  br i1 %more, label %move, label %moved
moved:
  %following = add i64 %number, 1
  br label %turn
end:
  ret i64 %number
}
"""


def walk_ir() -> str:
    """The IR, to stand beside that of `weft_parallel`."""
    return with_offsets(_WALK).replace("ROW", _ROW) + _TURNS
