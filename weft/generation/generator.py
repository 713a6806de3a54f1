"""Tokens from a decoder, one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..base.errors import InvalidType, InvalidValue, RunError
from ..base.target import Target
from .decoders import Decoder, SteppingDecoder, StepsOfModule, Wanted
from .model_files import file_decoder
from .sampling import Sampler


class Generator:
    """Runs a decoder with its weights as `weights` says: "fp32", "bf16", or levels with a scale for each group of
    `group`, "int8" or "int4". The model is `GPT2` or `Llama`, of which weights are packed and which is not needed any
    more, or a file that `weft.compile` reads, with caches among its inputs and outputs. With `target="cuda"` weights,
    the cache and all steps are on the GPU that the thread works on, in "fp32", "tf32", "fp16" or "bf16".

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
        target: str | Target = "cpu",
    ) -> None:
        is_file = isinstance(model, (str, bytes, os.PathLike)) or type(model).__name__ == "ModelProto"
        if not is_file and not hasattr(model, "step_graph"):
            raise InvalidType(
                f"a {type(model).__name__} is no decoder", hint="weft.generation.GPT2, Llama or load, or an ONNX file"
            )
        self.weights = weights
        wanted = Wanted(weights, group, context, threads, Target.create(target))
        self._decoder: Decoder = (
            file_decoder(model, wanted) if is_file else SteppingDecoder(StepsOfModule(model), wanted)
        )

    @property
    def context(self) -> int:
        """The most tokens that there is room for."""
        return self._decoder.context

    @property
    def vocabulary(self) -> int | None:
        """How many tokens there are, if the model tells."""
        return self._decoder.vocabulary

    @property
    def length(self) -> int:
        """Tokens that the cache has."""
        return self._decoder.length

    @property
    def copies(self) -> str | None:
        """None where new keys and values are put behind those that are there, and nothing else of the cache is written
        for a token; of a model file that has all of its caches copied for each token, why."""
        return self._decoder.copies

    @property
    def weight_bytes(self) -> int:
        """Bytes of parameters that a token reads: all but the tables of which it takes a row."""
        return self._decoder.weight_bytes

    def reset(self) -> None:
        """Forgets all tokens."""
        self._decoder.reset()

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """Reads tokens that follow those before, and gives the scores of what comes next: memory that the next call
        writes to."""
        return self._decoder.read(self._checked(tokens))

    def _checked(self, tokens: Sequence[int]) -> np.ndarray:
        ids = np.asarray(tokens)
        if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
            raise InvalidValue(
                f"tokens of shape {ids.shape} and {ids.dtype}", why="they are one or more whole numbers", hint="[3, 1]"
            )
        if ids.min() < 0 or (self.vocabulary is not None and ids.max() >= self.vocabulary):
            raise InvalidValue(f"token {ids.max() if ids.min() >= 0 else ids.min()}", why=f"of {self.vocabulary}")
        if self.length + len(ids) > self.context:
            raise InvalidValue(
                f"{len(ids)} tokens after {self.length}",
                why=f"there is room for {self.context}",
                hint="reset(), or a Generator with a larger context",
            )
        return ids.astype(np.int64)

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
