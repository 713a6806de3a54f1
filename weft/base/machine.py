"""What the operating system says of this machine: CPU flags, cache sizes, cores we may use.

The files of Linux are read with a tolerance for what is missing; the paths are parameters.
"""

from __future__ import annotations

import math
import os
import platform
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import NamedTuple

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")

# Bytes of L1 data, L2 and L3, taken where the system does not tell: small enough for any x86-64 or
# ARM server of the last ten years, so that a tile sized by them fits.
DEFAULT_CACHES = (32 * 1024, 512 * 1024, 8 * 1024 * 1024)
_SIZE_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64", "ppc64le": "powerpc64le"}
_WORDS_OF_ARM = {
    "CPU implementer": "vendor_id",
    "CPU architecture": "cpu family",
    "CPU part": "model",
    "Features": "flags",
}


class CpuInfo(NamedTuple):
    """Who made the CPU, which one it is, and the flags that all its cores have."""

    vendor: str = ""
    family: int = -1
    model: int = -1
    flags: frozenset[str] = frozenset()


def machine(name: str | None = None) -> str:
    """The architecture by the name LLVM gives it.

    >>> machine("AMD64"), machine("arm64")
    ('x86_64', 'aarch64')
    """
    name = (platform.machine() if name is None else name).lower()
    return _MACHINES.get(name, name)


def triple(arch: str, platform_name: str = sys.platform) -> str:
    """LLVM's target triple of an architecture on this operating system."""
    if platform_name == "darwin":
        return f"{'arm64' if arch == 'aarch64' else arch}-apple-darwin"
    if platform_name == "win32":
        return f"{arch}-pc-windows-msvc"
    return f"{arch}-unknown-linux-gnu"


def read_cpuinfo(path: Path = CPUINFO) -> CpuInfo:
    """The CPU as /proc/cpuinfo describes it, with ARM's words for the same; no flags when the file is not there."""
    fields: dict[str, str] = {}
    flags: frozenset[str] | None = None
    for line in _read(path).splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        key = _WORDS_OF_ARM.get(key, key)
        fields.setdefault(key, value)
        if key == "flags":
            flags = frozenset(value.split()) & (flags if flags is not None else set(value.split()))
    return CpuInfo(
        vendor=fields.get("vendor_id", ""),
        family=_number(fields.get("cpu family", ""), -1),
        model=_number(fields.get("model", ""), -1),
        flags=flags or frozenset(),
    )


def read_caches(folder: Path = CACHES) -> tuple[int, int, int]:
    """Bytes of L1 data, L2 and L3 of one core; a level that is not told has its default, but is
    never smaller than the level before it."""
    sizes = dict(enumerate(DEFAULT_CACHES, start=1))
    for index in sorted(folder.glob("index*")):
        level = _number(_read(index / "level"), 0)
        size = _size(_read(index / "size"))
        if level in sizes and size > 0 and _read(index / "type") in ("Data", "Unified"):
            sizes[level] = size
    l1d = sizes[1]
    l2 = max(sizes[2], l1d)
    return l1d, l2, max(sizes[3], l2)


@lru_cache(maxsize=4)
def installed(package: str) -> str:
    """A text that tells one installed version of a package from another, without loading it."""
    found = find_spec(package)
    if found is None or not found.origin:
        return ""
    facts = os.stat(found.origin)
    return f"{found.origin} {facts.st_size} {facts.st_mtime_ns}"


def usable_cores(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUP) -> int:
    """How many cores this process can keep busy: its affinity, or its cgroup quota rounded up."""
    if hasattr(os, "sched_getaffinity"):
        affinity = len(os.sched_getaffinity(0))
    else:
        affinity = os.cpu_count() or 1
    return max(1, math.ceil(min(affinity, cgroup_quota(root, own))))


def cgroup_quota(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUP) -> float:
    """The processors' worth of time that the cgroups around us leave, version 1 and 2 alike;
    infinity when there is no limit. A parent's limit binds its children."""
    return min((_quota_of(folder) for folder in _cgroup_folders(root, own)), default=math.inf)


def _cgroup_folders(root: Path, own: Path) -> Iterator[Path]:
    for line in _read(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            yield from _with_parents(root, path)
            yield from _with_parents(root / "unified", path)
        elif "cpu" in controllers.split(","):
            for mount in dict.fromkeys((controllers, "cpu", "cpu,cpuacct", "cpuacct,cpu")):
                yield from _with_parents(root / mount, path)


def _with_parents(mount: Path, path: str) -> Iterator[Path]:
    # Inside a container the path may be the host's, and not be there; the mount itself is.
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    yield from (mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))


def _quota_of(folder: Path) -> float:
    limit, period = (_read(folder / "cpu.max").split() + ["", ""])[:2]
    if not limit:
        limit = _read(folder / "cpu.cfs_quota_us")
        period = _read(folder / "cpu.cfs_period_us")
    quota, length = _number(limit, -1), _number(period, 100_000)
    return quota / length if quota > 0 and length > 0 else math.inf


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str, otherwise: int) -> int:
    if re.fullmatch("0x[0-9a-f]+", text):
        return int(text, 16)
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() else otherwise


def _size(text: str) -> int:
    digits = text.rstrip("KMG")
    return _number(digits, 0) * _SIZE_UNITS.get(text[len(digits) :], 0)
