"""Parameters as bytes, in the format that NNVM and TVM share: names, then arrays."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from .dtype import DType, as_dtype, dtype_name
from .errors import DTypeError, Error, FormatError, InvalidType
from .ndarray import NDArray, array

LIST_MAGIC = 0xF7E58D4F05049CB7
ARRAY_MAGIC = 0xDD5E40F096B4A13F
MAX_DIMENSIONS = 32

# DLPack's (code, bits) of each dtype
_TYPE_OF: dict[str, tuple[int, int]] = {
    "bool": (1, 1),
    "bfloat16": (4, 16),
    "complex64": (5, 64),
    "complex128": (5, 128),
    **{f"int{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    **{f"{sign}int{bits}": (code, bits) for code, sign in enumerate(("", "u")) for bits in (2, 4)},
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
    "float6_e2m3fn": (15, 6),
    "float6_e3m2fn": (16, 6),
    "float4_e2m1fn": (17, 4),
}
_NAME_OF = {pair: name for name, pair in _TYPE_OF.items()}


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """Named arrays as bytes.

    >>> load_param_dict(save_param_dict({"w": np.ones(3, "float32")}))["w"].asnumpy()
    array([1., 1., 1.], dtype=float32)
    """
    if not isinstance(params, Mapping):
        raise InvalidType(f"parameters are a dict from name to array, not {type(params).__name__}")
    out = bytearray(struct.pack("<QQQ", LIST_MAGIC, 0, len(params)))
    for name in params:
        if not isinstance(name, str):
            raise InvalidType(f"a parameter's name must be a str, not {name!r}")
        raw = name.encode()
        out += struct.pack("<Q", len(raw)) + raw
    out += struct.pack("<Q", len(params))
    for name, value in params.items():
        data = _as_array(name, value)
        out += _array_header(data.dtype, data.shape, data.nbytes) + data.tobytes()
    return out


def _as_array(name: str, value: Any) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        data = value.numpy() if isinstance(value, NDArray) else np.asarray(value)
        data = data.astype(data.dtype.newbyteorder("<"), copy=False)
        if dtype_name(data.dtype) in _TYPE_OF:
            return data
    except Error as error:
        error.at(f"parameter {name!r}")
        raise
    raise DTypeError(f"parameters of {data.dtype} cannot be saved", where=f"parameter {name!r}")


def _array_header(dtype: DType, shape: tuple[int, ...], size: int) -> bytes:
    code, bits = _TYPE_OF[dtype_name(dtype)]
    head = struct.pack("<QQiiiBBH", ARRAY_MAGIC, 0, 1, 0, len(shape), code, bits, 1)
    return head + struct.pack(f"<{len(shape)}q", *shape) + struct.pack("<q", size)


def load_param_dict(data: bytes | bytearray | memoryview) -> dict[str, NDArray]:
    """The arrays that `save_param_dict`, or TVM, wrote. Every count is checked against the bytes
    there are before anything is made."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidType(f"parameters are read from bytes, not from {type(data).__name__}")
    reader = _Reader(bytes(data))
    reader.expect(LIST_MAGIC, "the list of parameters")
    names = [reader.name() for _ in range(reader.count("names", 8))]
    count = reader.count("arrays", 8)
    if count != len(names):
        raise FormatError(f"invalid parameters: {len(names)} names for {count} arrays")
    if len(set(names)) != len(names):
        raise FormatError("invalid parameters: a name is there twice")
    params = {name: reader.array(name) for name in names}
    if reader.position != len(reader.data):
        raise FormatError(f"invalid parameters: {len(reader.data) - reader.position} bytes are left over")
    return params


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int, what: str) -> bytes:
        if size < 0 or size > len(self.data) - self.position:
            raise FormatError(
                f"invalid parameters: {what} needs {size} bytes",
                where=f"byte {self.position}",
                why=f"{len(self.data) - self.position} bytes are left",
            )
        self.position += size
        return self.data[self.position - size : self.position]

    def numbers(self, form: str, what: str) -> tuple[int, ...]:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form), what))

    def expect(self, magic: int, what: str) -> None:
        found, _ = self.numbers("QQ", what)
        if found != magic:
            raise FormatError(
                "invalid parameters file format",
                where=f"byte {self.position - 16}, {what}",
                why=f"it begins with {found:#x}, not {magic:#x}",
            )

    def count(self, what: str, least_bytes: int) -> int:
        (number,) = self.numbers("Q", what)
        if number * least_bytes > len(self.data) - self.position:
            raise FormatError(f"invalid parameters: {number} {what} cannot be in this file")
        return number

    def name(self) -> str:
        (size,) = self.numbers("Q", "the length of a name")
        try:
            return self.take(size, "a name").decode()
        except UnicodeDecodeError as error:
            raise FormatError("invalid parameters: a name is no text", why=str(error)) from None

    def array(self, name: str) -> NDArray:
        where = f"array {name!r}"
        self.expect(ARRAY_MAGIC, where)
        _, _, rank, code, bits, lanes = self.numbers("iiiBBH", where)
        if not 0 <= rank <= MAX_DIMENSIONS or (code, bits) not in _NAME_OF or lanes != 1:
            raise FormatError(f"invalid parameters: {rank} dimensions of type {code}:{bits}x{lanes}", where=where)
        shape = self.numbers(f"{rank}q", where)
        (size,) = self.numbers("q", where)
        dtype = as_dtype(_NAME_OF[code, bits])
        if any(dim < 0 for dim in shape) or prod(shape) * dtype.itemsize != size:
            what = f"invalid parameters: {shape} of {dtype} in {size} bytes"
            raise FormatError(what, where=where)
        return array(np.frombuffer(self.take(size, where), dtype).reshape(shape))
