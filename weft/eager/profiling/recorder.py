"""What ran between a start and a stop: calls of functions, steps of backward passes and blocks that have a name, each
with its time, its thread and what it ran within."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from ..functions.around import Args, Kwargs, Rest, around_calls
from ..tensor.tensor import Tensor
from .events import FunctionEvent

Function = TypeVar("Function", bound=Callable[..., Any])


class Recorder:
    """A layer around calls that writes down each of them."""

    def __init__(self, shapes: bool = False) -> None:
        self.events: list[FunctionEvent] = []
        self._shapes = shapes
        self._ids = itertools.count()
        self._open = threading.local()  # what is running in a thread, the innermost last
        self._around: AbstractContextManager[None] | None = None

    def start(self) -> None:
        """Begins to record, in all threads."""
        self._around = around_calls(self.layer)
        self._around.__enter__()
        _RUNNING.append(self)

    def stop(self) -> None:
        """Ends it; what still runs then has no end of its own."""
        if self._around is not None:
            _RUNNING.remove(self)
            self._around.__exit__(None, None, None)
            self._around = None
            now = time.perf_counter_ns()
            for event in self.events:
                event.end_ns = event.end_ns or now

    def layer(self, name: str, rest: Rest, args: Args, kwargs: Kwargs) -> Any:
        """One call."""
        event = self.begin(name.removeprefix("weft."), _shapes_of(args) if self._shapes else [])
        try:
            return rest(args, kwargs)
        finally:
            self.end(event)

    def begin(self, name: str, shapes: list[Any] | None = None, named: bool = False) -> FunctionEvent:
        """Writes down that something begins in this thread."""
        stack: list[FunctionEvent] = vars(self._open).setdefault("stack", [])
        parent = stack[-1] if stack else None
        event = FunctionEvent(
            next(self._ids), name, threading.get_native_id(), shapes or [], parent, is_user_annotation=named
        )
        self.events.append(event)
        if parent is not None:
            parent.cpu_children.append(event)
        stack.append(event)
        event.start_ns = time.perf_counter_ns()
        return event

    def end(self, event: FunctionEvent) -> None:
        """Writes down that it is over."""
        event.end_ns = time.perf_counter_ns()
        stack: list[FunctionEvent] = vars(self._open).get("stack", [])
        if event in stack:
            del stack[stack.index(event) :]


_RUNNING: list[Recorder] = []


def _shapes_of(values: Any) -> list[Any]:
    """The shapes of tensors among arguments, and in lists of them."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(list(value._shape))
        elif isinstance(value, (list, tuple)) and any(isinstance(each, Tensor) for each in value):
            found.append(_shapes_of(value))
        else:
            found.append([])
    return found


class record_function:
    """A block, or a function, that profiles show under a name.

    >>> with record_function("preparing"):
    ...     prepared = 1 + 1
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._open: list[list[tuple[Recorder, FunctionEvent]]] = []

    def __enter__(self) -> record_function:
        self._open.append([(recorder, recorder.begin(self.name, named=True)) for recorder in _RUNNING])
        return self

    def __exit__(self, *raised: object) -> None:
        for recorder, event in self._open.pop():
            recorder.end(event)

    def __call__(self, function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]
