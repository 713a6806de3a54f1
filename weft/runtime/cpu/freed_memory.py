"""Memory that is freed is kept for what is made next.

Where glibc gives large arrays back to the system at once, the next ones are pages that the system clears and maps
again, which takes a training step a tenth of its time and more. A process has one malloc: this is for all of it.
"""

from __future__ import annotations

import ctypes
import os
import sys

from ...base import config
from ...base.memory import memory_bytes

LARGEST = 32 << 20  # bytes of an array: the most that glibc has come from memory that it keeps
DEFAULT = 512  # MB
SHARE = 32  # of the memory there is: not more than this part of it
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def keep_freed_memory() -> bool:
    """Has malloc keep freed memory, as much as the setting says; whether it does. Where the user has set malloc up, or
    where it is not glibc's, it stays as it is."""
    wanted = config.get("kept_memory")
    megabytes = min(DEFAULT, memory_bytes() / SHARE / 2**20) if wanted is None else wanted
    nbytes = min(int(megabytes * 2**20), 2**31 - 1)
    if not nbytes or _is_set_up() or sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_MMAP_THRESHOLD, LARGEST) and mallopt(_TRIM_THRESHOLD, nbytes))


def _is_set_up() -> bool:
    names = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")
    return any(name in os.environ for name in names) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
