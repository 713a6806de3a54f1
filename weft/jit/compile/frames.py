"""Lines of users' code that errors and explanations show."""

from __future__ import annotations

import linecache
import sys
from types import FrameType

_PACKAGE = __name__.split(".")[0]


def user_frame() -> FrameType | None:
    """The innermost frame that is not weft's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == _PACKAGE:
        frame = frame.f_back
    return frame


_SIZED_BY_VALUES = {
    "nonzero": "nonzero",
    "argwhere": "argwhere",
    "unique": "unique",
    "unique_consecutive": "unique_consecutive",
    "masked_select": "masked_select",
    "_array_of_mask": "an index that is a mask",
    "repeat_interleave": "repeat_interleave by a tensor",
    "bincount": "bincount",
}


def sized_by_values() -> str | None:
    """Which of weft's functions asks for values to know how many elements it gives."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == _PACKAGE:
        found = _SIZED_BY_VALUES.get(frame.f_code.co_name)
        if found is not None:
            return found
        frame = frame.f_back
    return None


def shown_line(frame: FrameType | None) -> str | None:
    """A line of the user's with a caret below it."""
    if frame is None:
        return None
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).rstrip()
    caret = " " * (len(line) - len(line.lstrip())) + "^"
    return f"{frame.f_code.co_filename}:{frame.f_lineno}\n{line}\n{caret}"
