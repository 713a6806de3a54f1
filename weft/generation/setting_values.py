"""What settings may be: a name and a value come in and the value goes out, or an error that names the setting."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any

from ..base.errors import InvalidType, InvalidValue, Unsupported

LARGEST = 2**31 - 1  # of whole numbers
LARGEST_NUMBER = 3e38  # about the largest float32


def told(value: Any) -> str:
    """A value for a message: short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a huge number"
    return f"{value!r:.60}" if value is None or isinstance(value, (int, float, str)) else f"a {type(value).__name__}"


def whole(name: str, value: Any) -> int:
    """A number of things, one or more.

    >>> whole("num_hidden_layers", 12)
    12
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidType(f"{name} is {told(value)}", why="it is a whole number")
    made = int(value)
    if not 1 <= made <= LARGEST:
        raise InvalidValue(f"{name} is {told(made)}", why=f"it is from 1 to {LARGEST}")
    return made


def number(name: str, value: Any, least: float = 0.0) -> float:
    """A finite number that is not below the least.

    >>> number("rope_theta", 500000, least=1)
    500000.0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidType(f"{name} is {told(value)}", why="it is a number")
    try:
        made = float(value)
    except OverflowError:  # of a whole number
        made = math.inf
    if not least <= made <= LARGEST_NUMBER:
        raise InvalidValue(f"{name} is {told(value)}", why=f"it is finite, and {least:g} or more")
    return made


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise InvalidType(f"{name} is {told(value)}", why="it is true or false")
    return value


def one_of(name: str, value: Any, allowed: Collection[str]) -> str:
    """One of some words."""
    if not isinstance(value, str):
        raise InvalidType(f"{name} is {told(value)}", why="it is text")
    if value not in allowed:
        raise Unsupported(f"{name} is {told(value)}", why="there are " + ", ".join(allowed))
    return value


CHECKS: dict[str, Callable[[str, Any], Any]] = {"int": whole, "float": number, "bool": flag}


def check_fields(settings: Any) -> None:
    """Looks at all numbers and flags of a dataclass, by what its fields say that they are."""
    for field in fields(settings):
        kind, _, rest = str(field.type).partition(" | ")
        value = getattr(settings, field.name)
        if kind in CHECKS and not (value is None and rest == "None"):
            CHECKS[kind](field.name, value)
