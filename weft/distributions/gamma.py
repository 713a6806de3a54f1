"""The gamma distribution and what is made of it: sums of squares (Chi2), ratios (FisherSnedecor, StudentT), the
inverse."""

from __future__ import annotations

import math
from typing import Any

from ..eager.tensor.tensor import Tensor
from . import constraints
from .distribution import Distribution, ExponentialFamily
from .draws import standard_gamma
from .functions import ones_like, smallest, standard_normal, tensor, where
from .transformed_distribution import Shown
from .transforms import PowerTransform


class Gamma(ExponentialFamily):
    """p(x) = rate^a x^(a - 1) exp(-rate x) / gamma(a), with a = concentration

    >>> Gamma(3.0, 2.0).mean
    tensor(1.5000)
    """

    concentration: Tensor
    rate: Tensor
    arg_constraints: Any = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure: Any = 0.0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        made = standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        return made.clamp(min=smallest(made))

    def log_prob(self, value: Tensor) -> Tensor:
        a, x = self.concentration, self._checked(value)
        return a.xlogy(self.rate) + (a - 1).xlogy(x) - self.rate * x - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        return self.concentration.igamma(self.rate * self._checked(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return (x + 1).lgamma() - (x + 1) * (-y).log()


class Chi2(Gamma):
    """The sum of df squares of standard normal numbers."""

    arg_constraints: Any = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """How many squares."""
        return self.concentration * 2


class InverseGamma(Shown):
    """1 / x of a gamma number x"""

    arg_constraints: Any = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(tensor(-1.0, dtype=base.rate.dtype)), validate_args)

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return where(a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class FisherSnedecor(Distribution):
    """The ratio of the means of df1 and of df2 squares of standard normal numbers."""

    df1: Tensor
    df2: Tensor
    arg_constraints: Any = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, df1=df1, df2=df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1, validate_args=False)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 > 2, found, math.nan)

    @property
    def variance(self) -> Tensor:
        m, n = self.df1, self.df2
        found = 2 * n**2 * (m + n - 2) / (m * (n - 2) ** 2 * (n - 4))
        return where(n > 4, found, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        above, below = self._gamma1.rsample(sample_shape), self._gamma2.rsample(sample_shape)
        return (above / below).clamp(min=smallest(above))

    def log_prob(self, value: Tensor) -> Tensor:
        m, n, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        x = self._checked(value)
        constant = (m + n).lgamma() - m.lgamma() - n.lgamma() + m * ratio.log()
        return constant + (m - 1) * x.log() - (m + n) * (ratio * x).log1p()


class StudentT(Distribution):
    """loc + scale z / sqrt(v / df), of a standard normal z and the sum v of df such squares"""

    df: Tensor
    loc: Tensor
    scale: Tensor
    arg_constraints: Any = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self._set(validate_args, df=df, loc=loc, scale=scale)
        self._chi2 = Chi2(self.df, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        heavy = where(self.df > 1, math.inf * ones_like(self.df), math.nan)
        return where(self.df > 2, self.scale**2 * self.df / (self.df - 2), heavy)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = standard_normal(self._extended_shape(sample_shape), self.df)
        return self.loc + self.scale * (drawn * (self._chi2.rsample(sample_shape) / self.df).rsqrt())

    def log_prob(self, value: Tensor) -> Tensor:
        z, n = (self._checked(value) - self.loc) / self.scale, self.df
        constant = self.scale.log() + 0.5 * (n * math.pi).log() + (0.5 * n).lgamma() - (0.5 * (n + 1)).lgamma()
        return -0.5 * (n + 1) * (z**2 / n).log1p() - constant

    def entropy(self) -> Tensor:
        n, half = self.df, 0.5 * (self.df + 1)
        log_b = (0.5 * n).lgamma() + math.lgamma(0.5) - half.lgamma()
        return self.scale.log() + half * (half.digamma() - (0.5 * n).digamma()) + 0.5 * n.log() + log_b
