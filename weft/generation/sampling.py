"""How the next token is chosen from scores: the best one, or one drawn by chance."""

from __future__ import annotations

import numpy as np

from ..base.errors import InvalidValue
from ..eager.random.generator import Generator as Bits

FEW = 64  # probabilities that are sorted at first


class Sampler:
    """Draws tokens from softmax(scores / temperature), of the `top_k` best only, and of the fewest best whose
    probabilities make `top_p`. A temperature of 0 takes the best one. Equal seeds draw equal tokens.

    >>> import numpy as np
    >>> Sampler()(np.array([0.1, 3.0, 0.2], "float32"))
    1
    >>> draws = Sampler(temperature=1.0, top_k=2, seed=7)
    >>> sorted({draws(np.array([1.0, 3.0, 2.0], "float32")) for _ in range(50)})
    [1, 2]
    """

    def __init__(
        self, temperature: float = 0.0, top_k: int | None = None, top_p: float | None = None, seed: int | None = None
    ) -> None:
        if not 0 <= temperature < float("inf"):
            raise InvalidValue(f"a temperature of {temperature}", why="it is 0 or more")
        if top_k is not None and top_k < 1:
            raise InvalidValue(f"top_k of {top_k}", why="it is one or more")
        if top_p is not None and not 0 < top_p <= 1:
            raise InvalidValue(f"top_p of {top_p}", why="it is above 0, and 1 at most")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self._bits = Bits()
        if seed is None:
            self._bits.seed()
        else:
            self._bits.manual_seed(seed)

    def __call__(self, scores: np.ndarray) -> int:
        """The number of a token."""
        top = float(scores.max())  # NaN if one of them is
        if not np.isfinite(top):
            raise InvalidValue(f"the best score is {top}", why="the model computed no number", hint="its parameters")
        if not self.temperature:
            return int(scores.argmax())
        kept = None
        if self.top_k is not None and self.top_k < len(scores):
            kept = np.argpartition(scores, -self.top_k)[-self.top_k :]
        p = np.exp(((scores if kept is None else scores[kept]).astype(np.float64) - top) / self.temperature)
        p /= p.sum()
        if self.top_p is not None:
            likely = _most_likely(p, self.top_p)
            kept, p = likely if kept is None else kept[likely], p[likely]
        ends = np.cumsum(p)
        number = int(np.searchsorted(ends, self._uniform() * ends[-1], side="right"))
        number = min(number, len(p) - 1)
        return number if kept is None else int(kept[number])

    def _uniform(self) -> float:
        """A number from 0 to below 1, of 53 bits."""
        return int(self._bits.double_words(1)[0]) % 2**53 / 2**53


def _most_likely(p: np.ndarray, share: float) -> np.ndarray:
    """The fewest probabilities that make a share, the largest first: of a few best at first, as most are small."""
    size, order = FEW, np.empty(0, np.int64)
    while True:
        some = np.argpartition(p, -size)[-size:] if size < len(p) else np.arange(len(p))
        order = some[np.argsort(-p[some], kind="stable")]
        reached = np.cumsum(p[order])
        if reached[-1] >= share or size >= len(p):
            return order[: int(np.searchsorted(reached, share)) + 1]
        size *= FEW
