"""How dtypes look in LLVM: the type held in registers and the type held in memory."""

from __future__ import annotations

import struct

from ..base.dtype import DTYPES, DType, dtype_name
from ..base.errors import Unsupported

HALF_FLOATS = (DTYPES["float16"], DTYPES["bfloat16"])

_REGISTER = {
    "bool": "i1",
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_MEMORY = {**_REGISTER, "bool": "i8", "float16": "i16", "bfloat16": "i16"}
BITS = {"i1": 1, "i8": 8, "i16": 16, "bfloat": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}
FLOATS = ("float", "double")


def register_type(dtype: DType) -> str:
    """The LLVM type in which values of a dtype are computed: 16-bit floats are computed as float32.

    >>> register_type(DTYPES["bfloat16"]), register_type(DTYPES["bool"])
    ('float', 'i1')
    """
    return _lookup(_REGISTER, dtype)


def memory_type(dtype: DType) -> str:
    """The LLVM type in which values of a dtype lie in memory.

    >>> memory_type(DTYPES["bfloat16"]), memory_type(DTYPES["bool"])
    ('i16', 'i8')
    """
    return _lookup(_MEMORY, dtype)


def is_signed(dtype: DType) -> bool:
    return dtype.kind == "i"


def vector_of(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def literal(element: str, value: float) -> str:
    """A number as LLVM writes it, rounded to the element type.

    >>> literal("float", 0.1), literal("i8", -1)
    ('0x3FB99999A0000000', '-1')
    """
    if type(value) is int and 0 <= value < 1 << 31 and element in ("i64", "i32"):
        return str(value)
    if element == "double":
        return _hexadecimal(float(value))
    if element == "float":
        return _hexadecimal(_round_to_float(float(value)))
    if element == "i1":
        return "true" if value else "false"
    bits = BITS[element]
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def _hexadecimal(value: float) -> str:
    if value != value:
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _round_to_float(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _lookup(table: dict[str, str], dtype: DType) -> str:
    name = dtype_name(dtype)
    if name not in table:
        raise Unsupported(f"native code for {name}", hint="split it into real and imaginary parts")
    return table[name]
