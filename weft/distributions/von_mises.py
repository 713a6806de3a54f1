"""Von Mises's distribution of angles."""

from __future__ import annotations

import math
from typing import Any

from ..eager.autograd.modes import no_grad
from ..eager.tensor.tensor import Tensor
from ..eager.tensor.types import bool_, float64
from . import constraints
from .distribution import Distribution
from .functions import i0e, i1e, rand, where, zeros

_EVEN = 1e-5  # a concentration below which angles are as good as evenly spread


class VonMises(Distribution):
    """p(x) = exp(c cos(x - loc)) / (2 pi I0(c)) over angles x, with c = concentration"""

    loc: Tensor
    concentration: Tensor
    arg_constraints: Any = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, concentration=concentration)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        """That of directions, 1 - I1(c) / I0(c)"""
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        c = self.concentration
        return c * (self._checked(value) - self.loc).cos() - math.log(2 * math.pi) - i0e(c).log() - c

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By Best and Fisher: angles of a wrapped Cauchy distribution, accepted by the ratio of the densities; in
        float64, since float32 would end in a few places."""
        with no_grad():
            shape = self._extended_shape(sample_shape)
            c, loc = self.concentration.to(float64).expand(shape), self.loc.to(float64)
            tau = 1 + (1 + 4 * c**2).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * c)
            r = where(c < _EVEN, 1 / c + c, (1 + rho**2) / (2 * rho))
            angles, done = zeros(shape, dtype=float64), zeros(shape, dtype=bool_)
            while not bool(done.all()):
                turn, accept, side = rand((3, *shape), dtype=float64).unbind()
                z = (math.pi * turn).cos()
                f = (1 + r * z) / (r + z)
                d = c * (r - f)
                good = (d * (2 - d) - accept > 0) | ((d / accept).log() + 1 - d >= 0)
                angles = where(good, (side - 0.5).sign() * f.acos(), angles)
                done = done | good
            return ((angles + math.pi + loc).remainder(2 * math.pi) - math.pi).to(self.loc.dtype)
