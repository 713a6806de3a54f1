"""The normal distribution, and what follows from it: its absolute value, its exponential, shares of one."""

from __future__ import annotations

import math
from typing import Any

from ..eager.autograd.modes import no_grad
from ..eager.tensor.tensor import Tensor
from . import constraints
from .distribution import ExponentialFamily
from .functions import HALF_LOG_2PI, draw_normal, standard_normal, where, zeros_like
from .transformed_distribution import Shown
from .transforms import AbsTransform, ExpTransform, StickBreakingTransform


class Normal(ExponentialFamily):
    """The normal distribution: p(x) = exp(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi)).

    >>> import weft
    >>> Normal(0.0, 2.0).log_prob(weft.tensor(1.0))
    tensor(-1.7371)
    """

    loc: Tensor
    scale: Tensor
    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _mean_carrier_measure: Any = 0.0

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return draw_normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + standard_normal(self._extended_shape(sample_shape), self.loc) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self._checked(value) - self.loc) / self.scale
        return -0.5 * z**2 - self.scale.log() - HALF_LOG_2PI

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + ((self._checked(value) - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + HALF_LOG_2PI + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        precision = self.scale**-2
        return self.loc * precision, -0.5 * precision

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return -0.25 * x**2 / y + 0.5 * (-math.pi / y).log()


class HalfNormal(Shown):
    """The absolute value of a normal number around 0."""

    arg_constraints: Any = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)

    def log_prob(self, value: Tensor) -> Tensor:
        return folded_log_prob(self, value)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(self._checked(value)) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


def folded_log_prob(folded: Any, value: Tensor) -> Tensor:
    """That of the absolute value of a distribution around 0."""
    found = folded.base_dist.log_prob(folded._checked(value)) + math.log(2)
    return where(value >= 0, found, -math.inf)


class LogNormal(Shown):
    """exp of a normal number."""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args)

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale**2).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class LogisticNormal(Shown):
    """Shares of one that normal numbers make by breaking a stick: one share more than numbers."""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The means of the normal numbers."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The deviations of the normal numbers."""
        return self.base_dist.base_dist.scale
