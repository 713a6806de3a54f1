"""The Hurwitz zeta function, for numpy arrays and for expressions: `m` is NUMPY of `_special` or
`weft.te`, and values are in float64."""

from __future__ import annotations

import math
from typing import Any

from ._special import BERNOULLI

TERMS = 12  # that are added one by one


def zeta(m: Any, s: Any, q: Any) -> Any:
    """The sum of (q + k)^-s. Below 0, what is below and what is above are two sums: with q = f - n,
    0 < f < 1, (-1)^s (zeta(s, 1 - f) - zeta(s, 1 - f + n)) + zeta(s, f)."""
    whole = m.floor(q)
    f = q - whole
    under = q < 0
    above = zeta_above(m, s, m.select(under, f, q))
    low = zeta_above(m, s, 1 - f) - zeta_above(m, s, 1 - f - whole)
    return chosen(m, s, q, m.select(under, above + m.select(is_odd(m, s), -low, low), above))


def is_odd(m: Any, s: Any) -> Any:
    return s - 2 * m.floor(s * 0.5) > 0.5


def chosen(m: Any, s: Any, q: Any, value: Any) -> Any:
    """The value where there is one: infinite at s = 1 and where a term is, NaN for s < 1 and below
    0 where s is not whole."""
    below = m.select(m.abs(s - m.floor(s)) > 0, math.nan, value)
    below = m.select(q - m.floor(q) > 0, below, math.inf)
    value = m.select(q < 0, below, m.select(q > 0, value, q + math.inf))
    return m.select(s > 1, value, m.select(s < 1, math.nan, s + math.inf))


def zeta_above(m: Any, s: Any, q: Any) -> Any:
    """q > 0: the first terms, and the rest."""
    total = m.pow(q, -s)
    for k in range(1, TERMS):
        total = total + m.pow(q + float(k), -s)
    return total + rest(m, s, q + float(TERMS))


def rest(m: Any, s: Any, z: Any) -> Any:
    """The sum of (z + k)^-s for a large z, by the formula of Euler and Maclaurin."""
    base = m.pow(z, -s)
    total = base * (z / (s - 1) + 0.5)
    step = m.min(s, 1e6) / z  # beyond it, base is 0
    for k, b in enumerate(BERNOULLI, 1):
        total = total + base * step * (b / math.factorial(2 * k))
        step = step * ((s + (2 * k - 1)) / z) * ((s + 2 * k) / z)
    return m.select(base > 0, total, 0.0)
