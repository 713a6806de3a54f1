"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

from ..eager.autograd.modes import no_grad
from ..eager.tensor.tensor import Tensor
from . import constraints
from .distribution import ExponentialFamily
from .functions import poisson


class Poisson(ExponentialFamily):
    """p(k) = rate^k exp(-rate) / k!

    >>> import weft
    >>> Poisson(2.0).log_prob(weft.tensor(0.0))
    tensor(-2.)
    """

    rate: Tensor
    arg_constraints: Any = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._set(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        k = self._checked(value)
        return k.xlogy(self.rate) - self.rate - (k + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.exp()
