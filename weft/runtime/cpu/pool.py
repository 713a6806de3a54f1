"""The process-wide native thread pool: splits a kernel's range over threads, the caller among them.

Workers are made on demand, spin for at most 200 microseconds and then sleep. A busy pool makes the
caller run alone. On other systems than Linux everything runs on the calling thread.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
from functools import lru_cache
from numbers import Integral

from ...base import config
from ...base.errors import InvalidType, InvalidValue
from ...base.forks import held_lock
from ...base.machine import usable_cores
from .freed_memory import keep_freed_memory
from .image_runs import RUNS_IR
from .jit import load_ir
from .pool_code import has_threads, pool_ir
from .pool_state import OFFSETS, STATE_BYTES
from .walk_code import walk_ir

MAX_THREADS = 1024
_LINE = 64


class ThreadPool:
    """`pointer` is what native code takes as the pool. `walk(run, slots, pointer, threads)` runs the steps of a
    table, and `turns(run, slots, pointer, threads, job)` runs them again and again, as `walk_code.py` describes."""

    def __init__(self) -> None:
        names = ["weft_parallel", "weft_walk", "weft_turns", "weft_runs"]
        if has_threads():
            names += ["weft_worker", "weft_stop", "weft_try_lock", "weft_set_workers"]
        library = load_ir(pool_ir() + walk_ir() + RUNS_IR, names)
        # Sleeping workers return into this code, so it must outlive everything else.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
        self._addresses = {name: library.address(name) for name in names}
        self._memory = ctypes.create_string_buffer(STATE_BYTES + _LINE)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._memory))
        self.pointer = -(-ctypes.addressof(self._memory) // _LINE) * _LINE
        pointer, long = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, pointer, long, long)
        self._parallel = kind(self._addresses["weft_parallel"])
        self.walk = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, long)(self._addresses["weft_walk"])
        self.turns = ctypes.CFUNCTYPE(long, pointer, pointer, pointer, long, pointer)(self._addresses["weft_turns"])
        self._lock = held_lock("table")
        self._reset()

    def address(self, name: str) -> int:
        """Where a function of the pool is."""
        return self._addresses[name]

    def _reset(self) -> None:
        """The state of a pool without workers; `pointer` stays the same."""
        self._workers: list[tuple[int, ctypes.Array[ctypes.c_int64]]] = []
        self._stopped = False
        ctypes.memset(self.pointer, 0, STATE_BYTES)

    @property
    def workers(self) -> int:
        """How many threads there are besides the callers."""
        return len(self._workers)

    @property
    def is_awake(self) -> bool:
        """Whether there are workers, and none of them sleeps."""
        return bool(self._workers) and not ctypes.c_int32.from_address(self.pointer + OFFSETS["ASLEEP"]).value

    @property
    def worker_threads(self) -> list[int]:
        """What pthread_self gives in each of them."""
        return [thread for thread, _ in self._workers]

    def ensure(self, threads: int) -> None:
        """Make workers until that many threads, the caller among them, can share a job."""
        if not 1 <= threads <= MAX_THREADS:
            raise InvalidValue(f"{threads} threads", why=f"expected 1 to {MAX_THREADS}")
        if threads - 1 <= len(self._workers) or not has_threads():
            return
        with self._lock:
            while len(self._workers) < threads - 1 and not self._stopped:
                if not self._start_worker():
                    return
            count = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)
            count(self._addresses["weft_set_workers"])(self.pointer, len(self._workers))

    def _start_worker(self) -> bool:
        """One more thread; False when the system gives none, and fewer then share the work."""
        seen = ctypes.c_int64.from_address(self.pointer + OFFSETS["TURN"]).value
        argument = (ctypes.c_int64 * 3)(self.pointer, len(self._workers), seen)
        thread = ctypes.c_ulong()
        create = ctypes.CDLL(None).pthread_create
        create.argtypes = [ctypes.c_void_p] * 4
        # Signals belong to Python's threads; a new thread inherits what is blocked.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            failed = create(ctypes.byref(thread), None, self._addresses["weft_worker"], argument)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
        if failed:
            return False
        self._workers.append((thread.value, argument))
        return True

    def run(self, kernel: int, buffers: int | bytes, scalars: int | bytes, extent: int, threads: int) -> None:
        """Call a kernel by address over [0, extent), split over threads. Buffers and scalars are words, or where they
        are."""
        self.ensure(min(threads, max(extent, 1)))
        self._parallel(self.pointer, kernel, buffers, scalars, extent, threads)

    def stop(self) -> None:
        """End the workers and wait for them, unless a job is running; callers run alone then."""
        if not has_threads():
            return
        with self._lock:
            self._stopped = True
            one = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
            if not self._workers or not one(self._addresses["weft_try_lock"])(self.pointer):
                return
            end = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
            end(self._addresses["weft_stop"])(self.pointer)
            join = ctypes.CDLL(None).pthread_join
            join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
            for thread, _ in self._workers:
                join(thread, None)
            self._workers.clear()

    def restart(self) -> None:
        """End the workers that are idle; new ones, which inherit what the calling thread has set
        in its floating-point unit, are made on demand."""
        self.stop()
        with self._lock:
            if self._workers:  # they are busy and stay
                self._stopped = False
            else:
                self._reset()


_pool: ThreadPool | None = None
_pool_lock = held_lock("starting")


def thread_pool() -> ThreadPool:
    """The pool of this process, made at the first call."""
    global _pool
    with _pool_lock:
        if _pool is None:
            keep_freed_memory()
            _pool = ThreadPool()
            atexit.register(_pool.stop)
    return _pool


def restart_workers() -> None:
    """Restart the pool's workers, if there is a pool."""
    if _pool is not None:
        _pool.restart()


_chosen: int | None = None


def choose_threads(count: int) -> None:
    """Make that many threads what everything uses that is not told another number."""
    global _chosen
    _chosen = thread_count(count)


def thread_count(explicit: int | None = None) -> int:
    """How many threads to use: an explicit number, else the one chosen for the process, else what
    affinity, cgroup quota, WEFT_NUM_THREADS and OMP_NUM_THREADS allow.

    >>> thread_count(3)
    3
    """
    if explicit is not None:
        if not isinstance(explicit, Integral):
            raise InvalidType(f"a number of threads is an int, not {explicit!r:.60}")
        if not 1 <= explicit <= MAX_THREADS:
            raise InvalidValue(f"{explicit} threads", why=f"expected 1 to {MAX_THREADS}")
        return int(explicit)
    if _chosen is not None:
        return _chosen
    limits: list[int | None] = [usable_cores(), config.get("threads"), _openmp_threads()]
    return min([limit for limit in limits if limit is not None] + [MAX_THREADS])


def eager_threads() -> int:
    """The same for calls so short that asking the system would cost more than they do: what it
    said first holds until another number is chosen."""
    return _first_count() if _chosen is None else _chosen


@lru_cache(maxsize=1)
def _first_count() -> int:
    return thread_count()


def _openmp_threads() -> int | None:
    """The first number of OMP_NUM_THREADS, which may be a list for nested levels."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isascii() and first.isdigit() and int(first) > 0 else None


def _after_fork() -> None:
    """A child has none of its parent's threads."""
    if _pool is not None:
        _pool._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
