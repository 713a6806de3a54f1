"""Writers of reductions, sums along an axis, and sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....base.dtype import BOOL, INT32, INT64, is_float
from ....base.extents import Extent
from ..writing import Writing, writes
from .math import floor_divided


def reduced_axes(w: Writing, rank: int) -> list[int]:
    """The axes that are reduced, counted from the front."""
    named = {axis % rank for axis in w.params.axis} if w.params.axis else set(range(rank))
    if w.params.exclude and w.params.axis:
        named = set(range(rank)) - named
    return sorted(named)


@writes("sum", "max", "min", "prod")
def reduce(w: Writing) -> None:
    """A full reduction has shape (1,) here, and none in ONNX. Sums of integers are exact."""
    axes, data = reduced_axes(w, w.rank), w.inputs[0]
    if not axes:
        w.give_shaped(data)
        return
    narrow = {BOOL: INT32}
    if w.op_name == "sum":
        narrow = {} if is_float(w.dtype) or w.dtype == INT64 else {w.dtype: INT64}
    data = w.cast(data, narrow[w.dtype]) if w.dtype in narrow else data
    total = w.reduced("Reduce" + w.op_name.capitalize(), data, axes, w.params.keepdims)
    _give_reduced(w, total, axes, w.dtype in narrow)


def _give_reduced(w: Writing, outcome: str, axes: Sequence[int], other_dtype: bool) -> None:
    outcome = w.cast(outcome, w.outs[0].dtype) if other_dtype else outcome
    if w.params.keepdims or len(axes) < w.rank:
        w.give_value(outcome)
    else:
        w.give_shaped(outcome)


@writes("mean")
def mean(w: Writing) -> None:
    """The sum over the number of summands where that is rounded down, or is 0 / 0."""
    axes, data = reduced_axes(w, w.rank), w.inputs[0]
    if not axes:
        w.give_shaped(data)
        return
    count = math.prod(w.shape[axis] for axis in axes)
    if isinstance(count, Extent):
        w.require(is_float(w.dtype), "integers along open dimensions")
        count = 1  # of no elements the runtime says what it likes
    if is_float(w.dtype):
        mean = w.reduced("ReduceMean" if count else "ReduceSum", data, axes, w.params.keepdims)
        mean = mean if count else w.node("Div", mean, w.constant(0))
    else:
        total = w.reduced("ReduceSum", w.cast(data, INT64), axes, w.params.keepdims)
        mean = w.cast(floor_divided(w, total, w.ints(count), INT64), w.dtype)
    _give_reduced(w, mean, axes, False)


@writes("_norm", "logsumexp")
def reduced_by_one(w: Writing) -> None:
    """What ONNX has as one node."""
    axes, data = reduced_axes(w, w.rank), w.inputs[0]
    op = "ReduceL2" if w.op_name == "_norm" else "ReduceLogSumExp"
    if axes:
        w.give_shaped(w.reduced(op, data, axes))
    else:
        w.give_shaped(w.node("Abs", data) if w.op_name == "_norm" else data)


@writes("_variance")
def variance(w: Writing) -> None:
    """The sum of squared distances from the mean over n - correction, and the mean."""
    axes, data = reduced_axes(w, w.rank), w.inputs[0]
    count = math.prod(w.shape[axis] for axis in axes)
    w.require(not isinstance(count, Extent), "open dimensions that it is taken along")
    middle = w.reduced("ReduceMean", data, axes) if axes else data
    apart = w.node("Sub", data, middle)
    squares = w.node("Mul", apart, apart)
    squares = w.reduced("ReduceSum", squares, axes) if axes else squares
    freedom = max(0.0, count - w.params.correction)
    w.give_shaped(w.node("Div", squares, w.constant(freedom)))
    w.give_value(w.reshape(middle, w.outs[1].shape), 1)


@writes("argmax", "argmin")
def arg_extreme(w: Writing) -> None:
    """Several axes become one, the last."""
    axes, data, shape = reduced_axes(w, w.rank), w.inputs[0], w.shape
    data = w.cast(data, INT32) if w.dtype == BOOL else data
    if len(axes) != 1:
        kept = [axis for axis in range(w.rank) if axis not in axes]
        data = w.node("Transpose", data, perm=[*kept, *axes]) if w.rank > 1 else data
        data = w.reshape(data, [*(shape[axis] for axis in kept), -1])
        axes = [len(kept)]
    op = "ArgMax" if w.op_name == "argmax" else "ArgMin"
    places = w.node(op, data, axis=axes[0], keepdims=1)
    w.give_cast(w.reshape(places, w.outs[0].shape))


@writes("cumsum")
def cumulative_sum(w: Writing) -> None:
    axis = w.ints(w.params.axis % w.rank)
    w.give("CumSum", w.inputs[0], axis, exclusive=w.params.exclusive, reverse=w.params.reverse)


# Sorting: TopK of all elements. Of equal ones it gives the first first.

_SORTED_AS = {np.dtype(name): INT32 for name in ("bool", "int8", "uint8", "int16", "uint16")}


def sorted_parts(w: Writing, name: str, count: int, axis: int, largest: bool) -> tuple[str, str]:
    """The first elements along an axis and their places, as int64."""
    values, places = w.nodes("TopK", 2, name, w.ints([count]), axis=axis, largest=int(largest), sorted=1)
    return values, places


def _sorted(w: Writing, count: int, axis: int, largest: bool) -> tuple[str, str]:
    w.require(w.dtype != np.dtype("uint64"), "uint64")
    narrow = INT64 if w.dtype == np.dtype("uint32") else _SORTED_AS.get(w.dtype)
    data = w.inputs[0] if narrow is None else w.cast(w.inputs[0], narrow)
    values, places = sorted_parts(w, data, count, axis % w.rank, largest)
    return (values if narrow is None else w.cast(values, w.dtype)), places


@writes("sort")
def sort(w: Writing) -> None:
    extent = w.shape[w.params.axis]
    w.give_value(_sorted(w, extent, w.params.axis, w.params.descending)[0])


@writes("argsort")
def argsort(w: Writing) -> None:
    extent = w.shape[w.params.axis]
    w.give_cast(_sorted(w, extent, w.params.axis, w.params.descending)[1])


@writes("topk")
def topk(w: Writing) -> None:
    values, places = _sorted(w, w.params.k, w.params.axis, w.params.largest)
    w.give_value(values)
    w.give_value(w.cast(places, w.outs[1].dtype), 1)
