"""The uniform distribution, and those that follow from it by a closed inverse: Kumaraswamy's and the generalised
Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

from ..eager.tensor.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .functions import EULER, broadcast_all, full_like, log_beta, ones_like, rand, where
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform


class Uniform(Distribution):
    """Even over [low, high).

    >>> import weft
    >>> Uniform(1.0, 3.0).cdf(weft.tensor(1.5))
    tensor(0.2500)
    """

    low: Tensor
    high: Tensor
    has_rsample = True

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, low=low, high=high)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return math.nan * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = rand(self._extended_shape(sample_shape), dtype=self.low.dtype)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        inside = (self._checked(value) >= self.low) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        return ((self._checked(value) - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Kumaraswamy(TransformedDistribution):
    """P(X <= x) = 1 - (1 - x^a)^b over [0, 1], with a = concentration1 and b = concentration0"""

    arg_constraints: Any = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(full_like(self.concentration0, 0), full_like(self.concentration0, 1), validate_args)
        steps = [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]
        super().__init__(base, steps, validate_args)

    def _moment(self, n: int) -> Tensor:
        """E[x^n] = b B(1 + n/a, b)"""
        a, b = self.concentration1, self.concentration0
        return b * log_beta(1 + n / a, b).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        found = ((a - 1) / (a * b - 1)) ** a.reciprocal()
        return where((a < 1) | (b < 1), math.nan, found)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * ((b + 1).digamma() + EULER) - a.log() - b.log()


class GeneralizedPareto(Distribution):
    """P(X > x) = (1 + c z)^(-1/c) with z = (x - loc) / scale, which is exp(-z) where the concentration c is 0"""

    loc: Tensor
    scale: Tensor
    concentration: Tensor
    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        bounded = self.concentration < 0
        end = self.loc - self.scale / where(bounded, self.concentration, -1.0)
        return constraints.interval(self.loc, where(bounded, end, math.inf))

    def _curved(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is not 0, and the concentration with something else where it is."""
        curved = self.concentration.abs() > 1e-8
        return curved, where(curved, self.concentration, ones_like(self.concentration))

    def _log_survival(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        curved, c = self._curved()
        return where(curved, -(c * z).log1p() / c, -z)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.loc.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        return (1 + self.concentration) * self._log_survival(self._checked(value)) - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return -self._log_survival(self._checked(value)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        log_left = (-value).log1p()
        curved, c = self._curved()
        return self.loc + self.scale * where(curved, (-c * log_left).expm1() / c, -log_left)

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        return where(c < 1, self.loc + self.scale / (1 - c), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return where(c < 0.5, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.inf)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
