"""MixtureSameFamily: one of several components of a kind, chosen by a categorical distribution."""

from __future__ import annotations

from typing import Any

from ..base.errors import InvalidValue
from ..eager.autograd.modes import no_grad
from ..eager.tensor.tensor import Tensor
from . import constraints
from .categorical import Categorical
from .constraints import Constraint
from .distribution import Distribution


class MixtureSameFamily(Distribution):
    """p(x) = sum_k w_k p_k(x): the weights are a categorical distribution, the components lie along the last batch axis
    of another.

    >>> import weft
    >>> from weft.distributions import Categorical, Normal
    >>> weights = Categorical(weft.tensor([0.25, 0.75]))
    >>> MixtureSameFamily(weights, Normal(weft.tensor([0.0, 4.0]), 1.0)).mean
    tensor(3.)
    """

    arg_constraints: Any = {}
    _fixed = ("_mixture_distribution", "_component_distribution")

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise InvalidValue(" The Mixture distribution needs to be an instance of distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise InvalidValue("The Component distribution needs to be an instance of distributions.Distribution")
        weights, components = mixture_distribution.batch_shape, component_distribution.batch_shape
        for size, other in zip(reversed(weights), reversed(components[:-1])):
            if size != 1 and other != 1 and size != other:
                raise InvalidValue(
                    f"`mixture_distribution.batch_shape` ({weights}) is not compatible with "
                    f"`component_distribution.batch_shape` ({components})"
                )
        if mixture_distribution._num_events != components[-1]:
            raise InvalidValue(
                f"`mixture_distribution` has {mixture_distribution._num_events} categories, and "
                f"`component_distribution` {components[-1]} components"
            )
        self._num_component = components[-1]
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(components[:-1], component_distribution.event_shape, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> MixtureSameFamily:
        made = super().expand(batch_shape, _instance)
        made._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        made._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        return made

    @property
    def has_rsample(self) -> bool:
        return False

    @constraints.dependent_property
    def support(self) -> Constraint:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The weights."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    def _weights(self) -> Tensor:
        return _widened(self._mixture_distribution.probs, self._event_ndims)

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self._component_distribution.mean).sum(-1 - self._event_ndims)

    @property
    def variance(self) -> Tensor:
        """The mean of the variances, and the variance of the means."""
        weights, axis = self._weights(), -1 - self._event_ndims
        within = (weights * self._component_distribution.variance).sum(axis)
        apart = self._component_distribution.mean - self.mean.unsqueeze(axis)
        return within + (weights * apart**2).sum(axis)

    def cdf(self, value: Tensor) -> Tensor:
        found = self._component_distribution.cdf(self._checked(value).unsqueeze(-1 - self._event_ndims))
        return (found * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._checked(value).unsqueeze(-1 - self._event_ndims)
        weights = self._mixture_distribution.logits.log_softmax(-1)
        return (self._component_distribution.log_prob(x) + weights).logsumexp(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            axis = len(tuple(sample_shape)) + len(self.batch_shape)
            chosen = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            chosen = _widened(chosen.unsqueeze(-1), self._event_ndims)
            places = chosen.expand((*drawn.shape[:axis], 1, *self.event_shape))
            return drawn.gather(axis, places).squeeze(axis)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution!r},\n  {self._component_distribution!r})"


def _widened(value: Tensor, count: int) -> Tensor:
    """With axes of one at the end."""
    return value.reshape(*value.shape, *[1] * count)
