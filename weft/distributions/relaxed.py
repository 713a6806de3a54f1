"""Trials and categories that are relaxed to numbers between 0 and 1, so that draws have gradients; the lower the
temperature, the closer they are to 0 and 1."""

from __future__ import annotations

import math
from typing import Any

from ..eager.tensor.tensor import Tensor
from . import constraints
from .bernoulli import Odds
from .categorical import Categorical, OfCategories
from .functions import as_tensor_like, broadcast_all, clamp_probs, rand, softplus
from .transformed_distribution import Shown
from .transforms import ExpTransform, SigmoidTransform


class LogitRelaxedBernoulli(Odds):
    """The log odds of a relaxed trial: (log odds + a logistic number) / temperature"""

    support = constraints.real
    has_rsample = True
    _fixed = ("temperature",)

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take(probs, logits, validate_args)
        self.temperature = as_tensor_like(temperature, self.probs if probs is not None else self.logits)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        drawn = clamp_probs(rand(shape, dtype=probs.dtype))
        return (drawn.log() - (-drawn).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        logits, x = broadcast_all(self.logits, self._checked(value))
        apart = logits - x * self.temperature
        return self.temperature.log() + apart - 2 * softplus(apart)


class RelaxedBernoulli(Shown):
    """A trial that is relaxed to a number between 0 and 1."""

    arg_constraints = Odds.arg_constraints
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args)

    @property
    def temperature(self) -> Tensor:
        """How far draws are from 0 and 1."""
        return self.base_dist.temperature


class ExpRelaxedCategorical(OfCategories):
    """The logarithms of a relaxed category: log softmax of (logits + Gumbel numbers) / temperature"""

    support = constraints.real_vector
    has_rsample = True
    _fixed = ("temperature",)

    def __init__(
        self,
        temperature: Any,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = as_tensor_like(temperature, self._param)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = clamp_probs(rand(self._extended_shape(sample_shape), dtype=self.logits.dtype))
        scores = (self.logits - (-drawn.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        count = self.event_shape[-1]
        logits, x = broadcast_all(self.logits, self._checked(value))
        score = logits - x * self.temperature
        score = (score - score.logsumexp(-1, keepdim=True)).sum(-1)
        return score + math.lgamma(count) + (count - 1) * self.temperature.log()


class RelaxedOneHotCategorical(Shown):
    """A category that is relaxed to shares of one."""

    arg_constraints = Categorical.arg_constraints
    support = constraints.simplex
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits)
        super().__init__(base, ExpTransform(), validate_args)

    @property
    def temperature(self) -> Tensor:
        """How far draws are from the corners."""
        return self.base_dist.temperature
