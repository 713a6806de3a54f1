"""Sizes that a trace knows: ints of Python that remember which value of the program they are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..nodes import Value
from ..run.tracing_state import warn_of_value
from .frames import Frame

if TYPE_CHECKING:
    from .recorder import Recorder


class Origin(NamedTuple):
    """The tensor of a program that holds a size, and the frame that it is in."""

    value: Value
    home: Frame


class Extent(int):
    """A size of a traced tensor, or what follows from sizes. It is an int wherever one is needed; operators of a
    program that are given it read the value that it is of."""

    recorder: Recorder
    origin: Origin

    @classmethod
    def of(cls, number: int, recorder: Recorder, origin: Origin) -> Extent:
        made = cls(number)
        made.recorder, made.origin = recorder, origin
        return made

    __hash__ = int.__hash__

    def __reduce__(self) -> Any:
        return int, (int.__int__(self),)


def _arithmetic(name: str, kind: str) -> None:
    compute: Callable[..., Any] = getattr(operator, name)

    def method(self: Extent, other: Any) -> Any:
        return _computed(self, other, False)

    def swapped(self: Extent, other: Any) -> Any:
        return _computed(self, other, True)

    def _computed(self: Extent, other: Any, turned: bool) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            return NotImplemented
        mine, theirs = int.__int__(self), int.__int__(other)
        number = compute(theirs, mine) if turned else compute(mine, theirs)
        pair = (other, self) if turned else (self, other)
        return self.recorder.computed(kind, pair, number) if self.recorder.is_open() else number

    setattr(Extent, f"__{name}__", method)
    setattr(Extent, f"__r{name}__", swapped)


for _name, _kind in {"add": "add", "sub": "sub", "mul": "mul", "floordiv": "floor_divide", "mod": "remainder"}.items():
    _arithmetic(_name, _kind)


def _asked(name: str, what: str) -> None:
    plain: Callable[..., Any] = getattr(int, name)

    def method(self: Extent, *others: Any) -> Any:
        if self.recorder.is_open():
            warn_of_value(what)
        return plain(self, *others)

    setattr(Extent, name, method)


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__"):
    _asked(_name, "bool")
_asked("__int__", "int")
_asked("__float__", "float")
