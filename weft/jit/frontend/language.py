"""What programs may be written with besides Python's own: names that mean something to the compiler, and little or
nothing to Python itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..run.tracing_state import is_tracing

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
__all__ = [
    "Final",
    "_overload",
    "_overload_method",
    "annotate",
    "export",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "unused",
]
MODIFIER = "_jit_modifier"  # the attribute of a function that says how it is compiled
EXPORTED, IGNORED, UNUSED = "export", "ignore", "unused"
_isinstance = isinstance


def annotate(kind: Any, value: _T) -> _T:
    """A value, of which the compiler knows the type: `annotate(List[int], [])`.

    >>> annotate(list[int], [])
    []
    """
    return value


def is_scripting() -> bool:
    """Whether this runs as a compiled program: true there, false in Python."""
    return False


def isinstance(value: Any, kind: Any) -> bool:
    """Whether a value is one of a type, of containers with the types of what they hold.

    >>> isinstance([1, 2], list[int]), isinstance([1, 2], list[str])
    (True, False)
    """
    return _holds(value, kind)


def _holds(value: Any, kind: Any) -> bool:
    if _isinstance(kind, tuple):
        return any(_holds(value, each) for each in kind)
    origin: Any = getattr(kind, "__origin__", None)
    parts: Any = getattr(kind, "__args__", ())
    if origin is None or not _isinstance(origin, type):
        choices = parts if parts and not _isinstance(kind, type) else (kind,)
        return any(_holds(value, each) for each in choices) if choices != (kind,) else _isinstance(value, kind)
    if not _isinstance(value, origin):
        return False
    if origin is dict:
        return all(_holds(key, parts[0]) and _holds(item, parts[1]) for key, item in value.items())
    if origin is tuple:
        return len(value) == len(parts) and all(_holds(item, part) for item, part in zip(value, parts))
    return all(_holds(item, parts[0]) for item in value)


def _marked(modifier: str) -> Callable[[_F], _F]:
    def mark(function: _F) -> _F:
        setattr(function, MODIFIER, modifier)
        return function

    return mark


def export(function: _F) -> _F:
    """A method that is compiled even if `forward` does not call it."""
    return _marked(EXPORTED)(function)


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A function that stays one of Python: programs call it as it is."""
    if callable(drop):
        return _marked(IGNORED)(drop)
    return _marked(UNUSED if drop else IGNORED)


_OVERLOADS: dict[str, list[Any]] = {}  # declarations that were made last, by the name of the function


def _overload(function: _F) -> _F:
    """One of several declarations of a function, with types; the last definition of that name, which has none of these
    before it, is what each of them does."""
    _OVERLOADS.setdefault(f"{function.__module__}.{function.__qualname__}", []).append(function)
    return function


_overload_method = _overload  # of methods


def overloads_of(function: Any) -> list[Any]:
    """The declarations of a function that is compiled for several types."""
    held = vars(function)
    if "_jit_overloads" not in held:
        declared = _OVERLOADS.pop(f"{function.__module__}.{function.__qualname__}", [])
        held["_jit_overloads"] = [each for each in declared if each is not function]
    found: list[Any] = held["_jit_overloads"]
    return found


def interface(python: type) -> type:
    """A class that says what methods others have: its own do nothing. Values of every class that has such methods are
    values of it; of modules, if it is a module itself."""
    python.__jit_interface__ = True  # type: ignore[attr-defined]
    return python


def is_interface(python: Any) -> bool:
    return _isinstance(python, type) and "__jit_interface__" in vars(python)


def unused(function: _F) -> _F:
    """A function that programs do not have: calling it raises."""
    return _marked(UNUSED)(function)
