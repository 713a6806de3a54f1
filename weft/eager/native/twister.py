"""The bit generator of eager tensors, which makes many words at once by native code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...base.bits import MersenneTwister
from .. import native
from .thresholds import FROM


class NativeTwister(MersenneTwister):
    """A Mersenne Twister that makes many words by native code."""

    __slots__ = ()

    def words(self, count: int) -> NDArray[np.uint64]:
        return super().words(count) if count < FROM.drawn else native.random_words(self, count)

    def numbers(self, count: int) -> NDArray[np.float32]:
        return super().numbers(count) if count < FROM.drawn else native.random_numbers(self, count)
