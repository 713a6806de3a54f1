"""Rows: special functions, and the exponentials that add up to one."""

from __future__ import annotations

import math
from typing import Any

from ....base.dtype import FLOAT64, is_complex, is_float
from ....base.errors import RunError, Unsupported
from ....core.op import Op
from ....ops.math.special import PolygammaAttrs
from ...autograd.derivative import params_of
from ...dispatch import apply
from ...tensor.tensor import Tensor, axis_of, bind
from ...tensor.types import as_dtype
from ..operands import check_count, floating, must_be_real
from ..table import row
from .arithmetic import add, mul
from .compare import choose, eq, gt, lt
from .unary import digamma, erfc, erfinv, exp, lgamma, log, log1p, square

_SOFTMAX, _LOG_SOFTMAX, _POLYGAMMA = (Op.get(name) for name in ("softmax", "log_softmax", "polygamma"))


@row(method=False, out=True)
def polygamma(n: int, input: Tensor) -> Tensor:
    """the n-th derivative of digamma"""
    if n < 0:
        raise RunError("polygamma(n, x) does not support negative n.")
    check_count("polygamma", "an order", n)
    values = floating(input)
    if not n:
        return digamma(values)
    return apply(_POLYGAMMA, PolygammaAttrs(n=int(n)), [values])[0]


@row(space=None, inplace=True)
def _polygamma(input: Tensor, n: int) -> Tensor:
    """the n-th derivative of digamma, as a method"""
    return polygamma(n, input)


bind(**{name[1:]: getattr(Tensor, name) for name in ("_polygamma", "_polygamma_")})
row(polygamma, space="weft.special", method=False, out=True)


@row(inplace=True, out=True)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """log of the gamma function of p dimensions"""
    if p < 1:
        raise RunError("p has to be greater than or equal to 1")
    check_count("mvlgamma", "a number of dimensions", p)
    values = floating(input)
    total = add(lgamma(values), p * (p - 1) / 4 * math.log(math.pi))
    for k in range(1, p):
        total = add(lgamma(add(values, -k / 2)), total)
    return total


row(mvlgamma, name="multigammaln", space="weft.special", method=False, out=True)


@row(space="weft.special", method=False, out=True)
def entr(input: Tensor) -> Tensor:
    """-x log x; 0 at 0, -inf below"""
    values = floating(input)
    safe = choose(gt(values, 0), values, 1.0)
    inside = choose(eq(values, 0), 0.0, mul(mul(values, log(safe)), -1))
    return choose(lt(values, 0), -math.inf, inside)


@row(space="weft.special", method=False, out=True)
def ndtr(input: Tensor) -> Tensor:
    """the normal distribution: the share of numbers below x"""
    return mul(erfc(mul(floating(input), -math.sqrt(0.5))), 0.5)


@row(space="weft.special", method=False, out=True)
def ndtri(input: Tensor) -> Tensor:
    """the inverse of ndtr"""
    must_be_real("ndtri", input)
    values = floating(input)
    wide = values._cast(FLOAT64)  # 2 x - 1 loses what is small
    return mul(erfinv(add(mul(wide, 2), -1)), math.sqrt(2))._cast(values._dtype)


@row(space="weft.special", method=False, out=True)
def erfcx(input: Tensor) -> Tensor:
    """exp(x**2) erfc(x)"""
    return apply(Op.get("erfcx"), None, [floating(input)])[0]


@row(space="weft.special", method=False, out=True)
def log_ndtr(input: Tensor) -> Tensor:
    """log of the normal distribution, exact far below 0"""
    values = floating(input)
    low = lt(values, -1.0)
    scaled = mul(choose(low, values, -1.0), -math.sqrt(0.5))
    tail = add(log(mul(erfcx(scaled), 0.5)), mul(square(scaled), -1))
    above = log1p(mul(erfc(mul(choose(low, 0.0, values), math.sqrt(0.5))), -0.5))
    return choose(low, tail, above)


# Exponentials that add up to one.


def _normalised(name: str, op: Op, input: Tensor, dim: int, dtype: Any) -> Tensor:
    values = input if dtype is None else input._cast(as_dtype(dtype).numpy)
    kind = values._dtype
    if is_complex(kind) or not is_float(kind):
        raise Unsupported(f'"{name}" not implemented for {values.dtype.title!r}')
    axis = axis_of(dim, values.ndim)
    if not values.ndim:
        return exp(add(values, mul(values, -1))) if name == "softmax" else add(values, mul(values, -1))
    return apply(op, params_of(op, {"axis": axis}), [values])[0]


@row(out=True)
def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along a dimension

    >>> import weft
    >>> weft.softmax(weft.tensor([[0.0, 0.0], [1.0, 3.0]]), dim=1)
    tensor([[0.5000, 0.5000],
            [0.1192, 0.8808]])
    """
    return _normalised("softmax", _SOFTMAX, input, dim, dtype)


@row(out=True)
def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """x less log of the sum of exp along a dimension

    >>> import weft
    >>> weft.log_softmax(weft.tensor([1.0, 3.0]), dim=0)
    tensor([-2.1269, -0.1269])
    """
    return _normalised("log_softmax", _LOG_SOFTMAX, input, dim, dtype)


for _function in (softmax, log_softmax):
    row(_function, space="weft.special", method=False)
