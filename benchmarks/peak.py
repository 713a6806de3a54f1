"""What the machine can do: fused multiply-adds in registers, nothing else."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from weft.base.cpu_target import host
from weft.codegen.cpu.object import compile_object
from weft.codegen.emit import function_attributes
from weft.runtime.cpu.jit import load_object

# At least latency times units of any core (5 * 2 on Haswell, 4 * 2 on Zen and AVX-512 Intel), and
# with their factor no more than the 16 registers of AVX2.
CHAINS = 12
TURNS = 50_000  # a call of some 0.2 ms: many of those are not interrupted, on a shared machine too
SECONDS = 1.0  # of calls: the clock rises within the first milliseconds, and the best call counts


def fma_peak(threads: int) -> float:
    """GFLOP/s in float32: of each thread its best call while all of them run, added up; 0 where
    there is no fused multiply-add."""
    target = host()
    if not target.has_fma:
        return 0.0
    lanes = target.vector_bits // 32
    library = load_object(compile_object(_code(lanes), target), ["fma_chains"])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("fma_chains"))
    with ThreadPoolExecutor(threads) as pool:
        best = list(pool.map(lambda _: _shortest_call(run), range(threads)))
    return sum(2.0 * lanes * CHAINS * TURNS / seconds for seconds in best) / 1e9


def _shortest_call(run: Callable[..., None]) -> float:
    """Seconds of the shortest of many calls; calls through ctypes run side by side."""
    memory = ctypes.create_string_buffer(4096)
    best, end = float("inf"), time.perf_counter() + SECONDS
    start = time.perf_counter()
    while start < end:
        run(memory, TURNS)
        now = time.perf_counter()
        best, start = min(best, now - start), now
    return best


def _code(lanes: int) -> str:
    kind, suffix = f"<{lanes} x float>", f"v{lanes}f32"
    phis, sums, stores = [], [], []
    for n in range(CHAINS):
        phis.append(f"  %a{n} = phi {kind} [ zeroinitializer, %entry ], [ %b{n}, %loop ]")
        sums.append(f"  %b{n} = call {kind} @llvm.fma.{suffix}({kind} %x, {kind} %x, {kind} %a{n})")
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


def main() -> None:
    """One core: what it does, and what the table of facts says of machines like it."""
    target = host()
    told = target.facts.flops / 1e9
    print(f"{target.cpu}, {target.isa}, units of {target.unit_bits} bits: {fma_peak(1):.0f} GFLOP/s, told {told:.0f}")


if __name__ == "__main__":
    main()
