"""Random bits: a Mersenne Twister (MT19937) whose stream and state are those of the classic
reference code, as numpy and PyTorch have it. A seed or a state comes in, arrays of 32-bit or 64-bit
words go out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidType, InvalidValue

WORDS = 624
# Where things are in a state that is an array of 32-bit words: the block, how many of its words are
# used up, then the normal number that is kept: 0 for none, 1 or 2 for its sign, and its size in
# units of 2**-28, 2**-60 and 2**-92. So every kept number from 2**-40 up is there to the last bit.
POSITION = WORDS
KEPT = WORDS + 1
KEPT_UNITS = (2.0**-28, 2.0**-60, 2.0**-92)
STATE_WORDS = WORDS + 5
NONE, POSITIVE, NEGATIVE = range(3)


class MersenneTwister:
    """The 32-bit generator of period 2**19937 - 1.

    `position` is how many words of the current block are used up, `fresh` whether none was drawn
    since the seed, and `kept` the second of two normal numbers, if it waits for the next draw.

    >>> [int(word) for word in MersenneTwister(5489).words(2)]
    [3499211612, 581869302]
    """

    __slots__ = ("_seed", "_source", "fresh", "kept")
    _source: np.random.MT19937

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.kept: float | None = None
        self.fresh = True

    def __getattr__(self, name: str) -> Any:
        """The first use of a generator makes its source: not before that numpy's random numbers are loaded."""
        if name != "_source":
            raise AttributeError(name)
        fresh, self._source = self.fresh, np.random.MT19937()
        self.set_block(_spread(self._seed), WORDS)
        self.fresh = fresh
        return self._source

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
                f"a state has {WORDS} words and a position in them, not shape {words.shape} and position {position}"
            )
        self.fresh = False
        self._source.state = {"bit_generator": "MT19937", "state": {"key": words.astype(np.uint32), "pos": position}}

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next 32-bit words, in 64-bit integers."""
        self.fresh = self.fresh and count == 0
        return np.asarray(self._source.random_raw(count))

    def double_words(self, count: int) -> NDArray[np.uint64]:
        """The next 64-bit words, the first draw of each being its high half."""
        halves = self.words(2 * count).reshape(count, 2)
        made = halves[:, 0] << np.uint64(32)
        made |= halves[:, 1]
        return made

    def numbers(self, count: int) -> NDArray[np.float32]:
        """Numbers of [0, 1) that 24 bits of the next words make."""
        words = self.words(count)
        words &= np.uint64(2**24 - 1)
        return words.astype(np.float32) * np.float32(2.0**-24)

    def state(self) -> NDArray[np.uint32]:
        """All of it as one array, which random operators take and move on.

        >>> twister = MersenneTwister(7)
        >>> from_state(twister.state()).words(3).tolist() == twister.words(3).tolist()
        True
        """
        made = np.empty(STATE_WORDS, np.uint32)
        made[:WORDS] = self.block()
        made[POSITION] = self.position
        made[KEPT:] = _packed(self.kept)
        return made


def from_state(state: NDArray[Any], kind: type[MersenneTwister] = MersenneTwister) -> MersenneTwister:
    """A generator that goes on from what `state` gave; a position past the block is its end."""
    if state.dtype != np.uint32:
        raise InvalidType(f"a random state is an array of uint32, not of {state.dtype}")
    if state.shape != (STATE_WORDS,):
        raise InvalidValue(f"a random state has shape ({STATE_WORDS},), not {state.shape}")
    made = kind.__new__(kind)
    made._source = np.random.MT19937()
    made.set_block(state[:WORDS], min(int(state[POSITION]), WORDS))
    made.kept = _unpacked(state[KEPT:].tolist())
    return made


def _packed(kept: float | None) -> list[int]:
    if kept is None:
        return [NONE, 0, 0, 0]
    if not abs(kept) < 16:
        raise InvalidValue(f"the normal number that is kept is {kept}", why="none is that large")
    marks, rest = [POSITIVE if kept >= 0 else NEGATIVE], abs(kept)
    for unit in KEPT_UNITS:
        marks.append(math.floor(rest / unit))
        rest -= marks[-1] * unit
    return marks


def _unpacked(marks: list[int]) -> float | None:
    if marks[0] == NONE:
        return None
    size = math.fsum(word * unit for word, unit in zip(marks[1:], KEPT_UNITS))
    return size if marks[0] == POSITIVE else -size


def _spread(seed: int) -> NDArray[np.uint32]:
    """The first state that the low 32 bits of a seed stand for (Knuth's recurrence)."""
    word = seed & 0xFFFFFFFF
    words = [word]
    for i in range(1, WORDS):
        word = (1812433253 * (word ^ (word >> 30)) + i) & 0xFFFFFFFF
        words.append(word)
    return np.array(words, np.uint32)
