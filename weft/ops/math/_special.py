"""Formulas of special functions, written once for numpy arrays and for expressions: `m` is NUMPY or
`weft.te`, and values are in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ... import te

NUMPY = SimpleNamespace(
    select=np.where,
    log=np.log,
    exp=np.exp,
    sqrt=np.sqrt,
    abs=np.abs,
    round=np.rint,
    sin=np.sin,
    cos=np.cos,
    max=np.maximum,
    min=np.minimum,
    isnan=np.isnan,
    isinf=np.isinf,
    pow=np.power,
    floor=np.floor,
)

# The Bernoulli numbers B2, B4, ...
_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]
_SHIFT = 8  # above it the asymptotic series are exact to the last bit of float64


def numbers(table: str) -> list[float]:
    """The numbers of a table, which are written with spaces between them."""
    return [float(word) for word in table.split()]


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """The sum of coefficients[k] x^k."""
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def log_gamma(m: Any, x: Any) -> Any:
    """Stirling's series at y + 8, less log(y (y + 1) ... (y + 7)); for x < 1/2 by reflection,
    log(pi / |sin(pi x)|) - log_gamma(1 - x)."""
    mirrored = x < 0.5
    y = m.select(mirrored, 1 - x, x)
    low = y < _SHIFT
    product: Any = m.select(low, y, 1.0)
    for k in range(1, _SHIFT):
        product = product * m.select(low, y + float(k), 1.0)
    z = m.select(low, y + float(_SHIFT), y)
    series = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
    inverse = 1 / z
    tail = inverse * polynomial(inverse * inverse, series)
    above = (z - 0.5) * m.log(z) - z + 0.5 * math.log(2 * math.pi) + tail - m.log(product)
    reflected = m.log(math.pi / m.abs(m.sin(math.pi * (x - m.round(x))))) - above
    nothing = (x - 1) * (x - 2)  # gamma is 1 at both, and the sums above leave a rest
    zero = nothing.equal(0) if m is te else nothing == 0
    value = m.select(mirrored, reflected, m.select(zero, 0.0, above))
    return m.select(m.isinf(x), math.inf, value)


def digamma(m: Any, x: Any) -> Any:
    """The derivative of log_gamma: its series at y + 8, less 1/y + ... + 1/(y + 7); for x < 0 by
    reflection, digamma(1 - x) - pi cot(pi x)."""
    mirrored = x < 0
    y = m.select(mirrored, 1 - x, x)
    steps: Any = 1 / y
    for k in range(1, _SHIFT):
        steps = steps + 1 / (y + float(k))
    z = y + float(_SHIFT)
    inverse = 1 / z
    square = inverse * inverse
    series = [-b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
    above = m.log(z) - 0.5 * inverse + square * polynomial(square, series) - steps
    angle = math.pi * (x - m.round(x))
    whole = angle.equal(0) if m is te else angle == 0
    cot = m.select(whole, math.nan, m.cos(angle) / m.sin(angle))  # a pole has no sign
    return m.select(mirrored, above - math.pi * cot, above)


def polygamma(m: Any, n: int, x: Any) -> Any:
    """The n-th derivative of digamma, (-1)^(n+1) n! zeta(n + 1, x); for x < 0 by reflection,
    (-1)^n (polygamma(1 - x) + pi times the n-th derivative of cot at pi x)."""
    mirrored = x < 0
    sign = -1.0 if n % 2 == 0 else 1.0
    above = _hurwitz_zeta(n + 1, m.select(mirrored, 1 - x, x)) * (sign * math.factorial(n))
    angle = math.pi * (x - m.round(x))
    cot = m.cos(angle) / m.sin(angle)
    slopes = polynomial(cot, _cot_derivative(n)) * math.pi ** (n + 1)
    return m.select(mirrored, -sign * above - slopes, above)


def _cot_derivative(n: int) -> list[float]:
    """The n-th derivative of cot as a polynomial of cot: cot' = -(1 + cot^2)."""
    made = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(made)][1:]
        made = [0.0] * (len(slope) + 2)
        for k, c in enumerate(slope):
            made[k] -= c
            made[k + 2] -= c
    return made


def _hurwitz_zeta(s: int, x: Any) -> Any:
    """The sum of (x + k)^-s, by the formula of Euler and Maclaurin from k = 12 on."""
    first = 12
    total: Any = _inverse_power(x, s)
    for k in range(1, first):
        total = total + _inverse_power(x + float(k), s)
    z = x + float(first)
    base = _inverse_power(z, s)
    square = _inverse_power(z, 2)
    series, factor = [], float(s)
    for k, b in enumerate(_BERNOULLI, 1):
        series.append(b / math.factorial(2 * k) * factor)
        factor *= (s + 2 * k - 1) * (s + 2 * k)
    return total + base * (z / float(s - 1) + 0.5) + base / z * polynomial(square, series)


def _inverse_power(x: Any, s: int) -> Any:
    inverse = 1 / x
    total = inverse
    for _ in range(s - 1):
        total = total * inverse
    return total


# (1 + 2x) exp(x^2) erfc(x) for x >= 0 as a Chebyshev series of (x - 3.75) / (x + 3.75).
_ERFC = numbers("""
    1.17757893456740175 -0.0045900545806464773 -0.084249133366517916 0.05920993999819189 -0.026658668435305752
    0.0090749976707052651 -0.0024131635404176082 0.00049077583652580863 -6.9169733025012064e-5
    4.1390279860730102e-6 7.7403830661984907e-7 -2.1886401049234396e-7 1.076499946567091e-8 4.5219598112182869e-9
    -7.7544002088313511e-10 -6.3180883408866845e-11 2.8687950109306699e-11 1.9455868545777347e-13
    -9.6546967484334389e-13 3.2525481481487398e-14 3.3478119482868054e-14 -1.8645628804193131e-15
    -1.2507950530688647e-15
""")
_FAR = 30.0  # beyond it erfc is 0 in float64


def erfc(m: Any, x: Any) -> Any:
    """1 - erf(x), exact where it is small."""
    a = m.min(m.abs(x), _FAR)
    tail = m.exp(-(a * a)) * scaled_erfc(a)
    return m.select(x < 0, 2 - tail, tail)


def scaled_erfc(a: Any) -> Any:
    """exp(a^2) erfc(a) of a >= 0."""
    u = (a - 3.75) / (a + 3.75)
    high: Any = 0.0
    low: Any = 0.0
    for c in reversed(_ERFC[1:]):
        high, low = 2 * u * high - low + c, high
    return (u * high - low + _ERFC[0]) / (2 * a + 1)


def erfcx(m: Any, x: Any) -> Any:
    """exp(x^2) erfc(x); below 0, 2 exp(x^2) less what it is above."""
    a = m.min(m.abs(x), 1e30)
    above = scaled_erfc(a)
    return m.select(x < 0, 2 * m.exp(a * a) - above, m.select(m.isinf(x), 0.0, above))


def erfinv(m: Any, y: Any) -> Any:
    """The inverse of erf: a rough guess, then steps of Halley's method on erfc; near 0 its power
    series."""
    rest = 1 - m.abs(y)
    w = m.log(rest * (2 - rest))
    half = 2 / (math.pi * 0.147) + 0.5 * w
    x = m.sqrt(m.sqrt(half * half - w / 0.147) - half)
    x = m.select(m.isinf(w), 0.0, x)
    for _ in range(3):
        step = (m.exp(-(x * x)) * scaled_erfc(x) - rest) * m.exp(x * x) * (math.sqrt(math.pi) / 2)
        x = x + step / (1 + x * step)
    x = m.select(m.isinf(w), math.inf, x)
    square = y * y * (math.pi / 4)
    near = y * (math.sqrt(math.pi) / 2) * polynomial(square, [1, 1 / 3, 7 / 30])
    return m.select(m.abs(y) < 1e-3, near, m.select(y < 0, -x, x))


_NEAR = 20.0  # where the power series of the Bessel functions hands over to the asymptotic one


def scaled_bessel(m: Any, order: int, x: Any) -> Any:
    """exp(-|x|) times the modified Bessel function of the first kind of order 0 or 1."""
    a = m.abs(x)
    near = m.min(a, _NEAR)
    square = near * near * 0.25
    terms = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(50)]
    small = m.exp(-near) * polynomial(square, terms) * (near * 0.5 if order else 1.0)
    far = m.max(a, _NEAR)
    large = polynomial(1 / far, _asymptotic(order, 16)) / m.sqrt(2 * math.pi * far)
    value = m.select(a < _NEAR, small, large)
    return m.select(x < 0, -value, value) if order else value


def _asymptotic(order: int, count: int) -> list[float]:
    """The coefficients of 1/x^k: (-1)^k (4 n^2 - 1) (4 n^2 - 9) ... / (k! 8^k)."""
    made = [1.0]
    for k in range(1, count):
        made.append(-made[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return made
