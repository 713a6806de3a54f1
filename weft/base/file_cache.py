"""Bytes kept in files under a key, for other processes and later runs. Nothing that happens to the
folder is an error: what cannot be read is not there, what cannot be written is not kept.

A file is named by the hash of its key and holds: MAGIC, the SHA-256 of the rest, the length of the
key, the key, the value. So a damaged file, or one that is somebody else's, is never taken for ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from pathlib import Path

from . import config

MAGIC = b"weft-cache-1\n"
MAX_BYTES = 256 << 20
MAX_ENTRY_BYTES = 64 << 20
KEPT_AFTER_EVICTION = 0.8  # of the size, so that the next entries need no other search
BYTES_BETWEEN_SEARCHES = 8 << 20
STALE_SECONDS = 3600.0  # a temporary file this old belongs to a process that died
_TEMPORARY = ".new."
_SUFFIX = ".bin"


class FileCache:
    """Values by key in one folder; the least recently used go when there is too much.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = FileCache(Path(folder) / "cache")
    ...     cache.put(b"key", b"value")
    ...     cache.get(b"key"), cache.get(b"other")
    (b'value', None)
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._unsearched = BYTES_BETWEEN_SEARCHES
        self._usable: bool | None = None

    def get(self, key: bytes) -> bytes | None:
        """The value, if it is there and whole; it counts as used now."""
        path = self._path(key)
        try:
            if not self._ready(make=False):
                return None
            data = path.read_bytes()
        except OSError:
            return None
        value = _checked(data, key)
        if value is not None:
            with contextlib.suppress(OSError):
                os.utime(path)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Keeps a value; a file appears whole or not at all."""
        rest = len(key).to_bytes(8, "little") + key + value
        if len(rest) > MAX_ENTRY_BYTES:
            return
        try:
            if self._ready(make=True):
                self._write(self._path(key), MAGIC + hashlib.sha256(rest).digest() + rest)
                self._unsearched += len(rest)
                if self._unsearched >= BYTES_BETWEEN_SEARCHES:
                    self._unsearched = 0
                    self._evict()
        except OSError:
            return

    def _path(self, key: bytes) -> Path:
        return self.folder / (hashlib.sha256(key).hexdigest() + _SUFFIX)

    def _ready(self, make: bool) -> bool:
        """Whether the folder is there and nobody else can put code into it."""
        if self._usable is None or (make and not self.folder.is_dir()):
            if make:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.folder.is_dir():
                self._usable = _is_private(self.folder)
        return bool(self._usable)

    def _write(self, path: Path, data: bytes) -> None:
        handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _evict(self) -> None:
        """Other processes may do the same at the same time: what is gone is gone."""
        found: list[tuple[float, int, str]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_SUFFIX):
                        found.append((facts.st_mtime, facts.st_size, entry.path))
                    elif entry.name.startswith(_TEMPORARY) and _is_stale(facts):
                        os.unlink(entry.path)
        total = sum(size for _, size, _ in found)
        if total <= self.max_bytes:
            return
        for _, size, path in sorted(found):
            if total <= self.max_bytes * KEPT_AFTER_EVICTION:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size


def _checked(data: bytes, key: bytes) -> bytes | None:
    start = len(MAGIC) + hashlib.sha256().digest_size
    rest = memoryview(data)[start:]
    if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : start] != hashlib.sha256(rest).digest():
        return None
    end = 8 + int.from_bytes(rest[:8], "little")
    return bytes(rest[end:]) if rest[8:end] == key else None


def _is_private(folder: Path) -> bool:
    """Code is run from here, so it must be ours and not writable by others."""
    if not hasattr(os, "geteuid"):
        return True
    facts = os.stat(folder)
    return facts.st_uid == os.geteuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_stale(facts: os.stat_result) -> bool:
    return time.time() - facts.st_mtime > STALE_SECONDS


_caches: dict[Path, FileCache] = {}


def file_cache() -> FileCache | None:
    """The cache that the settings `cache` and `cache_dir` name; None when it is switched off."""
    if not config.get("cache"):
        return None
    folder = cache_folder()
    if folder is None:
        return None
    return _caches.setdefault(folder, FileCache(folder))


def cache_folder() -> Path | None:
    """WEFT_CACHE_DIR, else weft in XDG_CACHE_HOME, else ~/.cache/weft; None without a home."""
    given = config.get("cache_dir")
    if given:
        return Path(given).absolute() / "v1"
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):
        return Path(shared) / "weft" / "v1"
    try:
        return Path.home() / ".cache" / "weft" / "v1"
    except RuntimeError:
        return None
