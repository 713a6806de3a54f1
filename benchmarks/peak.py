"""What one core of the machine can do: multiply-adds in registers, and bytes from each cache and from beyond. Beside it
stands what the table of facts (`weft/base/cpu_facts.py`) tells of machines like it.

    python benchmarks/peak.py
    WEFT_ISA=avx2 python benchmarks/peak.py     the same held to AVX2, or to sse

Cost models read the table, not this machine: what differs much from it is a row that should be measured anew.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from weft.base.cpu_target import host
from weft.codegen.cpu.object import compile_object
from weft.codegen.emit import function_attributes
from weft.runtime.cpu.jit import load_object

# At least latency times units of any core (5 * 2 on Haswell, 4 * 2 on Zen and AVX-512 Intel), and
# with their factor no more than the 16 registers of AVX2.
CHAINS = 12
TURNS = 50_000  # a call of some 0.2 ms: many of those are not interrupted, on a shared machine too
SECONDS = 1.0  # of calls: the clock rises within the first milliseconds, and the best call counts
VECTORS = 8  # that a turn of a walk over memory moves
FAR = 8  # times the last cache: what is read once


def fma_peak(threads: int) -> float:
    """GFLOP/s in float32: of each thread its best call while all of them run, added up. Where no instruction fuses
    them, products and sums are instructions of their own."""
    target = host()
    lanes = target.vector_bits // 32
    library = load_object(compile_object(_code(lanes, target.has_fma), target), ["fma_chains"])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("fma_chains"))
    with ThreadPoolExecutor(threads) as pool:
        best = list(pool.map(lambda _: _shortest_call(run, TURNS), range(threads)))
    return sum(2.0 * lanes * CHAINS * TURNS / seconds for seconds in best) / 1e9


def _shortest_call(run: Callable[..., None], turns: int) -> float:
    """Seconds of the shortest of many calls, by the thread's own clock; calls through ctypes run side by side."""
    memory = ctypes.create_string_buffer(4096)
    best, end = float("inf"), time.thread_time() + SECONDS
    start = time.thread_time()
    while start < end:
        run(memory, turns)
        now = time.thread_time()
        best, start = min(best, now - start), now
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
    return "\n".join(
        [
            f"declare {kind} @llvm.fma.{suffix}({kind}, {kind}, {kind})",
            f"define void @fma_chains(ptr %out, i64 %turns) {function_attributes(host())} {{",
            "entry:",
            f"  %x = load {kind}, ptr %out, align 4",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *phis,
            *sums,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %turns",
            "  br i1 %more, label %loop, label %end",
            "end:",
            *stores,
            "  ret void",
            "}",
        ]
    )


def moved_rate(size: int, copied: bool) -> float:
    """GB/s of walks over as many bytes, again and again: read, or read and written, of which both count."""
    lanes = host().vector_bits // 32
    turn = VECTORS * lanes
    library = load_object(compile_object(_walk(lanes, copied), host()), ["walk"])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library.address("walk"))
    turns = max(size // (4 * turn * (1 + copied)), 1)
    source, made = np.ones(turns * turn, "float32"), np.ones(turns * turn if copied else turn, "float32")
    seconds = _shortest_call(lambda _, n: run(source.ctypes.data, made.ctypes.data, n), turns)
    return 4 * turns * turn * (1 + copied) / seconds / 1e9


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
    return "\n".join(
        [
            f"define void @walk(ptr %source, ptr %made, i64 %turns) {function_attributes(host())} {{",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *phis,
            *body,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %turns",
            "  br i1 %more, label %loop, label %end",
            "end:",
            *stores,
            "  ret void",
            "}",
        ]
    )


def main() -> None:
    """One core: what it does, and what the table of facts says of machines like it."""
    target, facts = host(), host().facts
    print(f"{target.cpu}, {target.isa}, units of {target.unit_bits} bits, caches {target.caches}")
    rows = (
        ("GFLOP/s in registers", fma_peak(1), facts.flops),
        ("GB/s read and written in the second cache", moved_rate(facts.caches[1] // 2, True), facts.near_rate),
        ("GB/s read from the last cache", moved_rate(facts.caches[2] // 2, False), facts.last_rate),
        ("GB/s read from beyond", moved_rate(FAR * facts.caches[2], False), facts.far_rate),
    )
    for what, measured, told in rows:
        print(f"{what:<42} {measured:6.0f}, told {told / 1e9:.0f}")


if __name__ == "__main__":
    main()
