"""The exponential distribution, and those that are functions of it: Pareto's and Weibull's."""

from __future__ import annotations

from typing import Any

from ..eager.tensor.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import ExponentialFamily
from .functions import EULER, broadcast_all, empty, ones_like, zeros_like
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform, PowerTransform


class Exponential(ExponentialFamily):
    """p(x) = rate exp(-rate x) for x >= 0

    >>> Exponential(4.0).mean
    tensor(0.2500)
    """

    rate: Tensor
    arg_constraints: Any = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure: Any = 0.0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    stddev = mean

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate**-2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return empty(shape, dtype=self.rate.dtype).exponential_() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * self._checked(value)

    def cdf(self, value: Tensor) -> Tensor:
        return -(-self.rate * self._checked(value)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (-self.rate,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return -(-x).log()


class Pareto(TransformedDistribution):
    """p(x) = alpha scale^alpha / x^(alpha + 1) for x >= scale"""

    arg_constraints: Any = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)  # infinite up to 1
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)  # infinite up to 2
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class Weibull(TransformedDistribution):
    """P(X > x) = exp(-(x / scale)^k), with k = concentration"""

    arg_constraints: Any = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(ones_like(self.scale), validate_args)
        steps = [PowerTransform(self.concentration.reciprocal()), AffineTransform(0, self.scale)]
        super().__init__(base, steps, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * (1 + self.concentration.reciprocal()).lgamma().exp()

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    @property
    def variance(self) -> Tensor:
        part = self.concentration.reciprocal()
        return self.scale**2 * ((1 + 2 * part).lgamma().exp() - (2 * (1 + part).lgamma()).exp())

    def entropy(self) -> Tensor:
        k = self.concentration
        return EULER * (1 - k.reciprocal()) + (self.scale / k).log() + 1
