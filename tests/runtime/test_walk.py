"""The native walk over the steps of a plan: pointers from slots and offsets, order, threads, turns."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from weft.base.cpu_target import host
from weft.base.plan import BufferRef, ExecPlan, KernelStep, Launch, Slot
from weft.codegen.cpu.emit import emit_kernel
from weft.codegen.cpu.object import compile_object
from weft.runtime.cpu.jit import load_object
from weft.runtime.cpu.pool import thread_pool
from weft.runtime.cpu.walk_code import run_table
from weft.te.expr import Var, as_expr
from weft.te.loops import Kernel, Parallel, Store, buffer

rng = np.random.default_rng(0)
SIZE = 24


def kernels() -> list[Kernel]:
    i, a, n = Var("i"), Var("a"), Var("n")
    x, y, z = (buffer(name, "int64", (n,)) for name in "xyz")
    scale = Store(y, (i,), x[i] * a + 1)
    add = Store(z, (i,), x[i] + y[i])
    return [Kernel("scale", (x, y), scale, Parallel(i, n), (n, a)), Kernel("add", (x, y, z), add, Parallel(i, n), (n,))]


def run(plan: ExecPlan, arrays: list[np.ndarray], threads: int) -> None:
    codes = [compile_object(emit_kernel(kernel, host()), host()) for kernel in kernels()]
    library = load_object(codes, ["scale", "add"])
    pool = thread_pool()
    pool.ensure(threads)
    slots = (ctypes.c_void_p * (len(arrays) + 3))(*(array.ctypes.data for array in arrays))
    for segment in plan.segments():
        table = run_table(segment, len(arrays), library.address, host().facts.threads)
        pool.walk(table.ctypes.data, ctypes.addressof(slots), pool.pointer, threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("work", [0.0, 2 * host().facts.threads.wake])
def test_steps_run_in_order_on_slots_and_offsets(threads, work):
    x = rng.integers(-99, 99, SIZE)
    arena, out = np.zeros(3 * SIZE, np.int64), np.zeros(SIZE, np.int64)
    half = SIZE // 2
    low, high = BufferRef(1, 0), BufferRef(1, 8 * SIZE)
    plan = ExecPlan(
        (
            KernelStep("scale", (BufferRef(0), low), (SIZE, 3), Launch((SIZE, 1, 1)), work),
            KernelStep("scale", (BufferRef(0, 8 * half), high), (half, -2), Launch((half, 1, 1)), work),
            KernelStep("add", (low, high, BufferRef(2)), (half,), Launch((half, 1, 1)), work),
            KernelStep("add", (BufferRef(2), BufferRef(2), BufferRef(2)), (half,), Launch((half, 1, 1)), work),
        ),
        (Slot("input", x.nbytes), Slot("arena", arena.nbytes), Slot("output", out.nbytes)),
        arena.nbytes,
    )
    run(plan, [x, arena, out], threads)
    wanted = 2 * ((3 * x[:half] + 1) + (-2 * x[half:] + 1))
    np.testing.assert_array_equal(out[:half], wanted)
    assert not out[half:].any()


def test_long_plans():
    x, y = np.zeros(2, np.int64), np.zeros(2, np.int64)
    there = KernelStep("scale", (BufferRef(0), BufferRef(1)), (2, 1), Launch((2, 1, 1)))
    back = KernelStep("scale", (BufferRef(1), BufferRef(0)), (2, 1), Launch((2, 1, 1)))
    plan = ExecPlan((there, back) * 5000, (Slot("input", 16), Slot("output", 16)))
    run(plan, [x, y], 1)
    assert x.tolist() == [10_000, 10_000]


def test_steps_without_turns_do_not_run():
    """Not even kernels without a parallel loop, which look at no turns."""
    x = buffer("x", "int64", (1,))
    code = compile_object(emit_kernel(Kernel("mark", (x,), Store(x, (as_expr(0),), x[0] + 1)), host()), host())
    library = load_object([code], ["mark"])
    marks = np.zeros(1, np.int64)
    never, once = (KernelStep("mark", (BufferRef(0),), (), Launch((turns, 1, 1))) for turns in (0, 1))
    slots = (ctypes.c_void_p * 2)(marks.ctypes.data)
    pool = thread_pool()
    for steps in ((never, once, never), (once,)):
        table = run_table(steps, 1, library.address, host().facts.threads)
        pool.walk(table.ctypes.data, ctypes.addressof(slots), pool.pointer, 1)
    assert marks.tolist() == [2]
    assert run_table((never, never), 1, library.address, host().facts.threads) is None
