"""The native thread pool: every iteration once, from Python, native code, threads and children."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from bounds import PATIENCE

from weft.base.errors import InvalidValue
from weft.runtime.cpu import pool as pool_module
from weft.runtime.cpu.jit import load_ir
from weft.runtime.cpu.pool import ThreadPool, thread_count, thread_pool
from weft.runtime.cpu.pool_code import has_threads

pytestmark = pytest.mark.skipif(not has_threads(), reason="the pool is serial here")

# Adds 1 to element i of buffers[0] for every i; `rounds` calls the pool from native code.
IR = """
define void @count(ptr %buffers, ptr %scalars, i64 %begin, i64 %end) {
entry:
  %x = load ptr, ptr %buffers
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %at = getelementptr i64, ptr %x, i64 %i
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

define void @rounds(ptr %parallel, ptr %pool, ptr %buffers, i64 %extent, i64 %threads, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void %parallel(ptr %pool, ptr @count, ptr %buffers, ptr null, i64 %extent, i64 %threads)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def library():
    return load_ir(IR, ["count", "rounds"])


def rounds(library, pool: ThreadPool, extent: int, threads: int, times: int) -> np.ndarray:
    pool.ensure(threads)
    counts = np.zeros(extent, np.int64)
    pointer = (ctypes.c_void_p * 1)(counts.ctypes.data)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 3)
    function = kind(library.address("rounds"))
    function(pool._addresses["weft_parallel"], pool.pointer, ctypes.addressof(pointer), extent, threads, times)
    return counts


def test_a_hundred_thousand_rounds(library):
    extent = int(np.random.default_rng(0).integers(2, 40))
    assert (rounds(library, thread_pool(), extent, 2, 100_000) == 100_000).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("extent", [1, 2, 3, 7, 64])
def test_every_iteration_runs_once_however_it_is_split(library, threads, extent):
    pool = thread_pool()
    counts = np.zeros(extent, np.int64)
    pointer = (ctypes.c_void_p * 1)(counts.ctypes.data)
    for _ in range(20):
        pool.run(library.address("count"), ctypes.addressof(pointer), 0, extent, threads)
    assert counts.tolist() == [20] * extent


def test_fewer_threads_than_workers(library):
    pool = thread_pool()
    pool.ensure(4)
    for threads in (2, 4, 3, 2, 4):
        assert (rounds(library, pool, 16, threads, 200) == 200).all()


def test_callers_in_four_threads(library):
    pool = thread_pool()
    results: list[np.ndarray] = []

    def work() -> None:
        results.append(rounds(library, pool, 12, 2, 3000))

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 4
    assert all((result == 3000).all() for result in results)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_its_own_workers(library):
    pool = thread_pool()
    assert (rounds(library, pool, 8, 2, 100) == 100).all()
    child = os.fork()
    if child == 0:
        right = pool.workers == 0 and (rounds(library, pool, 8, 2, 2000) == 2000).all()
        os._exit(0 if right and pool.workers == 1 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (rounds(library, pool, 8, 2, 2000) == 2000).all()


def test_a_stopped_pool_runs_on_the_caller(library):
    pool = ThreadPool()
    assert (rounds(library, pool, 8, 3, 10) == 10).all()
    assert pool.workers == 2
    pool.stop()
    pool.stop()
    assert pool.workers == 0
    assert (rounds(library, pool, 8, 3, 10) == 10).all()
    assert pool.workers == 0


EXIT = """
import ctypes, threading
from weft.runtime.cpu.jit import load_ir
from weft.runtime.cpu.pool import thread_pool
ir = "define void @f(ptr %a, ptr %b, i64 %c, i64 %d) {\\n  ret void\\n}"
library = load_ir(ir, ["f"])
pool = thread_pool()
DAEMON
pool.run(library.address("f"), 0, 0, 8, 4)
print("done", pool.workers)
"""


@pytest.mark.parametrize(
    "daemon",
    [
        "",
        "f = library.address('f')\n"
        "loop = lambda: [pool.run(f, 0, 0, 8, 2) for _ in iter(int, 1)]\n"
        "threading.Thread(target=loop, daemon=True).start()",
    ],
)
def test_the_interpreter_exits(daemon):
    script = EXIT.replace("DAEMON", daemon)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "done"), done.stderr


def test_thread_count_takes_the_smallest_limit(monkeypatch):
    monkeypatch.setattr(pool_module, "_chosen", None)
    monkeypatch.setattr(pool_module, "usable_cores", lambda: 6)
    monkeypatch.delenv("WEFT_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert thread_count() == 6
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    assert thread_count() == 4
    monkeypatch.setenv("WEFT_NUM_THREADS", "3")
    assert thread_count() == 3
    assert thread_count(9) == 9
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert thread_count() == 3
    for wrong in (0, -1, 10**6):
        with pytest.raises(InvalidValue):
            thread_count(wrong)
