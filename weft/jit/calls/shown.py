"""Values as programs print them: floats with a point and as many digits as they need, containers in their brackets."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...base.errors import RunError
from ..source import shown

_BRACKETS = {list: ("[", "]"), tuple: ("(", ")")}


def shown_value(value: Any) -> str:
    """A value as text."""
    parts: list[str] = []
    waiting = [_Text("", value)]
    while waiting:
        before, item = waiting.pop()
        parts.append(before)
        if isinstance(item, (list, tuple)) and type(item) in _BRACKETS:
            opening, closing = _BRACKETS[type(item)]
            parts.append(opening)
            waiting.append(_Text(closing, _NOTHING))
            waiting += [_Text(", " if place else "", each) for place, each in enumerate(item)][::-1]
        elif isinstance(item, dict):
            parts.append("{")
            waiting.append(_Text("}", _NOTHING))
            for place, (key, each) in reversed(list(enumerate(item.items()))):
                waiting += [_Text(": ", each), _Text(", " if place else "", key)]
        else:
            parts.append(_alone(item))
    return "".join(parts)


class _Text(NamedTuple):
    """A text, and a value to be written after it."""

    before: str
    item: Any


_NOTHING = object()


def _alone(value: Any) -> str:
    if value is _NOTHING:
        return ""
    if isinstance(value, float):
        return shown(value)
    if isinstance(value, complex):
        return f"{shown(value.real)}+{shown(value.imag)}j"
    return str(value)


def formatted(text: str, *values: Any) -> str:
    """A text with values in the places of its `{}`."""
    parts = text.split("{}")
    if len(parts) - 1 > len(values):
        raise RunError("Too few arguments for format string: " + text)
    if len(parts) - 1 < len(values):
        raise RunError("Too many arguments for format string: " + text)
    return "".join([part + shown_value(value) for part, value in zip(parts, values)]) + parts[-1]
