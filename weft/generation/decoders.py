"""What reads tokens: a decoder that is a module, by two programs over a cache that grows in place, or a model file with
caches among its inputs and outputs. Tokens come in, scores of what comes next go out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..base.errors import InvalidValue, Unsupported
from ..compiler.model import opened
from ..compiler.quantise.weight_levels import quantize_weights
from ..eager.tensor.memory import array_of
from ..runtime.bound import BoundStep
from .cache import Cache

FLOATS = ("fp32", "bf16")
LEVELS = {"int8": 8, "int4": 4}
MOST_TOKENS = 4096  # of a context that is not asked for
CHUNK = 32  # tokens of a prompt that are read at once
FEW = 2  # tokens that are read one by one


class Decoder(Protocol):
    """`vocabulary` is None where it is not known."""

    context: int
    vocabulary: int | None

    @property
    def length(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    def reset(self) -> None: ...
    def read(self, ids: np.ndarray) -> np.ndarray: ...


def _program(given: Any, weights: str, group: int, **options: Any) -> Any:
    """A model that is not compiled yet, with its weights as they are wanted."""
    if weights not in (*FLOATS, *LEVELS):
        raise InvalidValue(f"weights {weights!r}", why="they are " + ", ".join((*FLOATS, *LEVELS)))
    if weights in LEVELS:
        return opened(quantize_weights(given, bits=LEVELS[weights], group=group), **options)
    return opened(given, precision=weights, **options)


class ModuleDecoder:
    """A module that writes a step of its own as a graph (`GPT2`, `Llama`)."""

    def __init__(self, model: Any, weights: str, group: int, context: int | None, threads: int | None) -> None:
        if context is None:
            context = min(model.positions, MOST_TOKENS)
        if not 1 <= context <= model.positions:
            raise InvalidValue(f"a context of {context} tokens", why=f"the model sees from 1 to {model.positions}")
        self.context, self.vocabulary = context, model.settings.vocab_size
        arrays = {name: array_of(value.detach()) for name, value in model.state_dict().items()}
        given = model.step_graph(arrays, context)
        program = _program(given, weights, group, threads=threads, specialise="always")
        self._cache = Cache(model.cache_sizes, context)
        # Both at once: nothing reads the parameters as they were given after that.
        self._steps = {rows: _Step(program, rows, self._cache) for rows in (1, CHUNK)}

    @property
    def length(self) -> int:
        return self._cache.length

    @property
    def constants(self) -> list[np.ndarray]:
        """All that its programs keep."""
        kept = {id(c): c for step in self._steps.values() for c in step.program.constants}
        return list(kept.values())

    @property
    def weight_bytes(self) -> int:
        return sum(c.nbytes for c in self._steps[1].program.constants if c.ndim != 2)

    def reset(self) -> None:
        self._cache.length = 0

    def read(self, ids: np.ndarray) -> np.ndarray:
        scores: np.ndarray | None = None
        at = 0
        while at < len(ids):
            rows = 1 if len(ids) - at <= FEW else CHUNK
            some = ids[at : at + rows]
            scores = self._steps[rows](some)
            at += len(some)
        assert scores is not None
        return scores


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


class FileDecoder:
    """A model with caches: whole numbers come in as tokens, and where the model takes them as positions and as a mask
    of ones; floats (batch, heads, tokens, columns) are caches, empty at first. The first output is the scores of all
    new tokens, the others are the caches with those tokens, in the same order."""

    def __init__(self, model: Any, weights: str, group: int, context: int | None, threads: int | None) -> None:
        self.context = MOST_TOKENS if context is None else context
        self._model = _program(model, weights, group, threads=threads)
        self._caches, self._ids = list[Any](), list[str]()
        self._roles: dict[str, str] = {}  # inputs that are neither: "mask" or "position"
        for spec in self._model.inputs:
            role = next((role for role in ("mask", "position") if role in spec.name), None)
            if role is not None:
                self._roles[spec.name] = role
            elif spec.shape is not None and len(spec.shape) == 4:
                self._caches.append(spec)
            else:
                self._ids.append(spec.name)
        self._check(model)
        shape = self._model.graph.fact(self._model.graph.outputs[0]).shape
        self.vocabulary = shape[-1] if shape and isinstance(shape[-1], int) else None
        self.reset()

    def _check(self, model: Any) -> None:
        told = f"inputs {', '.join(spec.name for spec in self._model.inputs)}"
        where = str(model) if isinstance(model, str) else type(model).__name__
        if len(self._ids) != 1 or not self._caches or len(self._model.outputs) != 1 + len(self._caches):
            raise Unsupported(
                "a model that is no decoder with caches",
                where=where,
                why=f"{told}; {len(self._model.outputs)} outputs",
                hint="inputs are tokens, a mask, positions and caches; outputs are scores and those caches",
            )
        for spec in self._caches:
            if not isinstance(spec.shape[1], int) or not isinstance(spec.shape[3], int):
                raise Unsupported(f"a cache {spec.name!r} of shape {spec.shape}", where=where, why="its heads are open")

    @property
    def length(self) -> int:
        return int(self._past[0].shape[2])

    @property
    def weight_bytes(self) -> int:
        return sum(c.nbytes for c in self._model.program.constants)  # tables are not told from other matrices

    def reset(self) -> None:
        self._past: Sequence[np.ndarray] = [
            np.zeros((1, spec.shape[1], 0, spec.shape[3]), spec.dtype) for spec in self._caches
        ]

    def read(self, ids: np.ndarray) -> np.ndarray:
        before, after = self.length, self.length + len(ids)
        ranges = {"mask": np.ones(after, np.int64), "position": np.arange(before, after)}
        inputs: dict[str, np.ndarray] = {self._ids[0]: ids[None]}
        for name, role in self._roles.items():
            inputs[name] = ranges[role][None]
        inputs |= {spec.name: past for spec, past in zip(self._caches, self._past)}
        scores, *self._past = self._model.run(inputs)
        made: np.ndarray = scores[0, -1]
        return made
