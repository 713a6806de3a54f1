"""Trials that succeed or fail: one, a count of them, how many until a success, how many before some failures; and
the continuous kin of one trial."""

from __future__ import annotations

import math
from typing import Any

from ..base.errors import InvalidValue
from ..eager.autograd.modes import no_grad
from ..eager.tensor.size import Size
from ..eager.tensor.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution, ExponentialFamily, lazy_property, one_of
from .functions import (
    arange,
    bce_with_logits,
    bernoulli,
    binomial,
    broadcast_all,
    clamp_probs,
    full_like,
    logaddexp,
    logits_to_probs,
    logsigmoid,
    minimum,
    ones_like,
    poisson,
    probs_to_logits,
    rand,
    smallest,
    where,
    zeros_like,
)
from .gamma import Gamma


class Odds(Distribution):
    """Of the probability of a success, given as such or as log odds; each follows from the other."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _take(self, probs: Any, logits: Any, validate_args: bool | None, **others: Any) -> None:
        name, value = one_of(probs=probs, logits=logits)
        self._set(validate_args, **{**others, name: value})

    @lazy_property
    def logits(self) -> Tensor:
        """log(p / (1 - p))"""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability of a success."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return (self.probs if "probs" in vars(self) else self.logits).shape

    def _cross_entropy(self, value: Tensor) -> Tensor:
        """-value log p - (1 - value) log(1 - p)"""
        logits, target = broadcast_all(self.logits, value)
        return bce_with_logits(logits, target, reduction="none")


class Bernoulli(Odds, ExponentialFamily):
    """1 with a probability, else 0.

    >>> import weft
    >>> Bernoulli(0.25).log_prob(weft.tensor(1.0)).exp()
    tensor(0.2500)
    """

    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure: Any = 0.0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        found = (self.probs >= 0.5).to(self.probs.dtype)
        return where(self.probs.eq(0.5), math.nan, found)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._cross_entropy(self._checked(value))

    def entropy(self) -> Tensor:
        return self._cross_entropy(self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(arange(2, dtype=self.logits.dtype), expand)

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return logaddexp(x, zeros_like(x))


class Binomial(Odds):
    """How many of total_count trials succeed."""

    total_count: Tensor
    arg_constraints: Any = {"total_count": constraints.nonnegative_integer, **Odds.arg_constraints}
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        name, value = one_of(probs=probs, logits=logits)
        count, value = broadcast_all(total_count, value)
        kind = value.dtype
        self._set(validate_args, **{"total_count": count.to(kind), name: value})

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        k, n = self._checked(value), self.total_count
        ways = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
        return ways + k * self.logits - n * logaddexp(self.logits, zeros_like(self.logits))

    def _one_count(self, what: str) -> int:
        count = int(self.total_count.max())
        if int(self.total_count.min()) != count:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{what}`.")
        return count

    def entropy(self) -> Tensor:
        self._one_count("entropy")
        found = self.log_prob(self.enumerate_support(False))
        return -(found.exp() * found).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._one_count("enumerate_support")
        return self._enumerated(arange(1 + count, dtype=self.logits.dtype), expand)


class Geometric(Odds):
    """How many trials fail before the first success: p(k) = (1 - p)^k p"""

    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits, validate_args)
        if self._validate_args and probs is not None and not bool((self.probs > 0).all()):
            raise InvalidValue(
                f"Expected parameter probs of distribution {self!r} to be positive but found invalid values:\n"
                f"{self.probs[~(self.probs > 0)]}"
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            drawn = rand(self._extended_shape(sample_shape), dtype=self.probs.dtype).clamp(min=smallest(self.probs))
            return (drawn.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        k, p = broadcast_all(self._checked(value), self.probs)
        certain = p.eq(1) & k.eq(0)
        return where(certain, 0.0, k * (-where(certain, 0.5, p)).log1p()) + self.probs.log()

    def entropy(self) -> Tensor:
        return self._cross_entropy(self.probs) / self.probs


class NegativeBinomial(Odds):
    """How many trials succeed before total_count of them fail."""

    total_count: Tensor
    arg_constraints: Any = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        name, value = one_of(probs=probs, logits=logits)
        count, value = broadcast_all(total_count, value)
        self._set(validate_args, **{"total_count": count.to(value.dtype), name: value})

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():  # a Poisson number of a gamma rate
            return poisson(Gamma(self.total_count, (-self.logits).exp(), False).sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        k, n = self._checked(value), self.total_count
        nothing = (n + k).eq(0)
        ways = where(nothing, 1.0, n + k).lgamma() - (1 + k).lgamma() - where(nothing, 1.0, n).lgamma()
        return ways + n * logsigmoid(-self.logits) + k * logsigmoid(self.logits)


class ContinuousBernoulli(Odds, ExponentialFamily):
    """p(x) is proportional to p^x (1 - p)^(1 - x) over [0, 1]; within `lims` of p, formulas that divide by p - 1/2 give
    way to their Taylor series."""

    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure: Any = 0.0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._lims = lims
        self._take(probs, logits, validate_args)
        if probs is not None:
            self.probs = clamp_probs(self.probs)

    def _apart(self) -> tuple[Tensor, Tensor]:
        """Where p is not about 1/2, and p with something else where it is."""
        apart = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return apart, where(apart, self.probs, full_like(self.probs, self._lims[0]))

    def _log_constant(self) -> Tensor:
        """log of 2 artanh(1 - 2p) / (1 - 2p), by which the density is normalised."""
        apart, p = self._apart()
        below = p <= 0.5
        divisor = where(below, (-2.0 * where(below, p, 0.0)).log1p(), (2.0 * where(below, 1.0, p) - 1.0).log())
        exact = ((-p).log1p() - p.log()).abs().log() - divisor
        x = (self.probs - 0.5) ** 2
        return where(apart, exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        apart, p = self._apart()
        exact = p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log())
        x = self.probs - 0.5
        return where(apart, exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x**2) * x)

    @property
    def variance(self) -> Tensor:
        apart, p = self._apart()
        exact = p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / ((-p).log1p() - p.log()) ** 2
        x = (self.probs - 0.5) ** 2
        return where(apart, exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.probs.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        return self._log_constant() - self._cross_entropy(self._checked(value))

    def cdf(self, value: Tensor) -> Tensor:
        apart, p = self._apart()
        x = self._checked(value)
        exact = (p**x * (1.0 - p) ** (1.0 - x) + p - 1.0) / (2.0 * p - 1.0)
        return where(apart, exact, x).where(x > 0, zeros_like(x)).where(x < 1, ones_like(x))

    def icdf(self, value: Tensor) -> Tensor:
        apart, p = self._apart()
        exact = ((-p + value * (2.0 * p - 1.0)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return where(apart, exact, value)

    def entropy(self) -> Tensor:
        low, high = (-self.probs).log1p(), self.probs.log()
        return self.mean * (low - high) - self._log_constant() - low

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """log((exp(x) - 1) / x)"""
        apart = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        safe = where(apart, x, self._lims[0] - 0.5)
        exact = safe.expm1().abs().log() - safe.abs().log()
        return where(apart, exact, 0.5 * x + x**2 / 24.0 - x**4 / 2880.0)
