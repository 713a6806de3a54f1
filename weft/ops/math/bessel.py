"""Bessel and Airy functions, element by element."""

from __future__ import annotations

from typing import Any

from ...core.op import Op
from .._families import F, floating, unary
from . import _bessel as formulas
from .special import by_formula, ratio, smooth

_FIRST = "The Bessel function of the first kind of order"
_SECOND = "The Bessel function of the second kind of order"
_MODIFIED = "The modified Bessel function of the second kind of order"


def _over(x: Any, y: Any) -> Any:
    return F.elemwise_div(y, x)


bessel_j0 = smooth("bessel_j0", f"{_FIRST} 0.", lambda x, y: -F.bessel_j1(x))
by_formula(bessel_j0, lambda m, x: formulas.bessel_j(m, 0, x))

bessel_j1 = smooth("bessel_j1", f"{_FIRST} 1.", lambda x, y: F.bessel_j0(x) - ratio(x, y, 0.5))
by_formula(bessel_j1, lambda m, x: formulas.bessel_j(m, 1, x))

bessel_y0 = smooth("bessel_y0", f"{_SECOND} 0; NaN below 0.", lambda x, y: -F.bessel_y1(x))
by_formula(bessel_y0, lambda m, x: formulas.bessel_y(m, 0, x))

bessel_y1 = smooth("bessel_y1", f"{_SECOND} 1; NaN below 0.", lambda x, y: F.bessel_y0(x) - _over(x, y))
by_formula(bessel_y1, lambda m, x: formulas.bessel_y(m, 1, x))

bessel_k0 = smooth("bessel_k0", f"{_MODIFIED} 0; NaN below 0.", lambda x, y: -F.bessel_k1(x))
by_formula(bessel_k0, lambda m, x: formulas.bessel_k(m, 0, x))

bessel_k1 = smooth("bessel_k1", f"{_MODIFIED} 1; NaN below 0.", lambda x, y: -F.bessel_k0(x) - _over(x, y))
by_formula(bessel_k1, lambda m, x: formulas.bessel_k(m, 1, x))

scaled_bessel_k0 = smooth("scaled_bessel_k0", "exp(x) bessel_k0(x)", lambda x, y: y - F.scaled_bessel_k1(x))
by_formula(scaled_bessel_k0, lambda m, x: formulas.scaled_bessel_k(m, 0, x))

scaled_bessel_k1 = smooth(
    "scaled_bessel_k1", "exp(x) bessel_k1(x)", lambda x, y: y - F.scaled_bessel_k0(x) - _over(x, y)
)
by_formula(scaled_bessel_k1, lambda m, x: formulas.scaled_bessel_k(m, 1, x))

spherical_bessel_j0 = smooth(
    "spherical_bessel_j0", "sin(x) / x, which is 1 at 0.", lambda x, y: -F.spherical_bessel_j1(x)
)
by_formula(spherical_bessel_j0, lambda m, x: formulas.spherical_j(m, 0, x))

spherical_bessel_j1 = smooth(
    "spherical_bessel_j1",
    "(sin(x) / x - cos(x)) / x, which is 0 at 0.",
    lambda x, y: F.spherical_bessel_j0(x) - ratio(x, y, 1 / 3) * 2,
)
by_formula(spherical_bessel_j1, lambda m, x: formulas.spherical_j(m, 1, x))

airy_ai: Op = unary(
    "airy_ai", "The Airy function Ai, a solution of y'' = x y that vanishes above.", level=5, dtype=floating
)
by_formula(airy_ai, formulas.airy_ai)
