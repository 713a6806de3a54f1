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

    def pop(self, number: int, default: Any = None) -> Any:
        return self._functions.pop(number, default)

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(list(self._functions.values()))

    def __len__(self) -> int:
        return len(self._functions)

    def call(self, *args: Any) -> None:
        for function in self:
            function(*args)


class RemovableHandle:
    """What registering a hook gives; `remove()`, or the end of a `with` block, takes it away from the hooks, and its
    number from dictionaries that say more about it."""

    def __init__(self, hooks: Any, *, extra_dict: Any = None) -> None:
        self.id = next(_numbers)
        more = [] if extra_dict is None else extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self._places = [weakref.ref(place) for place in (hooks, *more)]

    def remove(self) -> None:
        for reference in self._places:
            place = reference()
            if place is not None:
                place.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def __getstate__(self) -> dict[str, Any]:
        return {"id": self.id, "places": [place for place in (reference() for reference in self._places) if place]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a handle; hooks that were empty have nothing to remove."""
        self.id = state["id"]
        self._places = [weakref.ref(place) for place in state["places"]]
