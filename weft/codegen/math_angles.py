"""Sines and cosines of float64 angles, reduced by multiples of pi/2: from a table where they are huge."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from . import coefficients_wide as c
from .builder import Builder, Value
from .llvm_types import literal

TABLE_FROM = 2.0**45  # below it the nearest multiple of pi/2 is found, and subtracted in three parts
_TABLE = "weft.powers_of_two_mod_two_pi_wide"
_PIECE = 18  # bits of the mantissa that are multiplied at once: sums of such products are exact
_LEAST, _MOST = -8, 971  # exponents of huge angles whose mantissas are integers
_DIGITS = 1400  # bits after the point, of 2 pi


def sine_and_cosine(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Of r, and k as an integer of which the last two bits matter: x = r + k pi/2, |r| <= pi/4."""
    high, low = moderate(b, x, x, TABLE_FROM, _modulo_two_pi)
    magic = b.like(x, 1.5 * 2.0**52)
    shifted = b.fma(high, b.like(x, 1 / c.HALF_PI[0]), magic)
    k = b.neg(b.sub(shifted, magic))
    first = b.fma(k, b.like(x, c.HALF_PI[0]), high)  # exact
    r = b.fma(k, b.like(x, c.HALF_PI[1]), first)
    rest = b.fma(k, b.like(x, c.HALF_PI[1]), b.sub(first, r))
    rest = b.add(b.fma(k, b.like(x, c.HALF_PI[2]), rest), low)
    whole = b.add(r, rest)
    rest = b.sub(rest, b.sub(whole, r))
    z = b.mul(whole, whole)
    sine = b.fma(b.mul(b.horner(z, c.SIN), z), whole, rest)
    sine = b.select(b.compare("oeq", x, b.like(x, 0.0)), x, b.add(whole, sine))
    half = b.mul(z, b.like(x, 0.5))
    near = b.sub(b.like(x, 1.0), half)
    lost = b.sub(b.sub(b.like(x, 1.0), near), half)
    tail = b.fma(b.horner(z, c.COS), b.mul(z, z), b.fma(b.neg(whole), rest, lost))
    return sine, b.add(near, tail), b.bits(shifted)


def moderate(
    b: Builder, x: Value, wide: Value, limit: float, modulo_two_pi: Callable[[Builder, Value], tuple[Value, Value]]
) -> tuple[Value, Value]:
    """The angle, which is x or x in float64, as a sum of two float64; those from the limit on are taken modulo 2 pi, in
    a branch."""
    none = b.like(wide, -0.0)  # added to -0.0 it keeps the sign
    huge = b.compare("oge", b.fabs(x), b.like(x, limit))

    def reduced() -> list[Value]:
        high, low = modulo_two_pi(b, x)
        return [b.select(huge, high, wide), b.select(huge, low, none)]

    high, low = b.branch(b.any_of(huge), reduced, [wide, none])
    return high, low


def _modulo_two_pi(b: Builder, x: Value) -> tuple[Value, Value]:
    """x = M 2**e with an integer M: pieces of M times powers of two modulo 2 pi."""
    b.globals.setdefault(_TABLE, _table_text())
    pattern = b.bits(b.fabs(x))
    exponent = b.binary("sub", b.binary("lshr", pattern, b.like(pattern, 52)), b.like(pattern, 1075))
    least, most = b.like(pattern, _LEAST), b.like(pattern, _MOST)
    exponent = b.select(b.compare("slt", exponent, least), least, exponent)
    exponent = b.select(b.compare("sgt", exponent, most), most, exponent)
    mantissa = b.binary("and", pattern, b.like(pattern, 2**52 - 1))
    mantissa = b.binary("or", mantissa, b.like(pattern, 2**52))
    sums = [b.like(x, 0.0)] * 3
    for number in range(3):
        shifted = b.binary("lshr", mantissa, b.like(pattern, number * _PIECE))
        piece = b.convert("sitofp", b.binary("and", shifted, b.like(pattern, 2**_PIECE - 1)), "double")
        piece = b.copysign(piece, x)
        row = b.binary("add", exponent, b.like(exponent, number * _PIECE - _LEAST))
        sums = [b.fma(piece, _entry(b, row, part), total) for part, total in enumerate(sums)]
    near = b.add(sums[0], sums[1])
    return near, b.add(b.sub(sums[1], b.sub(near, sums[0])), sums[2])


def _entry(b: Builder, row: Value, part: int) -> Value:
    result = b.poison("double", row.lanes)
    for lane in range(row.lanes):
        number = b.extract(row, lane)
        pointer = b.pure(
            "ptr", 1, f"getelementptr [3 x double], ptr @{_TABLE}, i64 {number.ref}, i64 {part}", (number,)
        )
        item = b.effect("double", 1, f"load double, ptr {pointer.ref}, align 8")
        result = item if row.lanes == 1 else b.insert(result, item, lane)
    return result


@cache
def _table_text() -> str:
    two_pi = 2 * _pi_scaled()
    rows, power = [], (1 << (_DIGITS + _LEAST)) % two_pi
    for _ in range(_LEAST, _MOST + 2 * _PIECE + 1):
        numbers = ", ".join(f"double {literal('double', part)}" for part in _parts(power))
        rows.append(f"[3 x double] [{numbers}]")
        power = 2 * power % two_pi
    return f"@{_TABLE} = private unnamed_addr constant [{len(rows)} x [3 x double]] [{', '.join(rows)}]"


def _parts(number: int) -> tuple[float, float, float]:
    """A scaled number as three floats, the first two of at most 29 bits."""
    parts = []
    for weight in (26, 55):
        unit = 1 << (_DIGITS - weight)
        parts.append((number // unit) / 2.0**weight)
        number %= unit
    return parts[0], parts[1], number / (1 << _DIGITS)


def _pi_scaled() -> int:
    """pi 2**_DIGITS: 16 atan(1/5) - 4 atan(1/239)."""
    guard = 32
    one = 1 << (_DIGITS + guard)

    def arctangent(inverse: int) -> int:
        total, term, odd = 0, one // inverse, 1
        while term:
            total += term // odd if odd % 4 == 1 else -(term // odd)
            term //= inverse * inverse
            odd += 2
        return total

    return (16 * arctangent(5) - 4 * arctangent(239)) >> guard
