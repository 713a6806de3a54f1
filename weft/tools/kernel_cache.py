"""`weft cache`: compiled kernels and models on disk, listed and removed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from ..base.file_cache import MAPPED, FileCache, cache_folder, file_cache
from ..base.shown import Shown, bytes_text, table
from ..compiler.disk_cache import decoded

SHOWN = 20  # files of a listing
LOOKED_INTO = 500  # files, for those with kernels of models
WHOLE_MODEL = "(a whole model)"


class CachedKernels(NamedTuple):
    """A file: the kernels in it, its size, and how many seconds ago it was used."""

    kernels: list[str]
    bytes: int
    seconds_ago: float


@dataclass(frozen=True, repr=False)
class CacheListing(Shown):
    """The cache as it is: the `files` with kernels of models that were used last, how many there are, and their
    bytes."""

    folder: str
    count: int
    bytes: int
    most_bytes: int
    files: list[CachedKernels]

    def text(self, width: int | None = None) -> str:
        if not self.folder:
            return "the kernel cache is off"
        head = f"{self.folder}: {self.count} files, {bytes_text(self.bytes)} of {bytes_text(self.most_bytes)}"
        cells = [(", ".join(f.kernels), bytes_text(f.bytes), _ago(f.seconds_ago)) for f in self.files]
        rest = self.count - len(cells)
        more = f"\n... and {rest} more, those of tensors among them" if rest else ""
        return head + ("\n" + table(("kernels", "size", "used"), cells, width) + more if cells else "")


@dataclass(frozen=True, repr=False)
class CacheCleared(Shown):
    """What was removed."""

    folder: str
    count: int
    bytes: int

    def text(self, width: int | None = None) -> str:
        return f"removed {self.count} files, {bytes_text(self.bytes)}" + (
            f", from {self.folder}" if self.folder else ""
        )


def list_cache(most: int = SHOWN) -> CacheListing:
    """The kernels of models that are kept on disk, those used last first."""
    cache = file_cache()
    if cache is None:
        return CacheListing("", 0, 0, 0, [])
    entries, now = cache.entries(), time.time()
    found = ((e, _kernels(cache, e.name)) for e in entries[:LOOKED_INTO])
    named = islice(filter(itemgetter(1), found), most)
    files = [CachedKernels(names, entry.bytes, max(now - entry.used, 0.0)) for entry, names in named]
    return CacheListing(str(cache_folder()), len(entries), sum(e.bytes for e in entries), cache.max_bytes, files)


def clear_cache() -> CacheCleared:
    """Removes all kernels that are kept on disk; models that are loaded go on."""
    cache = file_cache()
    gone = [] if cache is None else cache.clear()
    return CacheCleared(str(cache_folder() or ""), len(gone), sum(entry.bytes for entry in gone))


def _kernels(cache: FileCache, name: str) -> list[str]:
    """What a file holds."""
    if name.endswith(MAPPED):
        return [WHOLE_MODEL]
    data = cache.value(name)
    kernels = None if data is None else decoded(data)
    return [] if kernels is None else [kernel.name for kernel in kernels]


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"
