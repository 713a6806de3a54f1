"""Tensors of an ONNX file, as numpy arrays. Sizes are checked against the bytes that are there
before anything is allocated; external data never leaves the model's folder: not by its path, and
not by links, which an archive can bring with it, unless the caller allows those."""

from __future__ import annotations

import math
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ...base.dtype import DTYPES, DType
from ...base.errors import FormatError, Unsupported
from ...base.ndarray import NDArray

_TYPE_NAMES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.INT8: "int8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT8: "uint8",
    TensorProto.UINT16: "uint16",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
}
DTYPE_OF = {code: DTYPES[name] for code, name in _TYPE_NAMES.items()}
CODE_OF: dict[DType | None, int] = {dtype: code for code, dtype in DTYPE_OF.items()}
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # a pipe does not wait for its other end
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_ALLOW_LINKS = "if you trust the folder, as where a model hub made the links: from_onnx(path, links=True)"
_LARGEST = 1 << 48  # elements: more than any machine holds, and safe to multiply

_FIELD_OF: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}  # the other types are in int32_data


class Folder(NamedTuple):
    """Where external data lies, and whether links may lead out of there."""

    path: Path
    links: bool = False


def dtype_of(code: int, where: str) -> DType:
    """The dtype of an ONNX element type."""
    dtype = DTYPE_OF.get(code)
    if dtype is None:
        known = code in TensorProto.DataType.values()
        raise (Unsupported if known else FormatError)(
            f"element type {TensorProto.DataType.Name(code) if known else code} is not supported",
            where=where,
            why="weft has " + ", ".join(_TYPE_NAMES.values()),
        )
    return dtype


def to_numpy(tensor: TensorProto, where: str, folder: Folder | None = None, large: NDArray | None = None) -> np.ndarray:
    """The tensor as an array; `large`: the bytes that its raw_data had."""
    dtype = dtype_of(tensor.data_type, where)
    shape = checked_dims(tensor.dims, where)
    count = math.prod(shape)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _from_bytes(_external_bytes(tensor, count * dtype.itemsize, where, folder), dtype, shape)
    if tensor.HasField("segment"):
        raise Unsupported("tensors in segments are not supported", where=where)
    if tensor.HasField("raw_data"):
        data = tensor.raw_data if large is None else large.numpy()  # each access copies the first
        _check_stored(tensor, len(data), count * dtype.itemsize, "bytes", where)
        return _from_bytes(data, dtype, shape)
    stored = len(getattr(tensor, _FIELD_OF.get(tensor.data_type, "int32_data")))
    _check_stored(tensor, stored, count, "elements", where)
    return numpy_helper.to_array(tensor)


def _from_bytes(data: bytes | bytearray | np.ndarray, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Little-endian, whatever the machine is."""
    stored = dtype if dtype.isnative and sys.byteorder == "little" else dtype.newbyteorder("<")
    return np.frombuffer(data, stored).astype(dtype, copy=False).reshape(shape)


def symbol_name(text: str) -> str | None:
    """The name of a dimension; some exporters write a question mark where there is none."""
    return None if text in ("", "?") else text


def checked_dims(dims: Iterable[int], where: str) -> tuple[int, ...]:
    """Dimensions that are not negative and whose product is not absurd."""
    shape = tuple(int(dim) for dim in dims)
    if len(shape) > 64 or any(dim < 0 for dim in shape):
        raise FormatError(f"dimensions {shape[:8]} make no tensor", where=where)
    if math.prod(dim for dim in shape if dim) > _LARGEST:
        raise FormatError(f"dimensions {shape[:8]} are more than any machine holds", where=where)
    return shape


def _check_stored(tensor: TensorProto, stored: int, wanted: int, unit: str, where: str) -> None:
    if stored != wanted:
        raise FormatError(
            f"a tensor of shape {tuple(tensor.dims)} holds {stored} {unit}",
            where=where,
            why=f"its shape and type need {wanted}",
        )


def _external_bytes(tensor: TensorProto, size: int, where: str, folder: Folder | None) -> bytearray:
    if folder is None:
        raise FormatError(
            "the data is in another file, and the model was not read from a file",
            where=where,
            hint="give from_onnx the path of the model",
        )
    entries = {item.key: item.value for item in tensor.external_data}
    offset = _number(entries.get("offset", "0"), "offset", where)
    length = _number(entries.get("length", str(size)), "length", where)
    if length != size:
        raise FormatError(f"external data of {length} bytes for a tensor of {size} bytes", where=where)
    path = _inside(folder, entries.get("location", ""), where)
    return _read_range(path, folder.links, offset, size, where)


def _number(text: str, what: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise FormatError(f"{what} {text[:40]!r} of external data is no number", where=where)
    return int(text)


def _inside(folder: Folder, location: str, where: str) -> Path:
    """The path of external data: below the folder, by plain names."""
    pure = PurePosixPath(location)
    unsafe = (
        not pure.parts
        or pure.is_absolute()
        or PureWindowsPath(location).drive
        or ".." in pure.parts
        or "\\" in location
        or "\0" in location
    )
    if unsafe:
        raise FormatError(
            f"external data at {location[:200]!r} is outside the model's folder",
            where=where,
            why="it must be a relative path without '..'",
        )
    path = folder.path
    for part in pure.parts:
        path = path / part
        if path.is_symlink() and not folder.links:
            raise _linked(location, where)
    return path


def _linked(location: str, where: str) -> FormatError:
    return FormatError(
        f"external data at {location[:200]!r} is a link, which may lead outside the model's folder",
        where=where,
        hint=_ALLOW_LINKS,
    )


def _read_range(path: Path, links: bool, offset: int, size: int, where: str) -> bytearray:
    """A file with more than one name is a link too: another may be anywhere."""
    data = bytearray()
    try:
        with open(os.open(path, _OPEN_FLAGS | (0 if links else _NO_LINK)), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode) and not links:
                raise _linked(path.name, where)
            if not stat.S_ISREG(status.st_mode):
                raise FormatError(f"external data {path.name!r} is not a plain file", where=where)
            if offset + size > status.st_size:
                raise FormatError(
                    f"external data {path.name!r} ends at byte {status.st_size}",
                    where=where,
                    why=f"the tensor needs bytes {offset} to {offset + size}",
                )
            file.seek(offset)
            data = bytearray(size)
            file.readinto(data)
    except OSError as error:
        raise FormatError(f"cannot read external data {path.name!r}", where=where, why=error.strerror) from None
    return data


def attribute_value(attribute: onnx.AttributeProto, where: str) -> object:
    """An attribute as a Python value: numbers, str, lists of them, or an array."""
    kinds = onnx.AttributeProto
    kind = attribute.type
    if kind == kinds.STRING:
        return _text(attribute.s, attribute.name, where)
    if kind == kinds.STRINGS:
        return [_text(item, attribute.name, where) for item in attribute.strings]
    if kind == kinds.TENSOR:
        return to_numpy(attribute.t, f"{where}, attribute {attribute.name!r}")
    field = {kinds.INT: "i", kinds.FLOAT: "f", kinds.INTS: "ints", kinds.FLOATS: "floats"}.get(kind)
    if field is None:
        raise Unsupported(
            f"attribute {attribute.name!r} of this kind is not supported",
            where=where,
            why="subgraphs, sparse tensors and types have no counterpart",
        )
    value = getattr(attribute, field)
    return list(value) if field in ("ints", "floats") else value


def _text(data: bytes, name: str, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError(f"attribute {name!r} is not UTF-8 text", where=where) from None
