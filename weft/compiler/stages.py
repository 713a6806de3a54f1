"""What can be watched of a compilation: the stages that `weft.base.stages` hears of; and what
Python code asks about a compiler that may be tracing it."""

from __future__ import annotations

from typing import Any

from ..base.stages import Decision, Stage, decided, reached, watched

__all__ = ["Decision", "Stage", "decided", "disable", "is_compiling", "reached", "watched"]

# What Python code asks about a compiler that may be tracing it: `weft.compile` reads models and runs no Python.


def is_compiling() -> bool:
    """False: no Python runs while weft compiles."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function as it is: nothing would compile it.

    >>> @disable()
    ... def double(x):
    ...     return 2 * x
    >>> double(4)
    8
    """
    return (lambda function: function) if fn is None else fn
