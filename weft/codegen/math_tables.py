"""Functions of float32 where an instruction looks 16 numbers up in registers (AVX-512): with a table, a short
polynomial does. Vectors of any number of lanes come in; the bits of a lane do not depend on how many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import coefficients as c
from .builder import Builder, Value
from .llvm_types import literal

LANES = 16  # of the register, and numbers of a table


def serve(b: Builder, x: Value) -> bool:
    """Whether they do for a value."""
    return x.element == "float" and b.has("avx512f")


def exp_of_negative(b: Builder, x: Value) -> Value:
    """e**x for x <= 0, to 2 ulp: 2**k * 2**(j/16) * e**r, |r| <= ln(2)/32.

    What rounds 16 x / ln 2 to a whole number leaves k, and 24 more, in its bits, and j in the lowest four. The shift
    that makes k an exponent leaves j below it, which the table has less. The 24 make 2**k normal wherever e**x is not
    zero; the last product takes them back.
    """
    x = b.larger(b.like(x, -104.0), x)
    magic = b.like(x, 1.5 * 2.0**23 + LANES * 24)
    shifted = b.fma(x, b.like(x, c.SIXTEENTHS), magic)
    k = b.sub(shifted, magic)
    r = b.fma(k, b.like(x, -c.LN2_F32[1] / LANES), b.fma(k, b.like(x, -c.LN2_F32[0] / LANES), x))
    bits = b.bits(shifted)
    more = b.mul(b.horner(r, c.EXP_SIXTEENTH[1:]), r)
    roots = b.bits(_looked_up(b, bits, c.ROOTS_OF_TWO))
    power = b.from_bits(b.binary("add", roots, b.binary("shl", bits, b.like(bits, 19))))
    return b.mul(b.fma(power, more, power), b.like(x, 2.0**-24))


def over_one_and(b: Builder, z: Value, n: Value) -> Value:
    """n/(1 + z) for 0 <= z <= 1, n being 1 or z: the machine's reciprocal r of 1 + z is off by 2**-14, and q + r e by
    its square. e = n - q (1 + z) = (n - q) - q z takes what 1 + z is rounded by back; n - q is exact, as n/2 <= q <= n.
    """
    r = _reciprocal(b, b.add(b.like(z, 1.0), z))
    q = b.mul(n, r)
    return b.fma(b.fma(b.neg(z), q, b.sub(n, q)), r, q)


def erf(b: Builder, x: Value) -> Value:
    return _by_pieces(b, x, c.ERF_INTERVAL, c.ERF_PIECES)


def tanh(b: Builder, x: Value) -> Value:
    return _by_pieces(b, x, c.TANH_INTERVAL, c.TANH_PIECES)


def _by_pieces(b: Builder, x: Value, interval: float, pieces: Sequence[Sequence[float]]) -> Value:
    """An odd function: a polynomial around each multiple of an interval, plus, around zero, x; around the last it is 1.
    `pieces`: the coefficients of each power."""
    size = b.smaller(b.like(x, interval * (len(pieces[0]) - 1)), b.fabs(x))
    magic = b.like(x, 1.5 * 2.0**23)
    shifted = b.fma(size, b.like(x, 1 / interval), magic)
    r = b.fma(b.sub(shifted, magic), b.like(x, -interval), size)
    bits = b.bits(shifted)
    first, *others = [_looked_up(b, bits, table) for table in pieces]
    total = others.pop()
    while others:
        total = b.fma(total, r, others.pop())
    near = b.compare("oeq", shifted, magic)  # the first number of the table is looked up
    return b.copysign(b.fma(total, r, b.select(near, r, first)), x)


def _looked_up(b: Builder, index: Value, table: Sequence[float]) -> Value:
    """The number of a table of 16 or 32 that the low bits of an index say."""
    registers = [_register(table[first : first + LANES]) for first in range(0, len(table), LANES)]

    def look(part: Value) -> Value:
        if len(registers) == 1:
            return b.call("x86.avx512.permvar.sf.512", registers[0], registers[0], part)
        return b.call("x86.avx512.vpermi2var.ps.512", registers[0], registers[0], part, registers[1])

    return _in_registers(b, index, look)


def _register(numbers: Sequence[float]) -> Value:
    return Value(f"<{', '.join('float ' + literal('float', number) for number in numbers)}>", "float", LANES, 0)


def _reciprocal(b: Builder, x: Value) -> Value:
    nothing, all_lanes = Value("zeroinitializer", "float", LANES, 0), Value("-1", "i16", 1, 0)
    return _in_registers(b, x, lambda part: b.call("x86.avx512.rcp14.ps.512", part, part, nothing, all_lanes))


def _in_registers(b: Builder, x: Value, function: Callable[[Value], Value]) -> Value:
    """A function of whole registers, of a value of any number of lanes."""
    if x.lanes == 1:
        return b.extract(function(b.insert(b.poison(x.element, LANES), x, 0)), 0)
    if x.lanes < LANES:
        wide = function(b.shuffle(x, x, [*range(x.lanes), *[0] * (LANES - x.lanes)]))
        return b.shuffle(wide, wide, range(x.lanes))
    if x.lanes == LANES:
        return function(x)
    half = x.lanes // 2
    low, high = (_in_registers(b, b.shuffle(x, x, range(at, at + half)), function) for at in (0, half))
    return b.shuffle(low, high, range(x.lanes))
