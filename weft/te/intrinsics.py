"""The element-wise functions of operator bodies, by name: `te.exp(x[i])`, `te.max(x[i], 0)`.

The names follow how operator bodies read, so some shadow builtins."""

from __future__ import annotations

from collections.abc import Callable

from .expr import Expr, ExprLike, Unary, binary, call


def _unary(name: str) -> Callable[[ExprLike], Expr]:
    def apply(x: ExprLike) -> Expr:
        return call(name, x)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"The intrinsic {name}, element-wise."
    return apply


exp = _unary("exp")
exp2 = _unary("exp2")
expm1 = _unary("expm1")
log = _unary("log")
log2 = _unary("log2")
log10 = _unary("log10")
log1p = _unary("log1p")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")  # 1 / sqrt(x)
tanh = _unary("tanh")
sigmoid = _unary("sigmoid")  # 1 / (1 + exp(-x))
erf = _unary("erf")
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
sinh = _unary("sinh")
cosh = _unary("cosh")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")
abs = _unary("abs")
floor = _unary("floor")
ceil = _unary("ceil")
trunc = _unary("trunc")
round = _unary("round")  # halves go to the even neighbour
isnan = _unary("isnan")
isinf = _unary("isinf")
isfinite = _unary("isfinite")
tf32_rest = _unary("tf32_rest")  # what is left of a float32 beside the 19 bits that tensor cores read


def pow(x: ExprLike, y: ExprLike) -> Expr:
    """x to the power y; an integer to a negative power is truncated towards zero."""
    return call("pow", x, y)


def atan2(y: ExprLike, x: ExprLike) -> Expr:
    """The angle of the point (x, y)."""
    return call("atan2", y, x)


def fmod(x: ExprLike, y: ExprLike) -> Expr:
    """The remainder with the sign of x."""
    return call("fmod", x, y)


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> Expr:
    """a * b + c, rounded once."""
    return call("fma", a, b, c)


def dot_bytes(total: Expr, x: Expr, y: Expr) -> Expr:
    """total plus the products of four bytes of x and four of y, which lie in an int32 each: those of x are uint8, those
    of y int8."""
    return call("dot_bytes", total, x, y)


def dot_pairs(total: Expr, x: Expr, y: Expr) -> Expr:
    """total plus the products of two numbers of x and two of y: bfloat16, in the bits of a float32 each."""
    return call("dot_pairs", total, x, y)


def max(a: ExprLike, b: ExprLike) -> Expr:
    """The larger; NaN if either is NaN."""
    return binary("max", a, b)


def min(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller; NaN if either is NaN."""
    return binary("min", a, b)


def logical_not(a: Expr) -> Expr:
    """True where a bool is false; of an integer, its bits inverted."""
    return Unary("not", a)
