"""The intrinsics of te (`te.expr.INTRINSICS`) on LLVM values of any dtype and any lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..base.dtype import DType, is_float
from ..base.errors import DTypeError
from . import arithmetic
from .builder import Builder, Value
from .llvm_types import BITS, is_signed
from .math import FUNCTIONS
from .remainder import float_remainder

_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}


def intrinsic(b: Builder, name: str, args: Sequence[Value], dtype: DType) -> Value:
    """A call of an intrinsic on values of a dtype; 16-bit floats arrive as float32."""
    if dtype in b.short_floats and name in b.short_functions:
        return b.short_functions[name](b, *args)
    if is_float(dtype):
        return _of_floats(b, name, args)
    if name in _INTEGER:
        return _INTEGER[name](b, args, is_signed(dtype))
    if name in _ROUNDING:
        return args[0]
    if name in ("isnan", "isinf", "isfinite"):
        return b.const("i1", args[0].lanes, name == "isfinite")
    raise DTypeError(f"{name} of {dtype}", hint="cast to a float first")


def _of_floats(b: Builder, name: str, args: Sequence[Value]) -> Value:
    x = args[0]
    if name in _ROUNDING:
        return b.intrinsic(_ROUNDING[name], x)
    if name in _FLOAT:
        return _FLOAT[name](b, *args)
    return FUNCTIONS[name](b, *args)


def _fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    return b.fma(x, y, z)


def _isnan(b: Builder, x: Value) -> Value:
    return b.compare("uno", x, x)


def _isinf(b: Builder, x: Value) -> Value:
    return b.compare("oeq", b.fabs(x), b.like(x, float("inf")))


def _isfinite(b: Builder, x: Value) -> Value:
    return b.compare("olt", b.fabs(x), b.like(x, float("inf")))


def _dot_pairs(b: Builder, total: Value, x: Value, y: Value) -> Value:
    """One instruction where the machine has it, else two products of what the halves of the bits stand for."""
    bits = 32 * total.lanes
    halves = [b.reinterpret(value, "bfloat") for value in (x, y)] if bits in (128, 256, 512) else []
    if halves and b.has("avx512bf16"):
        return b.call(f"x86.avx512bf16.dpbf16ps.{bits}", total, total, *halves)
    if bits == 128 and b.has("bf16"):
        return b.call("aarch64.neon.bfdot.v4f32.v8bf16", total, total, *halves)
    (x_low, x_high), (y_low, y_high) = _halves(b, x), _halves(b, y)
    return b.fma(x_high, y_high, b.fma(x_low, y_low, total))


def _halves(b: Builder, pair: Value) -> tuple[Value, Value]:
    """The two numbers of bfloat16 in the bits of a float32."""
    bits = b.bits(pair)
    low, high = b.binary("shl", bits, b.like(bits, 16)), b.binary("and", bits, b.like(bits, -65536))
    return b.from_bits(low), b.from_bits(high)


def _tf32_rest(b: Builder, x: Value) -> Value:
    """x without its first 19 bits, which tensor cores read."""
    pattern = b.bits(x)
    return b.sub(x, b.from_bits(b.binary("and", pattern, b.like(pattern, -(1 << 13)))))


_FLOAT: dict[str, Callable[..., Value]] = {
    "tf32_rest": _tf32_rest,
    "sqrt": lambda b, x: b.intrinsic("sqrt", x),
    "abs": lambda b, x: b.fabs(x),
    "fma": _fma,
    "dot_pairs": _dot_pairs,
    "fmod": float_remainder,
    "isnan": _isnan,
    "isinf": _isinf,
    "isfinite": _isfinite,
}


def _integer_abs(b: Builder, args: Sequence[Value], signed: bool) -> Value:
    (x,) = args
    if not signed:
        return x
    minus = b.binary("sub", b.like(x, 0), x)
    return b.select(b.compare("slt", x, b.like(x, 0)), minus, x)


def _integer_fma(b: Builder, args: Sequence[Value], signed: bool) -> Value:
    x, y, z = args
    return b.binary("add", b.binary("mul", x, y), z)


def _integer_fmod(b: Builder, args: Sequence[Value], signed: bool) -> Value:
    return arithmetic.remainder(b, args[0], args[1], signed)


def _integer_pow(b: Builder, args: Sequence[Value], signed: bool) -> Value:
    """Square and multiply over every bit of the exponent; wraps as multiplication does.

    A negative exponent gives 1/x**n rounded towards zero: 1 or -1 for x of 1 or -1, else 0.
    """
    x, n = args
    zero, one, minus = b.like(x, 0), b.like(x, 1), b.like(x, -1)
    result, square = one, x
    for bit in range(BITS[x.element] - (1 if signed else 0)):
        picked = b.compare("ne", b.binary("and", n, b.like(n, 1 << bit)), zero)
        result = b.select(picked, b.binary("mul", result, square), result)
        square = b.binary("mul", square, square)
    if not signed:
        return result
    odd = b.compare("ne", b.binary("and", n, one), zero)
    unit = b.select(b.compare("eq", x, minus), b.select(odd, minus, one), zero)
    unit = b.select(b.compare("eq", x, one), one, unit)
    return b.select(b.compare("slt", n, zero), unit, result)


def _dot_bytes(b: Builder, args: Sequence[Value], signed: bool) -> Value:
    """One instruction where the machine has it; else two that multiply and add pairs of 16 bits; else four products."""
    total, x, y = args
    bits = 32 * total.lanes
    if (bits == 512 and b.has("avx512vnni")) or (bits in (128, 256) and (b.has("avx512vnni") or b.has("avxvnni"))):
        return b.intrinsic("x86.avx512.vpdpbusd", total, x, y, suffix=str(bits))
    if bits == 128 and b.has("i8mm"):
        return b.call("aarch64.neon.usdot.v4i32.v16i8", total, total, b.reinterpret(x, "i8"), b.reinterpret(y, "i8"))
    if bits in _PAIRS and b.has(_PAIRS[bits][0]):
        return _dot_words(b, total, x, y, _PAIRS[bits][1])
    for shift in (0, 8, 16, 24):
        unsigned = b.binary("and", b.binary("lshr", x, b.like(x, shift)), b.like(x, 255))
        byte = b.binary("ashr", b.binary("shl", y, b.like(y, 24 - shift)), b.like(y, 24))
        total = b.binary("add", total, b.binary("mul", unsigned, byte))
    return total


# Bits of a vector -> the feature and the instruction that multiplies 16 bits and adds each pair of products.
_PAIRS = {
    512: ("avx512bw", "x86.avx512.pmaddw.d.512"),
    256: ("avx2", "x86.avx2.pmadd.wd"),
    128: ("sse2", "x86.sse2.pmadd.wd"),
}


def _dot_words(b: Builder, total: Value, x: Value, y: Value, instruction: str) -> Value:
    """Bytes at even and at odd places, each of them as 16 bits."""
    words, bytes_ = b.reinterpret(x, "i16"), b.reinterpret(y, "i16")
    eight, low = b.like(words, 8), b.like(words, 255)
    even = b.binary("and", words, low), b.binary("ashr", b.binary("shl", bytes_, eight), eight)
    odd = b.binary("lshr", words, eight), b.binary("ashr", bytes_, eight)
    for pair in (even, odd):
        total = b.binary("add", total, b.call(instruction, total, *pair))
    return total


_INTEGER: dict[str, Callable[[Builder, Sequence[Value], bool], Value]] = {
    "abs": _integer_abs,
    "dot_bytes": _dot_bytes,
    "fma": _integer_fma,
    "fmod": _integer_fmod,
    "pow": _integer_pow,
}
