"""Hooks: functions that users put on tensors and nodes, called in the order they were added."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

_numbers = itertools.count()


class Hooks:
    """An ordered set of functions."""

    def __init__(self) -> None:
        self._functions: dict[int, Callable[..., Any]] = {}

    def add(self, function: Callable[..., Any]) -> RemovableHandle:
        handle = RemovableHandle(self)
        self._functions[handle.id] = function
        return handle

    def remove(self, number: int) -> None:
        self._functions.pop(number, None)

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(list(self._functions.values()))

    def __len__(self) -> int:
        return len(self._functions)

    def call(self, *args: Any) -> None:
        for function in self:
            function(*args)


class RemovableHandle:
    """What registering a hook gives; `remove()`, or the end of a `with` block, takes it away."""

    def __init__(self, hooks: Hooks) -> None:
        self.id = next(_numbers)
        self._hooks = weakref.ref(hooks)

    def remove(self) -> None:
        hooks = self._hooks()
        if hooks is not None:
            hooks.remove(self.id)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
