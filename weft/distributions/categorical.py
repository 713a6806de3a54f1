"""One of several categories: as its number, as a vector with one 1, and how often each comes up."""

from __future__ import annotations

import math
from typing import Any

from ..base.errors import InvalidValue
from ..eager.autograd.modes import no_grad
from ..eager.tensor.size import Size
from ..eager.tensor.tensor import Tensor
from ..eager.tensor.types import finfo
from . import constraints
from .bernoulli import Binomial
from .constraints import Constraint
from .distribution import Distribution, lazy_property, one_of
from .functions import (
    arange,
    broadcast_all,
    broadcast_tensors,
    eye,
    full,
    logits_to_probs,
    multinomial,
    one_hot,
    probs_to_logits,
    tensor,
    where,
    zeros,
)

_BY_CATEGORY: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Categorical(Distribution):
    """The number of a category, by weights along the last axis: probabilities up to a factor, or logarithms of them up
    to a constant.

    >>> import weft
    >>> Categorical(weft.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])
    """

    arg_constraints = _BY_CATEGORY
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        name, value = one_of(probs=probs, logits=logits)
        if not isinstance(value, Tensor) or value.ndim < 1:
            raise InvalidValue(f"`{name}` parameter must be at least one-dimensional.")
        if name == "probs":
            self.probs = value / value.sum(-1, keepdim=True)
        else:
            self.logits = value - value.logsumexp(-1, keepdim=True)
        self._num_events = value.shape[-1]
        super().__init__(value.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits)

    @property
    def _param(self) -> Tensor:
        return self.probs if "probs" in vars(self) else self.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.shape

    @property
    def mean(self) -> Tensor:
        return full(self._extended_shape(), math.nan, dtype=self._param.dtype)

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape)
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = multinomial(rows, shape.numel(), True).mT
        return drawn.reshape(self._extended_shape(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        chosen = self._checked(value).long().unsqueeze(-1)
        chosen, logits = broadcast_tensors(chosen, self.logits)
        return logits.gather(-1, chosen[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=float(finfo(self.logits.dtype).min))
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(arange(self._num_events), expand)


class OfCategories(Distribution):
    """What has the parameters of a `Categorical`."""

    arg_constraints = _BY_CATEGORY
    _categorical: Categorical

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._categorical.param_shape


class OneHotCategorical(OfCategories):
    """A category as a vector with one 1."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(self._categorical.batch_shape, shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._vectors(self._categorical.mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _vectors(self, numbers: Tensor) -> Tensor:
        return one_hot(numbers, self._categorical._num_events).to(self._param.dtype)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(self._checked(value).argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(eye(self.event_shape[0], dtype=self._param.dtype), expand)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same with draws whose gradient is that of the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OfCategories):
    """How often each category comes up in total_count draws."""

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        self._binomial = Binomial(total_count, self.probs)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape)).movedim(0, -1)
        counts = zeros(self._extended_shape(sample_shape), dtype=self._categorical._param.dtype)
        return counts.scatter_add_(-1, drawn, counts.new_ones(drawn.shape))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, counts = broadcast_all(self.logits, self._checked(value))
        logits = where(counts.eq(0) & logits.eq(-math.inf), 0.0, logits)
        ways = (counts.sum(-1) + 1).lgamma() - (counts + 1).lgamma().sum(-1)
        return ways + (logits * counts).sum(-1)

    def entropy(self) -> Tensor:
        """n H - log n! + sum over categories of E[log k!], with k binomial"""
        counts = self._binomial.enumerate_support(expand=False)[1:]
        weighted = self._binomial.log_prob(counts).exp() * (counts + 1).lgamma()
        n = tensor(float(self.total_count), dtype=self.probs.dtype)
        return n * self._categorical.entropy() - (n + 1).lgamma() + weighted.sum((0, -1))
