"""Rows: functions of one tensor, element by element. Integers become floats where the function
has no integer result."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence

from ....base.dtype import BOOL, is_float
from ....base.errors import RunError, Unsupported
from ....core.op import Op
from ...dispatch import apply
from ...tensor.tensor import Tensor
from ..fusion import fused
from ..operands import floating, must_be_real
from ..table import named, row
from .arithmetic import div, few_products, mul

Pointwise = Callable[[Tensor], Tensor]
_COPY, _MUL = Op.get("copy"), Op.get("broadcast_mul")


def _smooth(name: str, doc: str, aliases: Sequence[str] = (), special: str | None = None) -> Pointwise:
    """A function that takes floats; `special` is its name in weft.special."""
    op = Op.get(name)

    def function(input: Tensor) -> Tensor:
        return apply(op, None, [floating(input)])[0]

    row(named(function, name, doc), inplace=True, out=True, elementwise=True, aliases=aliases)
    if special is not None:
        row(function, name=special, space="weft.special", method=False, out=True, elementwise=True)
    return function


exp = _smooth("exp", "e to the power of x")
exp2 = _smooth("exp2", "2 to the power of x", special="exp2")
expm1 = _smooth("expm1", "exp(x) - 1", special="expm1")
log = _smooth("log", "the natural logarithm")
log2 = _smooth("log2", "the logarithm to base 2")
log10 = _smooth("log10", "the logarithm to base 10")
log1p = _smooth("log1p", "log(1 + x)", special="log1p")
sqrt = _smooth("sqrt", "the square root")
rsqrt = _smooth("rsqrt", "1 / sqrt(x)")
reciprocal = _smooth("reciprocal", "1 / x")
sin = _smooth("sin", "the sine")
cos = _smooth("cos", "the cosine")
tan = _smooth("tan", "the tangent")
asin = _smooth("asin", "the arc sine", ["arcsin"])
acos = _smooth("acos", "the arc cosine", ["arccos"])
atan = _smooth("atan", "the arc tangent", ["arctan"])
sinh = _smooth("sinh", "the hyperbolic sine")
cosh = _smooth("cosh", "the hyperbolic cosine")
tanh = _smooth("tanh", "the hyperbolic tangent")
asinh = _smooth("asinh", "the inverse of sinh", ["arcsinh"])
acosh = _smooth("acosh", "the inverse of cosh", ["arccosh"])
atanh = _smooth("atanh", "the inverse of tanh", ["arctanh"])
sigmoid = _smooth("sigmoid", "1 / (1 + exp(-x))", special="expit")
erf = _smooth("erf", "the error function", special="erf")
erfc = _smooth("erfc", "1 - erf(x)", special="erfc")
erfinv = _smooth("erfinv", "the inverse of erf", special="erfinv")
lgamma = _smooth("lgamma", "log |gamma(x)|", special="gammaln")
digamma = _smooth("digamma", "the derivative of lgamma", special="digamma")
i0 = _smooth("i0", "the modified Bessel function of order 0", special="i0")


def _must_be_numbers(name: str, input: Tensor) -> None:
    if input._dtype == BOOL:
        raise Unsupported(f"\"{name}\" not implemented for 'Bool'")


@row(inplace=True, out=True, elementwise=True, aliases=["absolute"])
def abs(input: Tensor) -> Tensor:
    """|x|"""
    _must_be_numbers("abs", input)
    return apply(Op.get("abs"), None, [input])[0]


@row(inplace=True, out=True, elementwise=True, aliases=["negative"])
def neg(input: Tensor) -> Tensor:
    """-x"""
    if input._dtype == BOOL:
        raise RunError(
            "Negation, the `-` operator, on a bool tensor is not supported.",
            hint="use the `~` or `logical_not()` operator to invert a mask",
        )
    return apply(Op.get("negative"), None, [input])[0]


@row
def positive(input: Tensor) -> Tensor:
    """x itself"""
    _must_be_numbers("positive", input)
    return input


def _rounding(name: str, doc: str, aliases: Sequence[str] = ()) -> Pointwise:
    op = Op.get(name)

    def function(input: Tensor) -> Tensor:
        _must_be_numbers(name, input)
        return apply(op, None, [input])[0]

    return row(named(function, name, doc), inplace=True, out=True, elementwise=True, aliases=aliases)


floor = _rounding("floor", "the largest integer not above x")
ceil = _rounding("ceil", "the smallest integer not below x")
trunc = _rounding("trunc", "x without its fraction", ["fix"])


@row(inplace=True, out=True, elementwise=True)
@fused
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """the nearest number with that many decimals; halves go to the even one"""
    _must_be_numbers("round", input)
    if decimals == 0:
        return apply(Op.get("round"), None, [input])[0]
    if not is_float(input._dtype):
        raise RunError(f"round with decimals is for floats, not {input.dtype}")
    scale = 10.0 ** builtins.abs(decimals)
    up = mul(input, scale) if decimals > 0 else div(input, scale)
    whole = apply(Op.get("round"), None, [up])[0]
    return div(whole, scale) if decimals > 0 else mul(whole, scale)


@row(inplace=True, out=True, elementwise=True)
@fused
def frac(input: Tensor) -> Tensor:
    """x - trunc(x)"""
    return input - trunc(input)


@row(inplace=True, out=True, elementwise=True)
def square(input: Tensor) -> Tensor:
    """x * x"""
    kind = input._dtype
    if is_float(kind):
        return few_products(input, 2)
    return mul(input, 1) if kind == BOOL else apply(_MUL, None, [input, input])[0]


@row(inplace=True, out=True, elementwise=True)
def deg2rad(input: Tensor) -> Tensor:
    """degrees as radians"""
    must_be_real("deg2rad", input)
    return mul(floating(input), math.pi / 180)


@row(inplace=True, out=True, elementwise=True)
def rad2deg(input: Tensor) -> Tensor:
    """radians as degrees"""
    must_be_real("rad2deg", input)
    return mul(floating(input), 180 / math.pi)


@row(inplace=True, elementwise=True)
def relu(input: Tensor) -> Tensor:
    """max(x, 0)"""
    _must_be_numbers("relu", input)
    return apply(Op.get("relu"), None, [input])[0]
