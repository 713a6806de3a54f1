"""The stages of a compilation as they are reached, for those who want to look:

with watched(print): weft.compile("model.onnx")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

_PACKAGE = Path(__file__).parent.parent


class Stage(NamedTuple):
    """What was reached, the file whose code made it, and the thing itself."""

    title: str
    file: str
    value: Any


Look = Callable[[Stage], None]
_look: ContextVar[tuple[Look, bool] | None] = ContextVar("weft_stages", default=None)


@contextmanager
def watched(look: Look, details: bool = False) -> Iterator[None]:
    """Has `look` called with each stage of what is compiled inside a `with` block; with `details`, also with what there
    is between two stages, and of constants that are computed on the way."""
    token = _look.set((look, details))
    try:
        yield
    finally:
        _look.reset(token)


def reached(title: str, maker: Callable[..., Any], value: Any, detail: bool = False) -> None:
    """Says that a stage is done: what a function made, and where that function is written."""
    look, details = _look.get() or (None, False)
    if look is not None and (details or not detail):
        file = Path(inspect.getsourcefile(inspect.unwrap(maker)) or "")
        own = file.is_relative_to(_PACKAGE)  # else it is a user's, who has put it in place of weft's
        look(Stage(title, file.relative_to(_PACKAGE).as_posix() if own else file.name, value))


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
