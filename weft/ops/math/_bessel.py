"""Formulas of Bessel and Airy functions of order 0 and 1, for numpy arrays and for expressions: `m`
is NUMPY of `_special` or `weft.te`, and values are in float64."""

from __future__ import annotations

import math
from typing import Any

from . import _bessel_series as series
from ._special import polynomial

_EDGE = 8.0  # between the polynomials of x^2 and those of 1 / x^2
_J = (series.NEAR_J0, series.NEAR_J1)
_Y = (series.NEAR_Y0, series.NEAR_Y1)
_P = (series.FAR_P0, series.FAR_P1)
_Q = (series.FAR_Q0, series.FAR_Q1)


def _near_j(order: int, v: Any) -> Any:
    value = polynomial(v * v * (2 / _EDGE**2) - 1, _J[order])
    return value * v if order else value


def _waves(m: Any, order: int, a: Any) -> tuple[Any, Any]:
    """J and Y of a >= 8: sqrt(2 / (pi a)) (P + i Q) exp(i (a - pi / 4 - order pi / 2))."""
    x = m.max(a, _EDGE)
    share = _EDGE / x
    t = 2 * share * share - 1
    p, q = polynomial(t, _P[order]), share * polynomial(t, _Q[order])
    sin, cos = m.sin(x), m.cos(x)
    along, across = (sin - cos, -(sin + cos)) if order else (cos + sin, sin - cos)
    scale = 1 / math.sqrt(math.pi) / m.sqrt(x)
    return scale * (p * along - q * across), scale * (p * across + q * along)


def bessel_j(m: Any, order: int, x: Any) -> Any:
    """The Bessel function of the first kind."""
    a = m.abs(x)
    value = m.select(a < _EDGE, _near_j(order, m.min(a, _EDGE)), _waves(m, order, a)[0])
    return m.select(x < 0, -value, value) if order else value


def bessel_y(m: Any, order: int, x: Any) -> Any:
    """The Bessel function of the second kind, NaN below 0."""
    v = m.min(x, _EDGE)
    near = polynomial(v * v * (2 / _EDGE**2) - 1, _Y[order])
    near = near * v if order else near
    logs = m.log(v) * _near_j(order, v) - (1 / v if order else 0.0)
    value = m.select(x < _EDGE, near + (2 / math.pi) * logs, _waves(m, order, x)[1])
    return m.select(x > 0, value, m.select(x < 0, math.nan, x - math.inf))


def scaled_bessel_k(m: Any, order: int, x: Any) -> Any:
    """exp(x) times the modified Bessel function of the second kind, NaN below 0."""
    v = m.min(x, 2.0)
    quarter = v * v * 0.25
    terms = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(14)]
    first = polynomial(quarter, terms) * (v * 0.5 if order else 1.0)
    rest = polynomial(2 * quarter - 1, series.NEAR_K1 if order else series.NEAR_K0)
    near = rest / v + m.log(v * 0.5) * first if order else rest - m.log(v * 0.5) * first
    far_x = m.max(x, 2.0)
    far = polynomial(4 / far_x - 1, series.FAR_K1 if order else series.FAR_K0) / m.sqrt(far_x)
    value = m.select(x < 2, m.exp(v) * near, far)
    return m.select(x > 0, value, m.select(x < 0, math.nan, x + math.inf))


def bessel_k(m: Any, order: int, x: Any) -> Any:
    """The modified Bessel function of the second kind, NaN below 0."""
    return m.exp(-m.max(x, 0.0)) * scaled_bessel_k(m, order, x)


def _phase(m: Any, x: Any) -> Any:
    return x * m.sqrt(x) * (2 / 3)


_ABOVE, _BELOW = 2.0, 4.0  # what lies between 2 and -4 is one polynomial
_ABOVE_PHASE, _BELOW_PHASE = _ABOVE**1.5 * 2 / 3, _BELOW**1.5 * 2 / 3


def airy_ai(m: Any, x: Any) -> Any:
    """The Airy function that vanishes above."""
    near = polynomial((m.max(m.min(x, _ABOVE), -_BELOW) + 1) * (1 / 3), series.NEAR_AIRY)
    high = m.max(x, _ABOVE)
    z = _phase(m, high)
    decay = m.exp(-z) / (m.sqrt(m.sqrt(high)) * (2 * math.sqrt(math.pi)))
    above = decay * polynomial(2 * _ABOVE_PHASE / z - 1, series.ABOVE_AIRY)
    low = m.max(-x, _BELOW)
    z = _phase(m, low)
    share = _BELOW_PHASE / z
    t = 2 * share * share - 1
    p, q = polynomial(t, series.BELOW_AIRY_P), share * polynomial(t, series.BELOW_AIRY_Q)
    sin, cos = m.sin(z), m.cos(z)
    wave = (p * (sin + cos) + q * (cos - sin)) / (m.sqrt(m.sqrt(low)) * math.sqrt(2 * math.pi))
    return m.select(x > _ABOVE, above, m.select(x < -_BELOW, wave, near))


def spherical_j(m: Any, order: int, x: Any) -> Any:
    """sin(x) / x, or with order 1 the negative of its derivative; near 0 by power series."""
    near = m.max(m.min(x, 1.0), -1.0)
    count = 12
    terms = [(-1) ** k / math.factorial(2 * k + 1) for k in range(count)]
    if order:
        terms = [-2 * (k + 1) * c for k, c in enumerate(terms[1:])]
    small = polynomial(near * near, terms) * (near if order else 1.0)
    far = m.select(m.abs(x) < 1, 1.0, x)
    sine = m.sin(far) / far
    large = (sine - m.cos(far)) / far if order else sine
    value = m.select(m.abs(x) < 1, small, large)
    return m.select(m.isinf(x), 0.0, value)
