"""Writers of what moves elements and makes tensors."""

from __future__ import annotations

import numpy as np

from ...base.dtype import INT64
from .tensors import CODE_OF
from .writing import ALIKE, AlikeOp, Writing, writes

ALIKE.update(
    concatenate=AlikeOp("Concat", {"axis": "axis"}),
    flatten=AlikeOp("Flatten"),
    gather_elements=AlikeOp("GatherElements", {"axis": "axis"}),
)


@writes("reshape", "reshape_like", "squeeze", "expand_dims", "_as_rows")
def reshape(w: Writing) -> None:
    """Shapes are known, so all of these are one."""
    w.give("Reshape", w.inputs[0], w.ints(w.outs[0].shape), allowzero=_zero(w.outs[0].shape))


def _zero(shape: tuple[int, ...]) -> int | None:
    return 1 if 0 in shape else None


@writes("transpose")
def transpose(w: Writing) -> None:
    rank = len(w.ins[0].shape)
    axes = w.params.axes or tuple(reversed(range(rank)))
    w.give("Transpose", w.inputs[0], perm=tuple(axis % rank for axis in axes))


@writes("broadcast_to", "broadcast_like")
def broadcast_to(w: Writing) -> None:
    w.give("Expand", w.inputs[0], w.ints(w.outs[0].shape))


@writes("tile")
def tile(w: Writing) -> None:
    shape, reps = w.ins[0].shape, w.params.reps
    rank = max(len(shape), len(reps))
    data = w.inputs[0]
    if len(shape) < rank:
        data = w.node("Reshape", data, w.ints((1,) * (rank - len(shape)) + shape))
    w.give("Tile", data, w.ints((1,) * (rank - len(reps)) + tuple(reps)))


@writes("stack")
def stack(w: Writing) -> None:
    rank = len(w.outs[0].shape)
    axis = w.params.axis % rank
    parts = [w.node("Unsqueeze", name, w.ints([axis])) for name in w.inputs]
    w.give("Concat", *parts, axis=axis)


@writes("split")
def split(w: Writing) -> None:
    axis = w.params.axis % len(w.ins[0].shape)
    sizes = [fact.shape[axis] for fact in w.outs]
    w.give("Split", w.inputs[0], w.ints(sizes), axis=axis)


@writes("strided_slice")
def strided_slice(w: Writing) -> None:
    begin, end, stride = w.params.begin, w.params.end, w.params.stride
    shape = w.ins[0].shape
    rows = []
    for axis, dim in enumerate(shape):
        part = slice(_nth(begin, axis), _nth(end, axis), _nth(stride, axis))
        start, stop, step = part.indices(dim)
        rows.append((start, stop if stop >= 0 else -dim - 1, step))
    starts, ends, steps = (w.ints(column) for column in zip(*rows))
    w.give("Slice", w.inputs[0], starts, ends, w.ints(range(len(shape))), steps)


def _nth(values: tuple[int, ...], axis: int) -> int | None:
    return values[axis] if axis < len(values) else None


@writes("flip")
def flip(w: Writing) -> None:
    axis = w.ints([w.params.axis])
    lowest = w.ints([np.iinfo(np.int64).min])
    w.give("Slice", w.inputs[0], w.ints([-1]), lowest, axis, w.ints([-1]))


@writes("take")
def take(w: Writing) -> None:
    data, axis = w.inputs[0], w.params.axis
    if axis is None:
        data, axis = w.node("Reshape", data, w.ints([-1])), 0
    indices = w.inputs[1]
    if w.ins[1].dtype not in (np.dtype(np.int32), INT64):
        indices = w.cast(indices, INT64)
    w.give("Gather", data, indices, axis=axis)


@writes("gather_nd")
def gather_nd(w: Writing) -> None:
    """ONNX has the coordinates last, gather_nd first."""
    rank = len(w.ins[1].shape)
    indices = w.node("Transpose", w.cast(w.inputs[1], INT64), perm=(*range(1, rank), 0))
    w.give("GatherND", w.inputs[0], indices)


@writes("pad")
def pad(w: Writing) -> None:
    before, after = zip(*w.params.pad_width)
    value = [w.constant(w.params.pad_value)] if w.params.mode == "constant" else []
    w.give("Pad", w.inputs[0], w.ints(before + after), *value, mode=w.params.mode)


@writes("zeros", "ones", "full", "zeros_like", "ones_like", "full_like")
def filled(w: Writing) -> None:
    fact = w.outs[0]
    value = getattr(w.params, "fill_value", 0) if "full" in w.op_name else "ones" in w.op_name
    shape = w.constant(np.asarray(fact.shape, np.int64), INT64)
    w.give("Expand", w.constant(value, fact.dtype), shape)


@writes("arange")
def arange(w: Writing) -> None:
    fact, params = w.outs[0], w.params
    count = w.constant(np.arange(fact.shape[0]), INT64)
    steps = w.node("Mul", w.cast(count, np.dtype(np.float64)), _double(w, params.step))
    w.give("Cast", w.node("Add", steps, _double(w, params.start)), to=CODE_OF[fact.dtype])


def _double(w: Writing, value: float) -> str:
    return w.constant(value, np.dtype(np.float64))


@writes("one_hot")
def one_hot(w: Writing) -> None:
    params = w.params
    values = w.constant([params.off_value, params.on_value], w.outs[0].dtype)
    w.give("OneHot", w.inputs[0], w.ints(params.depth), values, axis=params.axis)
