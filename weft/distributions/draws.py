"""Draws of gamma numbers and of shares with gradients of their parameters, at fixed quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..eager.autograd.function import Function
from ..eager.random.gamma import gamma_gradient, share_gradient
from ..eager.random.gamma import standard_gamma as gamma_numbers
from ..eager.random.generator import default_generator
from ..eager.tensor.memory import array_of
from ..eager.tensor.tensor import Tensor, wrap
from .functions import epsilon, smallest


def _wide(tensor: Tensor) -> Any:
    return array_of(tensor).astype(np.float64)


class _StandardGamma(Function):
    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        drawn = gamma_numbers(default_generator, array_of(concentration))
        made = wrap(drawn.astype(concentration._dtype)).clamp(min=smallest(concentration))
        ctx.save_for_backward(concentration, made)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        concentration, made = ctx.saved_tensors
        alpha = _wide(concentration)
        slope = gamma_gradient(_wide(made), alpha, _wide(wrap(alpha).digamma()))
        return gradient * wrap(slope.astype(concentration._dtype))


class _Shares(Function):
    """Gamma numbers over their sum along the last axis."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        drawn = gamma_numbers(default_generator, array_of(concentration))
        with np.errstate(invalid="ignore"):
            shares = (drawn / drawn.sum(-1, keepdims=True)).astype(concentration._dtype)
        made = wrap(shares).clamp(smallest(concentration), 1.0 - epsilon(concentration) / 2)
        ctx.save_for_backward(concentration, made)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """A share x of the concentration a among the others' b is a beta number; the rest keeps its proportions, so
        that others change by -dx/da / (1 - x) of themselves."""
        concentration, made = ctx.saved_tensors
        alpha, x = _wide(concentration), _wide(made)
        total = np.broadcast_to(alpha.sum(-1, keepdims=True), alpha.shape)
        digammas = _wide(wrap(alpha).digamma() - wrap(total.copy()).digamma())
        slope = share_gradient(x, alpha, total - alpha, digammas) / (1.0 - x)
        towards = gradient - (made * gradient).sum(-1, keepdim=True)
        return wrap(slope.astype(concentration._dtype)) * towards


def standard_gamma(concentration: Tensor) -> Tensor:
    """Gamma numbers of rate 1."""
    return _StandardGamma.apply(concentration)


def shares(concentration: Tensor) -> Tensor:
    """Draws of the Dirichlet distribution."""
    return _Shares.apply(concentration)
