"""Exceptions that travel from one thread or process to another, with their traceback as text."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any, NoReturn

from ...base.errors import InvalidType

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class KeyErrorMessage(str):
    """The text of a KeyError, which shows as it is and not in quotes."""

    __module__ = "weft._utils"
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """The exception that is being handled, or the one that is given, to be raised elsewhere.

    >>> try:
    ...     int("x")
    ... except ValueError:
    ...     kept = ExceptionWrapper(where="in worker 3")
    >>> kept.reraise()
    Traceback (most recent call last):
    ValueError: Caught ValueError in worker 3.
    ...
    """

    __module__ = "weft._utils"

    def __init__(self, exc_info: ExcInfo | None = None, where: str = "in background") -> None:
        found: Any = sys.exc_info() if exc_info is None else exc_info
        if not isinstance(found, tuple) or len(found) != 3 or not isinstance(found[1], Exception):
            raise InvalidType(
                "there is no exception to keep",
                hint="make an ExceptionWrapper inside `except`, or give it sys.exc_info()",
            )
        # Of the exception only its class and text: the frames of its traceback would live on.
        self.exc_type: type[BaseException] = found[0]
        self.exc_msg = "".join(traceback.format_exception(*found))
        self.where = where

    def reraise(self) -> NoReturn:
        """Raises an exception of the same class, whose text has the traceback of the first."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        message = KeyErrorMessage(text) if self.exc_type is KeyError else text
        try:
            exception = self.exc_type(message)
        except Exception:  # a class that is made from something else than a text
            raise RuntimeError(text) from None
        raise exception
