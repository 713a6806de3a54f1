"""The native half of the thread pool, as LLVM IR text: what a worker does and how a loop is split.

The state is one block of memory; `pool_state.py` says what lies where.

Whoever is free takes the next piece of a job, half of its share of what is left: the caller and
every second worker from the front, the others from the back. So a thread tends to work where it
worked in the job before, and finds the data in its own cache; and as pieces get smaller, all are
done at nearly the same time. A worker goes in through the gate;
the caller closes it when no piece is left, and waits only for those inside. So a worker that does
not get to run holds nobody up, and what one inside reads of the job is stable.

A worker that finds no job spins for a while and then sleeps; a program that is busy with steps too
small to share keeps it awake by the pulse.
"""

from __future__ import annotations

import platform
import sys

from ...base.cpu_facts import THREADS
from .pool_state import with_offsets

PIECES_PER_THREAD = 32  # at most; no piece is smaller
_SPINS_PER_CLOCK = 32
_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_PAUSE = {"x86_64": "@llvm.x86.sse2.pause()", "aarch64": "@llvm.aarch64.hint(i32 1)"}


def has_threads() -> bool:
    """Elsewhere `weft_parallel` runs everything on the calling thread."""
    return sys.platform == "linux" and platform.machine() in _FUTEX_NUMBER


SERIAL = """
define void @weft_parallel(ptr %pool, ptr %kernel, ptr %buffers, ptr %scalars, i64 %extent,
                           i64 %threads) nounwind {
  call void %kernel(ptr %buffers, ptr %scalars, i64 0, i64 %extent)
  ret void
}
"""

CLOCK = """
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now(ptr %time) nounwind {
  call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %at, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}
"""

_FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @sleep_on(ptr %word, i32 %seen) nounwind {
  call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  ret void
}

define internal void @wake(ptr %word) nounwind {
  call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 2147483647, ptr null, ptr null,
                               i32 0)
  ret void
}
"""

_PIECES = """
define internal void @run_pieces(ptr %pool, i64 %place) nounwind {
entry:
  %parity = and i64 %place, 1
  %behind = icmp ne i64 %parity, 0
  %side = select i1 %behind, i64 32, i64 0
  %at.kernel = getelementptr i8, ptr %pool, i64 POOL.KERNEL
  %at.buffers = getelementptr i8, ptr %pool, i64 POOL.BUFFERS
  %at.scalars = getelementptr i8, ptr %pool, i64 POOL.SCALARS
  %at.extent = getelementptr i8, ptr %pool, i64 POOL.EXTENT
  %at.threads = getelementptr i8, ptr %pool, i64 POOL.THREADS
  %next = getelementptr i8, ptr %pool, i64 POOL.TAKEN
  %kernel = load ptr, ptr %at.kernel, align 8
  %buffers = load ptr, ptr %at.buffers, align 8
  %scalars = load ptr, ptr %at.scalars, align 8
  %extent = load i64, ptr %at.extent, align 8
  %threads = load i64, ptr %at.threads, align 8
  %high = lshr i64 %extent, 31
  %unit = add i64 %high, 1
  %round = add i64 %extent, %high
  %units = udiv i64 %round, %unit
  %shares = shl i64 %threads, 1
  %most = mul i64 %threads, PIECES
  %rest.round = sub i64 %most, 1
  %rounded = add i64 %units, %rest.round
  %least = udiv i64 %rounded, %most
  br label %take
take:
  %taken = load atomic i64, ptr %next monotonic, align 8
  br label %again
again:
  %seen = phi i64 [ %taken, %take ], [ %other, %claim ]
  %front = and i64 %seen, 4294967295
  %back = lshr i64 %seen, 32
  %ahead = sub i64 %units, %front
  %left = sub i64 %ahead, %back
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %claim, label %leave
claim:
  %share = udiv i64 %left, %shares
  %small = icmp ult i64 %share, %least
  %wanted = select i1 %small, i64 %least, i64 %share
  %over = icmp ult i64 %left, %wanted
  %size = select i1 %over, i64 %left, i64 %wanted
  %step = shl i64 %size, %side
  %then = add i64 %seen, %step
  %pair = cmpxchg ptr %next, i64 %seen, i64 %then seq_cst seq_cst
  %other = extractvalue { i64, i1 } %pair, 0
  %claimed = extractvalue { i64, i1 } %pair, 1
  br i1 %claimed, label %work, label %again
work:
  %rest = sub i64 %left, %size
  %rear = add i64 %front, %rest
  %first = select i1 %behind, i64 %rear, i64 %front
  %last = add i64 %first, %size
  %begin = mul i64 %first, %unit
  %until = mul i64 %last, %unit
  %beyond = icmp ugt i64 %until, %extent
  %end = select i1 %beyond, i64 %extent, i64 %until
  call void %kernel(ptr %buffers, ptr %scalars, i64 %begin, i64 %end)
  br label %take
leave:
  ret void
}
"""

_WORKER = """
; The argument is {pool, number, turn seen last}.
define ptr @weft_worker(ptr %argument) nounwind {
entry:
  %time = alloca [2 x i64], align 8
  %pool = load ptr, ptr %argument, align 8
  %at.number = getelementptr i8, ptr %argument, i64 8
  %number = load i64, ptr %at.number, align 8
  %at.seen = getelementptr i8, ptr %argument, i64 16
  %first = load i64, ptr %at.seen, align 8
  %turn = getelementptr i8, ptr %pool, i64 POOL.TURN
  %asleep = getelementptr i8, ptr %pool, i64 POOL.ASLEEP
  %caller = getelementptr i8, ptr %pool, i64 POOL.CALLER
  %stop = getelementptr i8, ptr %pool, i64 POOL.STOP
  %gate = getelementptr i8, ptr %pool, i64 POOL.GATE
  %pulse = getelementptr i8, ptr %pool, i64 POOL.PULSE
  br label %wait
wait:
  %seen = phi i64 [ %first, %entry ], [ %now.turn, %skip ], [ %now.turn, %done ]
  %start.idle = call i64 @now(ptr %time)
  br label %spin
spin:
  %count = phi i32 [ 0, %wait ], [ %more, %again ], [ 0, %patient ]
  %start = phi i64 [ %start.idle, %wait ], [ %start, %again ], [ %start.alive, %patient ]
  %beat = phi i32 [ -1, %wait ], [ %beat, %again ], [ %beat.now, %patient ]
  %turn.spin = load atomic i64, ptr %turn acquire, align 8
  %changed = icmp ne i64 %turn.spin, %seen
  br i1 %changed, label %ready, label %again
again:
  PAUSE
  %more = add i32 %count, 1
  %enough = icmp sge i32 %more, SPINS
  br i1 %enough, label %clock, label %spin
clock:
  %time.now = call i64 @now(ptr %time)
  %beat.now = load atomic i32, ptr %pulse monotonic, align 4
  %alive = icmp ne i32 %beat.now, %beat
  %start.alive = select i1 %alive, i64 %time.now, i64 %start
  %spent = sub i64 %time.now, %start.alive
  %tired = icmp sgt i64 %spent, LIMIT
  br i1 %tired, label %sleep, label %patient
patient:
  br label %spin
sleep:
  %old = atomicrmw add ptr %asleep, i32 1 seq_cst
  br label %check
check:
  %turn.check = load atomic i64, ptr %turn seq_cst, align 8
  %same = icmp eq i64 %turn.check, %seen
  br i1 %same, label %nap, label %woken
nap:
  %low = trunc i64 %seen to i32
  call void @sleep_on(ptr %turn, i32 %low)
  br label %check
woken:
  %old2 = atomicrmw sub ptr %asleep, i32 1 seq_cst
  br label %ready
ready:
  %now.turn = phi i64 [ %turn.spin, %spin ], [ %turn.check, %woken ]
  %halt = load atomic i32, ptr %stop acquire, align 4
  %halted = icmp ne i32 %halt, 0
  br i1 %halted, label %leave, label %pick
pick:
  %threads = lshr i64 %now.turn, 32
  %place = add i64 %number, 1
  %mine = icmp ult i64 %place, %threads
  br i1 %mine, label %arrive, label %skip
skip:
  br label %wait
arrive:
  %job = shl i64 %now.turn, 32
  br label %knock
knock:
  %inside = load atomic i64, ptr %gate seq_cst, align 8
  %difference = xor i64 %inside, %job
  %open = icmp ult i64 %difference, 2147483648
  br i1 %open, label %enter, label %skip
enter:
  %more.inside = add i64 %inside, 1
  %pair = cmpxchg ptr %gate, i64 %inside, i64 %more.inside seq_cst seq_cst
  %entered = extractvalue { i64, i1 } %pair, 1
  br i1 %entered, label %work, label %knock
work:
  call void @run_pieces(ptr %pool, i64 %place)
  %left = atomicrmw sub ptr %gate, i64 1 seq_cst
  %others = and i64 %left, 4294967295
  %last = icmp eq i64 %others, 2147483649
  br i1 %last, label %finish, label %done
finish:
  %sleeping = load atomic i32, ptr %caller seq_cst, align 4
  %rouse = icmp ne i32 %sleeping, 0
  br i1 %rouse, label %call, label %done
call:
  call void @wake(ptr %gate)
  br label %done
done:
  br label %wait
leave:
  ret ptr null
}
"""

_PARALLEL = """
define void @weft_parallel(ptr %pool, ptr %kernel, ptr %buffers, ptr %scalars, i64 %extent,
                           i64 %threads) nounwind {
entry:
  %time = alloca [2 x i64], align 8
  %lock = getelementptr i8, ptr %pool, i64 POOL.LOCK
  %turn = getelementptr i8, ptr %pool, i64 POOL.TURN
  %at.workers = getelementptr i8, ptr %pool, i64 POOL.WORKERS
  %asleep = getelementptr i8, ptr %pool, i64 POOL.ASLEEP
  %caller = getelementptr i8, ptr %pool, i64 POOL.CALLER
  %gate = getelementptr i8, ptr %pool, i64 POOL.GATE
  %next.piece = getelementptr i8, ptr %pool, i64 POOL.TAKEN
  %workers = load atomic i32, ptr %at.workers acquire, align 4
  %workers.long = zext i32 %workers to i64
  %most = add i64 %workers.long, 1
  %a = icmp slt i64 %threads, %most
  %b = select i1 %a, i64 %threads, i64 %most
  %c = icmp slt i64 %extent, %b
  %n = select i1 %c, i64 %extent, i64 %b
  %several = icmp sgt i64 %n, 1
  br i1 %several, label %try, label %alone
try:
  %pair = cmpxchg ptr %lock, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %publish, label %alone
alone:
  call void %kernel(ptr %buffers, ptr %scalars, i64 0, i64 %extent)
  ret void
publish:
  %at.kernel = getelementptr i8, ptr %pool, i64 POOL.KERNEL
  %at.buffers = getelementptr i8, ptr %pool, i64 POOL.BUFFERS
  %at.scalars = getelementptr i8, ptr %pool, i64 POOL.SCALARS
  %at.extent = getelementptr i8, ptr %pool, i64 POOL.EXTENT
  store ptr %kernel, ptr %at.kernel, align 8
  store ptr %buffers, ptr %at.buffers, align 8
  store ptr %scalars, ptr %at.scalars, align 8
  store i64 %extent, ptr %at.extent, align 8
  %at.threads = getelementptr i8, ptr %pool, i64 POOL.THREADS
  store i64 %n, ptr %at.threads, align 8
  store atomic i64 0, ptr %next.piece monotonic, align 8
  %before = load atomic i64, ptr %turn monotonic, align 8
  %next = add i64 %before, 1
  %number = and i64 %next, 4294967295
  %high = shl i64 %n, 32
  %fresh = or i64 %high, %number
  %opened = shl i64 %number, 32
  store atomic i64 %opened, ptr %gate seq_cst, align 8
  store atomic i64 %fresh, ptr %turn seq_cst, align 8
  %sleepers = load atomic i32, ptr %asleep seq_cst, align 4
  %someone = icmp ne i32 %sleepers, 0
  br i1 %someone, label %rouse, label %own
rouse:
  call void @wake(ptr %turn)
  br label %own
own:
  call void @run_pieces(ptr %pool, i64 0)
  %then = atomicrmw or ptr %gate, i64 2147483648 seq_cst
  %first = trunc i64 %then to i32
  %ended = icmp eq i32 %first, 0
  br i1 %ended, label %release, label %wait
wait:
  %start = call i64 @now(ptr %time)
  br label %spin
spin:
  %count = phi i32 [ 0, %wait ], [ %more, %again ], [ 0, %clock ]
  %left = load atomic i32, ptr %gate acquire, align 4
  %none = icmp eq i32 %left, CLOSED
  br i1 %none, label %release, label %again
again:
  PAUSE
  %more = add i32 %count, 1
  %enough = icmp sge i32 %more, SPINS
  br i1 %enough, label %clock, label %spin
clock:
  %time.now = call i64 @now(ptr %time)
  %spent = sub i64 %time.now, %start
  %tired = icmp sgt i64 %spent, LIMIT
  br i1 %tired, label %sleep, label %spin
sleep:
  store atomic i32 1, ptr %caller seq_cst, align 4
  br label %check
check:
  %rest = load atomic i32, ptr %gate seq_cst, align 4
  %over = icmp eq i32 %rest, CLOSED
  br i1 %over, label %awake, label %nap
nap:
  call void @sleep_on(ptr %gate, i32 %rest)
  br label %check
awake:
  store atomic i32 0, ptr %caller monotonic, align 4
  br label %release
release:
  store atomic i32 0, ptr %lock release, align 4
  ret void
}
"""

_CONTROL = """
; Ends a pool whose lock the caller holds.
define void @weft_stop(ptr %pool) nounwind {
  %turn = getelementptr i8, ptr %pool, i64 POOL.TURN
  %stop = getelementptr i8, ptr %pool, i64 POOL.STOP
  store atomic i32 1, ptr %stop seq_cst, align 4
  %before = load atomic i64, ptr %turn monotonic, align 8
  %next = add i64 %before, 1
  %number = and i64 %next, 4294967295
  store atomic i64 %number, ptr %turn seq_cst, align 8
  call void @wake(ptr %turn)
  ret void
}

define i32 @weft_try_lock(ptr %pool) nounwind {
  %lock = getelementptr i8, ptr %pool, i64 POOL.LOCK
  %pair = cmpxchg ptr %lock, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %pair, 1
  %result = zext i1 %got to i32
  ret i32 %result
}

define void @weft_set_workers(ptr %pool, i32 %workers) nounwind {
  %at = getelementptr i8, ptr %pool, i64 POOL.WORKERS
  store atomic i32 %workers, ptr %at release, align 4
  ret void
}
"""


def pool_ir() -> str:
    """The IR for this machine."""
    if not has_threads():
        return SERIAL
    machine = platform.machine()
    text = with_offsets(CLOCK + _FUTEX + _PIECES + _WORKER + _PARALLEL + _CONTROL)
    pause = _PAUSE.get(machine)
    if pause is not None:
        text += f"\ndeclare void {pause.replace(' 1', '')}\n"
    pause = "fence acquire" if pause is None else f"call void {pause}"
    text = text.replace("FUTEX", str(_FUTEX_NUMBER[machine])).replace("PAUSE", pause)
    text = text.replace("PIECES", str(PIECES_PER_THREAD)).replace("CLOSED", str(-(2**31)))
    return text.replace("SPINS", str(_SPINS_PER_CLOCK)).replace("LIMIT", str(THREADS.spin))
