"""Decoders from model files: caches of keys and values are among inputs and outputs. Where attention reads them as that
of modules does, a file becomes steps over a cache that grows in place; any other runs as it is, and copies its caches.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.errors import Error, InvalidValue, Unsupported
from ..compiler.model import InputSpec, opened
from .decoders import MOST_TOKENS, TURNS, Decoder, SteppingDecoder, Wanted, program_of, weight_bytes
from .graph_parts import BEFORE, Copied, Inputs, Parts, Sizes
from .in_place import StepsOfFile
from .steps import ROWS

CONTEXTS = (MOST_TOKENS, 2048, 1024, 512, 256, 128)  # that are tried where none is asked for


def file_decoder(model: Any, wanted: Wanted) -> Decoder:
    """A decoder over caches that stay where they are, or one that copies them and says why."""
    if wanted.target.kind != "cpu":
        raise Unsupported(
            "a model file with caches among its inputs and outputs on a GPU",
            where=_told(model),
            why="its steps are made for processors",
            hint='target="cpu", or weft.generation.GPT2, Llama or load',
        )
    inputs, shapes = _front(model)
    if wanted.context is not None and wanted.context < 1:
        raise InvalidValue(f"a context of {wanted.context} tokens", where=_told(model), why="it is one or more")
    try:
        return SteppingDecoder(_steps(model, inputs, shapes, wanted), wanted)
    except Copied as reason:
        return CopyingDecoder(model, inputs, wanted, str(reason))


def _told(model: Any) -> str:
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else type(model).__name__


Shapes = dict[str, tuple[int | str, ...]]


def _front(model: Any) -> tuple[Inputs, Shapes]:
    """What the inputs are, and their shapes for a batch of one. The model is read for that, and goes."""
    plain = opened(model)
    inputs = _inputs(model, plain)
    specs: dict[str, Any] = {spec.name: spec.shape for spec in plain.inputs}
    shapes: Shapes = {inputs.ids: (1, ROWS)}
    shapes |= {name: (1, specs[name][1], BEFORE, specs[name][3]) for name in inputs.caches}
    shapes |= {name: (1, f"{BEFORE} + {ROWS}" if role == "mask" else ROWS) for name, role in inputs.ranges.items()}
    return inputs, shapes


def _inputs(model: Any, plain: Any) -> Inputs:
    """Whole numbers come in as tokens, and where the model takes them as positions and as a mask of ones; floats
    (batch, heads, tokens, columns) are caches. The first output is the scores of new tokens, the others are the caches
    with those tokens, in the same order."""
    ids, caches, ranges = list[str](), list[InputSpec](), dict[str, str]()
    for spec in plain.inputs:
        role = next((role for role in ("mask", "position") if role in spec.name), None)
        if role is not None:
            ranges[spec.name] = role
        elif spec.shape is not None and len(spec.shape) == 4:
            caches.append(spec)
        else:
            ids.append(spec.name)
    told = f"inputs {', '.join(spec.name for spec in plain.inputs)}"
    if len(ids) != 1 or not caches or len(plain.outputs) != 1 + len(caches):
        raise Unsupported(
            "a model that is no decoder with caches",
            where=_told(model),
            why=f"{told}; {len(plain.outputs)} outputs",
            hint="inputs are tokens, a mask, positions and caches; outputs are scores and those caches",
        )
    for spec in caches:
        if spec.shape is None or not isinstance(spec.shape[1], int) or not isinstance(spec.shape[3], int):
            raise Unsupported(
                f"a cache {spec.name!r} of shape {spec.shape}", where=_told(model), why="its heads are open"
            )
    return Inputs(ids[0], tuple(spec.name for spec in caches), ranges)


def _steps(model: Any, inputs: Inputs, shapes: Shapes, wanted: Wanted) -> StepsOfFile:
    """The file's graph as steps."""
    try:
        read = opened(model, shape=shapes)
    except Error as error:
        raise Copied(f"it does not take {shapes}: {error}") from None
    if not read.is_whole:
        raise Copied("values that it computes decide about its shapes")
    parts = Parts(read.graph, inputs, read.source.params)
    rows = TURNS[wanted.target.kind].rows
    if wanted.context is not None:
        return StepsOfFile(parts, wanted.context, rows)
    few = StepsOfFile(parts, CONTEXTS[-1], rows)
    for context in CONTEXTS[:-1]:
        try:
            return StepsOfFile(parts, context, rows)
        except Copied:
            continue  # its table of positions or of masks ends before
    return few


class CopyingDecoder:
    """Runs a file as it is: each step reads its caches and writes them anew, with new tokens behind them."""

    def __init__(self, model: Any, inputs: Inputs, wanted: Wanted, copies: str) -> None:
        self.context = MOST_TOKENS if wanted.context is None else wanted.context
        self.copies: str | None = copies
        self._model, self._inputs = program_of(model, wanted), inputs
        specs = {spec.name: spec for spec in self._model.inputs}
        self._caches = [specs[name] for name in inputs.caches]
        shape = self._model.graph.fact(self._model.graph.outputs[0]).shape
        self.vocabulary: int | None = shape[-1] if shape and isinstance(shape[-1], int) else None
        self.reset()

    @property
    def length(self) -> int:
        return int(self._past[0].shape[2])

    @property
    def weight_bytes(self) -> int:
        return weight_bytes(self._model.program)

    def reset(self) -> None:
        self._past: Sequence[np.ndarray] = [
            np.zeros((1, spec.shape[1], 0, spec.shape[3]), spec.dtype) for spec in self._caches
        ]

    def read(self, ids: np.ndarray) -> np.ndarray:
        sizes = Sizes(self.length, len(ids))
        inputs: dict[str, np.ndarray] = {self._inputs.ids: ids[None]}
        inputs |= {name: self._inputs.range(name, sizes) for name in self._inputs.ranges}
        inputs |= {spec.name: past for spec, past in zip(self._caches, self._past)}
        scores, *self._past = self._model.run(inputs)
        made: np.ndarray = scores[0, -1]
        return made
