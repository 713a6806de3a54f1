"""Element-wise functions of floats as inline LLVM code, for any number of lanes: FUNCTIONS.

In float32 every function is our own polynomial, the frequent ones in float32 arithmetic, the others
wholly or in part in float64. In float64 exp, log, sigmoid and rsqrt are ours and the rest call the
C library once a lane, or are those of `math_wide.py` where there is none. Errors are bounded by ULP_BOUNDS.
"""

from __future__ import annotations

from collections.abc import Callable

from . import coefficients as c
from . import math_tables as tables
from .arithmetic import negative
from .builder import Builder, Value
from .math_double import acosh, asinh, atan2, atanh, cos, cosh, log_base, pow_, sin, sinh, tan
from .math_double import atan as wide_atan
from .math_exp_log import exp, exp2, exp_of_negative, log
from .math_single import acos, asin, atan, expm1, log1p, log2, log10
from .math_wide import WIDE_FUNCTIONS

# Largest error in units in the last place of the result, (float32, float64). Where the C library
# answers, its own: glibc states 2.21 for tanh, 1.43 for erf.
ULP_BOUNDS: dict[str, tuple[float, float]] = {
    "exp": (1.0, 1.0),
    "exp2": (1.25, 1.0),
    "log": (1.0, 1.0),
    "log2": (1.0, 1.0),
    "log10": (1.0, 2.0),
    "log1p": (1.0, 1.0),
    "expm1": (1.0, 1.0),
    "rsqrt": (1.5, 1.5),
    "tanh": (2.0, 2.25),
    "sigmoid": (2.5, 2.5),
    "erf": (2.0, 1.5),
    "sin": (0.6, 1.0),
    "cos": (0.6, 1.0),
    "tan": (0.6, 1.0),
    "asin": (1.0, 1.0),
    "acos": (1.0, 1.0),
    "atan": (1.0, 1.0),
    "sinh": (0.6, 2.0),
    "cosh": (0.6, 2.0),
    "asinh": (0.6, 2.0),
    "acosh": (0.6, 3.0),
    "atanh": (0.6, 2.0),
    "pow": (1.0, 1.0),
    "atan2": (0.6, 1.0),
}


def rsqrt(b: Builder, x: Value) -> Value:
    return b.div(b.like(x, 1.0), b.intrinsic("sqrt", x))


def sigmoid(b: Builder, x: Value) -> Value:
    """1/(1+z) or z/(1+z) with z = exp(-|x|), which cannot overflow."""
    one, minus = b.like(x, 1.0), b.neg(b.fabs(x))
    z = _decay(b, minus)
    return _over_one_and(b, z, b.select(negative(b, x), z, one))


def _decay(b: Builder, x: Value) -> Value:
    """e**x for x <= 0."""
    if tables.serve(b, x):
        return tables.exp_of_negative(b, x)
    return exp_of_negative(b, x) if b.has_fma and x.element == "float" else exp(b, x)


def _over_one_and(b: Builder, z: Value, n: Value) -> Value:
    """n/(1 + z) for 0 <= z <= 1, without the machine's slow division. Newton's r + r (1 - d r) makes an
    error of 1% one of 0.01%; the same for q = n r, q + r (n - d q), one of 1e-8."""
    if tables.serve(b, z):
        return tables.over_one_and(b, z, n)
    one = b.like(z, 1.0)
    d = b.add(one, z)
    if d.element != "float" or not b.has_fma:
        return b.div(n, d)
    guess, minus = b.horner(d, c.RECIPROCAL), b.neg(d)
    r = b.fma(guess, b.fma(minus, guess, one), guess)
    q = b.mul(n, r)
    return b.fma(b.fma(minus, q, n), r, q)


def tanh(b: Builder, x: Value) -> Value:
    """x + x**3 P(x**2) near zero, 1 - 2z/(1 + z) with z = exp(-2|x|) elsewhere."""
    if tables.serve(b, x):
        return tables.tanh(b, x)
    size = b.fabs(x)
    square = b.mul(x, x)
    near = b.fma(b.mul(b.horner(square, c.TANH_F32), square), size, size)
    one, twice = b.like(x, 1.0), b.mul(size, b.like(x, -2.0))
    z = _decay(b, twice)
    far = b.sub(one, _over_one_and(b, z, b.add(z, z)))
    return b.copysign(b.select(b.compare("olt", size, b.like(x, 0.62)), near, far), x)


def erf(b: Builder, x: Value) -> Value:
    """x + x (P(x**2) - 1) near zero, 1 - exp(-|x| Q(|x|)) elsewhere."""
    if tables.serve(b, x):
        return tables.erf(b, x)
    size = b.fabs(x)
    square = b.mul(x, x)
    near = b.fma(b.horner(square, (c.ERF_F32[0] - 1, *c.ERF_F32[1:])), x, x)
    clipped = b.smaller(b.like(x, 4.0), size)
    minus = b.neg(b.mul(b.horner(clipped, c.ERF_TAIL_F32), clipped))
    far = b.copysign(b.sub(b.like(x, 1.0), _decay(b, minus)), x)
    return b.select(b.compare("olt", size, b.like(x, 0.925)), near, far)


def _through_double(function: Callable[..., Value]) -> Callable[..., Value]:
    def rounded(b: Builder, *args: Value) -> Value:
        wide = function(b, *(b.convert("fpext", arg, "double") for arg in args))
        return b.convert("fptrunc", wide, "float")

    return rounded


def _fused(function: Callable[..., Value], otherwise: Callable[..., Value]) -> Callable[..., Value]:
    """The first where products and sums are rounded once, on which its accuracy rests."""

    def chosen(b: Builder, *args: Value) -> Value:
        return (function if b.has_fma else otherwise)(b, *args)

    return chosen


def _library_call(name: str) -> Callable[..., Value]:
    """The C library's float64 function, once a lane, or ours where there is no library."""

    def call(b: Builder, *args: Value) -> Value:
        if not b.has_library:
            return WIDE_FUNCTIONS[name](b, *args)
        parameters = ", ".join(["double"] * len(args))
        b.declarations.setdefault(name, f"declare double @{name}({parameters}) memory(none)")
        result = b.poison("double", args[0].lanes)
        for lane in range(args[0].lanes):
            passed = ", ".join(f"double {b.extract(arg, lane).ref}" for arg in args)
            item = b.pure("double", 1, f"call double @{name}({passed})", args)
            result = item if result.lanes == 1 else b.insert(result, item, lane)
        return result

    return call


_FLOAT32: dict[str, Callable[..., Value]] = {
    "exp": exp,
    "exp2": exp2,
    "log": log,
    "rsqrt": rsqrt,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "erf": erf,
    "log2": _fused(log2, log_base(2)),
    "log10": _fused(log10, log_base(10)),
    "log1p": log1p,
    "expm1": expm1,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": _fused(atan, _through_double(wide_atan)),
    "sinh": _through_double(sinh),
    "cosh": _through_double(cosh),
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "pow": pow_,
    "atan2": _through_double(atan2),
}
_FLOAT64_OURS: dict[str, Callable[..., Value]] = {"exp": exp, "log": log, "sigmoid": sigmoid, "rsqrt": rsqrt}
_FLOAT64 = {name: _FLOAT64_OURS.get(name) or _library_call(name) for name in _FLOAT32}


def _by_width(name: str) -> Callable[..., Value]:
    def apply(b: Builder, *args: Value) -> Value:
        table = _FLOAT64 if args[0].element == "double" else _FLOAT32
        return table[name](b, *args)

    return apply


FUNCTIONS: dict[str, Callable[..., Value]] = {name: _by_width(name) for name in _FLOAT32}
