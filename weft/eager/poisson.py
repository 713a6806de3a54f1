"""Poisson numbers, the same as PyTorch's from the same seed: how many uniform numbers each takes
depends on them, so they are drawn one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import RunError
from .distributions import uniform
from .generator import Generator

_FLOAT64 = np.dtype(np.float64)
_CHUNK = 1024


class _Uniform:
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
        source = _Uniform(generator)
        made = [_few(rate, source) if rate < 10 else _many(rate, source) for rate in flat.tolist()]
        generator.double_words(source.used)
    return np.array(made, _FLOAT64).reshape(rates.shape)


def _few(rate: float, source: _Uniform) -> int:
    """How many uniform numbers can be multiplied before the product is below exp(-rate)."""
    if rate == 0:
        return 0
    limit, product, count = math.exp(-rate), 1.0, 0
    while True:
        product *= source.draw()
        if product <= limit:
            return count
        count += 1


def _many(rate: float, source: _Uniform) -> int:
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
