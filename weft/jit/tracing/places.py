"""Where the user's code is."""

from __future__ import annotations

from ..compile.frames import user_frame


def user_place() -> str:
    """The file and line that runs, of the innermost code that is not weft's own, as nodes have it."""
    frame = user_frame()
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}:0"
