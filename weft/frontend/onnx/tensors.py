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

from ...base.dtype import NAMED_DTYPES, DType, dtype_name, has_native_code
from ...base.errors import FormatError, Unsupported
from ...base.memory import require
from ...base.ndarray import NDArray

# ONNX's element types, some of which an older onnx does not know, and what weft calls them.
_NAME_OF = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "FLOAT8E8M0": "float8_e8m0fnu",
    "FLOAT6E2M3": "float6_e2m3fn",
    "FLOAT6E3M2": "float6_e3m2fn",
    "FLOAT4E2M1": "float4_e2m1fn",
}
DTYPE_OF: dict[int, DType] = {
    code: NAMED_DTYPES[name]
    for key, code in TensorProto.DataType.items()
    if (name := _NAME_OF.get(key, key.lower())) in NAMED_DTYPES
}
_NARROW_BITS = {
    NAMED_DTYPES[name]: bits
    for bits, names in {6: "float6_e2m3fn float6_e3m2fn", 4: "float4_e2m1fn int4 uint4", 2: "int2 uint2"}.items()
    for name in names.split()
}
# The types that models are written in.
CODE_OF: dict[DType | None, int] = {dtype: code for code, dtype in DTYPE_OF.items() if has_native_code(dtype)}
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # a pipe does not wait for its other end
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_ALLOW_LINKS = "if you trust the folder, as where a model hub made the links: from_onnx(path, links=True)"
_LARGEST = 1 << 48  # elements: more than any machine holds, and safe to multiply

_FIELD_OF: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.STRING: "string_data",
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
            why="weft has " + ", ".join(map(dtype_name, DTYPE_OF.values())),
        )
    return dtype


def to_numpy(tensor: TensorProto, where: str, folder: Folder | None = None, large: NDArray | None = None) -> np.ndarray:
    """The tensor as an array, of str where it holds text; `large`: the bytes that its raw_data had."""
    shape = checked_dims(tensor.dims, where)
    count = math.prod(shape)
    if tensor.HasField("segment"):
        raise Unsupported("tensors in segments are not supported", where=where)
    if tensor.data_type == TensorProto.STRING:
        return _text_array(tensor, shape, where)
    dtype = dtype_of(tensor.data_type, where)
    size = -(-count * _bits(dtype) // 8)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _from_bytes(_external_bytes(tensor, size, where, folder), dtype, shape)
    if tensor.HasField("raw_data"):
        data = tensor.raw_data if large is None else large.numpy()  # each access copies the first
        _check_stored(tensor, len(data), size, "bytes", where)
        return _from_bytes(data, dtype, shape)
    stored = len(getattr(tensor, _FIELD_OF.get(tensor.data_type, "int32_data")))
    _check_stored(tensor, stored, _stored_numbers(dtype, count), "elements", where)
    return numpy_helper.to_array(tensor)


def has_external_data(graph: onnx.GraphProto) -> bool:
    """Whether initialisers lie in other files."""
    sparse = [tensor for item in graph.sparse_initializer for tensor in (item.values, item.indices)]
    return any(tensor.data_location == TensorProto.EXTERNAL for tensor in (*graph.initializer, *sparse))


def sparse_to_numpy(sparse: onnx.SparseTensorProto, where: str, folder: Folder | None = None) -> np.ndarray:
    """A sparse tensor with all its zeros."""
    shape = checked_dims(sparse.dims, where)
    values = to_numpy(sparse.values, f"{where}, values", folder)
    places = to_numpy(sparse.indices, f"{where}, indices", folder)
    fits = values.ndim == 1 and places.ndim in (1, 2) and len(places) == len(values)
    if not fits or values.dtype == object or places.dtype != np.int64:
        raise FormatError(f"{values.shape} values of {values.dtype} at {places.shape} places", where=where)
    flat = places.ndim == 1  # one number a place, or one for each axis
    extents = (math.prod(shape),) if flat else shape
    places = places[:, None] if flat else places
    if places.shape[1] != len(extents) or ((places < 0) | (places >= np.array(extents))).any():
        raise FormatError("a sparse tensor has values outside of its shape", where=where)
    require(math.prod(shape) * values.dtype.itemsize, "a sparse tensor", where)
    dense = np.zeros(extents, values.dtype)
    dense[tuple(places.T)] = values
    return dense.reshape(shape)


def _bits(dtype: DType) -> int:
    """Of an element in a file, where those of less than a byte are packed; in memory each has a byte.

    >>> _bits(NAMED_DTYPES["int4"]), _bits(NAMED_DTYPES["bool"])
    (4, 8)
    """
    return _NARROW_BITS.get(dtype, 8 * dtype.itemsize)


def _stored_numbers(dtype: DType, count: int) -> int:
    """How many numbers stand for so many elements in a field that is no bytes."""
    if dtype.kind == "c":
        return 2 * count
    bits = _bits(dtype)
    return -(-count * bits // 8) if bits in (2, 4) else count


def _text_array(tensor: TensorProto, shape: tuple[int, ...], where: str) -> np.ndarray:
    _check_stored(tensor, len(tensor.string_data), math.prod(shape), "elements", where)
    made = np.empty(len(tensor.string_data), object)
    made[:] = [_text(item, tensor.name, where) for item in tensor.string_data]
    return made.reshape(shape)


def _unpacked(data: bytes | bytearray | np.ndarray, bits: int, count: int) -> np.ndarray:
    """Elements of 2, 4 or 6 bits, the lowest first, as a byte each.

    >>> _unpacked(bytes([0x21, 0x03]), 4, 3)
    array([1, 2, 3], dtype=uint8)
    """
    words: np.ndarray = np.frombuffer(data, np.uint8)
    if bits == 6:  # four elements in three bytes
        padded = np.zeros(-(-len(words) // 3) * 3, np.uint32)
        padded[: len(words)] = words
        words = padded.reshape(-1, 3) @ np.array([1, 1 << 8, 1 << 16], np.uint32)
    shifts = np.arange(0, 24 if bits == 6 else 8, bits, dtype=words.dtype)
    elements = (words[:, None] >> shifts) & ((1 << bits) - 1)
    return elements.astype(np.uint8, copy=False).reshape(-1)[:count]


def _from_bytes(data: bytes | bytearray | np.ndarray, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Little-endian, whatever the machine is."""
    if dtype in _NARROW_BITS:
        return _unpacked(data, _NARROW_BITS[dtype], math.prod(shape)).view(dtype).reshape(shape)
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
    """An attribute as a Python value: numbers, str, lists of them, an array, or a type as the file has it."""
    kinds = onnx.AttributeProto
    kind = attribute.type
    if kind == kinds.STRING:
        return _text(attribute.s, attribute.name, where)
    if kind == kinds.STRINGS:
        return [_text(item, attribute.name, where) for item in attribute.strings]
    if kind == kinds.SPARSE_TENSOR:
        return sparse_to_numpy(attribute.sparse_tensor, f"{where}, attribute {attribute.name!r}")
    if kind == kinds.TENSOR:
        return to_numpy(attribute.t, f"{where}, attribute {attribute.name!r}")
    fields = {kinds.INT: "i", kinds.FLOAT: "f", kinds.INTS: "ints", kinds.FLOATS: "floats", kinds.TYPE_PROTO: "tp"}
    field = fields.get(kind)
    if field is None:
        raise Unsupported(
            f"attribute {attribute.name!r} of this kind is not supported",
            where=where,
            why="subgraphs have no counterpart here",
        )
    value = getattr(attribute, field)
    return list(value) if field in ("ints", "floats") else value


def _text(data: bytes, name: str, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError(f"attribute {name!r} is not UTF-8 text", where=where) from None
