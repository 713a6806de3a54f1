"""Functions of one tensor beyond the elementary ones, element by element, and tests of floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL, FLOAT64, is_complex, is_float
from ...core.op import Op
from ...core.schema import INT, attr, schema
from .._families import F, as_written, floating, holomorphic, in_dtype, no_flow, pointwise, unary
from . import _special as formulas

Formula = Callable[..., Any]
_HALF_ROOT_PI = math.sqrt(math.pi) / 2


def smooth(name: str, doc: str, slope: Callable[[Any, Any], Any]) -> Op:
    """A differentiable function; `slope(x, y)` is its derivative."""
    op = unary(name, doc, level=5, dtype=floating)
    op.gradient = lambda ctx, g: [F.elemwise_mul(g, slope(ctx.inputs[0], ctx.outputs[0]))]
    return op


def by_formula(op: Op, formula: Formula) -> None:
    """`formula(m, *params, x)` in float64, of arrays and of expressions."""
    op.reference = in_dtype(lambda *args: _on_array(formula, *args))
    op.compute = pointwise(lambda *args: _on_expression(formula, *args))
    op.native_from = 256


def _on_array(formula: Formula, *args: Any) -> Any:
    return formula(formulas.NUMPY, *args[:-1], args[-1].astype(FLOAT64))


def _on_expression(formula: Formula, *args: Any) -> te.Expr:
    x = args[-1]
    return te.cast(formula(te, *args[:-1], te.cast(x, FLOAT64)), x.dtype)


exp2 = smooth("exp2", "2 to the power of x.", lambda x, y: y * math.log(2))
exp2.reference = in_dtype(np.exp2)
exp2.compute = pointwise(te.exp2)
exp2.complex_gradient = holomorphic

log2 = smooth("log2", "The logarithm to base 2.", lambda x, y: 1 / (x * math.log(2)))
log2.reference = in_dtype(np.log2)
log2.compute = pointwise(te.log2)
log2.complex_gradient = holomorphic

log10 = smooth("log10", "The logarithm to base 10.", lambda x, y: 1 / (x * math.log(10)))
log10.reference = in_dtype(np.log10)
log10.compute = pointwise(te.log10)
log10.complex_gradient = holomorphic


def _bell(x: Any) -> Any:
    return F.exp(-F.elemwise_mul(x, x))


erfc = smooth("erfc", "1 - erf(x), exact where it is small.", lambda x, y: _bell(x) * (-1 / _HALF_ROOT_PI))
by_formula(erfc, formulas.erfc)

erfinv = smooth(
    "erfinv",
    "The inverse of erf, of numbers between -1 and 1.",
    lambda x, y: F.exp(F.elemwise_mul(y, y)) * _HALF_ROOT_PI,
)
by_formula(erfinv, formulas.erfinv)
erfinv.keeps_output = True

erfcx = smooth("erfcx", "exp(x^2) erfc(x)", lambda x, y: F.elemwise_mul(x, y) * 2 - 1 / _HALF_ROOT_PI)
by_formula(erfcx, formulas.erfcx)

lgamma = smooth("lgamma", "The logarithm of the absolute value of the gamma function.", lambda x, y: F.digamma(x))
by_formula(lgamma, formulas.log_gamma)

digamma = smooth("digamma", "The derivative of lgamma; NaN at the negative integers.", lambda x, y: F.polygamma(x, n=1))
by_formula(digamma, formulas.digamma)


@schema
class PolygammaAttrs:
    n: int = attr(INT, "which derivative", low=1, high=100)


polygamma = unary("polygamma", "The n-th derivative of digamma.", level=5, attrs=PolygammaAttrs, dtype=floating)
by_formula(polygamma, lambda m, p, x: formulas.polygamma(m, p.n, x))


def _polygamma_gradient(ctx: Any, g: Any) -> list[Any]:
    return [F.elemwise_mul(g, F.polygamma(ctx.inputs[0], n=ctx.params.n + 1))]


polygamma.gradient = _polygamma_gradient

_BESSEL = "The modified Bessel function of the first kind of order"


def _bessel(m: Any, order: int, x: Any) -> Any:
    return formulas.scaled_bessel(m, order, x) * m.exp(m.min(m.abs(x), 1000.0))


def ratio(x: Any, y: Any, at_zero: float) -> Any:
    """y / x, which is `at_zero` where both are 0."""
    zero = F.broadcast_equal(x, F.zeros_like(x))
    return F.elemwise_div(y + zero * at_zero, x + zero)


i0 = smooth("i0", f"{_BESSEL} 0.", lambda x, y: F.i1(x))
by_formula(i0, lambda m, x: _bessel(m, 0, x))

i1 = smooth("i1", f"{_BESSEL} 1.", lambda x, y: F.i0(x) - ratio(x, y, 0.5))
by_formula(i1, lambda m, x: _bessel(m, 1, x))

i0e = smooth("i0e", "exp(-|x|) i0(x)", lambda x, y: F.i1e(x) - F.elemwise_mul(F.sign(x), y))
by_formula(i0e, lambda m, x: formulas.scaled_bessel(m, 0, x))

i1e = smooth("i1e", "exp(-|x|) i1(x)", lambda x, y: F.i0e(x) - F.elemwise_mul(F.sign(x), y) - ratio(x, y, 0.5))
by_formula(i1e, lambda m, x: formulas.scaled_bessel(m, 1, x))


def _test(name: str, doc: str, of_floats: Any, of_integers: Any, body: Any) -> Op:
    op = unary(name, doc, level=5)
    op.dtype = lambda params, ins, outs: ([None], [BOOL])
    kinds = lambda dtype: is_float(dtype) or is_complex(dtype)
    op.reference = lambda x: (of_floats if kinds(x.dtype) else of_integers)(x)
    op.compute = pointwise(body)
    op.gradient = no_flow
    return op


isfinite = _test(
    "isfinite",
    "Whether x is neither infinite nor NaN.",
    np.isfinite,
    lambda x: np.ones(x.shape, bool),
    lambda x: te.isfinite(x) if is_float(x.dtype) else te.const(True, BOOL),
)
isfinite.complex_gradient = as_written


def _sign_body(x: te.Expr) -> te.Expr:
    if is_float(x.dtype):
        return (x < 0) | (x.equal(0) & (1 / x < 0))
    return x < 0 if x.dtype.kind == "i" else te.const(False, BOOL)


signbit = _test(
    "signbit",
    "Whether x is negative, -0.0 included.",
    lambda x: np.signbit(x) & ~np.isnan(x),
    lambda x: np.asarray(x < 0),
    _sign_body,
)
