"""What can be watched of a compilation: the stages that `weft.base.stages` hears of; and what
Python code asks about a compiler that may be tracing it."""

from __future__ import annotations

from typing import Any

from ..base.stages import Decision, Stage, decided, is_recording, is_watched, reached, watched

__all__ = ["Decision", "Stage", "decided", "disable", "is_compiling", "is_watched", "reached", "watched"]

# What Python code asks about a compiler that may be tracing it.


def is_compiling() -> bool:
    """Whether `weft.compile` is recording what Python code does now.

    >>> import weft
    >>> told = []
    >>> double = weft.compile(lambda x: told.append(is_compiling()) or x * 2)
    >>> double(weft.ones(2)), double(weft.ones(2)), told
    (tensor([2., 2.]), tensor([2., 2.]), [True])
    """
    return is_recording()


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: what is exported runs as it does when it is compiled."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function as it is: what it does to tensors is recorded as that of others is, and where it asks for values, a
    program is split.

    >>> @disable()
    ... def double(x):
    ...     return 2 * x
    >>> double(4)
    8
    """
    return (lambda function: function) if fn is None else fn
