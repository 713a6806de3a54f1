"""Tokens from a decoder: programs for one token and for many, which share weights, over a cache that grows in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..base.errors import InvalidType, InvalidValue, RunError
from ..compiler.model import opened
from ..compiler.quantise.weight_levels import quantize_weights
from ..eager.tensor.memory import array_of
from ..runtime.bound import BoundStep
from .cache import Cache
from .sampling import Sampler

BITS = {"fp32": 32, "int8": 8, "int4": 4}
MOST_TOKENS = 4096  # of a context that is not asked for
CHUNK = 32  # tokens of a prompt that are read at once
FEW = 2  # tokens that are read one by one


class Generator:
    """Runs a decoder (`GPT2`, `Llama`) with its weights as `weights` says: "fp32", or levels with a scale for each
    group of `group`, "int8" or "int4".

    >>> from weft.generation import GPT2, GPT2Settings
    >>> model = GPT2(GPT2Settings(vocab_size=11, n_positions=32, n_embd=12, n_layer=2, n_head=3))
    >>> generator = Generator(model)
    >>> len(generator.generate([3, 1, 4], 5))
    5
    """

    def __init__(
        self,
        model: Any,
        weights: str = "fp32",
        *,
        group: int = 32,
        context: int | None = None,
        threads: int | None = None,
    ) -> None:
        if not hasattr(model, "step_graph"):
            raise InvalidType(f"a {type(model).__name__} is no decoder", hint="weft.generation.GPT2, Llama or load")
        if weights not in BITS:
            raise InvalidValue(f"weights {weights!r}", why="they are " + ", ".join(BITS))
        if context is None:
            context = min(model.positions, MOST_TOKENS)
        if not 1 <= context <= model.positions:
            raise InvalidValue(f"a context of {context} tokens", why=f"the model sees from 1 to {model.positions}")
        arrays = {name: array_of(value.detach()) for name, value in model.state_dict().items()}
        given = model.step_graph(arrays, context)
        if weights != "fp32":
            given = quantize_weights(given, bits=BITS[weights], group=group)
        self.weights, self.vocabulary = weights, model.settings.vocab_size
        self._program = opened(given, threads=threads, specialise="always")
        self._context = context
        self._steps: dict[int, _Step] = {}
        self._cache = Cache(model.cache_sizes, context)

    @property
    def context(self) -> int:
        """The most tokens that there is room for."""
        return self._context

    @property
    def length(self) -> int:
        """Tokens that the cache has."""
        return self._cache.length

    @property
    def weight_bytes(self) -> int:
        """Bytes of parameters that a token reads: all but the tables of which it takes a row."""
        program = self._step(1).program
        return sum(c.nbytes for c in program.constants if c.ndim != 2)

    def reset(self) -> None:
        """Forgets all tokens."""
        self._cache.length = 0

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """Reads tokens that follow those before, and gives the scores of what comes next: memory that the next call
        writes to."""
        ids = self._checked(tokens)
        scores: np.ndarray | None = None
        at = 0
        while at < len(ids):
            rows = 1 if len(ids) - at <= FEW else CHUNK
            some = ids[at : at + rows]
            scores = self._step(rows)(some)
            at += len(some)
        assert scores is not None
        return scores

    def _checked(self, tokens: Sequence[int]) -> np.ndarray:
        ids = np.asarray(tokens)
        if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
            raise InvalidValue(
                f"tokens of shape {ids.shape} and {ids.dtype}", why="they are one or more whole numbers", hint="[3, 1]"
            )
        if ids.min() < 0 or ids.max() >= self.vocabulary:
            raise InvalidValue(f"token {ids.max() if ids.min() >= 0 else ids.min()}", why=f"of {self.vocabulary}")
        if self.length + len(ids) > self.context:
            raise InvalidValue(
                f"{len(ids)} tokens after {self.length}",
                why=f"there is room for {self.context}",
                hint="reset(), or a Generator with a larger context",
            )
        return ids.astype(np.int64)

    def _step(self, rows: int) -> _Step:
        if rows not in self._steps:
            self._steps[rows] = _Step(self._program, rows, self._cache)
        return self._steps[rows]

    def stream(
        self,
        prompt: Sequence[int],
        count: int | None = None,
        sampler: Callable[[np.ndarray], int] | None = None,
        stop: Iterable[int] = (),
        keep: bool = False,
    ) -> Iterator[int]:
        """The tokens after a prompt, one at a time as they are made: `count` of them, or until one of `stop`, which is
        given too, or until the context is full. The last one is not read: with `keep` the prompt follows all that was,
        and may begin with it."""
        if count is not None and count < 0:
            raise InvalidValue(f"{count} tokens", why="their number is 0 or more")
        choose, ends = sampler or Sampler(), frozenset(stop)
        if not keep:
            self.reset()
        scores = self.feed(prompt)
        return self._tokens(scores, count, choose, ends)

    def _tokens(
        self, scores: np.ndarray, count: int | None, choose: Callable[[np.ndarray], int], ends: frozenset[int]
    ) -> Iterator[int]:
        made, expected, token = 0, self.length, 0
        while count is None or made < count:
            if made:
                if self.length != expected:
                    raise RunError("the generator read other tokens meanwhile", hint="a Generator for each stream")
                scores = self.feed([token])
                expected += 1
            token = choose(scores)
            made += 1
            yield token
            if token in ends or self.length >= self.context:
                return

    def generate(
        self,
        prompt: Sequence[int],
        count: int | None = None,
        sampler: Callable[[np.ndarray], int] | None = None,
        stop: Iterable[int] = (),
        keep: bool = False,
    ) -> list[int]:
        """The tokens of `stream` as a list."""
        return list(self.stream(prompt, count, sampler, stop, keep))


class _Step:
    """The program for so many rows, bound to the memory of a cache."""

    def __init__(self, model: Any, rows: int, cache: Cache) -> None:
        self._cache, self._rows = cache, rows
        self._ids, self._positions = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._past, self._last = np.zeros(1, np.int64), np.zeros(1, np.int64)
        inputs = {"ids": self._ids, "positions": self._positions, "past": self._past, "last": self._last}
        self._run: BoundStep = model.bind({**inputs, "keys": cache.keys, "values": cache.values})
        self.program = model.program

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """The scores after the last of some tokens, as many as there are rows or fewer; they are in the cache then."""
        cache, count = self._cache, len(ids)
        self._ids[:count] = ids
        self._ids[count:] = 0
        self._positions[:] = np.minimum(np.arange(cache.length, cache.length + self._rows), cache.context - 1)
        self._past[0], self._last[0] = cache.length, count - 1
        scores, keys, values = self._run()
        cache.extend(keys[:count], values[:count])
        made: np.ndarray = scores[0]
        return made
