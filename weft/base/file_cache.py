"""Bytes kept in files under a key, for other processes and later runs. Nothing that happens to the
folder is an error: what cannot be read is not there, what cannot be written is not kept.

A file is named by the hash of its key and holds: MAGIC, the SHA-256 of the rest, the length of the
key, the key, the value. So a damaged file is never taken for ours. Large files may be mapped instead; those hold what
their reader checks, its key among it.

Code is run from here, so nobody else may put it there: whenever a file is read or written, the
folder, and the file that is read, must be this user's own, writable by nobody else, and no link.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from . import config

MAGIC = b"weft-cache-1\n"
MAX_BYTES = 4096 << 20
MAX_ENTRY_BYTES = 64 << 20
MAPPED_SHARE = 0.5  # of all bytes that one file that is mapped may have
SPARE_SHARE = 0.25  # of what is free on the disk that it may take
KEPT_AFTER_EVICTION = 0.8  # of the size, so that the next entries need no other search
BYTES_BETWEEN_SEARCHES = 8 << 20
STALE_SECONDS = 3600.0  # a temporary file this old belongs to a process that died
_TEMPORARY = ".new."
_SUFFIX, MAPPED = ".bin", ".mapped"
# On systems where files have owners, all is looked at through what was opened, so that nothing can
# be exchanged between the look and the use.
_HAS_OWNERS = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class CacheEntry(NamedTuple):
    """A file of the cache: its name, its size, and when it was last used, in seconds since 1970."""

    name: str
    bytes: int
    used: float


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

    def get(self, key: bytes) -> bytes | None:
        """The value, if it is there and whole; it counts as used now."""
        try:
            with self._private_folder() as folder:
                path = self.folder / _name(key) if folder is None else _name(key)
                value = _checked(_read(path, folder), key)
                if value is not None:
                    with contextlib.suppress(OSError):
                        os.utime(path, dir_fd=folder)
                return value
        except OSError:
            return None

    def put(self, key: bytes, value: bytes) -> None:
        """Keeps a value; a file appears whole or not at all."""
        rest = len(key).to_bytes(8, "little") + key + value
        if len(rest) > MAX_ENTRY_BYTES:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._private_folder():
                data = MAGIC + hashlib.sha256(rest).digest() + rest
                self._write(self.folder / _name(key), lambda file: file.write(data))
                self._unsearched += len(rest)
                if self._unsearched >= BYTES_BETWEEN_SEARCHES:
                    self._unsearched = 0
                    self._evict()
        except OSError:
            return

    def mapped(self, key: bytes) -> memoryview | None:
        """What `put_mapped` has written, as memory that the pages of the file are behind. What is written to it stays
        in this process; the file may go meanwhile."""
        try:
            with self._private_folder() as folder:
                path = self.folder / _name(key, MAPPED) if folder is None else _name(key, MAPPED)
                with _opened(path, folder) as file:
                    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                with contextlib.suppress(OSError):
                    os.utime(path, dir_fd=folder)
                return memoryview(data)
        except (OSError, ValueError):  # ValueError: it is empty
            return None

    def put_mapped(self, key: bytes, size: int, write: Callable[[BinaryIO], None]) -> bool:
        """Keeps what `write` writes, about so many bytes; False if that cannot be."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if size > self.max_bytes * MAPPED_SHARE or size > shutil.disk_usage(self.folder).free * SPARE_SHARE:
                return False
            with self._private_folder():
                self._write(self.folder / _name(key, MAPPED), write)
                self._evict()
        except OSError:
            return False
        return True

    def entries(self) -> list[CacheEntry]:
        """What is there, most recently used first."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                with contextlib.suppress(OSError):
                    if file.name.endswith((_SUFFIX, MAPPED)):
                        facts = file.stat(follow_symlinks=False)
                        found.append(CacheEntry(file.name, facts.st_size, facts.st_mtime))
        return sorted(found, key=lambda entry: -entry.used)

    def value(self, name: str) -> bytes | None:
        """The value in a file of the folder, if it is whole."""
        try:
            with self._private_folder() as folder:
                data = _read(self.folder / name if folder is None else name, folder)
        except OSError:
            return None
        start = len(MAGIC) + hashlib.sha256().digest_size
        end = start + 8 + int.from_bytes(data[start : start + 8], "little")
        return _checked(data, data[start + 8 : end])

    def clear(self) -> list[CacheEntry]:
        """Removes what is there; gives what is gone. Files of others in the folder stay."""
        gone = []
        for entry in self.entries():
            with contextlib.suppress(OSError):
                os.unlink(self.folder / entry.name)
                gone.append(entry)
        return gone

    def problem(self) -> str:
        """Why nothing is kept, if that is so."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._private_folder():
                handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.folder)
                os.close(handle)
                os.unlink(temporary)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    @contextlib.contextmanager
    def _private_folder(self) -> Iterator[int | None]:
        """The open folder; None where files have no owners. OSError if others could write to it."""
        if not _HAS_OWNERS:
            yield None
            return
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK)
        try:
            _must_be_private(os.fstat(handle))
            yield handle
        finally:
            os.close(handle)

    def _write(self, path: Path, write: Callable[[BinaryIO], object]) -> None:
        handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
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
                    if entry.name.endswith((_SUFFIX, MAPPED)):
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


def _name(key: bytes, suffix: str = _SUFFIX) -> str:
    return hashlib.sha256(key).hexdigest() + suffix


def _read(path: str | Path, folder: int | None) -> bytes:
    with _opened(path, folder) as file:
        return file.read()


@contextlib.contextmanager
def _opened(path: str | Path, folder: int | None) -> Iterator[BinaryIO]:
    """A file of the folder; OSError unless it is a plain one that others cannot write to."""
    flags = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, dir_fd=folder), "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise PermissionError("not a plain file")
        if folder is not None:
            _must_be_private(facts)
        yield file


def _must_be_private(facts: os.stat_result) -> None:
    if facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError("others can write to it")


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
    return _caches.setdefault(folder, FileCache(folder, config.get("cache_megabytes") << 20))


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
