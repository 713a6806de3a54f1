"""Casts between dtypes, and 16-bit floats to and from the float32 they are computed in.

A float outside the range of an integer type becomes what x86 and numpy make of it: the smallest
integer of the width it is converted in (32 or 64 bits), then cut to the type.
"""

from __future__ import annotations

from ..base.dtype import BOOL, DTYPES, DType, is_float
from .builder import Builder, Value
from .llvm_types import BITS, HALF_FLOATS, is_signed, register_type

BFLOAT16 = DTYPES["bfloat16"]


def cast(b: Builder, x: Value, source: DType, target: DType) -> Value:
    """A value of one dtype as another."""
    if source == target:
        return x
    if target == BOOL:
        return b.compare("une" if is_float(source) else "ne", x, b.like(x, 0))
    if is_float(target):
        return _to_float(b, x, source, target)
    if source == BOOL:
        return b.convert("zext", x, register_type(target))
    if is_float(source):
        return _float_to_integer(b, x, target)
    return resize(b, x, register_type(target), is_signed(source))


def resize(b: Builder, x: Value, element: str, signed: bool) -> Value:
    """An integer cut or extended to another width."""
    if BITS[element] < BITS[x.element]:
        return b.convert("trunc", x, element)
    return b.convert("sext" if signed else "zext", x, element)


def _to_float(b: Builder, x: Value, source: DType, target: DType) -> Value:
    element = register_type(target)
    if not is_float(source):
        x = b.convert("sitofp" if is_signed(source) else "uitofp", x, element)
    elif x.element == "double" and element == "float":
        x = _round_to_odd(b, x) if target in HALF_FLOATS else b.convert("fptrunc", x, element)
    elif x.element != element:
        x = b.convert("fpext", x, element)
    if target in HALF_FLOATS:
        return from_memory(b, to_memory(b, x, target), target)
    return x


def _round_to_odd(b: Builder, x: Value) -> Value:
    """double to float so that a second rounding, to 16 bits, gives what one rounding would."""
    short = b.convert("fptrunc", x, "float")
    back = b.convert("fpext", short, "double")
    pattern = b.bits(short)
    one = b.like(pattern, 1)
    even = b.compare("eq", b.binary("and", pattern, one), b.like(pattern, 0))
    inexact = b.compare("one", back, x)
    below = b.compare("olt", b.fabs(back), b.fabs(x))
    step = b.select(below, one, b.like(pattern, -1))
    moved = b.from_bits(b.binary("add", pattern, step))
    return b.select(b.binary("and", even, inexact), moved, short)


def _float_to_integer(b: Builder, x: Value, target: DType) -> Value:
    element = register_type(target)
    width = "i64" if BITS[element] == 64 or (element == "i32" and not is_signed(target)) else "i32"
    result = truncated(b, x, width)
    if element == "i64" and not is_signed(target):
        half = b.like(x, 2.0**63)
        upper = truncated(b, b.sub(x, half), "i64")
        upper = b.binary("xor", upper, b.like(upper, -(2**63)))
        result = b.select(b.compare("oge", x, half), upper, result)
    return b.convert("trunc", result, element) if element != width else result


def truncated(b: Builder, x: Value, element: str) -> Value:
    """A float rounded towards zero; the smallest integer when it is NaN or does not fit."""
    limit = 2.0 ** (BITS[element] - 1)
    # In double, one below the smallest int32 is a number of its own and still truncates into it.
    exact = x.element == "double" and element == "i32"
    low = b.compare("ogt", x, b.like(x, -limit - 1)) if exact else None
    low = low or b.compare("oge", x, b.like(x, -limit))
    fits = b.binary("and", low, b.compare("olt", x, b.like(x, limit)))
    whole = b.convert("fptosi", x, element)
    return b.select(fits, whole, b.like(whole, -limit))


def from_memory(b: Builder, x: Value, dtype: DType) -> Value:
    """What was loaded, as it is computed with."""
    if dtype == BOOL:
        return b.compare("ne", x, b.like(x, 0))
    if dtype == BFLOAT16:
        wide = b.convert("zext", x, "i32")
        return b.from_bits(b.binary("shl", wide, b.like(wide, 16)))
    if dtype in HALF_FLOATS:
        if b.has_half_floats:
            return b.convert("fpext", b.convert("bitcast", x, "half"), "float")
        return _float_of_half(b, b.convert("zext", x, "i32"))
    return x


def to_memory(b: Builder, x: Value, dtype: DType) -> Value:
    """A computed value, as it is stored; 16-bit floats are rounded to the nearest, ties to even."""
    if dtype == BOOL:
        return b.convert("zext", x, "i8")
    if dtype == BFLOAT16:
        if b.has_bfloats:
            return b.convert("bitcast", b.convert("fptrunc", x, "bfloat"), "i16")
        return b.convert("trunc", _bfloat_bits(b, x), "i16")
    if dtype in HALF_FLOATS:
        if b.has_half_floats:
            return b.convert("bitcast", b.convert("fptrunc", x, "half"), "i16")
        return b.convert("trunc", _half_bits(b, x), "i16")
    return x


def _bfloat_bits(b: Builder, x: Value) -> Value:
    """The upper 16 bits after adding just under half a unit, or half if the unit is odd."""
    pattern = b.bits(x)
    upper = b.binary("lshr", pattern, b.like(pattern, 16))
    odd = b.binary("and", upper, b.like(pattern, 1))
    nudge = b.binary("add", odd, b.like(pattern, 0x7FFF))
    rounded = b.binary("lshr", b.binary("add", pattern, nudge), b.like(pattern, 16))
    quiet = b.binary("or", upper, b.like(pattern, 0x40))
    return b.select(b.compare("uno", x, x), quiet, rounded)


def _float_of_half(b: Builder, x: Value) -> Value:
    """Shift the fields into place and multiply by 2**112, which makes subnormals right too."""
    sign = b.binary("shl", b.binary("and", x, b.like(x, 0x8000)), b.like(x, 16))
    magnitude = b.binary("and", x, b.like(x, 0x7FFF))
    placed = b.from_bits(b.binary("shl", magnitude, b.like(x, 13)))
    scaled = b.bits(b.mul(placed, b.like(placed, 2.0**112)))
    infinite = b.compare("uge", magnitude, b.like(x, 0x7C00))
    special = b.binary("or", scaled, b.like(x, 0x7F800000))
    return b.from_bits(b.binary("or", b.select(infinite, special, scaled), sign))


def _half_bits(b: Builder, x: Value) -> Value:
    pattern = b.bits(x)
    sign = b.binary("and", b.binary("lshr", pattern, b.like(pattern, 16)), b.like(pattern, 0x8000))
    magnitude = b.binary("and", pattern, b.like(pattern, 0x7FFFFFFF))
    # Subnormal halves: adding 0.5 lets the float adder do the rounding at 2**-24.
    half = b.const("float", x.lanes, 0.5)
    small = b.bits(b.add(b.from_bits(magnitude), half))
    small = b.binary("sub", small, b.like(pattern, 0x3F000000))
    odd = b.binary("and", b.binary("lshr", magnitude, b.like(pattern, 13)), b.like(pattern, 1))
    rebased = b.binary("add", magnitude, b.like(pattern, 0xFFF - (112 << 23)))
    normal = b.binary("lshr", b.binary("add", rebased, odd), b.like(pattern, 13))
    is_small = b.compare("ult", magnitude, b.like(pattern, 113 << 23))
    result = b.select(is_small, small, normal)
    huge = b.compare("uge", magnitude, b.like(pattern, 0x477FF000))
    result = b.select(huge, b.like(pattern, 0x7C00), result)
    payload = b.binary("and", b.binary("lshr", magnitude, b.like(pattern, 13)), b.like(pattern, 0x3FF))
    quiet = b.binary("or", payload, b.like(pattern, 0x7E00))
    result = b.select(b.compare("ugt", magnitude, b.like(pattern, 0x7F800000)), quiet, result)
    return b.binary("or", result, sign)
