"""Every lock of weft is made here, so that a forked child can take it: the threads that hold locks
in the parent do not exist in the child.

A fork waits until the locks of `held_lock` are free, and holds them meanwhile: the child finds what
they guard whole. For those of `renewed_lock`, which are held while users' code or long work runs,
it does not wait. Whatever a thread of the parent still holds is free in the child.
"""

from __future__ import annotations

import importlib
import itertools
import os
import threading
import time
import weakref
from typing import Any, Literal

PATIENCE = 30.0  # seconds a fork waits for other threads; then it goes on without
POLL = 0.001

# Whoever holds a lock may take one that comes later here, never an earlier one, nor another of the
# same place. "llvm" is llvmlite's own, which finalisers take.
ORDER = ("adding", "drawing", "making", "starting", "compiling", "linking", "table", "llvm")
Place = Literal["adding", "drawing", "making", "starting", "compiling", "linking", "table", "llvm"]
ForkLock = Any  # a threading.RLock, whose type has no name

_numbers = itertools.count()
_held: dict[tuple[int, int], weakref.ref[ForkLock]] = {}  # by place and age
_renewed: dict[int, weakref.ref[ForkLock]] = {}
_modules: dict[str, Any] = getattr(importlib._bootstrap, "_module_locks", {})


class _Taken(threading.local):
    """What this thread holds for a fork that it makes."""

    def __init__(self) -> None:
        self.locks: list[ForkLock] = []


_taken = _Taken()


def held_lock(place: Place) -> ForkLock:
    """A lock that every fork waits for; `place` says in which others it may be taken.

    >>> with held_lock("table") as taken:
    ...     taken
    True
    """
    lock = threading.RLock()
    hold_over_forks(lock, place)
    return lock


def hold_over_forks(lock: ForkLock, place: Place) -> None:
    """Has every fork wait for a lock that somebody else made."""
    key = (ORDER.index(place), next(_numbers))
    _held[key] = weakref.ref(lock, lambda _: _held.pop(key, None))


def renewed_lock() -> ForkLock:
    """A lock that no fork waits for: what it guards must be of use to a child at any time."""
    lock, key = threading.RLock(), next(_numbers)
    _renewed[key] = weakref.ref(lock, lambda _: _renewed.pop(key, None))
    return lock


def _acquire() -> None:
    """Takes every held lock, at a time when no other thread imports a part of weft: a child could
    never import what a thread of its parent had begun to."""
    deadline = time.monotonic() + PATIENCE
    while True:
        _await_imports(deadline)
        _taken.locks = [lock for lock in _in_order() if lock.acquire(timeout=_left(deadline))]
        if not _is_importing() or not _left(deadline):
            return
        _release()


def _release() -> None:
    while _taken.locks:
        _taken.locks.pop().release()


def _release_all() -> None:
    """In the child: what is held by now, and not by this thread, nobody will ever release."""
    _release()
    for reference in [*_held.copy().values(), *_renewed.copy().values()]:
        lock = reference()
        if lock is not None and not lock._is_owned():
            lock._at_fork_reinit()


def _in_order() -> list[ForkLock]:
    found = [reference() for _, reference in sorted(_held.copy().items(), key=lambda e: e[0])]
    return [lock for lock in found if lock is not None]


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def _await_imports(deadline: float) -> None:
    while _is_importing() and _left(deadline):
        time.sleep(POLL)


def _is_importing() -> bool:
    """Whether another thread is importing a module of weft."""
    package, me = __name__.partition(".")[0], threading.get_ident()
    locks = [ref() for name, ref in _modules.copy().items() if name.split(".")[0] == package]
    return any(getattr(lock, "owner", None) not in (None, me) for lock in locks)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release_all)
