"""The shares of the gamma function's integral below and above x, in numpy and float64: power series
where x is small, a continued fraction where it is large, quadrature near the peak of a large a."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .._families import Array
from ._special import NUMPY, log_gamma, polynomial
from ._zeta import zeta_above

_EPS = 2.0**-54
_LONGEST = 20_000  # terms, of which a few hundred are usual
_WIDE = 100.0  # from this a on the peak is integrated, where x is no further than this from it:
_REACH = 30.0  # in widths of the peak
_STIRLING = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156]
_EULER = 0.57721566490153286


@cache
def _nodes_and_weights() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(96)


@cache
def _log_gamma_terms() -> list[float]:
    """zeta(2) / 2, -zeta(3) / 3, ...: log gamma(1 + a) = -euler a + the sum of these times a^k."""
    return [(-1) ** k / k * float(zeta_above(NUMPY, float(k), 1.0)) for k in range(2, 30)]


def lower_share(a: Array, x: Array) -> Array:
    """The integral of t^(a-1) exp(-t) from 0 to x, over gamma(a)."""
    return _shared(a, x, lower=True)


def upper_share(a: Array, x: Array) -> Array:
    """The integral of t^(a-1) exp(-t) from x on, over gamma(a)."""
    return _shared(a, x, lower=False)


def _shared(a: Array, x: Array, lower: bool) -> Array:
    a, x = (np.array(v, np.float64) for v in np.broadcast_arrays(a, x))
    value = np.full(a.shape, np.nan)
    good = (a >= 0) & (x >= 0) & ~((a == 0) & (x == 0)) & ~(np.isinf(a) & np.isinf(x))
    nothing = (x == 0) | np.isinf(a)
    all_of_it = (a == 0) | np.isinf(x)
    value[good & nothing] = 0.0 if lower else 1.0
    value[good & all_of_it & ~nothing] = 1.0 if lower else 0.0
    for method, where in _methods(a, x, good & ~nothing & ~all_of_it):
        if where.any():
            part, is_lower = method(a[where], x[where])
            value[where] = np.where(is_lower == lower, part, 1 - part)
    return value


Method = Callable[[Array, Array], tuple[Array, Any]]


def _methods(a: Array, x: Array, left: Array) -> list[tuple[Method, Array]]:
    """Which method gives which elements; each tells the smaller of the two shares."""
    peak = (a > _WIDE) & (np.abs(x - a) < _REACH * np.sqrt(a))
    tiny = ~peak & (x < 1.1) & (a < np.where(x < 0.5, -0.4 / np.log(np.minimum(x, 0.5)), x / 1.1))
    below = ~peak & ~tiny & (x <= np.maximum(a, 1.0))
    choices: list[tuple[Method, Array]] = [
        (_by_quadrature, peak),
        (_by_small_series, tiny),
        (_by_series, below),
        (_by_fraction, ~peak & ~tiny & ~below),
    ]
    return [(method, left & where) for method, where in choices]


def _log_less(ratio: Array, u: Array) -> Array:
    """log(ratio) - u with u = ratio - 1, exact where u is small."""
    near = np.clip(u, -0.1, 0.1)
    terms = [(-1) ** (k + 1) / k for k in range(2, 20)]
    return np.where(np.abs(u) < 0.1, near * near * polynomial(near, terms), np.log(ratio) - u)


def _height(a: Array, x: Array) -> Array:
    """x^a exp(-x) / gamma(a + 1), for a large a by Stirling's series."""
    with np.errstate(all="ignore"):
        plain = np.exp(a * np.log(x) - x - _log_gamma_above(a))
        large = np.maximum(a, 10.0)
        over = 1 / large
        rest = over * polynomial(over * over, _STIRLING)
        peak = np.exp(large * _log_less(x / large, (x - large) / large) - rest)
        return np.where(a < 10, plain, peak / np.sqrt(2 * math.pi * large))


def _log_gamma_above(a: Array) -> Array:
    """log gamma(1 + a), exact where a is small."""
    near = np.minimum(a, 0.25)
    series = near * (near * polynomial(near, _log_gamma_terms()) - _EULER)
    return np.asarray(np.where(a < 0.25, series, log_gamma(NUMPY, 1 + a)))


def _by_series(a: Array, x: Array) -> tuple[Array, bool]:
    """The lower share: x^a exp(-x) / gamma(a + 1) (1 + x / (a + 1) (1 + x / (a + 2) (1 ...)))"""
    term = total = np.ones_like(x)
    for n in range(1, _LONGEST):
        term = term * (x / (a + n))
        total = total + term
        if (term < _EPS * total).all():
            break
    return _height(a, x) * total, True


def _by_small_series(a: Array, x: Array) -> tuple[Array, bool]:
    """The upper share where both are small: 1 - x^a / gamma(a + 1), and less the sum of
    x^a / gamma(a) (-x)^n / (n! (a + n))."""
    factor, total = np.ones_like(x), np.zeros_like(x)
    for n in range(1, 40):
        factor = factor * (-x / n)
        total = total + factor / (a + n)
    exponent = a * np.log(x) - _log_gamma_above(a)
    return -np.expm1(exponent) - a * np.exp(exponent) * total, False


def _by_fraction(a: Array, x: Array) -> tuple[Array, bool]:
    """The upper share: x^a exp(-x) / gamma(a) over x + 1 - a - (1 - a) / (x + 3 - a - ...), by
    Lentz's method."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = np.full_like(x, 1 / tiny), 1 / np.where(b == 0, tiny, b)
    fraction = d
    for n in range(1, _LONGEST):
        factor = n * (a - n)
        b = b + 2
        d = factor * d + b
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + factor / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        fraction = fraction * c * d
        if (np.abs(c * d - 1) < 1e-15).all():
            break
    return a * _height(a, x) * fraction, False


def _by_quadrature(a: Array, x: Array) -> tuple[Array, Array]:
    """The share on the side of x away from the peak at a - 1, by Gauss and Legendre: the integrand
    is exp(p (log(1 + u) - u)) over its own integral, with t = p (1 + u) and p = a - 1."""
    p = a - 1
    width = 1 / np.sqrt(p)
    start = (x - p) / p
    lower = start < 0
    away = np.where(lower, -1.0, 1.0)
    far = np.maximum(np.abs(start), 2 * width)
    span = np.minimum(12 * width, 50 * (1 + start) / (p * far))  # beyond it, nothing is left
    span = np.where(lower, np.minimum(span, 1 + start), span)
    nodes, weights = _nodes_and_weights()
    u = start[..., None] + away[..., None] * span[..., None] * (nodes + 1) / 2
    rest = 1 / p * polynomial(1 / (p * p), _STIRLING)
    values = np.exp(p[..., None] * _log_less(1 + u, u) - rest[..., None])
    return (values @ weights) * span / 2 * np.sqrt(p / (2 * math.pi)), lower
