"""Converters of what chooses elements by their place: embeddings, gathers, sequences."""

from __future__ import annotations

import math

import numpy as np

from ....base.dtype import BOOL, FLOAT32, INT32, INT64
from ....base.errors import FormatError, Unsupported
from ....base.shape import normalize_axis
from ...emitter import Value
from ..call import Call
from ..registry import converter


def _indices(call: Call, value: Value) -> Value:
    """Whole numbers, of a dtype that has every extent; floats lose their fraction."""
    return value if call.dtype(value) in (INT32, INT64) else call.cast(value, INT64)


@converter("Embedding", "_contrib_SparseEmbedding")
def embedding(call: Call) -> Value:
    """Rows of the weight; an index that is out of range takes the nearest."""
    rows, columns = call.attr("input_dim"), call.attr("output_dim")
    if call[1].shape not in (None, (rows, columns)):
        raise FormatError(f"a weight of shape {call[1].shape}, and not ({rows}, {columns})")
    call.ignore("dtype", "deterministic")
    return call.op("take", call[1], _clipped(call, call[0], rows), axis=0)


@converter("take")
def take(call: Call) -> Value:
    axis = normalize_axis(call.attr("axis"), call.rank(call[0]))
    if call.attr("mode") == "raise":
        raise Unsupported(
            "take that fails on indices out of range is not supported", hint="mode='clip' gives the same for all others"
        )
    return call.op("take", call[0], _inside(call, call[1], call.shape(call[0])[axis]), axis=axis)


def _inside(call: Call, indices: Value, extent: int) -> Value:
    """Indices brought into range in the way that the operator's mode says."""
    mode = call.attr("mode")
    if mode not in ("clip", "wrap"):
        raise FormatError(f"mode cannot be {mode!r}", why="it is clip or wrap")
    return (_wrapped if mode == "wrap" else _clipped)(call, indices, extent)


def _wrapped(call: Call, indices: Value, extent: int) -> Value:
    """Indices counted around, from either end."""
    whole = _indices(call, indices)
    return call.op("broadcast_mod", whole, call.make([max(extent, 1)], call.dtype(whole)))


def _clipped(call: Call, indices: Value, extent: int) -> Value:
    """Indices that are out of range take the nearest; floats, before they are too large to cast."""
    return _indices(call, call.op("clip", indices, a_min=0, a_max=max(extent - 1, 0)))


@converter("batch_take")
def batch_take(call: Call) -> Value:
    """The element at an index of each row."""
    rows = math.prod(call.shape(call[1]))
    indices = _clipped(call, call.reshape(call[1], (rows, 1)), call.shape(call[0])[1])
    elements = call.op("gather_elements", call[0], indices, axis=1)
    return call.reshape(elements, call.shape(call[1]))


@converter("pick")
def pick(call: Call) -> Value:
    """The element at an index along an axis, for each place of the other axes."""
    data, axis = call[0], call.attr("axis")
    if axis is None:
        raise Unsupported("pick without an axis is not supported", why="MXNet refuses it, too")
    shape = call.shape(data)
    axis = normalize_axis(axis, len(shape))
    indices = call.reshape(call[1], (*shape[:axis], 1, *shape[axis + 1 :]))
    picked = call.op("gather_elements", data, _inside(call, indices, shape[axis]), axis=axis)
    if call.attr("keepdims"):
        return picked
    return call.reshape(picked, (*shape[:axis], *shape[axis + 1 :]) or (1,))


@converter("one_hot")
def one_hot(call: Call) -> Value:
    """An index that is out of range has no hot element; negative ones are moved behind the end."""
    indices, depth = _indices(call, call[0]), call.attr("depth")
    below = call.op("broadcast_less", indices, call.make([0], call.dtype(indices)))
    indices = call.op("broadcast_max", indices, call.scaled(below, depth))
    return call.op(
        "one_hot",
        indices,
        depth=depth,
        on_value=call.attr("on_value"),
        off_value=call.attr("off_value"),
        dtype=call.dtype_attr(),
    )


@converter("gather_nd")
def gather_nd(call: Call) -> Value:
    """Coordinates along the first axis of the indices; negative ones count from the end."""
    data, indices = call[0], _indices(call, call[1])
    count = call.shape(indices)[0]
    column = np.reshape(call.shape(data)[:count], (-1, *[1] * (call.rank(indices) - 1)))
    extents = call.make(column, call.dtype(indices))
    below = call.op("broadcast_less", indices, call.make([0], call.dtype(indices)))
    indices = call.op("broadcast_add", indices, call.op("broadcast_mul", below, extents))
    return call.op("gather_nd", data, indices)


# Sequences, along axis 0 or 1, with the batch along the other.


def _sequence_axis(call: Call) -> tuple[int, int]:
    axis = call.attr("axis")
    if axis not in (0, 1):
        raise FormatError(f"the axis of a sequence is 0 or 1, not {axis}")
    return axis, 1 - axis


def _places(call: Call, axis: int, rank: int) -> Value:
    return call.positions(call.shape(call[0])[axis], axis, rank, FLOAT32)


def _lengths(call: Call, batch: int, rank: int) -> Value:
    count = call.shape(call[0])[batch]
    return call.reshape(call.cast(call[1], FLOAT32), [count if a == batch else 1 for a in range(rank)])


@converter("SequenceMask")
def sequence_mask(call: Call) -> Value:
    """A value instead of everything beyond the lengths."""
    data, value = call[0], call.attr("value")
    axis, batch = _sequence_axis(call)
    if not call.attr("use_sequence_length"):
        call.ignore(1)
        return data
    shape = call.shape(data)
    rank = len(shape)
    inside = call.op("broadcast_less", _places(call, axis, rank), _lengths(call, batch, rank))
    mask = call.cast(call.broadcast_to(inside, shape), BOOL)
    return call.op("where", mask, data, call.op("full_like", data, fill_value=value))


@converter("SequenceLast")
def sequence_last(call: Call) -> Value:
    """The last element of each sequence."""
    data = call[0]
    axis, batch = _sequence_axis(call)
    shape = call.shape(data)
    left = [dim for a, dim in enumerate(shape) if a != axis]
    if not call.attr("use_sequence_length"):
        call.ignore(1)
        end = shape[axis]
        return call.reshape(call.sliced(data, {axis: (end - 1, end, 1)}), left)
    one = [1 if a == axis else dim for a, dim in enumerate(shape)]
    last = call.op("__sub_scalar__", _lengths(call, batch, len(shape)), scalar=1)
    places = _clipped(call, call.cast(last, INT32), shape[axis])
    last = call.op("gather_elements", data, call.broadcast_to(places, tuple(one)), axis=axis)
    return call.reshape(last, left)


@converter("SequenceReverse")
def sequence_reverse(call: Call) -> Value:
    """Each sequence from its last element to its first; what is beyond stays."""
    data = call[0]
    axis, batch = _sequence_axis(call)
    if not call.attr("use_sequence_length"):
        call.ignore(1)
        return call.op("flip", data, axis=axis)
    shape = call.shape(data)
    places, lengths = _places(call, axis, len(shape)), _lengths(call, batch, len(shape))
    mirrored = call.op("__sub_scalar__", call.op("broadcast_sub", lengths, places), scalar=1)
    both = tuple(dim if a in (axis, batch) else 1 for a, dim in enumerate(shape))
    inside = call.cast(call.op("broadcast_less", places, lengths), BOOL)
    source = call.op("where", call.broadcast_to(inside, both), mirrored, call.broadcast_to(places, both))
    indices = call.broadcast_to(call.cast(source, INT64), shape)
    return call.op("gather_elements", data, indices, axis=axis)
