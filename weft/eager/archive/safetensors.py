"""safetensors: tensors by name, in a file of a JSON header and their bytes and nothing else."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...base.errors import InvalidType, Unsupported
from ..functions.misuse import typed_errors
from ..tensor.memory import array_of
from ..tensor.storage import UntypedStorage, allocate
from ..tensor.tensor import Tensor, wrap
from ..tensor.types import DTYPE_NAMES, dtype
from .errors import ArchiveError, NotAFile, shown
from .replace import replacing

_CODES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
_CODE_OF = {name: code for code, name in _CODES.items()}
_FOREIGN = ("F8_E5M2", "F8_E4M3", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4")
_MAX_HEADER = 100_000_000
_MAX_RANK = 64
_METADATA = "__metadata__"


@typed_errors
def save_safetensors(tensors: Mapping[str, Tensor], f: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors by name to a path or a file. Each is stored by itself, row-major."""
    header = _header(tensors, metadata)
    if isinstance(f, (str, os.PathLike)):
        with replacing(os.fspath(f)) as file:
            _write(file, header, tensors)
    elif callable(getattr(f, "write", None)):
        _write(f, header, tensors)
    else:
        raise NotAFile("expected 'f' to be a path or an object with a 'write' attribute")


def _order(tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Wide elements first, so that all start at a multiple of their size; then by name."""
    return sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
    fields: dict[str, Any] = {}
    if metadata is not None:
        _check_metadata(metadata, InvalidType)
        fields[_METADATA] = dict(metadata)
    for name, tensor in tensors.items():
        if type(name) is not str or name == _METADATA or not isinstance(tensor, Tensor):
            raise InvalidType(f"safetensors holds tensors by name, not {name!r:.60}")
        if tensor.dtype.name not in _CODE_OF:
            raise Unsupported(f"safetensors has no {tensor.dtype.name}, which {name!r} is of")
    at = 0
    for name, tensor in _order(tensors):
        end = at + tensor.numel() * tensor.itemsize
        code = _CODE_OF[tensor.dtype.name]
        fields[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-len(text) % 8)


def _write(file: Any, header: bytes, tensors: Mapping[str, Tensor]) -> None:
    file.write(struct.pack("<Q", len(header)))
    file.write(header)
    for _, tensor in _order(tensors):
        array = np.ascontiguousarray(array_of(tensor))
        if array.size:
            file.write(array.reshape(-1).view(np.uint8).data)


@typed_errors
def load_safetensors(f: Any) -> dict[str, Tensor]:
    """Reads all tensors from a path, a file, or bytes."""
    return read_safetensors(f)[0]


@typed_errors
def read_safetensors(f: Any) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Reads all tensors and the metadata beside them."""
    data = _content(f)
    if len(data) < 8:
        raise ArchiveError("no safetensors file: it has less than 8 bytes")
    (size,) = struct.unpack_from("<Q", data)
    if size > min(_MAX_HEADER, len(data) - 8):
        raise ArchiveError(
            f"safetensors header of {size} bytes is larger than the file of {len(data)} bytes"
            if size > len(data) - 8
            else f"safetensors header of {size} bytes is too large"
        )
    fields = _parse(bytes(data[8 : 8 + size]))
    metadata = fields.pop(_METADATA, {})
    _check_metadata(metadata, ArchiveError)
    entries = {name: _entry(name, field) for name, field in fields.items()}
    body = data[8 + size :]
    _check_cover(entries, len(body))
    return {name: _tensor(entry, body) for name, entry in entries.items()}, metadata


def _content(f: Any) -> memoryview:
    if isinstance(f, (bytes, bytearray, memoryview)):
        return memoryview(f).cast("B")
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return memoryview(file.read())
    if not callable(getattr(f, "read", None)):
        raise NotAFile("expected 'f' to be a path, bytes, or an object with a 'read' attribute")
    return memoryview(f.read())


def _parse(text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ArchiveError("a name is in the safetensors header twice")
        return made

    if text[:1] != b"{":
        raise ArchiveError("safetensors header does not start with '{'")
    try:
        fields = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except ArchiveError:
        raise
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or numbers too long
        raise ArchiveError("safetensors header is no JSON", why=str(error)) from None
    if type(fields) is not dict:
        raise ArchiveError("safetensors header is no object")
    return fields


def _check_metadata(metadata: Any, error: type[Exception]) -> None:
    plain = isinstance(metadata, Mapping) and all(
        type(key) is str and type(value) is str for key, value in metadata.items()
    )
    if not plain:
        raise error("safetensors metadata is text by name")


Entry = tuple[dtype, tuple[int, ...], int, int]  # dtype, shape, first byte, the byte after the last


def _entry(name: str, field: Any) -> Entry:
    where = f"tensor {name!r:.60}"
    if type(field) is not dict or set(field) != {"dtype", "shape", "data_offsets"}:
        raise ArchiveError("a safetensors entry has dtype, shape and data_offsets", where=where)
    code, shape, offsets = field["dtype"], field["shape"], field["data_offsets"]
    if code in _FOREIGN:
        raise Unsupported(f"elements of type {code}")
    if type(code) is not str or code not in _CODES:
        raise ArchiveError(f"unknown element type {shown(code)}", where=where)
    if not _are_extents(shape) or len(shape) > _MAX_RANK:
        raise ArchiveError("shape is no list of sizes", where=where)
    if not _are_extents(offsets) or len(offsets) != 2:
        raise ArchiveError("data_offsets are no two offsets", where=where)
    kind = DTYPE_NAMES[_CODES[code]]
    if offsets[1] - offsets[0] != math.prod(shape) * kind.itemsize:
        raise ArchiveError(f"{offsets[1] - offsets[0]} bytes for shape {shape} of {kind.name}", where=where)
    return kind, tuple(shape), offsets[0], offsets[1]


def _are_extents(values: Any) -> bool:
    return type(values) is list and all(type(v) is int and 0 <= v < 2**62 for v in values)


def _check_cover(entries: Mapping[str, Entry], length: int) -> None:
    """Tensors lie one after the other, without holes, and end with the file."""
    at = 0
    for name, (_, _, start, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if start != at:
            raise ArchiveError(f"tensor {name!r:.60} starts at byte {start}, the one before it ends at {at}")
        at = end
    if at != length:
        raise ArchiveError(f"tensors take {at} bytes, the file has {length}")


def _tensor(entry: Entry, body: memoryview) -> Tensor:
    kind, shape, start, end = entry
    memory = allocate(end - start)
    memory.data[:] = body[start:end]
    if kind.name == "bool":
        memory[...] = memory != 0
    made = wrap(memory.view(kind.numpy).reshape(shape))
    made._storage, made._start = UntypedStorage._over(memory, resizable=True), 0
    made._storage._adopt(made)
    return made
