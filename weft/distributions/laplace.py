"""Distributions of a location and a scale with heavier tails than the normal one: Laplace, Cauchy, Gumbel, and the
absolute value of Cauchy numbers."""

from __future__ import annotations

import math
from typing import Any

from ..eager.tensor.tensor import Tensor
from . import constraints
from .distribution import Distribution
from .functions import EULER, broadcast_all, empty, epsilon, full_like, ones_like, smallest, zeros_like
from .normal import folded_log_prob
from .transformed_distribution import Shown, TransformedDistribution
from .transforms import AbsTransform, AffineTransform, ExpTransform
from .uniform import Uniform


class _Located(Distribution):
    """Of a location, around which it is symmetric, and a scale."""

    loc: Tensor
    scale: Tensor
    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, scale=scale)

    @property
    def mode(self) -> Tensor:
        return self.loc


class Laplace(_Located):
    """p(x) = exp(-|x - loc| / scale) / (2 scale)"""

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = empty(self._extended_shape(sample_shape), dtype=self.loc.dtype).uniform_(epsilon(self.loc) - 1, 1)
        return self.loc - self.scale * drawn.sign() * (-drawn.abs().clamp(min=smallest(drawn))).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - (self._checked(value) - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        apart = self._checked(value) - self.loc
        return 0.5 - 0.5 * apart.sign() * (-apart.abs() / self.scale).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        apart = value - 0.5
        return self.loc - self.scale * apart.sign() * (-2 * apart.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(_Located):
    """p(x) = 1 / (pi scale (1 + z^2)) with z = (x - loc) / scale"""

    @property
    def mean(self) -> Tensor:
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = empty(self._extended_shape(sample_shape), dtype=self.loc.dtype).cauchy_()
        return self.loc + drawn * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self._checked(value) - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - (z**2).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return ((self._checked(value) - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class HalfCauchy(Shown):
    """The absolute value of a Cauchy number around 0."""

    arg_constraints: Any = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def mean(self) -> Tensor:
        return full_like(self.scale, math.inf)

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def log_prob(self, value: Tensor) -> Tensor:
        return folded_log_prob(self, value)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(self._checked(value)) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class Gumbel(TransformedDistribution):
    """P(X <= x) = exp(-exp(-(x - loc) / scale))"""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        low, high = full_like(self.loc, smallest(self.loc)), full_like(self.loc, 1 - epsilon(self.loc))
        logarithm = ExpTransform().inv
        negative = AffineTransform(0, -ones_like(self.scale))
        steps = [logarithm, negative, logarithm, AffineTransform(self.loc, -self.scale)]
        super().__init__(Uniform(low, high, validate_args), steps, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self.loc - self._checked(value)) / self.scale
        return z - z.exp() - self.scale.log()

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2

    def entropy(self) -> Tensor:
        return self.scale.log() + 1 + EULER
