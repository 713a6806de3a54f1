"""A writer of zip files as PyTorch lays them out: stored, sizes after the data, every payload at a
multiple of the alignment."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from .errors import ArchiveError
from .zip_read import check_name

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_UINT16, _UINT32 = 0xFFFF, 0xFFFFFFFF
_FLAGS = 1 << 11 | 1 << 3  # names are UTF-8, sizes come after the data
_VERSION64 = 45


@dataclass(frozen=True, slots=True)
class _Written:
    name: bytes
    checksum: int
    size: int
    header: int


class ZipWriter:
    """Appends records to something with a `write` method."""

    def __init__(self, file: Any, alignment: int = 64, wide_from: int = _UINT32) -> None:
        self._file = file
        self._alignment = alignment
        self._wide_from = wide_from  # sizes and offsets from here on are written in 64 bits
        self._position = 0
        self.written: dict[str, _Written] = {}

    def _write(self, data: Any) -> None:
        self._file.write(data)
        self._position += len(data)

    def add(self, name: str, data: Any) -> None:
        """Writes one record; `data` has the buffer protocol."""
        check_name(name)
        if name in self.written:
            raise ArchiveError(f"Tried to serialize file twice: {name}")
        view = memoryview(data).cast("B")
        record = _Written(name.encode(), zlib.crc32(view), len(view), self._position)
        if len(record.name) > _UINT16:
            raise ArchiveError(f"record name of {len(record.name)} bytes is too long")
        wide = record.size >= self._wide_from
        self._write(self._header(record, wide))
        self._write(view)
        sizes = "<4sIQQ" if wide else "<4sIII"
        self._write(struct.pack(sizes, b"PK\7\10", record.checksum, record.size, record.size))
        self.written[name] = record

    def _header(self, record: _Written, wide: bool) -> bytes:
        extra = struct.pack("<HHQQ", 1, 16, 0, 0) if wide else b""
        before = self._position + _LOCAL.size + len(record.name) + len(extra) + 4
        padding = -before % self._alignment
        extra += struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        size = _UINT32 if wide else 0
        version = _VERSION64 if wide else 0
        fixed = (b"PK\3\4", version, _FLAGS, 0, 0, 0, 0, size, size, len(record.name), len(extra))
        return _LOCAL.pack(*fixed) + record.name + extra

    def finish(self) -> None:
        """Writes the directory of what was written."""
        start = self._position
        for record in self.written.values():
            self._write(self._entry(record))
        size, count = self._position - start, len(self.written)
        if max(size, start) >= self._wide_from or count >= _UINT16:
            self._write_end64(count, size, start)
        short = (min(count, _UINT16), min(count, _UINT16), self._narrow(size), self._narrow(start))
        self._write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, *short, 0))

    def _narrow(self, value: int) -> int:
        return value if value < self._wide_from else _UINT32

    def _entry(self, record: _Written) -> bytes:
        size, header = self._narrow(record.size), self._narrow(record.header)
        words = [record.size] * 2 if size == _UINT32 else []
        words += [record.header] if header == _UINT32 else []
        extra = struct.pack(f"<HH{len(words)}Q", 1, 8 * len(words), *words) if words else b""
        version = _VERSION64 if words else 0
        fixed = (b"PK\1\2", 0, version, _FLAGS, 0, 0, 0, record.checksum, size, size)
        rest = (len(record.name), len(extra), 0, 0, 0, 0, header)
        return _CENTRAL.pack(*fixed, *rest) + record.name + extra

    def _write_end64(self, count: int, size: int, start: int) -> None:
        at = self._position
        fields = (44, _VERSION64, _VERSION64, 0, 0, count, count, size, start)
        self._write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", *fields))
        self._write(struct.pack("<4sIQI", b"PK\6\7", 0, at, 1))
