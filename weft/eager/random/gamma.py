"""Gamma numbers and shares of one, the same as PyTorch's from the same seed, and how they change with their
parameters at a fixed quantile: what makes draws differentiable."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .generator import Generator
from .poisson import Uniforms

Floats = NDArray[np.float64]
_THIRD = float(np.float32(1 / 3))  # the last bits of draws in float64 tell that PyTorch rounds it so


class _Normals(Uniforms):
    """Uniform and normal numbers in turn from one stream; the second normal number of a pair waits."""

    def __init__(self, generator: Generator) -> None:
        super().__init__(generator)
        self.kept: float | None = generator._bits.kept

    def normal(self) -> float:
        if self.kept is not None:
            found, self.kept = self.kept, None
            return found
        turn, tail = self.draw(), self.draw()
        radius, angle = math.sqrt(-2.0 * math.log1p(-tail)), 2.0 * math.pi * turn
        self.kept = radius * math.sin(angle)
        return radius * math.cos(angle)


def standard_gamma(generator: Generator, concentrations: NDArray[Any]) -> Floats:
    """A gamma number of rate 1 for every concentration."""
    with generator._lock:
        source = _Normals(generator)
        made = [_accepted(alpha, source) for alpha in concentrations.reshape(-1).astype(np.float64).tolist()]
        generator.double_words(source.used)
        generator._bits.kept = source.kept
    return np.array(made, np.float64).reshape(concentrations.shape)


def _accepted(alpha: float, source: _Normals) -> float:
    """By Marsaglia and Tsang: d (1 + c x)^3 of a normal x, accepted with the ratio of the densities. A concentration
    below 1 is that of one more, times u^(1/alpha)."""
    if math.isnan(alpha):
        return math.nan
    scale = 1.0
    if alpha < 1.0:
        if alpha == 0.0:
            return 0.0
        scale = math.pow(1.0 - source.draw(), 1.0 / alpha)
        alpha += 1.0
    d = alpha - _THIRD
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = source.normal()
        y = 1.0 + c * x
        if y <= 0:
            continue
        v = y * y * y
        u = 1.0 - source.draw()
        square = x * x
        if u < 1.0 - 0.0331 * square * square or math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
            return scale * d * v


# Changes at a fixed quantile. With the distribution function F and the density f of x, F(x; a) stays what it is when
#     dx/da = -(dF/da) / f(x) = -int_0^x g(t) f(t)/f(x) dt = int_x^inf g(t) f(t)/f(x) dt,   g = d log f / da.
# On the side of the mean where x is, f(t)/f(x) falls from 1 on, so that nothing cancels. Both integrals are taken over
# w from 0 to infinity, with t a function of exp(-w) or exp(w), at points that are doubly exponential in steps.
_STEPS = np.linspace(-4.0, 3.3, 120)
_POINTS = np.exp(math.pi / 2 * np.sinh(_STEPS))
_WEIGHTS = _POINTS * (math.pi / 2) * np.cosh(_STEPS) * (_STEPS[1] - _STEPS[0])


def _integral(values: Callable[[Floats], Floats], width: Floats) -> Floats:
    """Of a function that falls within about a width, for every element."""
    with np.errstate(all="ignore"):
        taken = values(width[..., None] * _POINTS)
    found: Floats = (np.nan_to_num(taken, posinf=0.0, neginf=0.0) * _WEIGHTS).sum(-1) * width
    return found


def gamma_gradient(x: Floats, alpha: Floats, digamma: Floats) -> Floats:
    """dx/dalpha of gamma numbers of rate 1; `digamma` is that of alpha, since g = log t - digamma(alpha)."""
    with np.errstate(all="ignore"):
        width = 1.0 / (np.abs(alpha - x) + np.sqrt(alpha) + 1e-300)
        log_x, X, A = np.log(x)[..., None], x[..., None], alpha[..., None]
    offset = log_x - digamma[..., None]
    below = _integral(lambda w: -(offset - w) * X * np.exp(-A * w - X * np.expm1(-w)), width)
    above = _integral(lambda w: (offset + w) * X * np.exp(A * w - X * np.expm1(w)), width)
    return np.where(x <= alpha, below, above)


def share_gradient(x: Floats, alpha: Floats, beta: Floats, digammas: Floats) -> Floats:
    """dx/dalpha of beta numbers; `digammas` is digamma(alpha) - digamma(alpha + beta), since g = log t - that."""
    with np.errstate(all="ignore"):
        mean = alpha / (alpha + beta)
        rate = np.abs(alpha - (alpha + beta - 1.0) * x)
        width = 1.0 / (rate / np.where(x <= mean, 1.0 - x, x) + np.sqrt(np.where(x <= mean, alpha, beta)) + 1e-300)
        log_x, log_rest = np.log(x)[..., None], np.log1p(-x)[..., None]
    X, A, B, offset = x[..., None], alpha[..., None], beta[..., None], digammas[..., None]

    def below(w: Floats) -> Any:  # t = x exp(-w)
        return -(log_x - w - offset) * X * np.exp(-A * w + (B - 1.0) * (np.log1p(-X * np.exp(-w)) - log_rest))

    def above(w: Floats) -> Any:  # 1 - t = (1 - x) exp(-w)
        log_t = np.log1p(-(1.0 - X) * np.exp(-w))
        return (log_t - offset) * (1.0 - X) * np.exp(-B * w + (A - 1.0) * (log_t - log_x))

    return np.where(x <= mean, _integral(below, width), _integral(above, width))
