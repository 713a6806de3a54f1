"""Locks that are held while the process forks, so that a child finds what they guard whole, and
itself able to take them: the threads that held them in the parent do not exist in it."""

from __future__ import annotations

import os
import threading
from bisect import insort
from typing import Literal, NamedTuple, Protocol

PATIENCE = 30.0  # seconds a fork waits for a lock; then it goes on without

# Whoever holds a lock may take one that comes later here, never an earlier one.
ORDER = ("making", "compiling", "linking", "llvm", "table")
Place = Literal["making", "compiling", "linking", "llvm", "table"]


class Lock(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


class _Entry(NamedTuple):
    rank: int
    number: int
    lock: Lock


_entries: list[_Entry] = []
_held = threading.local()


def hold_over_forks(lock: Lock, place: Place) -> None:
    """Has every fork wait until this lock is free; `place` says which others it may be taken in."""
    insort(_entries, _Entry(ORDER.index(place), len(_entries), lock))


def _acquire() -> None:
    _held.locks = [e.lock for e in _entries if e.lock.acquire(timeout=PATIENCE)]


def _release() -> None:
    for lock in reversed(getattr(_held, "locks", [])):
        lock.release()
    _held.locks = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
