"""Unary, binary and comparison operators on LLVM values, with numpy's meaning of the edge cases:
integers wrap, division by zero gives 0, shifts past the width empty the value, NaN propagates."""

from __future__ import annotations

from collections.abc import Callable

from ..base.dtype import DType, is_float
from ..base.errors import DTypeError
from .builder import Builder, Value, mangled
from .llvm_types import BITS, is_signed
from .remainder import float_remainder

_WORDS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_BOOLEAN = {"add": "or", "mul": "and", "min": "and", "max": "or", "and": "and", "or": "or"}
_BOOLEAN["xor"] = "xor"
_FLOAT_WORDS = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv"}
_ORDERED = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


def binary(b: Builder, op: str, x: Value, y: Value, dtype: DType) -> Value:
    """A `te.expr.BINARY` operator."""
    if x.element == "i1":
        if op not in _BOOLEAN:
            raise DTypeError(f"{op} of bool", hint="cast to an integer first")
        return b.binary(_BOOLEAN[op], x, y)
    if is_float(dtype):
        return _float_binary(b, op, x, y)
    if op in _WORDS:
        return b.binary(_WORDS[op], x, y)
    return _INTEGER[op](b, x, y, is_signed(dtype))


def compare(b: Builder, op: str, x: Value, y: Value, dtype: DType) -> Value:
    """A `te.expr.COMPARE` operator."""
    if is_float(dtype):
        return b.compare(_ORDERED[op], x, y)
    if op in ("eq", "ne"):
        return b.compare(op, x, y)
    return b.compare(("s" if is_signed(dtype) else "u") + op, x, y)


def unary(b: Builder, op: str, x: Value, dtype: DType) -> Value:
    """`neg` of a number; `not` of the bits of an integer or of a truth value."""
    if op == "not":
        if is_float(dtype):
            raise DTypeError(f"not of {dtype}", hint="compare with 0 first")
        return b.binary("xor", x, b.like(x, -1))
    if x.element == "i1":
        raise DTypeError("neg of bool", hint="use not")
    return b.neg(x) if is_float(dtype) else b.binary("sub", b.like(x, 0), x)


def _float_binary(b: Builder, op: str, x: Value, y: Value) -> Value:
    if op in _FLOAT_WORDS:
        return b.binary(_FLOAT_WORDS[op], x, y)
    if op in ("min", "max"):
        if b.has_propagating and x.element == "float":
            return b.call(f"{op}imum.{mangled(x)}", x, x, y)
        return _propagating(b, b.smaller if op == "min" else b.larger, x, y)
    if op == "floordiv":
        return float_floordiv(b, x, y)
    if op == "floormod":
        return float_floormod(b, x, y)
    raise DTypeError(f"{op} of a float")


def _propagating(b: Builder, pick: Callable[[Value, Value], Value], x: Value, y: Value) -> Value:
    """Machine min and max give their second operand on NaN: a number goes first, and x needs a
    second look only when it may be NaN itself."""
    if _is_number(x):
        return pick(x, y)
    if _is_number(y):
        return pick(y, x)
    return b.select(b.compare("uno", x, x), x, pick(x, y))


def _is_number(value: Value) -> bool:
    return not value.ref.startswith("%") and "0x7FF8" not in value.ref


def float_floormod(b: Builder, x: Value, y: Value) -> Value:
    """The remainder with the sign of y, as numpy.mod."""
    rest = float_remainder(b, x, y)
    zero = b.like(x, 0)
    differs = b.compare("ne", negative(b, rest), negative(b, y))
    adjust = b.binary("and", b.compare("une", rest, zero), differs)
    moved = b.select(adjust, b.add(rest, y), rest)
    return b.select(b.compare("oeq", rest, zero), b.copysign(zero, y), moved)


def negative(b: Builder, x: Value) -> Value:
    """Whether the sign bit is set."""
    pattern = b.bits(x)
    return b.compare("slt", pattern, b.like(pattern, 0))


def float_floordiv(b: Builder, x: Value, y: Value) -> Value:
    return b.intrinsic("floor", b.div(x, y))


def constant_of(value: Value) -> int | None:
    """The number an integer constant, scalar or splat, stands for."""
    text = value.ref
    if text.startswith("splat ("):
        text = text[7:-1].split()[1]
    return int(text) if text.lstrip("-").isdigit() else None


def _divide(b: Builder, x: Value, y: Value, signed: bool) -> tuple[Value, Value]:
    """Quotient and remainder rounded towards zero; both 0 when y is 0, and never a trap."""
    word = "sdiv" if signed else "udiv"
    number = constant_of(y)
    if number == 0:
        return b.like(x, 0), b.like(x, 0)
    if number == -1 and signed:
        return b.binary("sub", b.like(x, 0), x), b.like(x, 0)
    if number is not None:
        text = f"{word} {x.type} {x.ref}, {y.ref}"
        quotient = b.pure(x.element, x.lanes, text, (x, y), x.lanes == 1 and x.element == "i64")
        return quotient, b.binary("sub", x, b.binary("mul", quotient, y))
    zero, one = b.like(x, 0), b.like(x, 1)
    empty = b.compare("eq", y, zero)
    trap = b.compare("eq", y, b.like(x, -1)) if signed else empty
    safe = b.select(b.binary("or", empty, trap) if signed else empty, one, y)
    quotient = b.binary(word, x, safe)
    if signed:
        quotient = b.select(trap, b.binary("sub", zero, x), quotient)
    rest = b.binary("sub", x, b.binary("mul", quotient, y))
    return b.select(empty, zero, quotient), b.select(empty, zero, rest)


def _div(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    return _divide(b, x, y, signed)[0]


def _needs_step(b: Builder, rest: Value, y: Value) -> Value:
    """Whether rounding towards zero and towards minus infinity differ."""
    zero = b.like(rest, 0)
    opposite = b.compare("slt", b.binary("xor", rest, y), zero)
    return b.binary("and", b.compare("ne", rest, zero), opposite)


def _floordiv(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    number = constant_of(y)
    if number is not None and number > 0 and number & (number - 1) == 0:
        return b.binary("ashr" if signed else "lshr", x, b.like(x, number.bit_length() - 1))
    quotient, rest = _divide(b, x, y, signed)
    if not signed:
        return quotient
    return b.select(_needs_step(b, rest, y), b.binary("sub", quotient, b.like(x, 1)), quotient)


def _floormod(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    number = constant_of(y)
    if number is not None and number > 0 and number & (number - 1) == 0:
        return b.binary("and", x, b.like(x, number - 1))
    rest = _divide(b, x, y, signed)[1]
    if not signed:
        return rest
    return b.select(_needs_step(b, rest, y), b.binary("add", rest, y), rest)


def _min(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    return b.select(b.compare("slt" if signed else "ult", x, y), x, y)


def _max(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    return b.select(b.compare("sgt" if signed else "ugt", x, y), x, y)


def _shl(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    inside, amount = _shift_amount(b, y)
    return b.select(inside, b.binary("shl", x, amount), b.like(x, 0))


def _shr(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    inside, amount = _shift_amount(b, y)
    if signed:
        amount = b.select(inside, y, b.like(y, BITS[y.element] - 1))
        return b.binary("ashr", x, amount)
    return b.select(inside, b.binary("lshr", x, amount), b.like(x, 0))


def _shift_amount(b: Builder, y: Value) -> tuple[Value, Value]:
    inside = b.compare("ult", y, b.like(y, BITS[y.element]))
    return inside, b.select(inside, y, b.like(y, 0))


_INTEGER: dict[str, Callable[[Builder, Value, Value, bool], Value]] = {
    "div": _div,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "min": _min,
    "max": _max,
    "shl": _shl,
    "shr": _shr,
}


def remainder(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    """What integer division towards zero leaves; it has the sign of x."""
    return _divide(b, x, y, signed)[1]
