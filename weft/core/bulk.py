"""Bulk work with the cyclic garbage collector paused.

A step that makes a million objects and drops none would have the collector walk all of them again
and again, at a cost that jumps with the size of the heap. What such steps make is no garbage, and
what they drop goes by reference counts; so the collector has nothing to find until they are done.
"""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..base.forks import held_lock

P = ParamSpec("P")
R = TypeVar("R")

_lock = held_lock("table")
_running = 0
_pause_is_ours = False
_own = threading.local()  # depth: how many paused functions this thread is in


def collector_paused(function: Callable[P, R]) -> Callable[P, R]:
    """Has a function run with the collector paused, in whatever threads it runs at once."""

    @functools.wraps(function)
    def paused(*args: P.args, **kwargs: P.kwargs) -> R:
        _enter()
        try:
            return function(*args, **kwargs)
        finally:
            _leave()

    return paused


def _enter() -> None:
    global _running, _pause_is_ours
    _own.depth = getattr(_own, "depth", 0) + 1
    with _lock:
        if _running == 0:
            _pause_is_ours = gc.isenabled()
            gc.disable()
        _running += 1


def _leave() -> None:
    global _running
    _own.depth -= 1
    with _lock:
        _running -= 1
        if _running == 0 and _pause_is_ours:
            gc.enable()


def _after_fork() -> None:
    """What other threads were in, the child will never leave."""
    global _running
    was, _running = _running, getattr(_own, "depth", 0)
    if was and not _running and _pause_is_ours:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
