"""The errors that archives raise, and how they show what a file holds."""

from __future__ import annotations

import pickle
from typing import Any

from ...base.errors import FormatError, InvalidType


class ArchiveError(FormatError, RuntimeError):
    """A file is no archive, or is damaged, or breaks a rule of the format."""


class UnsafeContent(ArchiveError, pickle.UnpicklingError):
    """A file asks for something that loading data never needs."""


class NotAFile(InvalidType, AttributeError):
    """An argument is neither a path nor something that behaves like a file."""


def shown(value: Any) -> str:
    """A value from a file for a message: short, whatever it is."""
    if type(value) is int:
        return str(value) if value.bit_length() < 128 else "a huge number"
    if type(value) in (str, bytes):
        return repr(value[:40])
    if type(value) is tuple and len(value) < 8 and all(type(v) is int for v in value):
        return f"({', '.join(map(shown, value))})"
    return f"a {type(value).__name__}"
