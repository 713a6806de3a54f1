"""Poisson and binomial numbers, the same as PyTorch's from the same seed: how many uniform numbers
each takes depends on them, so they are drawn one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import RunError
from .distributions import uniform
from .generator import Generator

_FLOAT64 = np.dtype(np.float64)
_CHUNK = 1024


class Uniforms:
    """Uniform numbers one by one, from a copy of a generator; `used` tells how many."""

    def __init__(self, generator: Generator) -> None:
        self._stream = self._numbers(generator.clone_state())
        self.used = 0

    def _numbers(self, ahead: Generator) -> Iterator[float]:
        while True:
            yield from uniform(ahead, _CHUNK, _FLOAT64).tolist()

    def draw(self) -> float:
        self.used += 1
        return next(self._stream)


def poisson(generator: Generator, rates: NDArray[Any]) -> NDArray[np.float64]:
    """A Poisson number for every rate."""
    flat = rates.reshape(-1).astype(_FLOAT64)
    if not np.all(flat >= 0):
        raise RunError("invalid Poisson rate, expected rate to be non-negative")
    with generator._lock:
        source = Uniforms(generator)
        made = [_few(rate, source) if rate < 10 else _many(rate, source) for rate in flat.tolist()]
        generator.double_words(source.used)
    return np.array(made, _FLOAT64).reshape(rates.shape)


Rounding = Callable[[float], float]  # of what PyTorch computes in the dtype of the counts


def _rounded(value: float) -> float:
    return float(np.float32(value))


def binomial(generator: Generator, counts: NDArray[Any], chances: NDArray[Any]) -> NDArray[np.float64]:
    """How many of a count of trials succeed, for every count and the chance beside it."""
    rounded = float if counts.dtype == _FLOAT64 else _rounded
    flat = [x.reshape(-1).astype(_FLOAT64) for x in (counts, chances)]
    if not np.all(np.isfinite(flat[0])):
        raise RunError("invalid binomial count, expected count to be finite")
    with generator._lock:
        source = Uniforms(generator)
        pairs = zip(*(x.tolist() for x in flat))
        made = [_successes(count, p, source, rounded) for count, p in pairs]
        generator.double_words(source.used)
    return np.array(made, _FLOAT64).reshape(counts.shape)


def _successes(count: float, p: float, source: Uniforms, rounded: Rounding) -> float:
    """Successes, or what is left of the count by failures, whichever are fewer."""
    if count <= 0 or p <= 0:
        return 0
    if not p < 1:
        return math.nan if math.isnan(p) else count
    rarer = rounded(1 - p) if p > 0.5 else p
    few = rounded(count * rarer) < 10
    found = _waited(count, rarer, source) if few else _rejected(count, rarer, source, rounded)
    return count - found if p > 0.5 else found


def _waited(count: float, p: float, source: Uniforms) -> int:
    """How often one can wait for a success before the trials are used up."""
    rate, trials, found = math.log1p(-p), 0.0, 0
    while True:
        drawn = source.draw()
        wait = math.log(drawn) / rate if drawn else math.inf
        trials += math.ceil(wait) if wait < 2**53 else wait
        if trials > count:
            return found
        found += 1


def _rejected(count: float, p: float, source: Uniforms, rounded: Rounding) -> float:
    """Transformed rejection (Hoermann's BTRS): hat, squeeze and density as for Poisson numbers."""
    mean, others = rounded(count * p), rounded(1 - p)
    deviation = math.sqrt(rounded(mean * others))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    squeeze, alpha = 0.92 - 4.2 / b, (2.83 + 5.1 / b) * deviation
    odds, mode = rounded(p / others), math.floor(rounded(rounded(count + 1) * p))
    while True:
        u, v = source.draw() - 0.5, source.draw()
        us = 0.5 - abs(u)
        k = rounded(math.floor((2 * a / us + b) * u + mean + 0.5)) if us else -1
        if not 0 <= k <= count:
            continue
        if us >= 0.07 and v <= squeeze:
            return k
        hat = math.log(v * alpha / (a / (us * us) + b)) if v else -math.inf
        if hat <= _density(count, odds, mode, k, rounded):
            return k


def _density(count: float, odds: float, mode: int, k: float, rounded: Rounding) -> float:
    """The logarithm of k's probability over the mode's."""
    others, rest = count - mode + 1, rounded(count - k)
    following = rounded(rest + 1)
    return (
        (mode + 0.5) * math.log((mode + 1) / (odds * others))
        + rounded(count + 1) * math.log(others / following)
        + (k + 0.5) * math.log(odds * following / rounded(k + 1))
        + _tail(mode)
        + _tail(count - mode)
        - _tail(k)
        - _tail(rest)
    )


def _tail(k: float) -> float:
    """What Stirling's formula leaves of log(k!)."""
    if k <= 9:
        whole = math.lgamma(k + 1)
        return whole - (k + 0.5) * math.log(k + 1) + (k + 1) - 0.5 * math.log(2 * math.pi)
    square = (k + 1.0) ** 2
    return (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)


def _few(rate: float, source: Uniforms) -> int:
    """How many uniform numbers can be multiplied before the product is below exp(-rate)."""
    if rate == 0:
        return 0
    limit, product, count = math.exp(-rate), 1.0, 0
    while True:
        product *= source.draw()
        if product <= limit:
            return count
        count += 1


def _many(rate: float, source: Uniforms) -> int:
    """Transformed rejection (Hoermann's PTRS): a hat that is cheap to sample, a squeeze that is
    cheap to test, and the exact density for the rest."""
    root, logarithm = math.sqrt(rate), math.log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    ratio = 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = source.draw() - 0.5, source.draw()
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + rate + 0.43) if us else -1
        if us >= 0.07 and v <= ratio:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        hat = math.log(v) + math.log(inverse_alpha) - math.log(a / (us * us) + b)
        if hat <= k * logarithm - rate - math.lgamma(k + 1):
            return k
