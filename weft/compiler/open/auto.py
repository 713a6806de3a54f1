"""Programs for single sizes, made in a thread beside runs: where the same sizes come again and again, and a program
that knows their numbers should be faster, it takes the place of the open one between two runs."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from contextvars import copy_context
from typing import NamedTuple, TypeVar

from ...base import counters
from ...base.forks import held_lock
from ...base.shape import StaticShape
from ...runtime.executor import Executor
from ...runtime.program import Program
from .part import OpenPrograms

RUNS = 8  # of the same sizes, before a program for them alone is thought of
LEAST_GAIN = 1.05
MAX_ALONE = 4  # the least recently used goes first
KEPT = 256  # sizes that something is known of

T = TypeVar("T")

Shapes = Mapping[str, StaticShape]
Finished = Callable[[Program, int], Executor | None]  # what was begun at a time, ready to run; None if nobody wants it


class Tried(NamedTuple):
    """What came of some sizes: how many times as fast a program for them alone should be, whether there is one now, and
    what went wrong."""

    shapes: Shapes
    gain: float | None
    used: bool
    error: str | None = None

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}: {list(shape)}" for name, shape in self.shapes.items())
        if self.error is not None:
            return f"a program for {sizes} alone could not be made: {self.error}"
        assert self.gain is not None
        told = f"expected to be {self.gain:.2f} times as fast"
        return f"a program for {sizes} alone is used, {told}" if self.used else f"none for {sizes} alone, {told}"


class _Stopped(Exception):
    """Nobody wants what is being made."""


class Specialiser:
    """Counts runs, and makes programs of sizes that come often. `is_wanted` tells whether the model is still there."""

    def __init__(self, programs: OpenPrograms, is_wanted: Callable[[], bool], finished: Finished) -> None:
        self._programs, self._is_wanted, self._finished = programs, is_wanted, finished
        self._lock = held_lock("table")
        self._runs: OrderedDict[Hashable, int] = OrderedDict()
        self._needed: OrderedDict[Hashable, int] = OrderedDict()  # runs of sizes whose program went, which are more
        self._todo: deque[tuple[Hashable, Shapes]] = deque()  # the first is being made
        self._alone: OrderedDict[Hashable, Executor] = OrderedDict()
        self._tried: OrderedDict[Hashable, Tried] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def copy(self, programs: OpenPrograms, is_wanted: Callable[[], bool], finished: Finished) -> Specialiser:
        """Another one that has the programs there are."""
        made = Specialiser(programs, is_wanted, finished)
        with self._lock:
            made._alone, made._tried = self._alone.copy(), self._tried.copy()
        return made

    @property
    def tried(self) -> list[Tried]:
        """What came of sizes that were seen often."""
        with self._lock:
            return list(self._tried.values())

    def executor(self, key: Hashable, shapes: Shapes, now: Executor) -> Executor:
        """What the next run of these sizes is to use, instead of what it uses now."""
        with self._lock:
            found = self._alone.get(key)
            if found is not None:
                self._alone.move_to_end(key)
                return found
            runs = self._runs.pop(key, 0) + 1
            _put(self._runs, key, runs)
            if runs == self._needed.get(key, RUNS) and key not in self._tried:
                self._todo.append((key, shapes))
            if self._todo and not self._stopped and not _is_alive(self._thread):
                self._thread = threading.Thread(target=copy_context().run, args=(self._work,), name="weft-specialise")
                self._thread.start()
        return now

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until nothing is being made; False if that takes longer."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return not _is_alive(thread)

    def stop(self) -> None:
        """Has the thread end as soon as the kernel that it works on is done."""
        with self._lock:
            self._stopped = True
            self._alone.clear()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._todo:
                    self._thread = None
                    return
                key, shapes = self._todo[0]
            try:
                self._keep(key, *self._made(shapes))
            except _Stopped:
                return
            except Exception as error:
                self._keep(key, Tried(shapes, None, False, f"{type(error).__name__}: {error}"), None)

    def _made(self, shapes: Shapes) -> tuple[Tried, Executor | None]:
        self._check(0, 0)
        start = counters.time_point()
        gain = self._programs.gain(shapes, self._check)
        if gain < LEAST_GAIN:
            return Tried(shapes, gain, False), None
        executor = self._finished(self._programs.program_alone(shapes, self._check), start)
        if executor is None:
            raise _Stopped
        return Tried(shapes, gain, True), executor

    def _check(self, done: int, total: int) -> None:
        """Ends the work where the model is closed or gone, or the process about to end."""
        if self._stopped or not self._is_wanted() or not threading.main_thread().is_alive():
            raise _Stopped

    def _keep(self, key: Hashable, tried: Tried, executor: Executor | None) -> None:
        with self._lock:
            self._todo.popleft()
            _put(self._tried, key, tried)
            if executor is None or self._stopped:
                return
            self._alone[key] = executor
            if len(self._alone) > MAX_ALONE:
                gone, _ = self._alone.popitem(last=False)
                self._tried.pop(gone, None)
                self._runs.pop(gone, None)
                _put(self._needed, gone, 2 * self._needed.pop(gone, RUNS))


def _put(table: OrderedDict[Hashable, T], key: Hashable, value: T) -> None:
    table[key] = value
    if len(table) > KEPT:
        table.popitem(last=False)


def _is_alive(thread: threading.Thread | None) -> bool:
    return thread is not None and thread.is_alive()
