"""Writers of arithmetic, comparisons and activations."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from ....base.dtype import BOOL, INT32, DType, is_float, is_integer
from ....ops._families import number
from ..writing import Writing, writes


@writes("ceil", "floor", "round")
def round_(w: Writing) -> None:
    w.give(w.op_name.capitalize() if is_float(w.dtype) else "Identity", w.inputs[0])


@writes("trunc")
def truncate(w: Writing) -> None:
    """sign(x) floor(|x|)"""
    x = w.inputs[0]
    if is_float(w.dtype):
        w.give("Mul", w.node("Sign", x), w.node("Floor", w.node("Abs", x)))
    else:
        w.give("Identity", x)


@writes("dropout")
def dropout(w: Writing) -> None:
    w.require(not w.params.training, "training")
    w.give("Identity", w.inputs[0])


@writes("elemwise_sum")
def sum_of_all(w: Writing) -> None:
    """Sum takes floats."""
    if is_float(w.dtype):
        w.give("Sum", *w.inputs)
    else:
        w.give_value(reduce(lambda total, other: w.node("Add", total, other), w.inputs))


@writes("rsqrt")
def inverse_root(w: Writing) -> None:
    w.give("Reciprocal", w.node("Sqrt", w.inputs[0]))


@writes("expm1")
def exp_minus_one(w: Writing) -> None:
    """e^x - 1 = tanh(x / 2) (e^x + 1), which is exact near 0"""
    x = w.inputs[0]
    half = w.node("Tanh", w.node("Mul", x, w.constant(0.5)))
    w.give("Mul", half, w.node("Add", w.node("Exp", x), w.constant(1)))


@writes("log1p")
def log_of_one_plus(w: Writing) -> None:
    """log(1 + x); 2 atanh(x / (2 + x)) near 0"""
    x = w.inputs[0]
    near = w.node("Div", x, w.node("Add", x, w.constant(2)))
    near = w.node("Mul", w.node("Atanh", near), w.constant(2))
    small = w.node("Less", w.node("Abs", x), w.constant(0.5))
    w.give("Where", small, near, w.node("Log", w.node("Add", x, w.constant(1))))


@writes("exp2")
def power_of_two(w: Writing) -> None:
    w.give("Pow", w.constant(2), w.inputs[0])


@writes("log2", "log10")
def log_to_base(w: Writing) -> None:
    base = 2 if w.op_name == "log2" else 10
    w.give("Mul", w.node("Log", w.inputs[0]), w.constant(1 / math.log(base)))


@writes("_root")
def root(w: Writing) -> None:
    w.give("Sqrt", w.inputs[0])


@writes("logaddexp")
def log_of_two(w: Writing) -> None:
    """max(x, y) + log(1 + exp(-|x - y|)), where infinite ones of a kind differ by 0"""
    x, y = w.inputs
    zero = w.constant(0)
    apart = w.node("Where", w.node("Equal", x, y), zero, w.node("Abs", w.node("Sub", x, y)))
    w.give("Add", w.node("Max", x, y), w.node("Softplus", w.node("Neg", apart)))


@writes("isnan", "isinf")
def predicate(w: Writing) -> None:
    w.give_cast(w.node("IsNaN" if w.op_name == "isnan" else "IsInf", w.inputs[0]))


@writes("isfinite")
def is_finite(w: Writing) -> None:
    """x - x is 0 of numbers, and NaN of the others."""
    x = w.inputs[0]
    w.require(is_float(w.dtype), "integers")
    w.give_cast(w.node("Not", w.node("IsNaN", w.node("Sub", x, x))))


# Quotients, remainders and powers.


def floor_divided(w: Writing, x: str, y: str, dtype: DType) -> str:
    """Integers divided and rounded down, 0 where the divisor is 0: (x - x mod y) / y."""
    rest, safe, zero = _remainder(w, x, y, dtype)
    quotient = w.node("Div", w.node("Sub", x, rest), safe)
    return w.node("Where", zero, w.constant(0, dtype), quotient)


def _remainder(w: Writing, x: str, y: str, dtype: DType) -> tuple[str, str, str]:
    """The remainder with the divisor's sign, a divisor that is not 0, and where it was."""
    zero = w.node("Equal", y, w.constant(0, dtype))
    safe = w.node("Where", zero, w.constant(1, dtype), y)
    return w.node("Mod", x, safe), safe, zero


def _quotient(w: Writing, x: str, y: str) -> None:
    if is_integer(w.dtype):
        w.give_value(floor_divided(w, x, y, w.dtype))
    else:
        w.give("Div", x, y)


@writes("elemwise_div", "broadcast_div")
def divide(w: Writing) -> None:
    _quotient(w, *w.inputs)


@writes("elemwise_mod", "broadcast_mod")
def modulo(w: Writing) -> None:
    """Mod of floats has the sign of x: where that is not the sign of y, y is added."""
    x, y = w.inputs
    if is_integer(w.dtype):
        rest, _, zero = _remainder(w, x, y, w.dtype)
        w.give("Where", zero, w.constant(0), rest)
        return
    rest, zero = w.node("Mod", x, y, fmod=1), w.constant(0)
    other = w.node("Xor", w.node("Less", rest, zero), w.node("Less", y, zero))
    some = w.node("Not", w.node("Equal", rest, zero))
    w.give("Where", w.node("And", some, other), w.node("Add", rest, y), rest)


@writes("fmod")
def remainder(w: Writing) -> None:
    """It has the sign of x; of integers it is 0 where y is 0."""
    x, y = w.inputs
    if is_float(w.dtype):
        w.give("Mod", x, y, fmod=1)
        return
    zero = w.node("Equal", y, w.constant(0))
    rest = w.node("Mod", x, w.node("Where", zero, w.constant(1), y), fmod=1)
    w.give("Where", zero, w.constant(0), rest)


@writes("floor_divide")
def floor_quotient(w: Writing) -> None:
    """Floats by their exact remainder: round((x - x fmod y) / y), less 1 where the remainder has not the sign of y."""
    x, y = w.inputs
    if is_integer(w.dtype):
        w.give_value(floor_divided(w, x, y, w.dtype))
        return
    zero, rest = w.constant(0), w.node("Mod", x, y, fmod=1)
    whole = w.node("Round", w.node("Div", w.node("Sub", x, rest), y))
    other = w.node("Xor", w.node("Less", rest, zero), w.node("Less", y, zero))
    lower = w.node("And", other, w.node("Not", w.node("Equal", rest, zero)))
    whole = w.node("Sub", whole, w.node("Where", lower, w.constant(1), zero))
    w.give("Where", w.node("Equal", y, zero), w.node("Div", x, y), whole)


@writes("elemwise_pow", "broadcast_pow", "__rpow_scalar__")
def power(w: Writing) -> None:
    w.require(is_float(w.dtype), "integers")
    w.give("Pow", *([_scalar(w)] if w.op_name == "__rpow_scalar__" else []), *w.inputs)


def _scalar(w: Writing) -> str:
    return w.constant(number(w.params.scalar, w.dtype))


@writes("__add_scalar__", "__sub_scalar__", "__mul_scalar__", "__rsub_scalar__", "__div_scalar__", "__rdiv_scalar__")
def with_number(w: Writing) -> None:
    """A name that starts with r has the number on the left."""
    op = w.op_name.removeprefix("__").removesuffix("_scalar__")
    sides = (w.inputs[0], _scalar(w))[:: -1 if op.startswith("r") else 1]
    if "div" in op:
        _quotient(w, *sides)
    else:
        w.give(op[-3:].capitalize(), *sides)


@writes("__pow_scalar__")
def power_of_number(w: Writing) -> None:
    if is_float(w.dtype):
        w.give("Pow", w.inputs[0], _scalar(w))
        return
    exponent = number(w.params.scalar, w.dtype)
    w.require(0 < exponent <= _LARGEST_EXPONENT, f"integers to the power of {exponent}")
    total = w.inputs[0]
    for _ in range(int(exponent) - 1):
        total = w.node("Mul", total, w.inputs[0])
    w.give_value(total) if exponent > 1 else w.give("Identity", total)


_LARGEST_EXPONENT = 16


# Comparisons and choices.

_COMPARISONS = {
    "broadcast_equal": "Equal",
    "broadcast_greater": "Greater",
    "broadcast_less": "Less",
    "broadcast_greater_equal": "GreaterOrEqual",
    "broadcast_less_equal": "LessOrEqual",
    "greater": "Greater",
    "less": "Less",
}


@writes(*_COMPARISONS)
def compare(w: Writing) -> None:
    """Bool in ONNX; 0 and 1 of a dtype here."""
    sides = w.inputs
    if w.dtype == BOOL and w.op_name != "broadcast_equal":
        sides = [w.cast(name, INT32) for name in sides]
    w.give_cast(w.node(_COMPARISONS[w.op_name], *sides))


@writes("broadcast_not_equal")
def not_equal(w: Writing) -> None:
    w.give_cast(w.node("Not", w.node("Equal", *w.inputs)))


@writes("broadcast_max", "broadcast_min")
def extreme(w: Writing) -> None:
    """Of bools, which ONNX's have not, whether one is or both are."""
    numbers, bools = {"broadcast_max": ("Max", "Or"), "broadcast_min": ("Min", "And")}[w.op_name]
    w.give(bools if w.dtype == BOOL else numbers, *w.inputs)


@writes("logical_not", "logical_and", "logical_or")
def logic(w: Writing) -> None:
    op = {"logical_not": "Not", "logical_and": "And", "logical_or": "Or"}[w.op_name]
    w.give_cast(w.node(op, *(w.cast(name, BOOL) for name in w.inputs)))


@writes("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor")
def bits(w: Writing) -> None:
    """Bools have operators of their own; those of integers are younger."""
    w.require(w.dtype == BOOL or w.opset >= 18, "integers before opset 18")
    name = w.op_name.removeprefix("bitwise_").capitalize()
    w.give(name if w.dtype == BOOL else f"Bitwise{name}", *w.inputs)


@writes("cast", "cast_like")
def cast(w: Writing) -> None:
    w.give_cast(w.inputs[0])


@writes("where")
def where(w: Writing) -> None:
    condition, rank = w.cast(w.inputs[0], BOOL), len(w.outs[0].shape)
    if w.rank < rank:
        condition = w.reshape(condition, w.shape + (1,) * (rank - w.rank))
    w.give("Where", condition, *w.inputs[1:])


@writes("broadcast_where")
def choose(w: Writing) -> None:
    w.give("Where", w.inputs[0] if w.dtype == BOOL else w.cast(w.inputs[0], BOOL), *w.inputs[1:])


@writes("clip", "_hard_tanh")
def clip(w: Writing) -> None:
    limits = [w.params.a_min, w.params.a_max]
    if not is_float(w.dtype):
        kind = np.iinfo(w.dtype)
        limits = [int(min(max(limit, kind.min), kind.max)) for limit in limits]
    w.give("Clip", w.inputs[0], *(w.constant(limit) for limit in limits))


# Activations that ONNX has not, or later.


@writes("prelu")
def prelu(w: Writing) -> None:
    """Slopes with an axis for each that follows theirs."""
    after = w.rank - 1 - w.params.axis % w.rank
    slopes = w.node("Reshape", w.inputs[1], w.ints((-1,) + (1,) * after))
    w.give("PRelu", w.inputs[0], slopes)


@writes("silu", "mish")
def gated(w: Writing) -> None:
    """x sigmoid(x), or x tanh(softplus(x))"""
    x = w.inputs[0]
    w.give("Mul", x, w.node("Sigmoid", x) if w.op_name == "silu" else w.node("Tanh", w.node("Softplus", x)))


@writes("gelu")
def gelu(w: Writing) -> None:
    """x (1 + erf(x / sqrt(2))) / 2, or x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2"""
    x = w.inputs[0]
    if w.opset >= 20:
        w.give("Gelu", x, approximate=w.params.approximate)
        return
    if w.params.approximate == "tanh":
        cube = w.node("Mul", x, w.node("Mul", x, x))
        inner = w.node("Add", x, w.node("Mul", cube, w.constant(0.044715)))
        curve = w.node("Tanh", w.node("Mul", inner, w.constant(math.sqrt(2 / math.pi))))
    else:
        curve = w.node("Erf", w.node("Mul", x, w.constant(math.sqrt(0.5))))
    factor = w.node("Mul", w.node("Add", curve, w.constant(1)), w.constant(0.5))
    w.give("Mul", x, factor)
