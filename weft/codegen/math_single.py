"""Functions of float32 in float32 arithmetic, to 1 ulp: expm1, log1p, asin and acos on every
machine, log2, log10 and atan where fma rounds once."""

from __future__ import annotations

import math

from . import coefficients as c
from .arithmetic import negative
from .builder import Builder, Value
from .math_exp_log import log_of_parts, of_positive, scaled_split

_QUARTER = (1.5707963705062866, -4.3711390001862426e-08)  # pi/2, the first a float32


def expm1(b: Builder, x: Value) -> Value:
    """2**k (e**r - 1) + (2**k - 1), 3/4 <= e**r <= 3/2: where more cancelled, errors would show.

    Half of it is computed, for 2**128 is no number; x too small to be halved are the result.
    """
    clipped = b.larger(b.like(x, -20.0), b.smaller(b.like(x, 89.0), x))
    magic = b.like(x, 1.5 * 2.0**23 + 126)
    aside = b.like(x, 0.5 - math.log2(1.5))
    shifted = b.add(b.fma(clipped, b.like(x, 1 / math.log(2)), aside), magic)
    k = b.sub(shifted, magic)
    high = b.fma(k, b.like(x, -c.LN2_F32[0]), clipped)
    low = b.mul(k, b.like(x, -c.LN2_F32[1]))
    r = b.add(high, low)
    # From 2**25 on the 1 to subtract is lost: something between that and nothing.
    lost = b.compare("ogt", x, b.like(x, 17.03))
    low = b.select(lost, b.sub(low, b.like(x, 0.75 * 2.0**-26)), low)
    p = b.add(high, b.fma(b.mul(r, r), b.horner(r, c.EXPM1_F32), low))
    bits = b.bits(shifted)
    power = b.from_bits(b.binary("shl", bits, b.like(bits, 23)))
    half = b.fma(power, p, b.sub(power, b.like(x, 0.5)))
    return _unless_tiny(b, x, b.add(half, half))


def _unless_tiny(b: Builder, x: Value, result: Value) -> Value:
    """x itself where the function does not differ from it, as that of zeros and subnormals."""
    return b.select(b.compare("olt", b.fabs(x), b.like(x, 2.0**-25)), x, result)


def log1p(b: Builder, x: Value) -> Value:
    """k ln 2 + log(1+f), 3/4 <= 1+f < 3/2; f = x 2**-k + (2**-k - 1) is exact, 1+x is not."""
    one = b.like(x, 1.0)
    whole = b.add(x, one)
    pattern = b.bits(whole)
    above = b.binary("sub", pattern, b.like(pattern, 0x3F400000))
    k = b.binary("ashr", above, b.like(pattern, 23))
    shift = b.binary("shl", k, b.like(pattern, 23))
    four = b.from_bits(b.binary("sub", b.like(pattern, 0x40800000), shift))
    scale = b.mul(four, b.like(x, 0.25))
    f = b.fma(x, scale, b.sub(scale, one))
    result = log_of_parts(b, f, b.convert("sitofp", k, "float"), c.LOG1P_F32)
    return of_positive(b, whole, _unless_tiny(b, x, result))


def log2(b: Builder, x: Value) -> Value:
    m, e = scaled_split(b, x)
    f = b.sub(m, b.like(m, 1.0))
    return of_positive(b, x, b.add(e, b.fma(f, b.horner(f, c.LOG2_F32), f)))


def log10(b: Builder, x: Value) -> Value:
    m, e = scaled_split(b, x)
    f = b.sub(m, b.like(m, 1.0))
    tail = b.fma(e, b.like(x, c.LOG10_2_F32[1]), b.mul(f, b.horner(f, c.LOG10_F32)))
    near = b.fma(f, b.like(x, 7 / 16), tail)
    return of_positive(b, x, b.fma(e, b.like(x, c.LOG10_2_F32[0]), near))


def atan(b: Builder, x: Value) -> Value:
    """atan(x) = pi/2 + atan(-1/x) above 1; the errors of -1/x and of the sum are added too."""
    size = b.smaller(b.like(x, 2.0**30), b.fabs(x))
    one, zero = b.like(x, 1.0), b.like(x, 0.0)
    steep = b.compare("ogt", size, one)
    inverse = b.div(b.neg(one), size)
    # The slope of atan is 1/2 at 1, where this error matters, and 1 far away.
    slope = b.mul(inverse, b.like(x, 0.6))
    low = b.fma(b.fma(inverse, size, one), slope, b.like(x, _QUARTER[1]))
    high, low = b.select(steep, b.like(x, _QUARTER[0]), zero), b.select(steep, low, zero)
    a = b.select(steep, inverse, size)
    z = b.mul(a, a)
    return b.copysign(_sum_of_angles(b, high, low, a, b.mul(z, a), b.horner(z, c.ATAN_F32)), x)


def _sum_of_angles(b: Builder, high: Value, low: Value, a: Value, cube: Value, series: Value) -> Value:
    """high + low + a + cube series, where high is 0 or larger than a, and the others are small."""
    near = b.add(high, a)
    lost = b.sub(a, b.sub(near, high))
    return b.add(near, b.fma(series, cube, b.add(low, lost)))


def asin(b: Builder, x: Value) -> Value:
    """asin(x) = pi/2 - 2 asin(sqrt((1-x)/2)) above 1/2."""
    large, z, root, missing = _asin_parts(b, x)
    zero = b.like(x, 0.0)
    a = b.select(large, b.mul(root, b.like(x, -2.0)), b.fabs(x))
    high = b.select(large, b.like(x, _QUARTER[0]), zero)
    low = b.select(large, b.sub(b.like(x, _QUARTER[1]), missing), zero)
    series = b.horner(z, c.ASIN_F32)
    return b.copysign(_sum_of_angles(b, high, low, a, b.mul(z, a), series), x)


def acos(b: Builder, x: Value) -> Value:
    """acos(x) = 2 asin(sqrt((1-x)/2)) above 1/2, pi minus that of -x below -1/2."""
    large, z, root, missing = _asin_parts(b, x)
    below = negative(b, x)
    twice = b.add(root, root)
    a = b.select(large, b.select(below, b.neg(twice), twice), b.neg(x))
    high, low = (
        b.select(large, b.select(below, b.like(x, 2 * part), near_one), b.like(x, part))
        for part, near_one in zip(_QUARTER, (b.like(x, 0.0), missing))
    )
    return _sum_of_angles(b, high, low, a, b.mul(z, a), b.horner(z, c.ASIN_F32))


def _asin_parts(b: Builder, x: Value) -> tuple[Value, Value, Value, Value]:
    """Whether |x| > 1/2, the square of asin's argument then or else, the root in the first case,
    and about how much twice that is too small, where it matters: near sqrt(1/4)."""
    size = b.fabs(x)
    large = b.compare("ogt", size, b.like(x, 0.5))
    other = b.mul(b.sub(b.like(x, 1.0), size), b.like(x, 0.5))
    root = b.intrinsic("sqrt", other)
    missing = b.mul(b.fma(b.neg(root), root, other), b.like(x, 2.5))
    return large, b.select(large, other, b.mul(x, x)), root, missing
