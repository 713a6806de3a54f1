"""PyTorchFileWriter: records go into a zip file as PyTorch lays it out."""

from __future__ import annotations

import os
import sys
from typing import Any

from ...base.errors import InvalidType, InvalidValue
from ..tensor.typed_storage import is_storage
from .errors import ArchiveError, NotAFile
from .zip_write import ZipWriter

_VERSION = 3
_VERSIONS = range(1, 11)


class PyTorchFileWriter:
    """Writes an archive to a path, or to an object with a `write` method.

    >>> import io
    >>> writer = PyTorchFileWriter(io.BytesIO())
    >>> writer.write_record("greeting", b"hello", 5)
    >>> writer.write_end_of_file()
    >>> writer.archive_name(), sorted(writer.get_all_written_records())[-1]
    ('archive', 'version')
    """

    __module__ = "weft"

    def __init__(
        self, file: Any, compute_crc32: bool = True, storage_alignment: int = 64, name: str | None = None
    ) -> None:
        if isinstance(storage_alignment, bool) or not isinstance(storage_alignment, int):
            raise InvalidType(f"storage_alignment is a number of bytes: {storage_alignment!r:.60}")
        if storage_alignment < 1 or storage_alignment >= 2**15:
            raise InvalidValue(f"storage_alignment of {storage_alignment} bytes")
        self._own: Any = None
        if isinstance(file, (str, os.PathLike)):
            self._own = file = _opened(os.fspath(file))
            self._name = name or archive_name(file.name)
        elif callable(getattr(file, "write", None)):
            self._name = name or "archive"
        else:
            raise NotAFile("expected 'f' to be string, path, or a file-like object with a 'write' attribute")
        self._zip = ZipWriter(file, storage_alignment)
        self._min_version = _VERSION
        self._finished = False
        self._id = ""

    def archive_name(self) -> str:
        """The folder that all records are in."""
        return self._name

    def write_record(self, name: str, data: Any, size: int | None = None) -> None:
        """Adds a record with the first bytes of `data`: bytes, a storage, or another buffer."""
        if self._finished:
            raise ArchiveError("the archive is finished; no record can be added")
        if not isinstance(name, str):
            raise InvalidType(f"a record is named by text, not by a {type(name).__name__}")
        view = _bytes_of(data)
        if size is not None and not 0 <= size <= len(view):
            raise InvalidValue(f"record {name!r} of {size} bytes from {len(view)} that there are")
        self._zip.add(f"{self._name}/{name}", view if size is None else view[:size])

    def get_all_written_records(self) -> set[str]:
        """The names of all records so far."""
        return {name.partition("/")[2] for name in self._zip.written}

    def set_min_version(self, version: int) -> None:
        """Raises the version that the archive says it has."""
        if version not in _VERSIONS:
            raise InvalidValue(f"archive versions go from {_VERSIONS[0]} to {_VERSIONS[-1]}")
        self._min_version = max(self._min_version, version)

    def serialization_id(self) -> str:
        """Forty digits that follow from all records; empty until the archive is finished."""
        return self._id

    def write_end_of_file(self) -> None:
        """Adds version, byte order and identity where they are missing, and the directory."""
        if self._finished:
            raise ArchiveError("the archive is already finished")
        known = self.get_all_written_records()
        if "version" not in known:
            self.write_record("version", f"{self._min_version}\n".encode())
        if "byteorder" not in known:
            self.write_record("byteorder", sys.byteorder.encode())
        self._id = self._identity()
        if ".data/serialization_id" not in known:
            self.write_record(".data/serialization_id", self._id.encode())
        self._finished = True
        self._zip.finish()
        if self._own is not None:
            self._own.close()

    def _identity(self) -> str:
        import hashlib  # which takes longer to load than all of this room

        state = hashlib.sha256()
        for name, written in self._zip.written.items():
            state.update(f"{name}\0{written.checksum:08x}\0".encode())
        return f"{int.from_bytes(state.digest(), 'big') % 10**40:040d}"

    def __del__(self) -> None:
        own = getattr(self, "_own", None)
        if own is not None:
            own.close()


def archive_name(path: str) -> str:
    """The folder name that an archive at a path has: the file's name without its last suffix."""
    base = os.path.basename(path)
    stem = base.rpartition(".")[0] or base
    return stem.strip(".") or "archive"


def _opened(path: str) -> Any:
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise ArchiveError(f"Parent directory {folder} does not exist.")
    return open(path, "wb")


def _bytes_of(data: Any) -> memoryview:
    if is_storage(data):
        return memoryview(data.untyped()._read())
    try:
        return memoryview(data).cast("B")
    except TypeError:
        kind = type(data).__name__
        raise InvalidType(f"a record is bytes or a storage, not a {kind}") from None
