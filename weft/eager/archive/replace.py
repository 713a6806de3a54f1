"""Writing a file so that its path holds the whole old file or the whole new one at every moment."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from .errors import ArchiveError


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of the path if all goes well."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise ArchiveError(f"Parent directory {os.path.dirname(path) or '.'} does not exist.")
    mode = _mode(target)
    if mode is not None and not stat.S_ISREG(mode):  # a pipe or a device cannot be replaced
        with open(target, "wb") as file:
            yield file
        return
    beside = os.path.join(folder, f".{os.path.basename(target)}.{os.urandom(8).hex()}.tmp")
    try:
        with open(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(beside, stat.S_IMODE(mode))
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    _settle(folder)


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _settle(folder: str) -> None:
    """Makes the new name survive a power cut, where folders can be synchronised."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
