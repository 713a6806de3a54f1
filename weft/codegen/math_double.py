"""Functions computed in float64 to be rounded to float32: accurate to about 1e-11, no more."""

from __future__ import annotations

import math
from collections.abc import Callable

from . import coefficients as c
from .arithmetic import negative
from .builder import Builder, Value
from .llvm_types import literal
from .math_angles import moderate
from .math_exp_log import exp, exp2, of_positive, rough_log

SMALL = 1e-4  # below it three terms of a series are enough

# From here on arguments of sin and cos are first reduced with a table; below it the nearest
# multiple of pi/2 times HALF_PI[0] is exact.
TABLE_FROM = 2.0**26
_TABLE = "weft.powers_of_two_mod_two_pi"


def _near_zero(b: Builder, x: Value, near: Value, far: Value) -> Value:
    return b.select(b.compare("olt", b.fabs(x), b.like(x, SMALL)), near, far)


def _odd_series(b: Builder, x: Value, cubic: float) -> Value:
    """x + cubic x**3, with the sign of x also when that is a zero."""
    return b.copysign(b.fma(b.mul(b.mul(x, x), x), b.like(x, cubic), x), x)


def log_base(base: float) -> Callable[[Builder, Value], Value]:
    """Of float32: only the logarithm itself is computed in float64."""

    def logarithm(b: Builder, x: Value) -> Value:
        wide = rough_log(b, b.convert("fpext", x, "double"), base)
        return of_positive(b, x, b.convert("fptrunc", wide, "float"))

    return logarithm


def sinh(b: Builder, x: Value) -> Value:
    e = exp(b, x)
    far = b.mul(b.sub(e, b.div(b.like(x, 1.0), e)), b.like(x, 0.5))
    return _near_zero(b, x, _odd_series(b, x, 1 / 6), far)


def cosh(b: Builder, x: Value) -> Value:
    e = exp(b, x)
    return b.mul(b.add(e, b.div(b.like(x, 1.0), e)), b.like(x, 0.5))


def asinh(b: Builder, x: Value) -> Value:
    """Of float32: the edges are seen to in float32."""
    wide = b.convert("fpext", x, "double")
    root = b.intrinsic("sqrt", b.fma(wide, wide, b.like(wide, 1.0)))
    far = b.copysign(_rounded_log(b, b.add(b.fabs(wide), root)), x)
    return _finite_or_same(b, x, _near_zero(b, x, _odd_series(b, x, -1 / 6), far))


def acosh(b: Builder, x: Value) -> Value:
    wide = b.convert("fpext", x, "double")
    one = b.like(wide, 1.0)
    root = b.intrinsic("sqrt", b.mul(b.sub(wide, one), b.add(wide, one)))
    result = _finite_or_same(b, x, _rounded_log(b, b.add(wide, root)))
    return b.select(b.compare("oge", x, b.like(x, 1.0)), result, b.like(x, float("nan")))


def atanh(b: Builder, x: Value) -> Value:
    wide = b.convert("fpext", x, "double")
    size, one = b.fabs(x), b.like(wide, 1.0)
    log = _rounded_log(b, b.div(b.add(one, wide), b.sub(one, wide)))
    result = _near_zero(b, x, _odd_series(b, x, 1 / 3), b.mul(log, b.like(x, 0.5)))
    edge = b.compare("oeq", size, b.like(x, 1.0))
    result = b.select(edge, b.copysign(b.like(x, float("inf")), x), result)
    return b.select(b.compare("ole", size, b.like(x, 1.0)), result, b.like(x, float("nan")))


def _rounded_log(b: Builder, wide: Value) -> Value:
    return b.convert("fptrunc", rough_log(b, wide), "float")


def _finite_or_same(b: Builder, x: Value, result: Value) -> Value:
    return b.select(b.compare("olt", b.fabs(x), b.like(x, float("inf"))), result, x)


def _atan_small(b: Builder, x: Value) -> Value:
    return b.mul(x, b.horner(b.mul(x, x), c.ATAN))


def atan(b: Builder, x: Value) -> Value:
    """atan(x) = pi/2 - atan(1/x) above 1."""
    size = b.fabs(x)
    steep = b.compare("ogt", size, b.like(x, 1.0))
    small = _atan_small(b, b.select(steep, b.div(b.like(x, 1.0), size), size))
    angle = b.select(steep, b.sub(b.like(x, math.pi / 2), small), small)
    return b.copysign(angle, x)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """The angle of (|x|, |y|) from the ratio of the smaller to the larger, then mirrored."""
    rise, run = b.fabs(y), b.fabs(x)
    steep = b.compare("ogt", rise, run)
    ratio = b.div(b.select(steep, run, rise), b.select(steep, rise, run))
    ratio = b.select(b.compare("oeq", rise, run), b.like(x, 1.0), ratio)
    ratio = b.select(b.compare("oeq", rise, b.like(x, 0.0)), b.like(x, 0.0), ratio)
    angle = _atan_small(b, ratio)
    angle = b.select(steep, b.sub(b.like(x, math.pi / 2), angle), angle)
    angle = b.select(negative(b, x), b.sub(b.like(x, math.pi), angle), angle)
    unordered = b.compare("uno", x, y)
    return b.select(unordered, b.like(x, float("nan")), b.copysign(angle, y))


def pow_(b: Builder, x: Value, y: Value) -> Value:
    """|x|**y = 2**(y log2|x|) of float32. Only the exponent is computed in float64."""
    size = b.fabs(x)
    return power_cases(b, x, y, exp2(b, _exponent(b, size, y)))


def power_cases(b: Builder, x: Value, y: Value, result: Value) -> Value:
    """x**y, where |x|**y is known, with the sign and the exceptions of C's pow."""
    zero, one = b.like(x, 0.0), b.like(x, 1.0)
    infinity, size = b.like(x, float("inf")), b.fabs(x)
    whole = b.compare("oeq", b.intrinsic("floor", y), y)
    half = b.mul(y, b.like(y, 0.5))
    odd = b.binary("and", whole, b.compare("une", b.intrinsic("floor", half), half))
    flipped = b.binary("and", odd, negative(b, x))
    result = b.select(flipped, b.neg(result), result)
    finite_negative = b.binary("and", b.compare("olt", x, zero), b.compare("olt", size, infinity))
    fraction = b.binary("xor", whole, b.const("i1", x.lanes, True))
    nowhere = b.binary("and", finite_negative, fraction)
    nowhere = b.binary("or", nowhere, b.compare("uno", x, x))
    result = b.select(nowhere, b.like(x, float("nan")), result)
    certain = b.binary("or", b.compare("oeq", y, zero), b.compare("oeq", x, one))
    return b.select(certain, one, result)


def _exponent(b: Builder, size: Value, y: Value) -> Value:
    """y log2(size) as float64; huge numbers stand for the infinite ones.

    A huge y is a large one, lest infinity meets log2(1), and times as much again where the rough
    logarithm of zero or infinity is only large.
    """
    zero, infinity = b.like(y, 0.0), b.like(y, float("inf"))
    y = b.larger(b.like(y, -(2.0**60)), b.smaller(b.like(y, 2.0**60), y))
    edge = b.binary("or", b.compare("oeq", size, zero), b.compare("oeq", size, infinity))
    y = b.select(edge, b.mul(b.mul(y, b.like(y, 2.0**120)), b.like(y, 2.0**60)), y)
    wide = rough_log(b, b.convert("fpext", size, "double"), 2)
    return b.mul(b.convert("fpext", y, "double"), wide)


def sin(b: Builder, x: Value) -> Value:
    return _from_half_turns(b, x, 0.0)


def cos(b: Builder, x: Value) -> Value:
    return _from_half_turns(b, x, 0.5)


def _from_half_turns(b: Builder, x: Value, part: float) -> Value:
    """sin(x) = (-1)**k sin(r) with x = r + k pi; cos(x) = -(-1)**k sin(r) with half a turn of pi
    more. |r| <= pi/2, so that one polynomial does."""
    wide = b.convert("fpext", x, "double")
    high, low = moderate(b, x, wide, TABLE_FROM, _modulo_two_pi)
    magic = b.like(wide, 1.5 * 2.0**52)
    per_turn = b.like(wide, 1 / math.pi)
    if part:
        shifted = b.add(b.fma(high, per_turn, b.like(wide, -part)), magic)
        k = b.add(b.sub(shifted, magic), b.like(wide, part))
    else:
        shifted = b.fma(high, per_turn, magic)
        k = b.sub(shifted, magic)
    r = b.fma(k, b.like(wide, -2 * c.HALF_PI[1]), b.fma(k, b.like(wide, -2 * c.HALF_PI[0]), high))
    r = b.fma(k, b.like(wide, -2 * c.HALF_PI[2]), b.add(r, low))
    z = b.mul(r, r)
    sine = b.copysign(b.fma(b.mul(b.horner(z, c.SIN_WIDE), z), r, r), r)
    turns = b.bits(shifted)
    turns = b.binary("add", turns, b.like(turns, 1)) if part else turns
    sign = b.binary("shl", turns, b.like(turns, 63))
    result = b.convert("fptrunc", b.from_bits(b.binary("xor", b.bits(sine), sign)), "float")
    return _of_finite(b, x, result)


def tan(b: Builder, x: Value) -> Value:
    def ratio(sine: Value, cosine: Value, k: Value) -> Value:
        odd = b.compare("ne", b.binary("and", k, b.like(k, 1)), b.like(k, 0))
        top = b.select(odd, b.neg(cosine), sine)
        return b.div(top, b.select(odd, sine, cosine))

    return _from_quarters(b, x, ratio)


def _from_quarters(b: Builder, x: Value, combine: Callable[[Value, Value, Value], Value]) -> Value:
    """A function of a float32 angle from the sine and cosine of r and k, x = r + k pi/2."""
    wide = b.convert("fpext", x, "double")
    high, low = moderate(b, x, wide, TABLE_FROM, _modulo_two_pi)
    magic = b.like(wide, 1.5 * 2.0**52)
    shifted = b.add(b.mul(high, b.like(wide, 2 / math.pi)), magic)
    k = b.sub(shifted, magic)
    r = high
    for part in c.HALF_PI[:2]:
        r = b.sub(r, b.mul(k, b.like(wide, part)))
    r = b.add(r, b.sub(low, b.mul(k, b.like(wide, c.HALF_PI[2]))))
    z = b.mul(r, r)
    sine = b.copysign(b.fma(b.mul(b.horner(z, c.SIN), z), r, r), r)
    cosine = b.fma(b.horner(z, c.COS), b.mul(z, z), b.fma(z, b.like(z, -0.5), b.like(z, 1.0)))
    quarter = b.bits(shifted)
    return _of_finite(b, x, b.convert("fptrunc", combine(sine, cosine, quarter), "float"))


def _of_finite(b: Builder, x: Value, result: Value) -> Value:
    finite = b.compare("olt", b.fabs(x), b.like(x, float("inf")))
    return b.select(finite, result, b.like(x, float("nan")))


def _modulo_two_pi(b: Builder, x: Value) -> tuple[Value, Value]:
    """x = M 2**e with an integer M: M times (2**e modulo 2 pi), from a table, in short parts."""
    b.globals.setdefault(_TABLE, _table_text())
    pattern = b.bits(b.fabs(x))
    exponent = b.binary("lshr", pattern, b.like(pattern, 23))
    mantissa = b.binary("and", pattern, b.like(pattern, 0x7FFFFF))
    mantissa = b.binary("or", mantissa, b.like(pattern, 0x800000))
    m = b.copysign(b.convert("sitofp", mantissa, "double"), b.convert("fpext", x, "double"))
    entry = b.binary("sub", exponent, b.like(exponent, 150))
    entry = b.select(b.compare("slt", entry, b.like(entry, 0)), b.like(entry, 0), entry)
    parts = [b.mul(m, _table_entry(b, entry, part)) for part in range(3)]
    return parts[0], b.add(parts[1], parts[2])


def _table_entry(b: Builder, entry: Value, part: int) -> Value:
    """Lane by lane: this branch is rare, and gathers of a table are no quicker."""
    result = b.poison("double", entry.lanes)
    for lane in range(entry.lanes):
        row = b.convert("zext", b.extract(entry, lane), "i64")
        text = f"getelementptr [3 x double], ptr @{_TABLE}, i64 {row.ref}, i64 {part}"
        pointer = b.pure("ptr", 1, text, (row,))
        item = b.effect("double", 1, f"load double, ptr {pointer.ref}, align 8")
        result = item if entry.lanes == 1 else b.insert(result, item, lane)
    return result


def _table_text() -> str:
    rows = []
    for exponent in range(256 - 150):
        numbers = ", ".join(f"double {literal('double', part)}" for part in _power_parts(exponent))
        rows.append(f"[3 x double] [{numbers}]")
    body = ", ".join(rows)
    return f"@{_TABLE} = private unnamed_addr constant [{len(rows)} x [3 x double]] [{body}]"


# 2 pi * 2**400, rounded: more digits than reducing the largest float32 needs.
_SCALE_BITS = 400
_TWO_PI_SCALED = int(
    "6487ed5110b4611a62633145c06e0e68948127044533e63a0105df531d89cd9128a5043cc71a026ef7ca8cd9e69d218d98158", 16
)


def _power_parts(exponent: int) -> tuple[float, float, float]:
    """2**exponent modulo 2 pi as three floats, the first two of at most 29 bits."""
    rest = (1 << (exponent + _SCALE_BITS)) % _TWO_PI_SCALED
    parts = []
    for weight in (26, 55):
        unit = 1 << (_SCALE_BITS - weight)
        parts.append((rest // unit) / 2.0**weight)
        rest %= unit
    return parts[0], parts[1], rest / (1 << _SCALE_BITS)
