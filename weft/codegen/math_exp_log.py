"""exp and log for float32 and float64: the base of the other functions."""

from __future__ import annotations

import math

from . import coefficients as c
from .builder import Builder, Value

MANTISSA = {"float": 23, "double": 52}
BIAS = {"float": 127, "double": 1023}


def exp(b: Builder, x: Value) -> Value:
    """e**x = 2**k * e**r, r = x - k ln 2 in two steps, |r| <= ln(2)/2.

    Adding 1.5 * 2**mantissa rounds to the nearest integer and leaves it in the low bits, which for
    NaN are some number too: nothing here is undefined. With it comes twice the exponents' bias.
    """
    single = x.element == "float"
    least, most = (-104.0, 89.0) if single else (-746.0, 710.0)
    x = b.larger(b.like(x, least), b.smaller(b.like(x, most), x))
    magic = b.like(x, 1.5 * 2.0 ** MANTISSA[x.element] + 2 * BIAS[x.element])
    shifted = b.fma(x, b.like(x, 1 / math.log(2)), magic)
    k = b.sub(shifted, magic)
    ln2 = c.LN2_F32 if single else c.LN2_F64
    # high is exact; r, which is not, enters only where it is small.
    high = b.fma(k, b.like(x, -ln2[0]), x)
    low = b.mul(k, b.like(x, -ln2[1]))
    r = b.add(high, low)
    q = b.horner(r, c.EXP_F32 if single else c.EXP_F64)
    p = b.add(b.add(high, b.fma(b.mul(r, r), q, low)), b.like(x, 1.0))
    return times_power(b, p, b.bits(shifted))


def exp_of_negative(b: Builder, x: Value) -> Value:
    """e**x for float32 x <= 0, to 2 ulp in half the instructions.

    The number that rounds also has the exponent's bias in its low bits, and 24 more, so that the
    shift alone makes 2**(k + 24), which is normal wherever e**x is not zero.
    """
    x = b.larger(b.like(x, -104.0), x)
    magic = b.like(x, 1.5 * 2.0**23 + 127 + 24)
    shifted = b.fma(x, b.like(x, 1 / math.log(2)), magic)
    k = b.sub(shifted, magic)
    r = b.fma(k, b.like(x, -c.LN2_F32[1]), b.fma(k, b.like(x, -c.LN2_F32[0]), x))
    p = b.horner(r, (1.0, 1.0, *c.EXP_F32))
    bits = b.bits(shifted)
    power = b.from_bits(b.binary("shl", bits, b.like(bits, 23)))
    return b.mul(b.mul(p, power), b.like(x, 2.0**-24))


def exp2(b: Builder, x: Value) -> Value:
    """2**x as float32, 2**k * 2**r with k the nearest integer: r is exact. x may be float64."""
    x = b.larger(b.like(x, -151.0), b.smaller(b.like(x, 129.0), x))
    magic = b.like(x, 1.5 * 2.0 ** MANTISSA[x.element] + 2 * BIAS["float"])
    shifted = b.add(x, magic)
    r = b.sub(x, b.sub(shifted, magic))
    # With fma the sum in float32 still gives the numbers that need no rounding.
    r = b.convert("fptrunc", r, "float") if b.has_fma else r
    p = b.convert("fptrunc", b.fma(b.horner(r, c.EXP2_F32), r, b.like(r, 1.0)), "float")
    return times_power(b, p, b.convert("trunc", b.bits(shifted), "i32"))


def times_power(b: Builder, p: Value, bits: Value) -> Value:
    """p * 2**k, the low bits being k + 2 bias: shifts alone make powers of both halves of k."""
    mantissa = MANTISSA[p.element]
    half = b.binary("lshr", bits, b.like(bits, 1))
    for part in (half, b.binary("sub", bits, half)):
        p = b.mul(p, b.from_bits(b.binary("shl", part, b.like(bits, mantissa))))
    return p


def log(b: Builder, x: Value) -> Value:
    """log(m 2**e) = e ln 2 + log(m), sqrt(1/2) <= m < sqrt(2)."""
    parts = scaled_split(b, x)
    return of_positive(b, x, (_log_single if x.element == "float" else _log_double)(b, *parts))


def scaled_split(b: Builder, x: Value) -> tuple[Value, Value]:
    """m and e with x = m 2**e, both floats, of subnormal numbers too."""
    smallest = b.like(x, 2.0**-126 if x.element == "float" else 2.0**-1022)
    tiny = b.compare("olt", x, smallest)
    mantissa = MANTISSA[x.element]
    m, e = _split(b, b.select(tiny, b.mul(x, b.like(x, 2.0**mantissa)), x))
    e = b.binary("sub", e, b.select(tiny, b.like(e, mantissa), b.like(e, 0)))
    return m, _small_to_float(b, e, x.element)


def rough_log(b: Builder, x: Value, base: float = math.e) -> Value:
    """Logarithm of positive float64 that are normal numbers, to 1e-11: 2s + s**3 P(s**2) with
    s = f/(2+f) for the base e."""
    m, e = _split(b, x)
    f = b.sub(m, b.like(m, 1.0))
    s = b.mul(f, _inverse(b, b.add(f, b.like(m, 2.0))))
    z = b.mul(s, s)
    series = b.horner(z, [number / math.log(base) for number in (2.0, *c.LOG_ROUGH)])
    return b.fma(_small_to_float(b, e, x.element), b.like(m, math.log(2, base)), b.mul(s, series))


def of_positive(b: Builder, x: Value, result: Value) -> Value:
    """A logarithm, where x may be anything."""
    infinity = float("inf")
    result = b.select(b.compare("oeq", x, b.like(x, infinity)), x, result)
    result = b.select(b.compare("oeq", x, b.like(x, 0.0)), b.like(x, -infinity), result)
    return b.select(b.compare("oge", x, b.like(x, 0.0)), result, b.like(x, float("nan")))


def _split(b: Builder, x: Value) -> tuple[Value, Value]:
    """m and e with x = m 2**e, of normal numbers."""
    mantissa = MANTISSA[x.element]
    pattern = b.bits(x)
    root = 0x3F3504F3 if x.element == "float" else 0x3FE6A09E667F3BCD
    above = b.binary("sub", pattern, b.like(pattern, root))
    e = b.binary("ashr", above, b.like(pattern, mantissa))
    m = b.from_bits(b.binary("sub", pattern, b.binary("shl", e, b.like(pattern, mantissa))))
    return m, e


def _small_to_float(b: Builder, e: Value, element: str) -> Value:
    narrow = b.convert("trunc", e, "i32") if e.element == "i64" else e
    return b.convert("sitofp", narrow, element)


def _log_single(b: Builder, m: Value, e: Value) -> Value:
    return log_of_parts(b, b.sub(m, b.like(m, 1.0)), e, c.LOG_F32)


def log_of_parts(b: Builder, f: Value, e: Value, coefficients: tuple[float, ...]) -> Value:
    """e ln 2 + f - f**2/2 + f**3 P(f)."""
    square = b.mul(f, f)
    tail = b.mul(b.mul(b.horner(f, coefficients), square), f)
    tail = b.fma(e, b.like(f, c.LN2_F32[1]), tail)
    tail = b.fma(square, b.like(f, -0.5), tail)
    return b.fma(e, b.like(f, c.LN2_F32[0]), b.add(f, tail))


def _log_double(b: Builder, m: Value, e: Value) -> Value:
    """log(1+f) = f - (f**2/2 - s (f**2/2 + R)), s = f/(2+f), R = s**2 P(s**2)."""
    f = b.sub(m, b.like(m, 1.0))
    s = b.div(f, b.add(f, b.like(m, 2.0)))
    z = b.mul(s, s)
    half_square = b.mul(b.mul(f, f), b.like(m, 0.5))
    rest = b.add(half_square, b.mul(z, b.horner(z, c.LOG_F64)))
    correction = b.fma(s, rest, b.mul(e, b.like(m, c.LN2_F64[1])))
    inner = b.sub(b.sub(half_square, correction), f)
    return b.fma(e, b.like(m, c.LN2_F64[0]), b.neg(inner))


def _inverse(b: Builder, d: Value) -> Value:
    """1/d by two of Newton's steps, r + r (1 - d r), without the machine's slow division."""
    r, minus = b.horner(d, c.RECIPROCAL_OF_ROOTS), b.neg(d)
    for _ in range(2):
        r = b.fma(r, b.fma(minus, r, b.like(d, 1.0)), r)
    return r
