"""Writers of what moves elements and makes tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.dtype import FLOAT64, INT64, is_float
from ....ops.shape.expand import repeated_axes
from ..tensors import CODE_OF
from ..writing import Writing, writes
from .reduce import reduced_axes


@writes("reshape", "reshape_like", "squeeze", "expand_dims", "_as_rows")
def reshape(w: Writing) -> None:
    """Shapes are known, so all of these are one."""
    w.give_shaped(w.inputs[0])


@writes("transpose")
def transpose(w: Writing) -> None:
    axes = w.params.axes or tuple(reversed(range(w.rank)))
    if w.rank:
        w.give("Transpose", w.inputs[0], perm=tuple(axis % w.rank for axis in axes))
    else:
        w.give("Identity", w.inputs[0])


@writes("broadcast_to", "broadcast_like")
def broadcast_to(w: Writing) -> None:
    w.give("Expand", w.inputs[0], w.ints(w.outs[0].shape))


@writes("tile")
def tile(w: Writing) -> None:
    shape, reps = w.shape, w.params.reps
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
    axis = w.params.axis % w.rank
    sizes = [fact.shape[axis] for fact in w.outs]
    w.give_all("Split", w.inputs[0], w.ints(sizes), axis=axis)


@writes("strided_slice")
def strided_slice(w: Writing) -> None:
    begin, end, stride = w.params.begin, w.params.end, w.params.stride
    shape = w.shape
    if not shape:
        w.give("Identity", w.inputs[0])
        return
    rows = [_bounds(_nth(begin, axis), _nth(end, axis), _nth(stride, axis), dim) for axis, dim in enumerate(shape)]
    starts, ends, steps = (w.ints(column) for column in zip(*rows))
    w.give("Slice", w.inputs[0], starts, ends, w.ints(range(len(shape))), steps)


def _bounds(start: Any, stop: Any, step: int | None, dim: Any) -> tuple[Any, Any, int]:
    """As ONNX has them, which cuts to the extent itself where that is open."""
    if all(isinstance(value, (int, type(None))) for value in (start, stop, dim)):
        start, stop, step = slice(start, stop, step).indices(dim)
        return start, stop if stop >= 0 else -dim - 1, step
    step = 1 if step is None else step
    limits = np.iinfo(np.int64)
    first, last = (0, limits.max) if step > 0 else (limits.max, limits.min)
    return first if start is None else start, last if stop is None else stop, step


def _nth(values: tuple[int, ...], axis: int) -> int | None:
    return values[axis] if axis < len(values) else None


@writes("part")
def part(w: Writing) -> None:
    """A slice along every axis, in another shape."""
    if not w.rank:
        w.give_shaped(w.inputs[0])
        return
    starts, ends = w.params.start, [_after(*row) for row in zip(w.params.start, w.params.length, w.params.step)]
    cut = w.node("Slice", w.inputs[0], w.ints(starts), w.ints(ends), w.ints(range(w.rank)), w.ints(w.params.step))
    w.give_shaped(cut)


def _after(start: int, length: int, step: int) -> int:
    """The end of a slice of `length` elements."""
    return start + (length - 1) * step + 1 if length else start


@writes("_part_grad")
def placed_part(w: Writing) -> None:
    """Zeros around the part, and between its elements."""
    params, extents = w.params, w.outs[0].shape
    w.require(all(isinstance(dim, int) for dim in extents), "open dimensions")
    if not extents:
        w.give_shaped(w.inputs[0])
        return
    rows = zip(params.start, params.length, params.step)
    places = np.zeros(extents, bool)
    places[tuple(slice(start, start + length * step, step) for start, length, step in rows)] = True
    indices = w.constant(np.argwhere(places), INT64)
    values = w.reshape(w.inputs[0], (-1,)) if places.any() else w.reshape(w.inputs[0], (0,))
    w.give("ScatterND", w.node("Expand", w.constant(0), w.ints(extents)), indices, values)


@writes("triangle")
def triangle(w: Writing) -> None:
    """Of floats and int64, which runtimes have."""
    narrow = None if is_float(w.dtype) or w.dtype == INT64 else INT64
    data = w.inputs[0] if narrow is None else w.cast(w.inputs[0], narrow)
    diagonal = w.constant(w.params.diagonal, INT64)
    made = w.node("Trilu", data, diagonal, upper=int(not w.params.lower))
    w.give_value(made) if narrow is None else w.give_cast(made)


@writes("slice_like")
def slice_like(w: Writing) -> None:
    """From the first element on along every axis."""
    shape = w.outs[0].shape
    w.give("Slice", w.inputs[0], w.ints([0] * w.rank), w.ints(shape), w.ints(range(w.rank)))


@writes("repeat")
def repeat(w: Writing) -> None:
    """The copies of an element are a new axis for a moment."""
    shape, axis, data = w.shape, w.params.axis, w.inputs[0]
    if axis is None:
        shape, axis = (int(np.prod(shape)),), 0
        data = w.reshape(data, shape)
    axis = axis % len(shape) + 1
    data = w.node("Unsqueeze", data, w.ints([axis]))
    many = (*shape[:axis], w.params.repeats, *shape[axis:])
    if not w.params.repeats:
        w.give("Expand", w.constant(0), w.ints(w.outs[0].shape))
        return
    w.give_shaped(w.node("Expand", data, w.ints(many)))


@writes("yolo_reorg")
def yolo_reorg(w: Writing) -> None:
    """Memory is read as (c / s^2, h s, w s); blocks of s x s there become channels."""
    s, (count, channels, height, width) = w.params.stride, w.shape
    blocks = w.reshape(w.inputs[0], (count, channels // (s * s), height, s, width, s))
    w.give_shaped(w.node("Transpose", blocks, perm=[0, 3, 5, 1, 2, 4]))


@writes("expand_like")
def expand_like(w: Writing) -> None:
    """Reduced axes come back, then are repeated."""
    like, data = w.ins[1].shape, w.inputs[0]
    if w.rank != len(like):
        axes = reduced_axes(w, len(like))
        data = w.reshape(data, [1 if axis in axes else dim for axis, dim in enumerate(like)])
    w.give("Expand", data, w.ints(like))


@writes("collapse_sum")
def collapse_sum(w: Writing) -> None:
    """The sum over what broadcasting has repeated."""
    out = w.outs[0].shape
    wide = (1,) * (w.rank - len(out)) + tuple(out)
    axes = [axis for axis, dim in enumerate(wide) if dim != w.shape[axis]]
    total = w.reduced("ReduceSum", w.inputs[0], axes) if axes else w.inputs[0]
    w.give_shaped(total)


@writes("_expand_like_grad")
def expand_like_grad(w: Writing) -> None:
    """The sum over what expand_like has repeated."""
    axes = repeated_axes(w.params, w.shape, w.outs[0].shape)
    total = w.reduced("ReduceSum", w.inputs[0], axes) if axes else w.inputs[0]
    w.give_shaped(total)


@writes("flip")
def flip(w: Writing) -> None:
    axis = w.ints([w.params.axis])
    lowest = w.ints([np.iinfo(np.int64).min])
    w.give("Slice", w.inputs[0], w.ints([-1]), lowest, axis, w.ints([-1]))


@writes("pad")
def pad(w: Writing) -> None:
    before, after = zip(*w.params.pad_width)
    value = [w.constant(w.params.pad_value)] if w.params.mode == "constant" else []
    w.give("Pad", w.inputs[0], w.ints((*before, *after)), *value, mode=w.params.mode)


@writes("zeros", "ones", "full", "zeros_like", "ones_like", "full_like")
def filled(w: Writing) -> None:
    fact = w.outs[0]
    value = getattr(w.params, "fill_value", 0) if "full" in w.op_name else "ones" in w.op_name
    w.give("Expand", w.constant(value, fact.dtype), w.ints(fact.shape))


@writes("arange")
def arange(w: Writing) -> None:
    fact, params = w.outs[0], w.params
    (extent,) = fact.shape
    if isinstance(extent, int):
        count = w.constant(np.arange(extent), INT64)
    else:
        whole = w.node("Squeeze", w.ints([extent]), w.ints([0]))
        count = w.node("Range", w.constant(0, INT64), whole, w.constant(1, INT64))
    steps = w.node("Mul", w.cast(count, FLOAT64), _double(w, params.step))
    w.give("Cast", w.node("Add", steps, _double(w, params.start)), to=CODE_OF[fact.dtype])


def _double(w: Writing, value: float) -> str:
    return w.constant(value, FLOAT64)
