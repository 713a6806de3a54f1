"""Writers of operators that read or write elements at given places.

Outside places are errors in ONNX; here they are moved to the nearest element, so they are clipped.
"""

from __future__ import annotations

import numpy as np

from ....base.dtype import INT64
from ....ops._families import number
from ..writing import Writing, writes


def _within(w: Writing, index: int, extents: np.ndarray | int) -> str:
    """The places of an input, from the end where negative, as int64 and inside the extents."""
    low, high = -np.asarray(extents, np.int64), np.asarray(extents, np.int64) - 1
    known, name = w.known(index), w.inputs[index]
    if w.ins[index].dtype != INT64:
        name = w.cast(name, INT64)
    if known is not None and ((known >= low) & (known <= high)).all():
        return name
    return w.node("Min", w.node("Max", name, w.ints(low)), w.ints(high))


@writes("take", "gather")
def take(w: Writing) -> None:
    data, axis, shape = w.inputs[0], w.params.axis, w.shape
    if axis is None:
        data, axis, shape = w.reshape(data, [-1]), 0, (int(np.prod(shape)),)
    w.give("Gather", data, _within(w, 1, shape[axis]), axis=axis)


@writes("gather_elements")
def gather_elements(w: Writing) -> None:
    axis = w.params.axis % w.rank
    w.give("GatherElements", w.inputs[0], _within(w, 1, w.shape[axis]), axis=axis)


def _coordinates(w: Writing) -> str:
    """ONNX has the coordinates last, weft first."""
    count, *rest = w.ins[1].shape
    extents = np.array(w.shape[:count], np.int64).reshape(-1, *[1] * len(rest))
    order = (*range(1, len(rest) + 1), 0)
    return w.node("Transpose", _within(w, 1, extents), perm=order)


@writes("gather_nd")
def gather_nd(w: Writing) -> None:
    w.give("GatherND", w.inputs[0], _coordinates(w))


@writes("scatter_nd")
def scatter_nd(w: Writing) -> None:
    w.give("ScatterND", w.inputs[0], _coordinates(w), w.inputs[2])


@writes("one_hot")
def one_hot(w: Writing) -> None:
    """Where the index is the number of the class."""
    params, rank = w.params, w.rank + 1
    axis = params.axis % rank
    index = w.node("Unsqueeze", w.cast(w.inputs[0], INT64), w.ints([axis]))
    negative = w.node("Less", index, w.ints(0))
    index = w.node("Where", negative, w.node("Add", index, w.ints(params.depth)), index)
    classes = np.arange(params.depth).reshape([-1 if a == axis else 1 for a in range(rank)])
    dtype = w.outs[0].dtype
    on, off = (w.constant(number(v, dtype), dtype) for v in (params.on_value, params.off_value))
    w.give("Where", w.node("Equal", index, w.ints(classes)), on, off)
