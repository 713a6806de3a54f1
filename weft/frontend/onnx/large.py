"""A file comes in; its bytes without the large tensors, and those in memory of their own, go out.

protobuf would copy them when it parses the file and again when they are looked at. What is said
here about an ONNX file is its layout in protobuf's wire format: a field is a key (its number, and
how its length is told), then its content.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...base.errors import RunError
from ...base.memory import require
from ...base.ndarray import OWN_PAGES, NDArray, own_array

LARGE = OWN_PAGES  # bytes of a tensor, from which on it is read by itself
WINDOW = 1 << 16
GRAPH, FUNCTIONS = 7, 25  # fields of a ModelProto
INITIALIZER = 5  # of a GraphProto
RAW_DATA = 9  # of a TensorProto
BYTE = np.dtype("uint8")
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # how the end of a field is told


class WithoutLarge(NamedTuple):
    """A model whose large initialisers have empty raw_data; their bytes, by position."""

    data: bytes
    tensors: dict[int, NDArray]


class _Field(NamedTuple):
    number: int
    kind: int
    start: int
    content: int
    end: int


class _Odd(Exception):
    """Something that this file does not understand, which is left to protobuf."""


def read_without_large(path: Path) -> WithoutLarge | None:
    """The file; None where it is small, or not as simple as most are, or cannot be read."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return _Cutter(file).model(size) if size >= LARGE else None
    except (_Odd, OSError, RunError):
        return None


class _Cutter:
    def __init__(self, file: BufferedReader) -> None:
        self.file = file
        self.raw: dict[int, _Field] = {}  # of large initialisers, by position
        self._window, self._at = b"", 0

    def model(self, size: int) -> WithoutLarge | None:
        parts: list[bytes] = []
        graphs = 0
        for field in self._fields(0, size):
            if field.number == FUNCTIONS:
                raise _Odd
            if field.number != GRAPH:
                parts.append(self._read(field.start, field.end))
                continue
            graphs += 1
            parts += _delimited(GRAPH, self._graph(field))
        if graphs != 1 or not self.raw:
            raise _Odd
        return WithoutLarge(b"".join(parts), self._read_tensors())

    def _graph(self, graph: _Field) -> list[bytes]:
        parts: list[bytes] = []
        copied, number = graph.content, 0
        for field in self._fields(*_inside(graph)):
            if field.number != INITIALIZER:
                continue
            raw = self._raw_data(field)
            if raw is not None:
                self.raw[number] = raw
                empty_raw = bytes([RAW_DATA << 3 | BYTES, 0])
                before, after = (field.content, raw.start), (raw.end, field.end)
                kept = [self._read(*before), empty_raw, self._read(*after)]
                parts += [self._read(copied, field.start), *_delimited(INITIALIZER, kept)]
                copied = field.end
            number += 1
        return [*parts, self._read(copied, graph.end)]

    def _raw_data(self, tensor: _Field) -> _Field | None:
        """The one field that holds the elements, if they are many."""
        if tensor.end - tensor.content < LARGE:
            return None
        raw = [field for field in self._fields(*_inside(tensor)) if field.number == RAW_DATA]
        if len(raw) != 1 or raw[0].kind != BYTES:
            return None
        return raw[0] if raw[0].end - raw[0].content >= LARGE else None

    def _read_tensors(self) -> dict[int, NDArray]:
        """Each in memory that goes back to the system with it, whatever becomes of the others. All are made first: the
        system joins what is side by side, and gives it in large pages."""
        require(sum(raw.end - raw.content for raw in self.raw.values()), "all large tensors of the file")
        tensors = {number: NDArray(own_array((raw.end - raw.content,), BYTE)) for number, raw in self.raw.items()}
        for number, raw in self.raw.items():
            memory = tensors[number].numpy()
            self.file.seek(raw.content)
            if self.file.readinto(memory.data) != memory.nbytes:
                raise _Odd
        return tensors

    # The wire format

    def _fields(self, at: int, end: int) -> Iterator[_Field]:
        while at < end:
            start = at
            key, at = self._varint(at)
            kind, content = key & 7, at
            if kind == VARINT:
                _, at = self._varint(at)
            elif kind in (FIXED64, FIXED32):
                at += 8 if kind == FIXED64 else 4
            elif kind == BYTES:
                length, content = self._varint(at)
                at = content + length
            else:
                raise _Odd
            if at > end:
                raise _Odd
            yield _Field(key >> 3, kind, start, content, at)

    def _varint(self, at: int) -> tuple[int, int]:
        """A number of seven bits a byte, the lowest first; the last byte is below 128."""
        value = 0
        for shift in range(0, 64, 7):
            byte = self._byte(at)
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
        raise _Odd

    def _byte(self, at: int) -> int:
        if not 0 <= at - self._at < len(self._window):
            self._window, self._at = self._read(at, at + WINDOW, exact=False), at
            if not self._window:
                raise _Odd
        return self._window[at - self._at]

    def _read(self, start: int, end: int, exact: bool = True) -> bytes:
        self.file.seek(start)
        data = self.file.read(end - start)
        if exact and len(data) != end - start:
            raise _Odd
        return data


def _inside(field: _Field) -> tuple[int, int]:
    if field.kind != BYTES:
        raise _Odd
    return field.content, field.end


def _delimited(number: int, parts: list[bytes]) -> list[bytes]:
    """A field around its content."""
    return [_varint_of(number << 3 | BYTES), _varint_of(sum(map(len, parts))), *parts]


def _varint_of(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
