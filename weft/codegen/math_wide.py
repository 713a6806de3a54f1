"""float64 functions for machines without a C library: WIDE_FUNCTIONS. Errors are bounded by WIDE_ULP_BOUNDS.

Products and sums are rounded once (fma), on which the accuracy of sums of two float64 rests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from . import coefficients as narrow
from . import coefficients_wide as c
from .arithmetic import negative
from .builder import Builder, Value
from .math_angles import sine_and_cosine
from .math_double import power_cases
from .math_exp_log import BIAS, MANTISSA, exp, log, of_positive, scaled_split, times_power

# In units in the last place of the result. Angles from 2**45 on are reduced to 2**-80, beside multiples of pi too.
WIDE_ULP_BOUNDS: dict[str, float] = {
    **dict.fromkeys("exp log".split(), 1.0),
    **dict.fromkeys("exp2 log1p expm1 log2 log10".split(), 2.5),
    **dict.fromkeys("erf rsqrt atan sin cos".split(), 1.5),
    **dict.fromkeys("pow sigmoid atan2 tan".split(), 2.5),
    **dict.fromkeys("asin acos tanh cosh sinh acosh asinh atanh".split(), 4.0),
}
_TINY = 2.0**-54  # below it, functions with slope 1 at 0 are their argument
_LARGE = 2.0**28  # from here on 1 is lost beside a square
_STEEP = 700.0  # from here on e**x is computed from its root


class Pair(NamedTuple):
    """A sum of two float64, the second below the last place of the first."""

    high: Value
    low: Value


def _product(b: Builder, x: Value, y: Value) -> Pair:
    high = b.mul(x, y)
    return Pair(high, b.fma(x, y, b.neg(high)))


def _unless_tiny(b: Builder, x: Value, result: Value) -> Value:
    return b.select(b.compare("olt", b.fabs(x), b.like(x, _TINY)), x, result)


def exp2(b: Builder, x: Value) -> Value:
    """2**k e**(r ln 2), k the nearest integer."""
    x = b.larger(b.like(x, -1100.0), b.smaller(b.like(x, 1100.0), x))
    magic = b.like(x, 1.5 * 2.0 ** MANTISSA["double"] + 2 * BIAS["double"])
    shifted = b.add(x, magic)
    r = b.sub(x, b.sub(shifted, magic))
    return times_power(b, exp(b, b.mul(r, b.like(x, math.log(2)))), b.bits(shifted))


def expm1(b: Builder, x: Value) -> Value:
    """2**k (e**r - 1) + (2**k - 1), half of it, for 2**1024 is no number."""
    clipped = b.larger(b.like(x, -40.0), b.smaller(b.like(x, 710.0), x))
    magic = b.like(x, 1.5 * 2.0 ** MANTISSA["double"] + BIAS["double"] - 1)
    shifted = b.fma(clipped, b.like(x, 1 / math.log(2)), magic)
    k = b.sub(shifted, magic)
    high = b.fma(k, b.like(x, -narrow.LN2_F64[0]), clipped)
    low = b.mul(k, b.like(x, -narrow.LN2_F64[1]))
    r = b.add(high, low)
    p = b.add(high, b.fma(b.mul(r, r), b.horner(r, narrow.EXP_F64), low))
    bits = b.bits(shifted)
    power = b.from_bits(b.binary("shl", bits, b.like(bits, MANTISSA["double"])))
    half = b.fma(power, p, b.sub(power, b.like(x, 0.5)))
    return _unless_tiny(b, x, b.add(half, half))


def log1p(b: Builder, x: Value) -> Value:
    """log(1 + x), and what 1 + x lost."""
    one = b.like(x, 1.0)
    whole = b.add(one, x)
    lost = b.div(b.sub(x, b.sub(whole, one)), whole)
    lost = b.select(b.compare("olt", b.fabs(whole), b.like(x, 2.0**60)), lost, b.like(x, 0.0))
    return of_positive(b, whole, _unless_tiny(b, x, b.add(log(b, whole), lost)))


def _log_parts(b: Builder, x: Value) -> tuple[Value, Value]:
    m, e = scaled_split(b, x)
    return log(b, m), e


def log2(b: Builder, x: Value) -> Value:
    part, e = _log_parts(b, x)
    scaled = b.fma(part, b.like(x, c.LOG2_E[0]), b.mul(part, b.like(x, c.LOG2_E[1])))
    return of_positive(b, x, b.add(e, scaled))


def log10(b: Builder, x: Value) -> Value:
    part, e = _log_parts(b, x)
    scaled = b.fma(part, b.like(x, c.LOG10_E[0]), b.mul(part, b.like(x, c.LOG10_E[1])))
    tail = b.fma(e, b.like(x, c.LOG10_2[1]), scaled)
    return of_positive(b, x, b.fma(e, b.like(x, c.LOG10_2[0]), tail))


def tanh(b: Builder, x: Value) -> Value:
    """t/(t + 2) with t = e**(2|x|) - 1."""
    size = b.smaller(b.like(x, 22.0), b.fabs(x))
    t = expm1(b, b.add(size, size))
    result = b.copysign(b.div(t, b.add(t, b.like(x, 2.0))), x)
    return b.select(b.compare("uno", x, x), x, result)


def sinh(b: Builder, x: Value) -> Value:
    """(t + t/(t + 1))/2 with t = e**|x| - 1."""
    size = b.fabs(x)
    t = expm1(b, b.smaller(b.like(x, _STEEP), size))
    near = b.mul(b.add(t, b.div(t, b.add(t, b.like(x, 1.0)))), b.like(x, 0.5))
    return b.copysign(_steep(b, size, near), x)


def cosh(b: Builder, x: Value) -> Value:
    size = b.fabs(x)
    e = exp(b, b.smaller(b.like(x, _STEEP), size))
    half = b.like(x, 0.5)
    return _steep(b, size, b.fma(e, half, b.div(half, e)))


def _steep(b: Builder, size: Value, near: Value) -> Value:
    """e**size / 2 where that may be more than e**size can be."""
    root = exp(b, b.mul(size, b.like(size, 0.5)))
    far = b.mul(b.mul(root, b.like(size, 0.5)), root)
    return b.select(
        b.compare("ogt", size, b.like(size, _STEEP)), far, b.select(b.compare("uno", size, size), size, near)
    )


def asinh(b: Builder, x: Value) -> Value:
    """log(|x| + sqrt(x**2 + 1)), by log1p where that is near 1."""
    size = b.fabs(x)
    one, square = b.like(x, 1.0), b.mul(x, x)
    inner = b.add(size, b.div(square, b.add(one, b.intrinsic("sqrt", b.add(square, one)))))
    far = b.add(log(b, size), b.like(x, math.log(2)))
    result = b.select(b.compare("ogt", size, b.like(x, _LARGE)), far, log1p(b, inner))
    return b.copysign(_unless_tiny(b, size, result), x)


def acosh(b: Builder, x: Value) -> Value:
    one = b.like(x, 1.0)
    t = b.sub(x, one)
    near = log1p(b, b.add(t, b.intrinsic("sqrt", b.fma(t, t, b.add(t, t)))))
    far = b.add(log(b, x), b.like(x, math.log(2)))
    result = b.select(b.compare("ogt", x, b.like(x, _LARGE)), far, near)
    return b.select(b.compare("oge", x, one), result, b.like(x, float("nan")))


def atanh(b: Builder, x: Value) -> Value:
    """log1p(2|x|/(1 - |x|))/2."""
    size, one = b.fabs(x), b.like(x, 1.0)
    inner = b.div(b.add(size, size), b.sub(one, size))
    result = b.mul(log1p(b, inner), b.like(x, 0.5))
    result = b.select(b.compare("olt", size, b.like(x, 2.0**-28)), size, result)
    return b.copysign(b.select(b.compare("ole", size, one), result, b.like(x, float("nan"))), x)


def _angle(b: Builder, t: Value, base: Pair) -> Value:
    """base + atan(t), |t| <= tan(pi/8)."""
    z = b.mul(t, t)
    tail = b.fma(b.mul(b.horner(z, c.ATAN), z), t, base.low)
    near = b.add(base.high, t)
    lost = b.sub(t, b.sub(near, base.high))
    return b.add(near, b.add(lost, tail))


def atan(b: Builder, x: Value) -> Value:
    """atan(x) = pi/4 + atan((x - 1)/(x + 1)) in the middle, pi/2 - atan(1/x) above."""
    size, one, zero = b.fabs(x), b.like(x, 1.0), b.like(x, 0.0)
    middle = b.compare("ogt", size, b.like(x, math.sqrt(2) - 1))
    steep = b.compare("ogt", size, b.like(x, math.sqrt(2) + 1))
    above = b.select(steep, b.neg(one), b.sub(size, one))
    below = b.select(steep, size, b.add(size, one))
    t = b.select(middle, b.div(above, below), size)
    parts = [
        b.select(steep, b.like(x, half), b.select(middle, b.like(x, quarter), zero))
        for half, quarter in zip(c.HALF_PI, c.QUARTER_PI)
    ]
    return b.copysign(_angle(b, t, Pair(*parts)), x)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """The angle of (|x|, |y|) from the ratio of the smaller to the larger, then mirrored."""
    rise, run = b.fabs(y), b.fabs(x)
    steep = b.compare("ogt", rise, run)
    ratio = b.div(b.select(steep, run, rise), b.select(steep, rise, run))
    ratio = b.select(b.compare("oeq", rise, run), b.like(x, 1.0), ratio)
    ratio = b.select(b.compare("oeq", rise, b.like(x, 0.0)), b.like(x, 0.0), ratio)
    angle = atan(b, ratio)
    for mirrored, (high, low) in ((steep, c.HALF_PI[:2]), (negative(b, x), c.PI)):
        other = b.sub(b.like(x, high), b.sub(angle, b.like(x, low)))
        angle = b.select(mirrored, other, angle)
    return b.select(b.compare("uno", x, y), b.like(x, float("nan")), b.copysign(angle, y))


def asin(b: Builder, x: Value) -> Value:
    """The angle of a point on the circle."""
    one = b.like(x, 1.0)
    return atan2(b, x, b.intrinsic("sqrt", b.mul(b.sub(one, x), b.add(one, x))))


def acos(b: Builder, x: Value) -> Value:
    one = b.like(x, 1.0)
    half = atan2(b, b.intrinsic("sqrt", b.sub(one, x)), b.intrinsic("sqrt", b.add(one, x)))
    return b.add(half, half)


def erf(b: Builder, x: Value) -> Value:
    """x + x P(x**2) near zero, 1 - e**(-x**2) Q(|x|) elsewhere."""
    size = b.fabs(x)
    square = b.mul(x, x)
    near = b.fma(b.horner(square, c.ERF), x, x)
    one, three = b.like(x, 1.0), b.like(x, 3.0)
    clipped = b.smaller(b.like(x, 6.0), size)
    t = b.div(b.sub(clipped, three), b.add(clipped, three))
    scaled = b.div(b.horner(t, c.ERFC_SCALED), b.fma(clipped, b.like(x, 2.0), one))
    decay = exp(b, b.neg(b.mul(clipped, clipped)))
    far = b.copysign(b.fma(b.neg(decay), scaled, one), x)
    result = b.select(b.compare("olt", size, b.like(x, 0.85)), near, far)
    return b.select(b.compare("uno", x, x), x, result)


def pow_(b: Builder, x: Value, y: Value) -> Value:
    """e**(y log|x|), the logarithm as a sum of two."""
    size = b.fabs(x)
    logarithm = _log_pair(b, size)
    most = b.like(y, 2.0**70)
    y_used = b.larger(b.neg(most), b.smaller(most, y))
    product = _product(b, y_used, logarithm.high)
    low = b.fma(y_used, logarithm.low, product.low)
    grown = exp(b, product.high)
    finite = b.compare("olt", b.fabs(product.high), b.like(x, 2000.0))
    result = b.select(finite, b.fma(grown, low, grown), grown)
    return power_cases(b, x, y, _of_edges(b, size, y, result))


def _of_edges(b: Builder, size: Value, y: Value, result: Value) -> Value:
    """0 and infinity to powers other than 0, and 1 to any."""
    zero, infinity = b.like(size, 0.0), b.like(size, float("inf"))
    falls = b.compare("olt", y, zero)
    at_zero = b.select(falls, infinity, zero)
    at_infinity = b.select(falls, zero, infinity)
    result = b.select(b.compare("oeq", size, zero), at_zero, result)
    result = b.select(b.compare("oeq", size, infinity), at_infinity, result)
    result = b.select(b.compare("oeq", size, b.like(size, 1.0)), b.like(size, 1.0), result)
    return b.select(b.compare("uno", y, y), y, result)


def _log_pair(b: Builder, x: Value) -> Pair:
    """log(m 2**e) = e ln 2 + 2 s + 2 s z/3 + ..., s = (m - 1)/(m + 1), z = s**2; the first three as sums of two."""
    m, e = scaled_split(b, x)
    one, two = b.like(x, 1.0), b.like(x, 2.0)
    top, bottom = b.sub(m, one), b.add(m, one)
    s = b.div(top, bottom)
    lost = b.sub(m, b.sub(bottom, one))  # what m + 1 lost
    rest = b.fma(b.neg(s), bottom, top)
    s_low = b.div(b.fma(b.neg(s), lost, rest), bottom)
    z = _product(b, s, s)
    cube = _product(b, z.high, s)
    cube_low = b.fma(z.low, s, cube.low)
    third = _product(b, cube.high, b.like(x, c.THIRD[0]))
    third_low = b.fma(cube_low, b.like(x, c.THIRD[0]), b.fma(cube.high, b.like(x, c.THIRD[1]), third.low))
    series = b.mul(b.mul(b.horner(z.high, c.LOG_TAIL), z.high), cube.high)
    tail = b.add(b.add(s_low, b.mul(b.mul(z.high, s_low), one)), b.add(third_low, series))
    near = b.add(s, third.high)
    tail = b.add(tail, b.sub(third.high, b.sub(near, s)))
    whole = b.mul(e, b.like(x, narrow.LN2_F64[0]))  # exact: the constant has few bits
    near2 = b.mul(near, two)
    high = b.add(whole, near2)
    lost_sum = _lost(b, whole, near2, high)
    low = b.fma(e, b.like(x, narrow.LN2_F64[1]), b.fma(tail, two, lost_sum))
    total = b.add(high, low)
    return Pair(total, b.sub(low, b.sub(total, high)))


def _lost(b: Builder, x: Value, y: Value, total: Value) -> Value:
    """What a sum of two lost, whichever is larger."""
    part = b.sub(total, x)
    return b.add(b.sub(x, b.sub(total, part)), b.sub(y, part))


def sin(b: Builder, x: Value) -> Value:
    sine, cosine, quarter = sine_and_cosine(b, x)
    return _turned(b, x, sine, cosine, quarter)


def cos(b: Builder, x: Value) -> Value:
    sine, cosine, quarter = sine_and_cosine(b, x)
    return _turned(b, x, sine, cosine, b.binary("add", quarter, b.like(quarter, 1)))


def _turned(b: Builder, x: Value, sine: Value, cosine: Value, quarter: Value) -> Value:
    """The sine so many quarter turns on."""
    odd = b.compare("ne", b.binary("and", quarter, b.like(quarter, 1)), b.like(quarter, 0))
    value = b.select(odd, cosine, sine)
    half = b.compare("ne", b.binary("and", quarter, b.like(quarter, 2)), b.like(quarter, 0))
    return _of_finite(b, x, b.select(half, b.neg(value), value))


def tan(b: Builder, x: Value) -> Value:
    sine, cosine, quarter = sine_and_cosine(b, x)
    odd = b.compare("ne", b.binary("and", quarter, b.like(quarter, 1)), b.like(quarter, 0))
    return _of_finite(b, x, b.div(b.select(odd, b.neg(cosine), sine), b.select(odd, sine, cosine)))


def _of_finite(b: Builder, x: Value, result: Value) -> Value:
    return b.select(b.compare("olt", b.fabs(x), b.like(x, float("inf"))), result, b.like(x, float("nan")))


WIDE_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp2": exp2,
    "log2": log2,
    "log10": log10,
    "log1p": log1p,
    "expm1": expm1,
    "tanh": tanh,
    "erf": erf,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "sinh": sinh,
    "cosh": cosh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "pow": pow_,
    "atan2": atan2,
}
