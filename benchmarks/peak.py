"""What the machine can do: fused multiply-adds in registers, nothing else."""

from __future__ import annotations

import ctypes
import threading
import time

from weft.base.target import host
from weft.codegen.emit import function_attributes
from weft.codegen.object import compile_object
from weft.runtime.jit import load_object

CHAINS = 16  # independent sums: more than latency times units of any core there is
TURNS = 2_000_000
ROUNDS = 20


def fma_peak(threads: int) -> float:
    """GFLOP/s in float32, the best of a few rounds; 0 where there is no fused multiply-add."""
    target = host()
    if not target.has("fma"):
        return 0.0
    lanes = target.vector_bits // 32
    library = load_object(compile_object(_code(lanes), target), ["fma_chains"])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("fma_chains"))
    work = 2.0 * lanes * CHAINS * TURNS * threads
    return max(work / _seconds(run, threads) for _ in range(ROUNDS)) / 1e9


def _seconds(run: object, threads: int) -> float:
    """Until all threads are done; calls through ctypes run side by side."""
    memory = [ctypes.create_string_buffer(4096) for _ in range(threads)]
    others = [threading.Thread(target=run, args=(m, TURNS)) for m in memory[1:]]
    start = time.perf_counter()
    for thread in others:
        thread.start()
    run(memory[0], TURNS)
    for thread in others:
        thread.join()
    return time.perf_counter() - start


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
