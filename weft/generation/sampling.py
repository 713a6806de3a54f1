"""How the next token is chosen from scores: the best one, or one drawn by chance."""

from __future__ import annotations

import numpy as np

from ..base.errors import InvalidValue
from ..eager.random.generator import Generator as Bits


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
        if not self.temperature:
            best = int(scores.argmax())
            if np.isnan(scores[best]):
                raise _not_numbers()
            return best
        kept, wanted = np.arange(len(scores)), scores.astype(np.float64) / self.temperature
        if np.isnan(wanted).any():
            raise _not_numbers()
        if self.top_k is not None and self.top_k < len(wanted):
            kept = np.argpartition(wanted, -self.top_k)[-self.top_k :]
        order = kept[np.argsort(-wanted[kept], kind="stable")] if self.top_p is not None else kept
        p = np.exp(wanted[order] - wanted[order].max())
        p /= p.sum()
        if self.top_p is not None:
            count = int(np.searchsorted(np.cumsum(p), self.top_p)) + 1
            order, p = order[:count], p[:count]
        ends = np.cumsum(p)
        drawn = self._uniform() * ends[-1]
        return int(order[min(int(np.searchsorted(ends, drawn, side="right")), len(order) - 1)])

    def _uniform(self) -> float:
        """A number from 0 to below 1, of 53 bits."""
        return int(self._bits.double_words(1)[0]) % 2**53 / 2**53


def _not_numbers() -> InvalidValue:
    return InvalidValue("scores are NaN", why="the model computed no numbers", hint="look at its parameters")
