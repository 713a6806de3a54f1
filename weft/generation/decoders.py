"""What reads tokens: two programs of a decoder that writes its steps as graphs, over a cache that grows in place.
Tokens come in, scores of what comes next go out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..base.dtype import as_dtype
from ..base.errors import InvalidValue, OutOfMemory, Unsupported
from ..base.plan import KernelStep
from ..base.target import Target
from ..compiler.model import opened
from ..compiler.quantise.weight_levels import quantize_weights
from ..core.symbol import Symbol
from ..eager.tensor.memory import array_of
from ..runtime.bound import BoundStep
from ..runtime.cuda.executor import CudaExecutor
from ..runtime.program import Program
from .cache import Cache, Kept
from .on_device import DeviceCache, DeviceStep
from .steps import ROWS, cache_names

LEVELS = {"int8": 8, "int4": 4}
WEIGHTS = {"cpu": ("fp32", "bf16", *LEVELS), "cuda": ("fp32", "tf32", "fp16", "bf16")}  # by the kind of target
CACHES = {"fp16": "float16", "bf16": "bfloat16"}  # dtypes of caches on a GPU that are not float32
MOST_TOKENS = 4096  # of a context that is not asked for


class Turns(NamedTuple):
    """How prompts are read: so many tokens at once, and one by one where no more are left than a few."""

    rows: int
    few: int


TURNS = {"cpu": Turns(32, 2), "cuda": Turns(128, 4)}


class Decoder(Protocol):
    """`vocabulary` is None where it is not known. `copies` is why a token costs a copy of the cache, if it does."""

    context: int
    vocabulary: int | None
    copies: str | None

    @property
    def length(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    def reset(self) -> None: ...
    def read(self, ids: np.ndarray) -> np.ndarray: ...


class Step(Protocol):
    """The program for so many rows over the memory of a cache. It gives the scores after the last of some tokens, as
    many as there are rows or fewer; they are in the cache then."""

    program: Program

    def __call__(self, ids: np.ndarray) -> np.ndarray: ...


class Wanted(NamedTuple):
    """How a decoder is to run: its weights, in groups where they are levels, for so many tokens, and where."""

    weights: str
    group: int
    context: int | None
    threads: int | None
    target: Target


def program_of(given: Any, wanted: Wanted, **options: Any) -> Any:
    """A model that is not compiled yet, with its weights as they are wanted."""
    weights, kind = wanted.weights, wanted.target.kind
    if kind not in WEIGHTS:
        raise Unsupported(f"a decoder on a target of kind {kind!r}", why="they run on " + ", ".join(WEIGHTS))
    if weights not in WEIGHTS[kind]:
        raise InvalidValue(f"weights {weights!r}", why=f"on {kind} they are " + ", ".join(WEIGHTS[kind]))
    options |= {"threads": wanted.threads, "target": wanted.target}
    if weights in LEVELS:
        return opened(quantize_weights(given, bits=LEVELS[weights], group=wanted.group), **options)
    return opened(given, precision=weights, **options)


def weight_bytes(program: Program) -> int:
    """Bytes of constants that a run reads: all but the tables of which kernels take rows."""
    slots = [number for number, slot in enumerate(program.plan.slots) if slot.role == "constant"]
    constants = dict(zip(slots, program.constants))
    steps = [step for step in program.plan.steps if isinstance(step, KernelStep)]
    read = {
        ref.slot
        for step, kernel in zip(steps, program.kernels, strict=True)
        for ref in step.buffers
        if ref.slot in constants and not ("take" in kernel.operators and constants[ref.slot].ndim == 2)
    }
    return sum(constants[number].nbytes for number in read)


class Stepped(Protocol):
    """A model that writes a step as a graph. `limits` say by which settings it has how many tokens; a `window` is what
    a token sees in some layer, if that is not all. If it `takes_more_rows`, scores of a token do not depend on rows of
    a step behind it."""

    limits: dict[str, int]
    vocabulary: int | None
    window: int | None
    takes_more_rows: bool

    def kept(self, context: int) -> list[Kept]: ...
    def steps(self, context: int, dtype: str) -> tuple[Symbol, dict[str, np.ndarray]]: ...


class StepsOfModule:
    """Those of a module (`GPT2`, `Llama`)."""

    takes_more_rows = True

    def __init__(self, model: Any) -> None:
        self._model, self.limits, self.window = model, model.limits, model.window
        self.vocabulary: int | None = model.settings.vocab_size

    def kept(self, context: int) -> list[Kept]:
        """What layers keep of that many tokens."""
        made: list[Kept] = self._model.kept(context)
        return made

    def steps(self, context: int, dtype: str) -> tuple[Symbol, dict[str, np.ndarray]]:
        """A step over a cache of some dtype, and the parameters as they are now."""
        arrays = {name: array_of(value.detach()) for name, value in self._model.state_dict().items()}
        made: tuple[Symbol, dict[str, np.ndarray]] = self._model.step_graph(arrays, context, dtype)
        return made


class SteppingDecoder:
    """A model that writes its steps, whose keys and values stay where they are."""

    copies: str | None = None

    def __init__(self, model: Stepped, wanted: Wanted) -> None:
        kind, limits = wanted.target.kind, model.limits
        if kind == "cuda" and model.window is not None:  # all tokens that there are, then, and caches are no rings
            limits = {**limits, "sliding_window": model.window}
        setting, most = min(limits.items(), key=lambda limit: limit[1])
        context = min(most, MOST_TOKENS) if wanted.context is None else wanted.context
        if not 1 <= context <= most:
            raise InvalidValue(f"a context of {context} tokens", why=f"the model sees from 1 to {most}: its {setting}")
        self.context, self.vocabulary = context, model.vocabulary
        dtype = CACHES.get(wanted.weights, "float32") if kind == "cuda" else "float32"
        program = program_of(model.steps(context, dtype), wanted, specialise="always")
        self._turns, self._takes_more_rows = TURNS[kind], model.takes_more_rows
        rows = (1, min(self._turns.rows, context))
        # All at once: nothing reads the parameters as they were given after that.
        self._caches: list[Cache] | list[DeviceCache]
        self._steps: dict[int, Step]
        if kind == "cuda":
            executors = {count: _executor(program, count) for count in rows}
            there = executors[1].loaded.context
            (kept,) = model.kept(context)
            cache = DeviceCache(there, kept.sizes, context, as_dtype(dtype))
            self._caches = [cache]
            self._steps = {count: DeviceStep(executor, count, cache) for count, executor in executors.items()}
        else:
            self._caches = here = [Cache(kept) for kept in model.kept(context)]
            self._steps = {count: _Step(program, count, here, context) for count in rows}

    @property
    def length(self) -> int:
        return self._caches[0].length

    @property
    def constants(self) -> list[np.ndarray]:
        """All that its programs keep."""
        kept = {id(c): c for step in self._steps.values() for c in step.program.constants}
        return list(kept.values())

    @property
    def weight_bytes(self) -> int:
        return weight_bytes(self._steps[1].program)

    def reset(self) -> None:
        for cache in self._caches:
            cache.length = 0

    def read(self, ids: np.ndarray) -> np.ndarray:
        scores: np.ndarray | None = None
        at = 0
        while at < len(ids):
            some = ids[at : at + self._rows(len(ids) - at)]
            scores = self._steps[1 if len(some) == 1 else max(self._steps)](some)
            at += len(some)
        assert scores is not None
        return scores

    def _rows(self, left: int) -> int:
        """How many rows are read next, of so many tokens that are left."""
        most = max(self._steps)
        return 1 if left <= self._turns.few or (left < most and not self._takes_more_rows) else most


def _executor(model: Any, rows: int) -> CudaExecutor:
    """The program for so many rows, loaded."""
    extents = {spec.name: [rows if dim == ROWS else dim for dim in spec.shape] for spec in model.inputs}
    zero = {spec.name: np.zeros((), spec.dtype) for spec in model.inputs}
    try:
        made: CudaExecutor = model.executor({name: np.broadcast_to(zero[name], extents[name]) for name in extents})
    except OutOfMemory as error:
        raise OutOfMemory(
            "a decoder's weights are more than the device has room for",
            where=error.where,
            why=f"{error.what}; {error.why}",
            hint='weights="fp16" or "bf16", which are half as large; weft.cuda.empty_cache()',
        ) from None
    return made


class _Step:
    """A step on the processor."""

    def __init__(self, model: Any, rows: int, caches: Sequence[Cache], context: int) -> None:
        self._caches, self._rows, self._most = caches, rows, context - 1
        self._ids, self._positions = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._past, self._last = np.zeros(1, np.int64), np.zeros(1, np.int64)
        inputs = {"ids": self._ids, "positions": self._positions, "past": self._past, "last": self._last}
        memory: dict[str, np.ndarray] = dict(inputs)
        for names, cache in zip(cache_names(len(caches)), caches):
            memory |= dict(zip(names, (cache.keys, cache.values)))
        self._run: BoundStep = model.bind({spec.name: memory[spec.name] for spec in model.inputs})
        self.program = model.program

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        before, count = self._caches[0].length, len(ids)
        self._ids[:count] = ids
        self._ids[count:] = 0
        self._positions[:] = np.minimum(np.arange(before, before + self._rows), self._most)
        self._past[0], self._last[0] = before, count - 1
        scores, *new = self._run()
        for cache, keys, values in zip(self._caches, new[::2], new[1::2]):
            cache.extend(keys[:count], values[:count])
        made: np.ndarray = scores[0]
        return made
