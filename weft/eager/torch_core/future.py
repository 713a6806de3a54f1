"""Futures: functions that run beside the caller, on a pool of threads, and the values they will
have."""

from __future__ import annotations

import contextvars
import os
import threading
import types
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...base.errors import InvalidType, RunError
from ...base.forks import held_lock
from ...runtime.cpu.pool import thread_count
from ..autograd.modes import modes
from ..functions.misuse import typed_errors

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Callback = Callable[["Future"], Any]
_state = held_lock("table")  # of all futures: nothing but fields are set while it is held


class Future:
    """A value that is not there yet.

    >>> future = Future()
    >>> doubled = future.then(lambda f: 2 * f.value())
    >>> future.set_result(21)
    >>> doubled.wait()
    42
    """

    __module__ = "weft"
    __slots__ = ("__weakref__", "_callbacks", "_changed", "_done", "_error", "_result", "_task")

    def __init__(self, *, devices: Any = None) -> None:
        self._changed = threading.Condition(_state)
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callback] = []
        self._task: _Task | tuple[Future, ...] | None = None  # or what it is made from

    __class_getitem__: Any = classmethod(types.GenericAlias)

    def done(self) -> bool:
        """Whether the value, or an exception, is there."""
        return self._done

    def wait(self) -> Any:
        """The value, as soon as it is there; an exception is raised as it was."""
        _help(self)
        with self._changed:
            self._changed.wait_for(lambda: self._done)
        return self._outcome()

    def value(self) -> Any:
        """The value, which must be there."""
        if not self._done:
            raise RunError("the Future is not complete", hint="wait() for it")
        return self._outcome()

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def set_result(self, result: Any) -> None:
        """Completes it with a value."""
        self._complete(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Completes it with an exception."""
        if not isinstance(result, BaseException):
            kind = type(result)
            raise InvalidType(f"{result} is of type {kind}, not an Exception.")
        self._complete(None, result)

    def _complete(self, result: Any, error: BaseException | None) -> None:
        with self._changed:
            if self._done:
                raise RunError(
                    "Attempting to mark a completed Future as complete again. "
                    "Note that a Future can only be marked completed once."
                )
            self._result, self._error, self._done = result, error, True
            self._task = None
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        _call_back(self, callbacks)

    def _when_done(self, callback: Callback) -> None:
        with self._changed:
            if not self._done:
                self._callbacks.append(callback)
                return
        _call_back(self, [callback])

    def then(self, callback: Callback) -> Future:
        """A future for what a function makes of this one, once it is complete."""
        following = Future()
        following._task = (self,)

        def go_on(done: Future) -> None:
            _run_into(following, lambda: callback(done))

        self._when_done(go_on)
        return following

    def add_done_callback(self, callback: Callback) -> None:
        """Calls a function with this future once it is complete; what it raises is a warning."""

        def call(done: Future) -> None:
            try:
                callback(done)
            except Exception as error:
                warnings.warn(f"a done callback raised {error!r}", RuntimeWarning, stacklevel=2)

        self._when_done(call)


class _Calling(threading.local):
    """The callbacks that a thread has still to call: calling them one by one, and not from inside
    each other, makes long chains of futures possible."""

    def __init__(self) -> None:
        self.active = False
        self.left: deque[tuple[Callback, Future]] = deque()


_calling = _Calling()


def _call_back(future: Future, callbacks: Sequence[Callback]) -> None:
    _calling.left.extend((callback, future) for callback in callbacks)
    if _calling.active:
        return
    _calling.active = True
    try:
        while _calling.left:
            callback, done = _calling.left.popleft()
            callback(done)
    finally:
        _calling.active = False


def _help(future: Future) -> None:
    """Runs, on this thread, what a future waits for and no other thread has begun. So threads that
    wait for each other's functions never wait for a free thread."""
    left = [future]
    while left:
        task = left.pop()._task
        if isinstance(task, tuple):
            left += task
        elif task is not None:
            task.run()


def _run_into(future: Future, function: Callable[[], Any]) -> None:
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class _Task:
    """A call that is run once, by the pool or by who waits for it first."""

    def __init__(self, future: Future, function: Callable[[], Any]) -> None:
        self._future = future
        self._function = function
        self._process: int | None = None  # the one that has begun it
        self._context = contextvars.copy_context()
        self._modes = (modes.grad, modes.inference)

    def run(self) -> None:
        process = os.getpid()
        with _state:
            begun, self._process = self._process, process
        if begun is None:
            _run_into(self._future, lambda: self._context.run(self._call))
        elif begun != process:
            self._future.set_exception(
                RunError(
                    "the function of this Future will not end in this process",
                    why="it was running in another thread when the process was forked",
                    hint="wait for it before the fork, or call the function again",
                )
            )

    def _call(self) -> Any:
        """The call, in the grad mode of who asked for it."""
        before = (modes.grad, modes.inference)
        modes.grad, modes.inference = self._modes
        try:
            return self._function()
        finally:
            modes.grad, modes.inference = before


_executor: ThreadPoolExecutor | None = None
_asked: list[int] = []  # for how many threads


def _pool() -> ThreadPoolExecutor:
    global _executor
    with _state:
        if _executor is None:
            from concurrent.futures import ThreadPoolExecutor

            _executor = ThreadPoolExecutor(get_num_interop_threads(), "weft-fork")
        return _executor


def get_num_interop_threads() -> int:
    """How many functions given to `fork` run at once."""
    return _asked[0] if _asked else max(2, thread_count())


def set_num_interop_threads(num: int) -> None:
    """Says how many functions given to `fork` run at once: one time, before the first."""
    if isinstance(num, bool) or not isinstance(num, int):
        raise RunError(f"set_num_interop_threads expects an int, but got {type(num).__name__}")
    if num <= 0:
        raise RunError("set_num_interop_threads expects a positive integer")
    with _state:
        if _executor is not None or _asked:
            raise RunError(
                "cannot set number of interop threads after parallel work has started or set_num_interop_threads called"
            )
        _asked.append(num)


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """Runs a function beside the caller.

    >>> wait(fork(pow, 2, 10))
    1024
    """
    if not callable(func):
        raise InvalidType(f"fork() runs a function, not a {type(func).__name__}")
    future = Future()
    task = _Task(future, lambda: func(*args, **kwargs))
    future._task = task
    _pool().submit(task.run)
    return future


def wait(future: Future) -> Any:
    """The value of a future, as soon as it is there."""
    if not isinstance(future, Future):
        raise InvalidType(f"wait() takes a Future, not a {type(future).__name__}")
    return future.wait()


@typed_errors
def collect_all(futures: Sequence[Future]) -> Future:
    """A future that is complete when all are: its value is the list of them, and an exception of
    one is its own."""
    together = Future()
    together._task = tuple(futures)
    left = [len(futures)]

    def one_less(_: Future) -> None:
        with _state:
            left[0] -= 1
            last = left[0] == 0
        if last:
            error = next((f._error for f in futures if f._error is not None), None)
            together._complete(list(futures), error)

    if not futures:
        together.set_result([])
    for future in futures:
        future._when_done(one_less)
    return together


@typed_errors
def wait_all(futures: Sequence[Future]) -> list[Any]:
    """The values of all futures, as soon as all are there."""
    return [future.wait() for future in futures]


def _after_fork() -> None:
    """A child has none of its parent's threads."""
    global _executor
    _executor = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
