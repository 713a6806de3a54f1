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
from ..table import named, row, with_example
from .arithmetic import div, few_products, mul

Pointwise = Callable[[Tensor], Tensor]
_ABS, _NEGATIVE, _ROUND, _RELU, _MUL = map(Op.get, "abs negative round relu broadcast_mul".split())


def _shown(name: str, doc: str, given: str, result: str) -> str:
    """The docstring of a function, with what it gives for some numbers."""
    return with_example(doc, f">>> weft.{name}(weft.tensor({given}))", f"tensor({result})")


def _smooth(
    name: str, doc: str, given: str, result: str, aliases: Sequence[str] = (), special: str | None = None
) -> Pointwise:
    """A function that takes floats, and an example of it; `special` is its name in weft.special."""
    op = Op.get(name)

    def function(input: Tensor) -> Tensor:
        return apply(op, None, [floating(input)])[0]

    shown = _shown(name, doc, given, result)
    row(named(function, name, shown), inplace=True, out=True, elementwise=True, aliases=aliases)
    if special is not None:
        row(function, name=special, space="weft.special", method=False, out=True, elementwise=True)
    return function


exp = _smooth("exp", "e to the power of x", "[0.0, 1.0, -1.0]", "[1.0000, 2.7183, 0.3679]")
exp2 = _smooth("exp2", "2 to the power of x", "[0.0, 3.0, -1.0]", "[1.0000, 8.0000, 0.5000]", special="exp2")
expm1 = _smooth("expm1", "exp(x) - 1", "[0.0, 1.0]", "[0.0000, 1.7183]", special="expm1")
log = _smooth("log", "the natural logarithm", "[1.0, 10.0, 0.0, -1.0]", "[0.0000, 2.3026,   -inf,    nan]")
log2 = _smooth("log2", "the logarithm to base 2", "[1.0, 8.0, 3.0]", "[0.0000, 3.0000, 1.5850]")
log10 = _smooth("log10", "the logarithm to base 10", "[1.0, 100.0, 2.0]", "[0.0000, 2.0000, 0.3010]")
log1p = _smooth("log1p", "log(1 + x)", "[0.0, 1.0]", "[0.0000, 0.6931]", special="log1p")
sqrt = _smooth("sqrt", "the square root", "[0.0, 2.0, 9.0]", "[0.0000, 1.4142, 3.0000]")
rsqrt = _smooth("rsqrt", "1 / sqrt(x)", "[1.0, 4.0]", "[1.0000, 0.5000]")
reciprocal = _smooth("reciprocal", "1 / x", "[1.0, 4.0, -0.5]", "[ 1.0000,  0.2500, -2.0000]")
sin = _smooth("sin", "the sine", "[0.0, 1.0]", "[0.0000, 0.8415]")
cos = _smooth("cos", "the cosine", "[0.0, 1.0]", "[1.0000, 0.5403]")
tan = _smooth("tan", "the tangent", "[0.0, 1.0]", "[0.0000, 1.5574]")
asin = _smooth("asin", "the arc sine", "[0.0, 1.0]", "[0.0000, 1.5708]", ["arcsin"])
acos = _smooth("acos", "the arc cosine", "[0.0, 1.0]", "[1.5708, 0.0000]", ["arccos"])
atan = _smooth("atan", "the arc tangent", "[0.0, 1.0]", "[0.0000, 0.7854]", ["arctan"])
sinh = _smooth("sinh", "the hyperbolic sine", "[0.0, 1.0]", "[0.0000, 1.1752]")
cosh = _smooth("cosh", "the hyperbolic cosine", "[0.0, 1.0]", "[1.0000, 1.5431]")
tanh = _smooth("tanh", "the hyperbolic tangent", "[-1.0, 0.0, 1.0]", "[-0.7616,  0.0000,  0.7616]")
asinh = _smooth("asinh", "the inverse of sinh", "[0.0, 1.0]", "[0.0000, 0.8814]", ["arcsinh"])
acosh = _smooth("acosh", "the inverse of cosh", "[1.0, 2.0]", "[0.0000, 1.3170]", ["arccosh"])
atanh = _smooth("atanh", "the inverse of tanh", "[0.0, 0.5]", "[0.0000, 0.5493]", ["arctanh"])
sigmoid = _smooth("sigmoid", "1 / (1 + exp(-x))", "[-1.0, 0.0, 1.0]", "[0.2689, 0.5000, 0.7311]", special="expit")
erf = _smooth("erf", "the error function", "[0.0, 1.0]", "[0.0000, 0.8427]", special="erf")
erfc = _smooth("erfc", "1 - erf(x)", "[0.0, 1.0]", "[1.0000, 0.1573]", special="erfc")
erfinv = _smooth("erfinv", "the inverse of erf", "[0.0, 0.5]", "[0.0000, 0.4769]", special="erfinv")
lgamma = _smooth("lgamma", "log |gamma(x)|", "[3.0, 4.0]", "[0.6931, 1.7918]", special="gammaln")
digamma = _smooth("digamma", "the derivative of lgamma", "[1.0, 2.0]", "[-0.5772,  0.4228]", special="digamma")
i0 = _smooth("i0", "the modified Bessel function of order 0", "[0.0, 1.0]", "[1.0000, 1.2661]", special="i0")


def _must_be_numbers(name: str, input: Tensor) -> None:
    if input._dtype == BOOL:
        raise Unsupported(f"\"{name}\" not implemented for 'Bool'")


@row(inplace=True, out=True, elementwise=True, aliases=["absolute"])
def abs(input: Tensor) -> Tensor:
    """|x|

    >>> import weft
    >>> weft.abs(weft.tensor([-1, 2, -3]))
    tensor([1, 2, 3])
    >>> weft.abs(weft.tensor(3 + 4j))
    tensor(5.)
    """
    _must_be_numbers("abs", input)
    return apply(_ABS, None, [input])[0]


@row(inplace=True, out=True, elementwise=True, aliases=["negative"])
def neg(input: Tensor) -> Tensor:
    """-x

    >>> import weft
    >>> weft.neg(weft.tensor([1, -2]))
    tensor([-1,  2])
    """
    if input._dtype == BOOL:
        raise RunError(
            "Negation, the `-` operator, on a bool tensor is not supported.",
            hint="use the `~` or `logical_not()` operator to invert a mask",
        )
    return apply(_NEGATIVE, None, [input])[0]


@row
def positive(input: Tensor) -> Tensor:
    """x itself"""
    _must_be_numbers("positive", input)
    return input


def _rounding(name: str, doc: str, given: str, result: str, aliases: Sequence[str] = ()) -> Pointwise:
    op = Op.get(name)

    def function(input: Tensor) -> Tensor:
        _must_be_numbers(name, input)
        return apply(op, None, [input])[0]

    shown = _shown(name, doc, given, result)
    return row(named(function, name, shown), inplace=True, out=True, elementwise=True, aliases=aliases)


floor = _rounding("floor", "the largest integer not above x", "[1.7, -1.2]", "[ 1., -2.]")
ceil = _rounding("ceil", "the smallest integer not below x", "[1.2, -1.7]", "[ 2., -1.]")
trunc = _rounding("trunc", "x without its fraction", "[1.7, -1.7]", "[ 1., -1.]", ["fix"])


@row(inplace=True, out=True, elementwise=True)
@fused
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """the nearest number with that many decimals; halves go to the even one

    >>> import weft
    >>> weft.round(weft.tensor([0.5, 1.5, -1.2]))
    tensor([ 0.,  2., -1.])
    >>> weft.round(weft.tensor([3.14159]), decimals=2)
    tensor([3.1400])
    """
    _must_be_numbers("round", input)
    if decimals == 0:
        return apply(_ROUND, None, [input])[0]
    if not is_float(input._dtype):
        raise RunError(f"round with decimals is for floats, not {input.dtype}")
    scale = 10.0 ** builtins.abs(decimals)
    up = mul(input, scale) if decimals > 0 else div(input, scale)
    whole = apply(_ROUND, None, [up])[0]
    return div(whole, scale) if decimals > 0 else mul(whole, scale)


@row(inplace=True, out=True, elementwise=True)
@fused
def frac(input: Tensor) -> Tensor:
    """x - trunc(x)"""
    return input - trunc(input)


@row(inplace=True, out=True, elementwise=True)
def square(input: Tensor) -> Tensor:
    """x * x

    >>> import weft
    >>> weft.square(weft.tensor([1.0, -3.0]))
    tensor([1., 9.])
    """
    kind = input._dtype
    if is_float(kind):
        return few_products(input, 2)
    return mul(input, 1) if kind == BOOL else apply(_MUL, None, [input, input])[0]


def _converted(name: str, doc: str, factor: float) -> None:
    def function(input: Tensor) -> Tensor:
        must_be_real(name, input)
        return mul(floating(input), factor)

    row(named(function, name, doc), inplace=True, out=True, elementwise=True)


_converted("deg2rad", "degrees as radians", math.pi / 180)
_converted("rad2deg", "radians as degrees", 180 / math.pi)


@row(inplace=True, elementwise=True)
def relu(input: Tensor) -> Tensor:
    """max(x, 0)

    >>> import weft
    >>> weft.relu(weft.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    _must_be_numbers("relu", input)
    return apply(_RELU, None, [input])[0]
