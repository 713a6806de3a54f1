"""What one core of the machine can do: multiply-adds in registers, and bytes from each cache and from beyond; and the
rate at which several read memory together."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ..base.cpu_target import host
from ..codegen.cpu.emit import function_attributes
from ..codegen.cpu.object import compile_object
from ..runtime.cpu.jit import load_object

# At least latency times units of any core (5 * 2 on Haswell, 4 * 2 on Zen and AVX-512 Intel), and
# with their factor no more than the 16 registers of AVX2.
CHAINS = 12
TURNS = 50_000  # a call of some 0.2 ms: many of those are not interrupted, on a shared machine too
SECONDS = 1.0  # of calls, unless told: the clock rises within the first milliseconds, and the best call counts
TIMED = 1e-4  # seconds that a clock tells from none, whatever its steps are
VECTORS = 8  # that a turn of a walk over memory moves
FAR = 8  # times the last cache: what is read once
BEYOND = 512 << 20  # bytes, far more than the last cache of most machines
LINE = 64  # bytes
READ_VECTORS = 4  # that a stream reads in a turn


def fma_peak(threads: int, seconds: float = SECONDS) -> float:
    """GFLOP/s in float32: of each thread its best call while all of them run, added up. Where no instruction fuses
    them, products and sums are instructions of their own."""
    target = host()
    lanes = target.vector_bits // 32
    library = load_object(compile_object(_code(lanes, target.has_fma), target), ["fma_chains"])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("fma_chains"))
    with ThreadPoolExecutor(threads) as pool:
        best = list(pool.map(lambda _: _shortest_call(run, TURNS, seconds), range(threads)))
    return sum(2.0 * lanes * CHAINS * TURNS / call for call in best) / 1e9


def _shortest_call(run: Callable[..., None], turns: int, seconds: float) -> float:
    """Seconds of the shortest of many calls, by the thread's own clock; calls through ctypes run side by side. Of those
    that are too short for that clock some are timed together."""
    memory = ctypes.create_string_buffer(4096)
    best, end, together = float("inf"), time.thread_time() + seconds, 1
    start = time.thread_time()
    while start < end or best == float("inf"):
        for _ in range(together):
            run(memory, turns)
        now = time.thread_time()
        if now - start < TIMED:
            together *= 2
        else:
            best = min(best, (now - start) / together)
        start = now
    return best


def _code(lanes: int, fused: bool) -> str:
    kind, suffix = f"<{lanes} x float>", f"v{lanes}f32"
    phis, sums, stores = [], [], []
    for n in range(CHAINS):
        phis.append(f"  %a{n} = phi {kind} [ zeroinitializer, %entry ], [ %b{n}, %loop ]")
        if fused:
            sums.append(f"  %b{n} = call {kind} @llvm.fma.{suffix}({kind} %x, {kind} %x, {kind} %a{n})")
        else:
            sums += [f"  %m{n} = fmul {kind} %a{n}, %x", f"  %b{n} = fadd {kind} %m{n}, %x"]
        stores.append(f"  %p{n} = getelementptr {kind}, ptr %out, i64 {n}")
        stores.append(f"  store {kind} %b{n}, ptr %p{n}, align 4")
    declared = f"declare {kind} @llvm.fma.{suffix}({kind}, {kind}, {kind})\n"
    begin = [f"  %x = load {kind}, ptr %out, align 4"]
    return declared + _turns("@fma_chains(ptr %out, i64 %turns)", begin, [*phis, *sums], stores)


def _turns(head: str, begin: Sequence[str], body: Sequence[str], end: Sequence[str]) -> str:
    """A function whose body runs `%turns` times, the number of each in `%i`."""
    lines = [
        f"define void {head} {function_attributes(host())} {{",
        "entry:",
        *begin,
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *body,
        "  %next = add i64 %i, 1",
        "  %more = icmp slt i64 %next, %turns",
        "  br i1 %more, label %loop, label %end",
        "end:",
        *end,
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def moved_rate(size: int, copied: bool, seconds: float = SECONDS) -> float:
    """GB/s of walks over as many bytes, again and again: read, or read and written, of which both count."""
    lanes = host().vector_bits // 32
    turn = VECTORS * lanes
    library = load_object(compile_object(_walk(lanes, copied), host()), ["walk"])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library.address("walk"))
    turns = max(size // (4 * turn * (1 + copied)), 1)
    source, made = np.ones(turns * turn, "float32"), np.ones(turns * turn if copied else turn, "float32")
    best = _shortest_call(lambda _, n: run(source.ctypes.data, made.ctypes.data, n), turns, seconds)
    return 4 * turns * turn * (1 + copied) / best / 1e9


def _walk(lanes: int, copied: bool) -> str:
    """Reads `turns` times some vectors, and writes them elsewhere, or in the end what they sum up to."""
    kind, block = f"<{lanes} x float>", f"[{VECTORS} x <{lanes} x float>]"
    phis, body, stores = [], [], []
    for n in range(VECTORS):
        body.append(f"  %p{n} = getelementptr {block}, ptr %source, i64 %i, i64 {n}")
        body.append(f"  %v{n} = load {kind}, ptr %p{n}, align 4")
        if copied:
            body.append(f"  %q{n} = getelementptr {block}, ptr %made, i64 %i, i64 {n}")
            body.append(f"  store {kind} %v{n}, ptr %q{n}, align 4")
        else:
            phis.append(f"  %a{n} = phi {kind} [ zeroinitializer, %entry ], [ %b{n}, %loop ]")
            body.append(f"  %b{n} = fadd {kind} %a{n}, %v{n}")
            stores.append(f"  %q{n} = getelementptr {block}, ptr %made, i64 0, i64 {n}")
            stores.append(f"  store {kind} %b{n}, ptr %q{n}, align 4")
    return _turns("@walk(ptr %source, ptr %made, i64 %turns)", [], [*phis, *body], stores)


class Rate(NamedTuple):
    """A rate of one core: as it was measured, and as the table of facts has it."""

    what: str
    measured: float
    told: float


def measured_rates(seconds: float = SECONDS, look: Callable[[int, int], None] | None = None) -> list[Rate]:
    """What one core does in so many seconds for each rate, in GFLOP/s and GB/s."""
    facts = host().facts
    _, near, last = facts.caches
    rows: list[tuple[str, Callable[[], float], float]] = [
        ("GFLOP/s in registers", lambda: fma_peak(1, seconds), facts.flops),
        ("GB/s read and written in the second cache", lambda: moved_rate(near // 2, True, seconds), facts.near_rate),
        ("GB/s read from the last cache", lambda: moved_rate(last // 2, False, seconds), facts.last_rate),
        ("GB/s read from beyond", lambda: moved_rate(FAR * last, False, seconds), facts.far_rate),
    ]
    made = []
    for number, (what, measure, told) in enumerate(rows):
        made.append(Rate(what, measure(), told / 1e9))
        if look is not None:
            look(number + 1, len(rows))
    return made


# Several cores.


class Way(NamedTuple):
    """How to go over memory: streams of a thread, and how many bytes ahead it asks for; 0: the processor does that."""

    streams: int
    ahead: int


WAYS = [Way(streams, ahead) for streams in (1, 2, 4, 8) for ahead in (0, 1024, 4096)]


class MemoryRead:
    """Memory of so many bytes, and threads that go over it in several ways. What they read is folded into one vector by
    `or`, so that every byte is read and little else is done.

    >>> MemoryRead(1, size=10_000).rate() > 0
    True
    """

    def __init__(self, threads: int, size: int | None = None) -> None:
        target = host()
        self._words = target.vector_bits // 32
        turn = READ_VECTORS * self._words * max(way.streams for way in WAYS)  # words of a turn with the most streams
        wanted = max(BEYOND, FAR * target.caches[-1]) if size is None else size
        self._each = max(wanted // (4 * threads * turn), 1) * turn
        self.data = np.ones((threads, self._each), np.uint32)
        self.found = np.zeros((threads, self._words), np.uint32)
        names = [f"read_{number}" for number in range(len(WAYS))]
        code = "\n".join([DECLARED, *(_reading(name, way, self._words) for name, way in zip(names, WAYS))])
        self._library = load_object(compile_object(code, target), names)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        self._calls = dict(zip(WAYS, (kind(self._library.address(name)) for name in names)))

    def rate(self) -> float:
        """GB/s of the best way, of one turn of each."""
        return max(self.data.nbytes / self.seconds(way) for way in WAYS) / 1e9

    def seconds(self, way: Way) -> float:
        """Of one turn of all threads, from the first that begins to the last that ends."""
        count = len(self.data)
        ready, call = list[int](), self._calls[way]
        turns = self._each // (READ_VECTORS * self._words * way.streams)

        def run(number: int) -> tuple[float, float]:
            source, made = self.data[number].ctypes.data, self.found[number].ctypes.data
            ready.append(number)
            while len(ready) < count:  # all begin together
                time.sleep(0)
            start = time.perf_counter()
            call(source, made, turns)
            return start, time.perf_counter()

        with ThreadPoolExecutor(count) as pool:
            spans = list(pool.map(run, range(count)))
        return max(end for _, end in spans) - min(start for start, _ in spans)


DECLARED = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"


def _reading(name: str, way: Way, words: int) -> str:
    """A function that reads `turns` times some vectors of each stream, and writes what they fold into."""
    kind, block = f"<{words} x i32>", 4 * words * READ_VECTORS
    count = way.streams * READ_VECTORS
    phis = [f"  %a{n} = phi {kind} [ zeroinitializer, %entry ], [ %b{n}, %loop ]" for n in range(count)]
    body = ["  %at = mul i64 %i, " + str(block)]
    for stream in range(way.streams):
        body.append(f"  %far{stream} = mul i64 %apart, {stream}")
        body.append(f"  %start{stream} = add i64 %far{stream}, %at")
        for byte in range(0, block if way.ahead else 0, LINE):
            label = f"{stream}_{byte}"
            body.append(f"  %o{label} = add i64 %start{stream}, {way.ahead + byte}")
            body.append(f"  %q{label} = getelementptr i8, ptr %source, i64 %o{label}")
            body.append(f"  call void @llvm.prefetch.p0(ptr %q{label}, i32 0, i32 0, i32 1)")
        body.append(f"  %p{stream} = getelementptr i8, ptr %source, i64 %start{stream}")
        for vector in range(READ_VECTORS):
            n = stream * READ_VECTORS + vector
            body.append(f"  %r{n} = getelementptr {kind}, ptr %p{stream}, i64 {vector}")
            body.append(f"  %v{n} = load {kind}, ptr %r{n}, align 4")
            body.append(f"  %b{n} = or {kind} %a{n}, %v{n}")
    folded = [f"  %f1 = or {kind} %b0, %b1"]
    folded += [f"  %f{n} = or {kind} %f{n - 1}, %b{n}" for n in range(2, count)]
    begin = [f"  %apart = mul i64 %turns, {block}"]
    end = [*folded, f"  store {kind} %f{count - 1}, ptr %made, align 4"]
    return _turns(f"@{name}(ptr %source, ptr %made, i64 %turns)", begin, [*phis, *body], end)
