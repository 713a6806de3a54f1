"""Random bits: a Mersenne Twister (MT19937) whose stream and state are those of the classic
reference code, as numpy and PyTorch have it. A seed comes in, arrays of 32-bit or 64-bit words go
out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidValue

WORDS = 624


class MersenneTwister:
    """The 32-bit generator of period 2**19937 - 1.

    `position` is how many words of the current block are used up.

    >>> [int(word) for word in MersenneTwister(5489).words(2)]
    [3499211612, 581869302]
    """

    __slots__ = ("_source",)

    def __init__(self, seed: int) -> None:
        self._source = np.random.MT19937()
        self.set_block(_spread(seed), WORDS)

    @property
    def position(self) -> int:
        state: Any = self._source.state
        return int(state["state"]["pos"])

    def block(self) -> NDArray[np.uint32]:
        """The 624 words of state."""
        state: Any = self._source.state
        return state["state"]["key"].astype(np.uint32)  # type: ignore[no-any-return]

    def set_block(self, words: NDArray[Any], position: int) -> None:
        """Continues from a state that `block` and `position` gave."""
        if words.shape != (WORDS,) or not 0 <= position <= WORDS:
            raise InvalidValue(
                f"a state has {WORDS} words and a position in them, not shape {words.shape} "
                f"and position {position}"
            )
        self._source.state = {
            "bit_generator": "MT19937",
            "state": {"key": words.astype(np.uint32), "pos": position},
        }

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next 32-bit words, in 64-bit integers."""
        return np.asarray(self._source.random_raw(count))

    def double_words(self, count: int) -> NDArray[np.uint64]:
        """The next 64-bit words, the first draw of each being its high half."""
        halves = self.words(2 * count).reshape(count, 2)
        return (halves[:, 0] << np.uint64(32)) | halves[:, 1]


def _spread(seed: int) -> NDArray[np.uint32]:
    """The first state that the low 32 bits of a seed stand for (Knuth's recurrence)."""
    word = seed & 0xFFFFFFFF
    words = [word]
    for i in range(1, WORDS):
        word = (1812433253 * (word ^ (word >> 30)) + i) & 0xFFFFFFFF
        words.append(word)
    return np.array(words, np.uint32)
