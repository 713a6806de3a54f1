"""What a value reaches while batches run: its ends, or a histogram from which ends are chosen. Memory does not grow
with the number of batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...base.errors import InvalidValue
from ...runtime.program import Array

BINS = 4096  # of a histogram; even, so that zero stays between two of them
LEVELS = 255  # steps between the ends of a range
SHRUNK = np.linspace(0.2, 1.0, 81)  # parts of the ends that `mse` looks at


class Range(NamedTuple):
    """Numbers that levels stand for; zero is one of them."""

    low: float
    high: float


class Ends:
    """The smallest and the largest number seen."""

    def __init__(self, name: str) -> None:
        self.name, self.low, self.high = name, 0.0, 0.0

    def add(self, value: Array) -> None:
        if not value.size:
            return
        low, high = float(value.min()), float(value.max())
        if not np.isfinite(low) or not np.isfinite(high):
            raise InvalidValue(
                f"{self.name!r} reaches {low} to {high}", why="levels stand for finite numbers", hint="other batches"
            )
        self.low, self.high = min(self.low, low), max(self.high, high)

    def minmax(self) -> Range:
        return Range(self.low, self.high)


class Histogram(Ends):
    """How often numbers were seen, in bins from -reach to reach. Where a number is beyond, the reach doubles and two
    bins become one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reach, self.counts = 0.0, np.zeros(BINS, np.int64)

    def add(self, value: Array) -> None:
        super().add(value)
        if not value.size:
            return
        largest = max(-self.low, self.high)
        if self.reach == 0.0:
            self.reach = float(2.0 ** np.ceil(np.log2(largest))) if largest else 0.0
        while self.reach < largest:
            half = self.counts.reshape(-1, 2).sum(1)
            self.counts = np.concatenate([np.zeros(BINS // 4, np.int64), half, np.zeros(BINS // 4, np.int64)])
            self.reach *= 2
        if self.reach:
            scaled = (value.reshape(-1).astype(np.float32) + self.reach) * (BINS / (2 * self.reach))
            places = np.minimum(scaled.astype(np.int64), BINS - 1)
            self.counts += np.bincount(places, minlength=BINS)

    @property
    def _middles(self) -> Array:
        return ((np.arange(BINS) + 0.5) * (2 / BINS) - 1) * self.reach

    def percentile(self, percent: float) -> Range:
        """Ends that leave so few numbers beyond on either side."""
        total = self.counts.sum()
        if not total:
            return self.minmax()
        seen = np.cumsum(self.counts)
        beyond = total * (1 - percent / 100)
        edges = (np.arange(BINS + 1) * (2 / BINS) - 1) * self.reach
        low = edges[np.searchsorted(seen, beyond, "right")]
        high = edges[np.searchsorted(seen, total - beyond, "left") + 1]
        return Range(max(min(float(low), 0.0), self.low), min(max(float(high), 0.0), self.high))

    def mse(self) -> Range:
        """Ends for which what levels stand for differs least from the numbers, by the sum of squares."""
        middles, best = self._middles, (np.inf, self.minmax())
        width = 2 * self.reach / BINS
        for part in SHRUNK:
            low, high = part * self.low, part * self.high
            step = (high - low) / LEVELS
            if step <= 0:
                continue
            levels = np.rint((np.clip(middles, low, high) - low) / step) * step + low
            # Within a bin numbers are anywhere: steps finer than it leave what they would of an even spread.
            inside = (middles > low) & (middles < high)
            lost = np.where(inside & (step < width), step * step / 12, np.square(middles - levels))
            best = min(best, (float((self.counts * lost).sum()), Range(low, high)))
        return best[1]
