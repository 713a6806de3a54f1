"""A strict reader of zip files: a seekable file comes in, records come out by name, each checked
against its header, its size and its checksum."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO

from ...base.errors import Unsupported
from .errors import ArchiveError

_END = struct.Struct("<4s4H2IH")
_END64_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_COMMENT_LIMIT = 65535
_UINT16, _UINT32 = 0xFFFF, 0xFFFFFFFF
STORED, DEFLATED = 0, 8
_ENCRYPTED = 1
_UTF8 = 1 << 11
# Deflate packs 258 bytes into two bits at best: nothing honest grows more than this.
_MAX_GROWTH = 1032
# A whole archive may unpack to this much, or to this many times its size.
_BOMB_BYTES, _BOMB_GROWTH = 1 << 28, 100
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """One file of the archive."""

    name: str
    method: int
    checksum: int
    packed_size: int
    size: int
    header: int  # where its local header starts


class ZipReader:
    """The records of a zip file. Names are unique and relative; every other form is refused."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.length = file.seek(0, 2)
        count, size, start = self._find_directory()
        self.records: dict[str, Record] = {}
        self._read_directory(count, size, start)
        self._check_overlap(start)
        self._check_bomb()

    def _read_at(self, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0 or offset + size > self.length:
            raise ArchiveError(
                "zip file is truncated or damaged",
                why=f"bytes {offset} to {offset + size} are asked for, it has {self.length}",
            )
        self._file.seek(offset)
        data = self._file.read(size)
        if len(data) != size:
            raise ArchiveError(f"zip file ended after {len(data)} of {size} bytes")
        return data

    def _fill(self, offset: int, target: memoryview) -> None:
        """Reads bytes straight into memory, if the file can do that."""
        readinto = getattr(self._file, "readinto", None)
        if readinto is None or offset + len(target) > self.length:
            target[:] = self._read_at(offset, len(target))
            return
        self._file.seek(offset)
        filled = 0
        while filled < len(target):
            count = readinto(target[filled:])
            if not count:
                raise ArchiveError("zip file ended too early")
            filled += count

    def _find_directory(self) -> tuple[int, int, int]:
        """How many entries the directory has, its size and where it starts."""
        tail_start = max(0, self.length - _END.size - _COMMENT_LIMIT)
        tail = self._read_at(tail_start, self.length - tail_start)
        at = tail.rfind(b"PK\5\6")
        if at < 0 or at + _END.size > len(tail):
            raise ArchiveError(
                "PytorchStreamReader failed reading zip archive: not a ZIP archive",
                why="it has no end-of-directory record; the file may be truncated",
            )
        fields = _END.unpack_from(tail, at)
        if at + _END.size + fields[7] != len(tail):
            raise ArchiveError("zip file has bytes after its end")
        if fields[1] or fields[2] or fields[3] != fields[4]:
            raise Unsupported("a zip file in several parts")
        count, size, start = fields[4], fields[5], fields[6]
        end = tail_start + at
        wide = count == _UINT16 or _UINT32 in (size, start)
        if wide or self._has_locator(end):
            count, size, start, end = self._find_directory64(end)
            for short, long in zip(fields[4:7], (count, size, start)):
                if short not in (long, _UINT16, _UINT32):
                    raise ArchiveError("the two end records of the zip file contradict each other")
        if start + size != end:
            raise ArchiveError(
                "zip directory is not where the end record says",
                why=f"it has {size} bytes from {start}, but ends at {end}",
            )
        if count * _CENTRAL.size > size:
            raise ArchiveError(f"zip directory of {size} bytes cannot hold {count} entries")
        return count, size, start

    def _has_locator(self, end: int) -> bool:
        at = end - _END64_LOCATOR.size
        return at >= 0 and self._read_at(at, 4) == b"PK\6\7"

    def _find_directory64(self, end: int) -> tuple[int, int, int, int]:
        locator = _END64_LOCATOR.unpack(self._read_at(end - _END64_LOCATOR.size, _END64_LOCATOR.size))
        if locator[0] != b"PK\6\7" or locator[1] or locator[3] > 1:
            raise ArchiveError("zip64 locator is damaged")
        fields = _END64.unpack(self._read_at(locator[2], _END64.size))
        if fields[0] != b"PK\6\6" or fields[4] or fields[5] or fields[6] != fields[7]:
            raise ArchiveError("zip64 end record is damaged")
        return fields[7], fields[8], fields[9], locator[2]

    def _read_directory(self, count: int, size: int, start: int) -> None:
        data, at = self._read_at(start, size), 0
        for _ in range(count):
            if at + _CENTRAL.size > size:
                raise ArchiveError("zip directory is cut off")
            fields = _CENTRAL.unpack_from(data, at)
            name_at = at + _CENTRAL.size
            extra_at = name_at + fields[10]
            at = extra_at + fields[11] + fields[12]
            if fields[0] != b"PK\1\2" or at > size:
                raise ArchiveError("zip directory is damaged")
            name = _decoded(data[name_at:extra_at], fields[3])
            self._add(_record(name, fields, data[extra_at : extra_at + fields[11]]))
        if at != size:
            raise ArchiveError(f"zip directory has {size - at} bytes too many")

    def _add(self, record: Record) -> None:
        check_name(record.name)
        if record.name in self.records:
            raise ArchiveError(f"record {record.name!r} is in the archive twice")
        self.records[record.name] = record

    def _check_overlap(self, directory: int) -> None:
        """Records that share bytes are how small files unpack to huge ones."""
        end = 0
        for record in sorted(self.records.values(), key=lambda r: r.header):
            if record.header < end:
                raise ArchiveError(f"record {record.name!r} overlaps the one before it")
            end = record.header + _LOCAL.size + len(record.name.encode()) + record.packed_size
        if end > directory:
            raise ArchiveError("a record overlaps the directory of the archive")

    def _check_bomb(self) -> None:
        total = sum(record.size for record in self.records.values() if record.method != STORED)
        if total > max(_BOMB_BYTES, _BOMB_GROWTH * self.length):
            raise ArchiveError(
                f"archive of {self.length} bytes claims to unpack to {total} bytes",
                why="that is the pattern of a zip bomb",
            )

    def payload_offset(self, name: str) -> int:
        """Where the bytes of a record start; its headers agree, and it ends inside the file."""
        record = self._growth_checked(name)
        fields = _LOCAL.unpack(self._read_at(record.header, _LOCAL.size))
        if fields[0] != b"PK\3\4":
            raise ArchiveError(f"record {name!r} has no local header where the directory says")
        if fields[3] != record.method:
            raise ArchiveError(f"the two headers of record {name!r} contradict each other")
        local_name = self._read_at(record.header + _LOCAL.size, fields[9])
        if _decoded(local_name, fields[2]) != name:
            raise ArchiveError(f"the two headers of record {name!r} contradict each other")
        offset: int = record.header + _LOCAL.size + fields[9] + fields[10]
        if offset + record.packed_size > self.length:
            raise ArchiveError(f"record {name!r} is cut off")
        return offset

    def read(self, name: str) -> bytes:
        """The bytes of a record."""
        target = bytearray(self._growth_checked(name).size)
        self.read_into(name, memoryview(target))
        return bytes(target)

    def read_into(self, name: str, target: memoryview) -> None:
        """Fills memory of the record's size with its bytes."""
        record = self._growth_checked(name)
        if len(target) != record.size:
            raise ArchiveError(f"record {name!r} has {record.size} bytes, not {len(target)}")
        offset = self.payload_offset(name)
        if record.method == STORED:
            checksum = self._copy(offset, target)
        else:
            checksum = self._inflate(record, offset, target)
        _compare(record, checksum)

    def check(self, name: str) -> None:
        """Tests the checksum of a record; what is not packed is read a piece at a time."""
        record = self._growth_checked(name)
        if record.method != STORED:
            self.read(name)
            return
        offset, checksum = self.payload_offset(name), 0
        piece = memoryview(bytearray(min(record.size, _CHUNK)))
        for start in range(0, record.size, _CHUNK):
            part = piece[: record.size - start]
            self._fill(offset + start, part)
            checksum = zlib.crc32(part, checksum)
        _compare(record, checksum)

    def _growth_checked(self, name: str) -> Record:
        record = self.records[name]
        if record.method == STORED and record.size != record.packed_size:
            raise ArchiveError(f"record {name!r} is stored as it is, yet has two sizes")
        if record.size > record.packed_size * _MAX_GROWTH + _MAX_GROWTH:
            raise ArchiveError(
                f"record {name!r} claims to unpack from {record.packed_size} to "
                f"{record.size} bytes, which deflate cannot"
            )
        if record.packed_size > self.length:
            raise ArchiveError(f"record {name!r} is larger than the file")
        return record

    def _copy(self, offset: int, target: memoryview) -> int:
        checksum = 0
        for start in range(0, len(target), _CHUNK):
            part = target[start : start + _CHUNK]
            self._fill(offset + start, part)
            checksum = zlib.crc32(part, checksum)
        return checksum

    def _inflate(self, record: Record, offset: int, target: memoryview) -> int:
        """Unpacks chunk by chunk and never makes more than the record says it has."""
        machine = zlib.decompressobj(-zlib.MAX_WBITS)
        filled = checksum = 0
        try:
            for start in range(0, record.packed_size, _CHUNK):
                size = min(_CHUNK, record.packed_size - start)
                packed = self._read_at(offset + start, size)
                while packed and not machine.eof:
                    made = machine.decompress(packed, len(target) - filled + 1)
                    if len(made) > len(target) - filled:
                        raise ArchiveError(f"record {record.name!r} is larger than it says")
                    target[filled : filled + len(made)] = made
                    checksum = zlib.crc32(made, checksum)
                    filled += len(made)
                    packed = machine.unconsumed_tail
        except zlib.error as error:
            raise ArchiveError(f"record {record.name!r} is damaged", why=str(error)) from None
        if not machine.eof or filled != len(target):
            raise ArchiveError(f"record {record.name!r} is smaller than it says")
        return checksum


def check_name(name: str) -> None:
    """Refuses names that mean something outside the archive."""
    parts = name.removesuffix("/").split("/")
    if not name or "\0" in name or "\\" in name or ":" in parts[0]:
        raise ArchiveError(f"record name {name!r} is not allowed")
    if any(part in ("", ".", "..") for part in parts):
        raise ArchiveError(f"record name {name!r} is not a plain relative path")


def _decoded(name: bytes, flags: int) -> str:
    try:
        return name.decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError:
        raise ArchiveError(f"record name {name!r} is no text") from None


def _record(name: str, fields: tuple[Any, ...], extra: bytes) -> Record:
    flags, method, checksum = fields[3], fields[4], fields[7]
    if flags & _ENCRYPTED:
        raise Unsupported(f"record {name!r} is encrypted")
    if method not in (STORED, DEFLATED):
        raise Unsupported(f"record {name!r} is packed by method {method}")
    packed_size, size, header = fields[8], fields[9], fields[16]
    if _UINT32 in (packed_size, size, header):
        size, packed_size, header = _wide(name, extra, size, packed_size, header)
    return Record(name, method, checksum, packed_size, size, header)


def _wide(name: str, extra: bytes, *fields: int) -> list[int]:
    """The 64-bit values of those fields that do not fit into 32 bits, from the extra field 1."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            words = list(struct.unpack_from(f"<{size // 8}Q", extra[: at + 4 + size], at + 4))
            wanted = sum(field == _UINT32 for field in fields)
            if len(words) < wanted:
                break
            return [words.pop(0) if field == _UINT32 else field for field in fields]
        at += 4 + size
    raise ArchiveError(f"record {name!r} has no valid zip64 field")


def _compare(record: Record, checksum: int) -> None:
    if checksum != record.checksum:
        raise ArchiveError(
            f"record {record.name!r} is damaged",
            why=f"its checksum is {checksum:08x}, the archive says {record.checksum:08x}",
        )
