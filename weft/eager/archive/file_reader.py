"""PyTorchFileReader: the records of an archive by name, without the folder they are all in."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from ...base.errors import OutOfRange
from ..tensor.storage import UntypedStorage, allocate
from ..tensor.tensor import Tensor, wrap
from ..tensor.types import dtype
from .errors import ArchiveError, NotAFile
from .zip_read import STORED, ZipReader

_LOWEST, _HIGHEST = 1, 10


class PyTorchFileReader:
    """Reads an archive from a path, or from a file that can seek."""

    __module__ = "weft"

    def __init__(self, file: Any) -> None:
        self._own: Any = None
        if isinstance(file, (str, os.PathLike)):
            self._own = file = _opened(os.fspath(file))
        elif not callable(getattr(file, "read", None)) or not callable(getattr(file, "seek", None)):
            raise NotAFile(
                f"{type(file).__name__!r} object has no attribute 'read' or 'seek'",
                hint="read it into an io.BytesIO first",
            )
        self._file = file
        self._zip = ZipReader(file)
        self.length = self._zip.length
        self._root = _root(self._zip)
        self.version = self._read_version()

    def _read_version(self) -> int:
        for name in ("version", ".data/version"):
            if self.has_record(name):
                text = self.get_record(name).strip()
                break
        else:
            raise ArchiveError("failed locating file version: file not found")
        if not text.isdigit() or len(text) > 9:
            raise ArchiveError(f"archive version {text!r:.30} is no number")
        version = int(text)
        if version < _LOWEST:
            raise ArchiveError(
                f"Attempted to read a PyTorch file with version {version}, but the minimum "
                f"supported version for reading is {_LOWEST}."
            )
        if version > _HIGHEST:
            raise ArchiveError(
                f"Attempted to read a PyTorch file with version {version}, but the maximum "
                f"supported version for reading is {_HIGHEST}."
            )
        return version

    def archive_name(self) -> str:
        """The folder that all records are in."""
        return self._root

    def _full(self, name: str) -> str:
        full = f"{self._root}/{name}"
        if full not in self._zip.records:
            raise ArchiveError(f"PytorchStreamReader failed locating file {name}: file not found")
        return full

    def has_record(self, name: str) -> bool:
        return f"{self._root}/{name}" in self._zip.records

    def get_all_records(self) -> list[str]:
        """The names of all records."""
        return [name.partition("/")[2] for name in self._zip.records]

    def get_record(self, name: str) -> bytes:
        """The bytes of a record."""
        return self._zip.read(self._full(name))

    def get_record_size(self, name: str) -> int:
        return self._zip.records[self._full(name)].size

    def get_record_offset(self, name: str) -> int:
        """Where the bytes of a record start in the file."""
        return self._zip.payload_offset(self._full(name))

    def get_record_header_offset(self, name: str) -> int:
        """Where the header of a record starts in the file."""
        return self._zip.records[self._full(name)].header

    def serialization_id(self) -> str:
        name = ".data/serialization_id"
        return self.get_record(name).decode("ascii", "replace") if self.has_record(name) else ""

    def get_storage_from_record(self, name: str, numel: int, kind: dtype) -> Tensor:
        """A record as a tensor of that many elements."""
        memory = self.read_storage(name, numel, kind.itemsize)._bytes
        if kind.name == "bool":
            memory = memory != 0
        return wrap(memory.view(kind.numpy))

    def read_storage(self, name: str, numel: int, itemsize: int) -> UntypedStorage:
        """A record as a storage in memory of its own; its checksum is tested."""
        self._check_size(name, numel, itemsize)
        memory = allocate(numel * itemsize)
        self._zip.read_into(self._full(name), memory.data)
        made: UntypedStorage = UntypedStorage._over(memory, resizable=True)
        return made

    def map_storage(self, name: str, numel: int, itemsize: int) -> UntypedStorage:
        """A record as a storage over the file itself, whose changes stay in this process. Where it
        is and how large are tested; its checksum is not, since that would read all of it now."""
        self._check_size(name, numel, itemsize)
        full = self._full(name)
        offset = self._zip.payload_offset(full)
        if self._zip.records[full].method != STORED or offset % itemsize or not numel:
            return self.read_storage(name, numel, itemsize)
        whole = self._mapped()
        memory = whole[offset : offset + numel * itemsize]
        made: UntypedStorage = UntypedStorage._over(memory)
        return made

    def _mapped(self) -> Any:
        """The whole file in memory; changes are seen by nobody else."""
        if not hasattr(self, "_memory"):
            region = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY)
            self._memory = np.frombuffer(region, np.uint8)
        return self._memory

    def _check_size(self, name: str, numel: int, itemsize: int) -> None:
        if numel < 0:
            raise OutOfRange(f"record {name!r} with {numel} elements")
        size = self.get_record_size(name)
        if size != numel * itemsize:
            raise ArchiveError(
                f"record size ({size} bytes) does not match expected size "
                f"({numel * itemsize} bytes = {numel} elements * {itemsize} bytes/element)",
                where=f"record {name!r}",
            )

    def check(self) -> None:
        """Tests the checksum of every record."""
        for name in self._zip.records:
            self._zip.check(name)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> PyTorchFileReader:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __del__(self) -> None:
        own = getattr(self, "_own", None)
        if own is not None:
            own.close()


def _opened(path: str) -> Any:
    try:
        return open(path, "rb")
    except OSError as error:
        raise ArchiveError(
            f"open file failed because of errno {error.errno} on fopen: {error.strerror}, file path: {path}"
        ) from None


def _root(archive: ZipReader) -> str:
    """The folder that every record is in."""
    if not archive.records:
        raise ArchiveError("the archive has no records")
    if "program.json" in archive.records:
        raise ArchiveError(
            "the file is a compiled model",
            why="load reads tensors",
            hint="weft.runtime.load(path), or weft.compile(path)",
        )
    first = next(iter(archive.records))
    root = first.partition("/")[0]
    for name in archive.records:
        if "/" not in name:
            raise ArchiveError(f"file in archive is not in a subdirectory: {name}")
        if name.partition("/")[0] != root:
            raise ArchiveError(f"file in archive is not in the folder {root!r}: {name}")
    return root
