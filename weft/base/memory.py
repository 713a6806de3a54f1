"""How much memory there is: for the machine, and for this process under the limits that are set for
it. What needs more is refused by `require` before it is begun."""

from __future__ import annotations

import math
import os
from functools import lru_cache
from pathlib import Path

from .errors import OutOfMemory

try:
    import resource
except ImportError:  # Windows sets no limits
    resource = None  # type: ignore[assignment]

MEMINFO = Path("/proc/meminfo")
LARGE = 1 << 28  # bytes: the system gives more than it has, and the process ends on use
USED_PAGES = Path("/proc/self/statm")


def require(nbytes: int, what: str, where: str | None = None) -> None:
    """Raises OutOfMemory if there are not that many bytes.

    >>> require(1 << 70, "a value")
    Traceback (most recent call last):
    weft.base.errors.OutOfMemory: a value takes 1180591620717411303424 bytes
    ...
    """
    if nbytes > memory_bytes():
        why = f"this machine has {memory_bytes():.0f} bytes"
    elif nbytes > (spare := spare_bytes()):
        why = f"the limits of this process (RLIMIT_AS, RLIMIT_DATA) leave it {spare:.0f} bytes"
    else:
        return
    raise OutOfMemory(
        f"{what} takes {nbytes} bytes", where=where, why=why, hint="take smaller extents, or fewer at a time"
    )


@lru_cache(maxsize=1)
def memory_bytes() -> float:
    """How much memory there is, with what is swapped; infinity where the system does not tell."""
    return memory_of(MEMINFO)


def memory_of(meminfo: Path) -> float:
    """The same of a file such as /proc/meminfo."""
    sizes = {}
    for line in _read(meminfo).splitlines():
        name, number, *_ = [*line.split(), "", ""]
        sizes[name] = int(number) * 1024 if number.isdecimal() else 0
    total = sizes.get("MemTotal:", 0)
    return total + sizes.get("SwapTotal:", 0) if total else math.inf


def spare_bytes(used: Path = USED_PAGES) -> float:
    """How much more this process may take by the limits that are set for it; infinity where there
    are none. The limits may change at any time."""
    if resource is None:
        return math.inf
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    if limits == [resource.RLIM_INFINITY] * 2:
        return math.inf
    pages = [int(word) for word in _read(used).split()] or [0] * 7
    taken = [pages[0] * os.sysconf("SC_PAGE_SIZE"), pages[5] * os.sysconf("SC_PAGE_SIZE")]
    return min(
        max(limit - size, 0) if limit != resource.RLIM_INFINITY else math.inf for limit, size in zip(limits, taken)
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
