"""Steps on the host for sequences, which are lists, and for what may be absent, which is None then."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.errors import InvalidValue, OutOfRange, ShapeError
from ....base.shape import normalize_axis
from ..node import OnnxNode
from ..registry import host_step

Sequence = list[np.ndarray]


def _place(position: np.ndarray | None, count: int, usual: int) -> int:
    """A position below a count, from the front."""
    place = usual if position is None else int(position.reshape(()))
    if not -count <= place < count:
        raise OutOfRange(f"position {place} of a sequence that has {count}")
    return place % count


@host_step("SequenceConstruct", since=11)
def construct(call: OnnxNode, *tensors: np.ndarray) -> list[Sequence]:
    return [list(tensors)]


@host_step("SequenceEmpty", since=11)
def empty(call: OnnxNode) -> list[Sequence]:
    """The tensors that are put into it say what it holds."""
    return [[]]


@host_step("SequenceAt", since=11)
def at(call: OnnxNode, sequence: Sequence, position: np.ndarray) -> list[np.ndarray]:
    return [sequence[_place(position, len(sequence), 0)]]


@host_step("SequenceInsert", since=11)
def insert(
    call: OnnxNode, sequence: Sequence, tensor: np.ndarray, position: np.ndarray | None = None
) -> list[Sequence]:
    """Before what stands there; behind the last one by default."""
    count = len(sequence)
    place = count if position is None else int(position.reshape(()))
    if not -count <= place <= count:
        raise OutOfRange(f"position {place} to insert into a sequence of {count}")
    place += count if place < 0 else 0
    return [[*sequence[:place], tensor, *sequence[place:]]]


@host_step("SequenceErase", since=11)
def erase(call: OnnxNode, sequence: Sequence, position: np.ndarray | None = None) -> list[Sequence]:
    place = _place(position, len(sequence), -1)
    return [sequence[:place] + sequence[place + 1 :]]


@host_step("SequenceLength", since=11)
def length(call: OnnxNode, sequence: Sequence) -> list[np.ndarray]:
    return [np.asarray(len(sequence), np.int64)]


@host_step("SplitToSequence", since=11)
def split(call: OnnxNode, x: np.ndarray, lengths: np.ndarray | None = None) -> list[Sequence]:
    """By a list of lengths, or by one for all but the last; by single slices, which may lose the axis."""
    axis = normalize_axis(call.attr("axis"), x.ndim)
    keeps = bool(call.attr("keepdims")) or lengths is not None
    ends = np.cumsum(_lengths(lengths, x.shape[axis]), dtype=np.int64)
    parts = np.split(x, ends[:-1], axis) if ends.size else []
    return [parts if keeps else [part.squeeze(axis) for part in parts]]


def _lengths(given: np.ndarray | None, extent: int) -> list[int]:
    if given is not None and given.ndim:
        lengths = [int(length) for length in given]
        if min(lengths, default=0) < 0 or sum(lengths) != extent:
            raise ShapeError(f"an axis of {extent} cannot be split into {lengths[:8]}")
        return lengths
    step = 1 if given is None else int(given)
    if step < 1:
        raise InvalidValue(f"parts of length {step}")
    return [min(step, extent - start) for start in range(0, extent, step)]


@host_step("ConcatFromSequence", since=11)
def concat(call: OnnxNode, sequence: Sequence) -> list[np.ndarray]:
    """Along an axis that is there, or a new one."""
    if not sequence:
        raise InvalidValue("an empty sequence cannot be put together", why="nothing says what shape it has")
    rank = sequence[0].ndim + bool(call.attr("new_axis"))
    join = np.stack if call.attr("new_axis") else np.concatenate
    return [join(sequence, normalize_axis(call.attr("axis"), rank))]


@host_step("Identity", numbers=False)
def identity(call: OnnxNode, value: Any) -> list[Any]:
    return [value]


@host_step("Optional", since=15)
def optional(call: OnnxNode, value: Any = None) -> list[Any]:
    """A value, or that there is none."""
    return [value]


@host_step("OptionalHasElement", since=15)
def has_element(call: OnnxNode, value: Any = None) -> list[np.ndarray]:
    return [np.asarray(value is not None)]


@host_step("OptionalGetElement", since=15)
def get_element(call: OnnxNode, value: Any) -> list[Any]:
    if value is None:
        raise InvalidValue("an optional value is asked for, and is absent")
    return [value]
