"""Reads .params files of every MXNet version: bytes come in; arrays, by name or in order, go out.

All numbers are little-endian. A file is u64 0x112, u64 0, u64 count, the arrays, u64 number of
names, the names. Arrays are views of the file's bytes; sparse ones stay as they are stored until
`dense` is asked for, so that what is read is never larger than the file.
"""

from __future__ import annotations

import os
import struct
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...base.dtype import DTYPES, DType
from ...base.errors import FormatError, InvalidType, Unsupported
from ..reading import read_bytes

_FILE_MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DENSE, _ROW_SPARSE, _CSR = 0, 1, 2
_AUX_ARRAYS = {_DENSE: 0, _ROW_SPARSE: 1, _CSR: 2}
_MOST_AXES = 32
_LARGEST_EXTENT = 1 << 48
# A sparse array may be made dense up to this size, or this many times what is stored of it.
_DENSE_BYTES, _DENSE_FACTOR = 1 << 26, 1 << 10
_DTYPE_CODES = ("float32 float64 float16 uint8 int32 int8 int64 bool int16 uint16 uint32 uint64 bfloat16").split()

Array = np.ndarray[Any, np.dtype[Any]]


def dtype_of_code(code: int, where: str | None = None) -> DType:
    """The dtype that MXNet's files call by a number."""
    if not 0 <= code < len(_DTYPE_CODES):
        raise FormatError(f"unknown dtype code {code}", where=where)
    return DTYPES[_DTYPE_CODES[code]]


class SparseArray(NamedTuple):
    """An array of which only some rows ("row_sparse") or elements ("csr") are stored.

    `places` are the row numbers; for csr, where each row starts among the elements, and columns.
    """

    kind: str
    shape: tuple[int, ...]
    data: Array
    places: tuple[Array, ...]

    def dense(self) -> Array:
        """All elements, with zeros for those that are not stored."""
        size = prod(self.shape) * self.data.dtype.itemsize
        if size > max(_DENSE_BYTES, _DENSE_FACTOR * self.data.nbytes):
            raise Unsupported(f"a {self.kind} array of shape {self.shape} is too large as a whole")
        full = np.zeros(self.shape, self.data.dtype)
        if self.kind == "row_sparse":
            full[_within(self.places[0], self.shape[0])] = self.data
        else:
            starts, columns = self.places
            rows = np.repeat(np.arange(self.shape[0]), np.diff(starts))
            full[rows, _within(columns, self.shape[1])] = self.data
        return full


def _within(places: Array, extent: int) -> Array:
    if places.size and not (places.min() >= 0 and places.max() < extent):
        raise FormatError(f"a sparse array has an element outside its extent of {extent}")
    return places


Stored = Array | SparseArray


def read_params(source: object) -> dict[str, Stored]:
    """The arrays of a file, given as a path or as bytes, by name; names are as in the file, such
    as "arg:fc1_weight". A file without names gives "0", "1"...
    """
    data, where = _bytes_of(source)
    try:
        return _Reader(memoryview(data)).file()
    except FormatError as error:
        error.at(where)
        raise


def _bytes_of(source: object) -> tuple[bytes, str]:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), "bytes"
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidType(f"parameters are a path or bytes, not {type(source).__name__}")
    return read_bytes(Path(source), "parameter file"), str(source)


class _Reader:
    """A place in the bytes; every claim is compared with what is left before it is believed."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def file(self) -> dict[str, Stored]:
        magic, _ = self.numbers("<QQ")
        if magic != _FILE_MAGIC:
            raise FormatError("this is not an MXNet parameter file")
        arrays = [self.array() for _ in range(self.count(4, "arrays"))]
        names = [self.name() for _ in range(self.count(8, "names"))]
        if names and len(names) != len(arrays):
            raise FormatError(f"{len(names)} names for {len(arrays)} arrays")
        if self.at != len(self.data):
            raise FormatError(f"{len(self.data) - self.at} bytes follow the end")
        by_name = dict(zip(names or map(str, range(len(arrays))), arrays))
        if len(by_name) != len(arrays):
            raise FormatError("two arrays have the same name")
        return by_name

    # Pieces.

    def take(self, size: int, what: str) -> memoryview:
        left = len(self.data) - self.at
        if size > left:
            raise FormatError(
                f"{what} would take {size} bytes, and {left} are left", why="the file is truncated or damaged"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form), "a number"))

    def count(self, smallest: int, what: str) -> int:
        """How many items follow, of at least `smallest` bytes each."""
        (count,) = self.numbers("<Q")
        left = len(self.data) - self.at
        if count * smallest > left:
            raise FormatError(f"{count} {what} do not fit in the {left} bytes that are left")
        return count

    def name(self) -> str:
        (size,) = self.numbers("<Q")
        try:
            return str(self.take(size, "a name"), "utf-8")
        except UnicodeDecodeError:
            raise FormatError("a name is not UTF-8 text") from None

    def shape(self, dim: str = "q") -> tuple[int, ...] | None:
        """Dimensions of 64 bits, or of 32 in the oldest files; None where it is unknown."""
        (rank,) = self.numbers("<i")
        if rank == -1:
            return None
        return self.dims(rank, dim)

    def dims(self, rank: int, dim: str) -> tuple[int, ...]:
        if not 0 <= rank <= _MOST_AXES:
            raise FormatError(f"an array of {rank} dimensions")
        dims = self.numbers(f"<{rank}{dim}")
        if any(extent < 0 for extent in dims):
            raise FormatError(f"the shape {dims} is negative")
        return dims

    def dtype(self) -> DType:
        (code,) = self.numbers("<i")
        return dtype_of_code(code)

    def elements(self, shape: tuple[int, ...], dtype: DType) -> Array:
        if prod(filter(None, shape)) > _LARGEST_EXTENT:
            raise FormatError(f"the shape {shape} is more than any machine holds")
        raw = self.take(prod(shape) * dtype.itemsize, f"an array of shape {shape}")
        if not raw.nbytes:
            return np.zeros(shape, dtype)
        if dtype == DTYPES["bool"] and np.frombuffer(raw, np.uint8).max() > 1:
            raise FormatError("a bool is neither 0 nor 1")
        return np.frombuffer(raw, dtype).reshape(shape)

    # Arrays.

    def array(self) -> Stored:
        (magic,) = self.numbers("<I")
        if magic in (_V2, _V3):
            return self.modern(magic == _V3)
        shape = self.shape() if magic == _V1 else self.dims(magic, "I")
        return self.plain(shape or ())

    def plain(self, shape: tuple[int, ...], scalar: bool = False) -> Array:
        """Device, dtype and elements; nothing at all where there are no dimensions."""
        if not shape and not scalar:
            return np.zeros(0, np.float32)
        self.numbers("<ii")
        return self.elements(shape, self.dtype())

    def modern(self, scalars: bool) -> Stored:
        (storage,) = self.numbers("<i")
        if storage not in _AUX_ARRAYS or (scalars and storage != _DENSE):
            raise FormatError(f"unknown storage type {storage}")
        if storage != _DENSE:
            self.shape()  # of what is stored; it can be stale, so the places decide
        shape = self.shape()
        if shape is None:
            return np.zeros(0, np.float32)
        if storage == _DENSE or not shape:
            return self.plain(shape, scalars)
        return self.sparse(storage, shape)

    def sparse(self, storage: int, shape: tuple[int, ...]) -> SparseArray:
        self.numbers("<ii")
        dtype = self.dtype()
        kinds = [(self.dtype(), self.shape() or ()) for _ in range(_AUX_ARRAYS[storage])]
        if any(kind.kind not in "iu" or len(dims) != 1 for kind, dims in kinds):
            raise FormatError("the places of a sparse array are not lists of integers")
        stored = kinds[-1][1][0]
        rest = shape[1:] if storage == _ROW_SPARSE else ()
        data = self.elements((stored, *rest), dtype)
        places = tuple(self.elements(dims, kind) for kind, dims in kinds)
        if storage == _CSR:
            _check_csr(shape, places[0], stored)
        return SparseArray(("row_sparse", "csr")[storage - 1], shape, data, places)


def _check_csr(shape: tuple[int, ...], starts: Array, stored: int) -> None:
    fits = len(shape) == 2 and len(starts) == shape[0] + 1
    if not fits or starts[0] != 0 or starts[-1] != stored or (np.diff(starts) < 0).any():
        raise FormatError(f"the rows of a csr array of shape {shape} do not add up")
