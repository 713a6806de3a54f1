"""`fork` and `wait`: functions that run beside the caller; in traces and programs, graphs that do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.errors import InvalidType
from ..eager.torch_core import future as futures
from ..eager.torch_core.future import Future, wait
from .run.tracing_state import get_tracing_state

__all__ = ["Future", "fork", "wait"]


def _recorder() -> Any:
    state = get_tracing_state()
    recorder = None if state is None else state.recorder
    return recorder if recorder is not None and recorder.is_open() else None


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """Runs a function beside the caller.

    >>> wait(fork(pow, 2, 10))
    1024
    """
    recorder = _recorder()
    if recorder is None:
        return futures.fork(func, *args, **kwargs)
    if not callable(func):
        raise InvalidType(f"fork() runs a function, not a {type(func).__name__}")
    future = _Traced()
    future.set_result(recorder.forked(future, lambda: func(*args, **kwargs)))
    return future


class _Traced(Future):
    """A future of a trace, which takes down that somebody waits for it."""

    def wait(self) -> Any:
        result, recorder = super().wait(), _recorder()
        if recorder is not None:
            recorder.waited(self, result)
        return result
