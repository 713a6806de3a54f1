"""Special functions of two tensors that broadcast: the Hurwitz zeta function, incomplete gamma
functions, orthogonal polynomials."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from ... import te
from ...base.dtype import FLOAT64, INT64
from ...base.errors import Unsupported
from ...core.schema import INT, attr, choice, schema
from .. import _layouts as layouts
from .._families import LHS_RHS, Array, F, broadcast_shape, define, floating, in_dtype, same_shape
from .._kernels import Body, read_stretched, unravelled, variable
from ._incomplete_gamma import lower_share, upper_share
from ._special import NUMPY
from ._zeta import TERMS, chosen, is_odd, rest
from ._zeta import zeta as zeta_formula


def _undefined(x: Array) -> NoReturn:
    raise Unsupported("the derivative for the first input of the function is not implemented")


no_derivative = define(
    "_no_derivative",
    "Stands for a derivative that nobody has: an error where it is needed.",
    shape=same_shape,
    layout=layouts.fixed_copy,
    reference=_undefined,
)


def _wide(function: Any) -> Any:
    return in_dtype(lambda a, b: function(a.astype(FLOAT64), b.astype(FLOAT64)))


@contextmanager
def _each_pair(name: str, inputs: Any, outputs: Any, work: int) -> Iterator[Any]:
    """A kernel for each element of two tensors that broadcast: the builder, both elements in
    float64, how to write the result, and the list of kernels."""
    ((shape, dtype),) = outputs
    count = math.prod(shape)
    body = Body(name, inputs, outputs)
    views = {0: inputs[0][0], 1: inputs[1][0], 2: shape}
    with body.kernel(views, count * work) as (b, xs, ys, out), b.parallel("p", count) as p:
        at = [b.let(f"i{d}", place) for d, place in enumerate(unravelled(p, shape))]
        pair = [b.let(name, te.cast(read_stretched(t, at), FLOAT64)) for name, t in (("x", xs), ("y", ys))]
        yield b, *pair, lambda value: b.store(out, at, te.cast(value, dtype)), body.kernels


def _zeta_kernels(inputs: Any, outputs: Any) -> Any:
    """One sum, or three of them where q is below 0."""
    with _each_pair("zeta", inputs, outputs, 300) as (b, s, q, write, kernels):
        whole = b.let("whole", te.floor(q))
        f = b.let("f", q - whole)
        odd = b.let("odd", te.select(is_odd(te, s), te.const(-1, FLOAT64), te.const(1, FLOAT64)))
        total = variable(b, "total", 0.0, FLOAT64)
        with b.loop("part", te.select(q < 0, te.const(3, INT64), te.const(1, INT64))) as part:
            second = te.select(part.equal(1), 1 - f, 1 - f - whole)
            start = b.let("start", te.select(part.equal(0), te.select(q < 0, f, q), second))
            own = variable(b, "own", 0.0, FLOAT64)
            with b.loop("k", TERMS) as k:
                b.store(own, (), own[()] + te.pow(start + te.cast(k, FLOAT64), -s))
            one = b.let("one", own[()] + rest(te, s, start + float(TERMS)))
            signed = te.select(part.equal(0), one, te.select(part.equal(1), one * odd, -one * odd))
            b.store(total, (), total[()] + signed)
        write(chosen(te, s, q, total[()]))
    return kernels


def _zeta_gradient(ctx: Any, g: Any) -> list[Any]:
    """By q: -s zeta(s + 1, q)."""
    s, q = ctx.inputs
    slope = F.broadcast_mul(F.negative(s), F.zeta(s + 1, q))
    return [F._no_derivative(s), F.collapse_sum(F.elemwise_mul(g, slope), q)]


zeta = define(
    "zeta",
    "The sum of (q + k)^-s for k = 0, 1, ...; lhs is s, rhs is q.",
    inputs=LHS_RHS,
    named=False,
    dtype=floating,
    shape=broadcast_shape,
    layout=layouts.broadcast_pair,
    gradient=_zeta_gradient,
    kernels=_zeta_kernels,
    reference=_wide(lambda s, q: zeta_formula(NUMPY, s, q)),
)


def _gamma_gradient(sign: float) -> Any:
    """By x: x^(a-1) exp(-x) / gamma(a)."""

    def gradient(ctx: Any, g: Any) -> list[Any]:
        a, x = ctx.inputs
        power = F.broadcast_sub(F.broadcast_mul(a - 1, F.log(x)), x)
        slope = F.exp(F.broadcast_sub(power, F.lgamma(a))) * sign
        return [F._no_derivative(a), F.collapse_sum(F.elemwise_mul(g, slope), x)]

    return gradient


def _incomplete(name: str, doc: str, function: Any, sign: float) -> Any:
    return define(
        name,
        doc,
        inputs=LHS_RHS,
        named=False,
        dtype=floating,
        shape=broadcast_shape,
        layout=layouts.broadcast_pair,
        reference=_wide(function),
        gradient=_gamma_gradient(sign),
    )


igamma = _incomplete(
    "igamma", "The integral of t^(a-1) exp(-t) from 0 to x, over gamma(a); lhs is a, rhs is x.", lower_share, 1.0
)
igammac = _incomplete("igammac", "1 - igamma(a, x), exact where it is small.", upper_share, -1.0)

# Orthogonal polynomials, by their recurrence of three terms.

_HIGHEST = 100_000  # degrees above it are NaN
FAMILIES = (
    "chebyshev_t",
    "chebyshev_u",
    "chebyshev_v",
    "chebyshev_w",
    "hermite_h",
    "hermite_he",
    "laguerre_l",
    "legendre_p",
)


@schema
class PolynomialAttrs:
    family: str = attr(choice(*FAMILIES), "which polynomials")
    derivative: int = attr(INT, "how often they are differentiated", default=0, low=0, high=64)


def _coefficients(family: str, k: Any, first: Any) -> tuple[Any, Any, Any]:
    """a, b, c of P_k+1 = (a x + b) P_k - c P_k-1; `first(u, v)` is u if k is 0, else v."""
    if family == "laguerre_l":
        return -1 / (k + 1), (2 * k + 1) / (k + 1), k / (k + 1)
    if family == "legendre_p":
        return (2 * k + 1) / (k + 1), 0.0, k / (k + 1)
    if family.startswith("hermite"):
        return (2.0, 0.0, 2 * k) if family == "hermite_h" else (1.0, 0.0, k)
    start = {"chebyshev_v": -1.0, "chebyshev_w": 1.0}.get(family, 0.0)
    slope = first(1.0, 2.0) if family == "chebyshev_t" else 2.0
    return slope, first(start, 0.0), 1.0


def _polynomial(params: PolynomialAttrs, x: Array, n: Array) -> Array:
    """Degrees one after another, each kept where it is wanted."""
    x, degrees = np.broadcast_arrays(x, np.trunc(n))
    orders = range(params.derivative + 1)
    old = [np.zeros_like(x) for _ in orders]
    new = [np.full_like(x, float(d == 0)) for d in orders]
    made = np.where(degrees > _HIGHEST, np.nan, 0.0)
    highest = int(degrees.max(initial=0, where=(degrees <= _HIGHEST)))
    for k in range(highest + 1):
        made = np.where(degrees == k, new[-1], made)
        a, b, c = _coefficients(params.family, float(k), lambda u, v, k=k: v if k else u)
        step = a * x + b
        old, new = new, [step * new[d] - c * old[d] + (d * a * new[d - 1] if d else 0.0) for d in orders]
    return made


def _polynomial_kernels(params: PolynomialAttrs, inputs: Any, outputs: Any) -> Any:
    """For each element, as many steps as its degree."""
    orders = range(params.derivative + 1)
    with _each_pair("polynomial", inputs, outputs, 40) as (b, x, n, write, kernels):
        inside = (n <= _HIGHEST) & (n > -1)
        last = b.let("last", te.cast(te.trunc(te.select(inside, n, 0.0)), INT64))
        old = [variable(b, f"old{d}", 0.0, FLOAT64) for d in orders]
        new = [variable(b, f"new{d}", float(d == 0), FLOAT64) for d in orders]
        with b.loop("k", last) as step:
            k = b.let("degree", te.cast(step, FLOAT64))
            _one_step(b, params.family, orders, x, k, old, new)
        none = te.select(n > _HIGHEST, te.const(math.nan, FLOAT64), te.const(0, FLOAT64))
        write(te.select(inside, new[-1][()], none))
    return kernels


def _one_step(b: Any, family: str, orders: range, x: Any, k: Any, old: Any, new: Any) -> None:
    a, shift, c = _coefficients(family, k, lambda u, v: te.select(k < 0.5, te.const(u, FLOAT64), te.const(v, FLOAT64)))
    factor = b.let("factor", a * x + shift)
    before = [b.let(f"before{d}", old[d][()]) for d in orders]
    now = [b.let(f"now{d}", new[d][()]) for d in orders]
    for d in orders:
        more = now[d - 1] * a * float(d) if d else te.const(0.0, FLOAT64)
        b.store(old[d], (), now[d])
        b.store(new[d], (), factor * now[d] - before[d] * c + more)


def _polynomial_gradient(ctx: Any, g: Any) -> list[Any]:
    x, n = ctx.inputs
    params = ctx.params
    slope = F.orthogonal_polynomial(x, n, family=params.family, derivative=params.derivative + 1)
    return [F.collapse_sum(F.elemwise_mul(g, slope), x), None]


orthogonal_polynomial = define(
    "orthogonal_polynomial",
    "The polynomials of a family at x, or a derivative of them; degrees lose their fraction, and those below 0 give 0.",
    attrs=PolynomialAttrs,
    inputs={"x": "where", "n": "the degrees, which broadcast with x"},
    named=False,
    dtype=floating,
    shape=broadcast_shape,
    layout=layouts.broadcast_pair,
    gradient=_polynomial_gradient,
    kernels=_polynomial_kernels,
    reference=in_dtype(lambda p, x, n: _polynomial(p, x.astype(FLOAT64), n.astype(FLOAT64))),
)
