"""Shares of one: the Dirichlet distribution, and the beta distribution, one of two shares."""

from __future__ import annotations

from typing import Any

from ..base.errors import InvalidValue
from ..eager.tensor.tensor import Tensor
from . import constraints
from .distribution import ExponentialFamily, need_tensor
from .draws import shares
from .functions import broadcast_all, log_beta, one_hot, stack, where


class Dirichlet(ExponentialFamily):
    """p(x) is proportional to the product of x_i^(a_i - 1) over shares x of one, with a = concentration

    >>> import weft
    >>> Dirichlet(weft.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints: Any = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _mean_carrier_measure: Any = 0.0

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        need_tensor("concentration", concentration)
        if concentration.ndim < 1:
            raise InvalidValue("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        """The largest concentration has all, where none is as large as 1."""
        more = (self.concentration - 1).clamp(min=0.0)
        found = more / more.sum(-1, True)
        corner = one_hot(found.argmax(-1), found.shape[-1]).to(found.dtype)
        return where((self.concentration < 1).all(-1, True), corner, found)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return shares(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return (a - 1).xlogy(self._checked(value)).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, total, count = self.concentration, self.concentration.sum(-1), self.concentration.shape[-1]
        constant = a.lgamma().sum(-1) - total.lgamma()
        return constant - (count - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.concentration - 1,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return (x + 1).lgamma().sum(-1) - (x + 1).sum(-1).lgamma()


class Beta(ExponentialFamily):
    """p(x) = x^(a - 1) (1 - x)^(b - 1) / B(a, b), with a = concentration1 and b = concentration0

    >>> Beta(1.0, 3.0).mean
    tensor(0.2500)
    """

    arg_constraints: Any = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure: Any = 0.0

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        both = stack(list(broadcast_all(concentration1, concentration0)), -1)
        self._dirichlet = Dirichlet(both, validate_args)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    @property
    def concentration1(self) -> Tensor:
        """The concentration of ones."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Tensor:
        """The concentration of zeros."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._checked(value)
        return self._dirichlet.log_prob(stack([x, 1.0 - x], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return self.concentration1 - 1, self.concentration0 - 1

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return log_beta(x + 1, y + 1)
