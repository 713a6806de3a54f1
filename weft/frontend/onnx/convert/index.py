"""Converters of what picks or places elements: splits, slices, gathers, pads, masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from ....base.dtype import INT64
from ....base.errors import FormatError, Unsupported
from ....base.extents import Extent, bounds
from ....base.shape import Dim, StaticShape, is_static, normalize_axis, numel
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter
from ..tensors import dtype_of


@converter("Split", decides=(1,))
def split(call: OnnxCall) -> list[Value]:
    """Parts of given sizes, else equal ones; a smaller one last where they cannot be."""
    axis = call.axis(call.attr("axis", 0), call[0])
    sizes = call.attr("split") if call.opset < 13 else _sizes(call)
    total = call.dims(call[0])[axis]
    if sizes is None:
        sizes = _equal_sizes(call, axis)
    numbers = [size for size in sizes if isinstance(size, int)]
    wrong = isinstance(total, int) and len(numbers) == len(sizes) and total != sum(numbers)
    if len(sizes) != call.count or min(numbers, default=0) < 0 or wrong:
        raise FormatError(f"parts of {sizes} for a dimension of {total}")
    if len(sizes) == 1:
        return [call[0]]
    ends = list(accumulate(sizes))
    if 0 in numbers and len(numbers) == len(sizes):
        return [call.sliced(call[0], {axis: (end - size, end, 1)}) for size, end in zip(sizes, ends)]
    return call.ops("split", call[0], indices_or_sections=tuple(ends[:-1]), axis=axis)


def _sizes(call: OnnxCall) -> list[int | Extent] | None:
    return None if call.get(1) is None else call.extents(1, "the sizes")


def _equal_sizes(call: OnnxCall, axis: int) -> list[Any]:
    count = call.attr("num_outputs", call.count)
    if count != call.count:
        raise FormatError(f"num_outputs {count} for {call.count} outputs")
    total = call.dims(call[0])[axis]
    if isinstance(total, str) and (Extent.of(total) % count).number == 0:
        return [Extent.of(total) // count] * count
    total = call.extent(call[0], axis)
    size = -(-total // count)
    return [min(size, max(total - i * size, 0)) for i in range(count)]


@converter("Slice", since=1)
def slice_by_attributes(call: OnnxCall) -> Value:
    starts, ends = call.attr("starts"), call.attr("ends")
    axes = call.attr("axes") or list(range(len(starts)))
    return _sliced(call, starts, ends, axes, [1] * len(starts))


@converter("Slice", since=10, decides=(1, 2, 3, 4))
def slice_(call: OnnxCall) -> Value:
    starts, ends = call.extents(1, "the starts"), call.extents(2, "the ends")
    axes = call.optional_ints(3, "the axes") or list(range(len(starts)))
    steps = call.optional_ints(4, "the steps") or [1] * len(starts)
    return _sliced(call, starts, ends, axes, steps)


Bound = int | Extent


def _sliced(call: OnnxCall, starts: Sequence[Bound], ends: Sequence[Bound], axes: list[int], steps: list[int]) -> Value:
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise FormatError("starts, ends, axes and steps differ in number")
    parts: dict[int, tuple[Bound, Bound, int]] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps):
        axis = call.axis(axis, call[0])
        if step == 0 or axis in parts:
            raise FormatError("a step is 0, or an axis is named twice")
        parts[axis] = (start, end, step)
    dims = call.dims(call[0])
    limited: dict[int, tuple[int, int, int]] = {}
    for axis, (start, end, step) in parts.items():
        dim = dims[axis]
        if not (isinstance(dim, int) and isinstance(start, int) and isinstance(end, int)):
            return _open_slice(call, parts)
        limited[axis] = _limited(start, end, step, dim)
    return call.sliced(call[0], limited)


def _open_slice(call: OnnxCall, parts: Mapping[int, tuple[Bound, Bound, int]]) -> Value:
    """A slice of extents that are not known: strided_slice cuts off what is outside."""
    if any(step < 0 and not (isinstance(start, int) and start >= -1) for start, _, step in parts.values()):
        call.shape(call[0])
    rows = [parts.get(axis, (0, 2**31 - 1, 1)) for axis in range(max(parts) + 1)]
    begin, end, stride = zip(*rows)
    made = call.op("strided_slice", call[0], begin=begin, end=end, stride=stride)
    call.told(call.dims(made))
    return made


def _limited(start: int, end: int, step: int, dim: int) -> tuple[int, int, int]:
    """As Python's slice.indices, but a start before the first element is on it, also backwards."""
    if step < 0 and start < -dim and dim:
        start = 0
    return slice(start, end, step).indices(dim)


@converter("Gather")
def gather(call: OnnxCall) -> Value:
    """take; a single index that is known drops its axis."""
    data, indices = call[0], call[1]
    axis = call.axis(call.attr("axis", 0), data)
    known, shape = indices.constant, call.dims(data)
    _check_within(known, shape[axis])
    if known is not None and known.ndim == 0 and is_static(shape):
        index = normalize_axis(int(known), shape[axis], what="index")
        part = call.sliced(data, {axis: (index, index + 1, 1)})
        return call.reshape(part, shape[:axis] + shape[axis + 1 :])
    return call.op("take", data, _from_the_front(call, indices, shape[axis]), axis=axis)


def _check_within(indices: np.ndarray | None, extent: Dim) -> None:
    """Indices that are known must name elements. Of others, which come when the model runs, what
    lies beyond an end is taken as the element there."""
    if indices is None or not isinstance(extent, int) or not indices.size:
        return
    if indices.min() < -extent or indices.max() >= extent:
        raise FormatError(
            f"an index is outside [{-extent}, {extent - 1}]",
            why=f"the indices go from {indices.min()} to {indices.max()}",
        )


def _from_the_front(call: OnnxCall, indices: Value, dim: Dim) -> Value:
    """Negative indices that are known now are counted from the front."""
    known = indices.constant
    if known is None or not isinstance(dim, int) or not (known < 0).any():
        return indices
    return call.make(np.where(known < 0, known + dim, known), known.dtype)


@converter("GatherElements", since=11)
def gather_elements(call: OnnxCall) -> Value:
    axis = call.axis(call.attr("axis"), call[0])
    _check_within(call[1].constant, call.dims(call[0])[axis])
    return call.op("gather_elements", call[0], call[1], axis=axis)


@converter("GatherND", since=11)
def gather_nd(call: OnnxCall) -> Value:
    """ONNX has the coordinates last, gather_nd first."""
    if call.attr("batch_dims", 0):
        return _batches_gathered(call, call.attr("batch_dims"))
    rank = call.rank(call[1])
    _check_coordinates(call, call[0].shape or ())
    if rank > 1:
        return call.op("gather_nd", call[0], call.transposed(call[1], (rank - 1, *range(rank - 1))))
    element = call.op("gather_nd", call[0], call.reshape(call[1], (call.extent(call[1], 0), 1)))
    return call.reshape(element, call.shape(element)[1:])


def _check_coordinates(call: OnnxCall, dims: Sequence[Dim]) -> None:
    known = call[1].constant
    if known is not None and known.ndim:
        for column, extent in enumerate(dims):
            _check_within(known[..., column : column + 1], extent)


def _batches_gathered(call: OnnxCall, batch_dims: int) -> Value:
    """The batch is one more coordinate of each place."""
    shape, where = call.shape(call[0]), call.shape(call[1])
    batch = shape[:batch_dims]
    if where[:batch_dims] != batch or len(where) <= batch_dims:
        raise FormatError(f"indices of shape {where} for data of shape {shape} with {batch_dims} batch_dims")
    _check_coordinates(call, shape[batch_dims:])
    count, places = numel(batch), where[batch_dims:-1]
    inside = call.reshape(call[1], (count * numel(places), where[-1]))
    outside = np.repeat(np.arange(count), numel(places))[:, None].astype(call.dtype(call[1]))
    coordinates = call.transposed(call.op("concatenate", call.make(outside), inside, axis=1), (1, 0))
    elements = call.op("gather_nd", call.reshape(call[0], (count, *shape[batch_dims:])), coordinates)
    return call.reshape(elements, (*batch, *places, *shape[batch_dims + where[-1] :]))


@converter("Pad", since=2)
def pad_by_attributes(call: OnnxCall) -> Value:
    return _padded(call, call.attr("pads"), call.attr("value"), list(range(call.rank(call[0]))))


@converter("Pad", since=11, decides=(1, 2, 3))
def pad(call: OnnxCall) -> Value:
    axes = call.optional_ints(3, "the axes")
    axes = [call.axis(axis, call[0]) for axis in (range(call.rank(call[0])) if axes is None else axes)]
    value, pads = call.number(2, "the value", 0.0), call.extents(1, "the pads")
    if any(isinstance(width, Extent) for width in pads) and not _only_fills(call, pads):
        pads = list(call.ints(1, "the pads"))
    return _padded(call, pads, value, axes)


def _only_fills(call: OnnxCall, pads: Sequence[Bound]) -> bool:
    """Whether pads are constant, and none is negative whatever the names stand for."""
    lows = [bounds(Extent.of(width))[0] for width in pads]
    return call.attr("mode") == "constant" and all(low is not None and low >= 0 for low in lows)


def _padded(call: OnnxCall, pads: Sequence[Any], value: float, axes: list[int]) -> Value:
    if len(pads) != 2 * len(axes):
        raise FormatError(f"{len(pads)} pads for {len(axes)} axes")
    widths = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :])))
    mode = call.attr("mode")
    if mode == "constant":
        return _constant_pad(call, widths, value)
    data = call[0]
    if not is_static(data.shape) and mode in ("edge", "reflect") and min(pads, default=0) >= 0:
        full = tuple(widths.get(axis, (0, 0)) for axis in range(call.rank(data)))
        return call.op("pad", data, pad_width=full, mode=mode)
    for axis, (before, after) in widths.items():
        if before or after:
            order = _pad_order(call.shape(data)[axis], before, after, mode)
            data = call.op("take", data, call.make(order, INT64), axis=axis)
    return data


def _constant_pad(call: OnnxCall, widths: dict[int, tuple[Any, Any]], value: float) -> Value:
    """Negative pads crop, the others fill."""
    data = call[0]
    if any(width < 0 for pair in widths.values() for width in pair):
        crops = {a: (max(-b, 0), call.extent(data, a) - max(-e, 0), 1) for a, (b, e) in widths.items()}
        data = call.sliced(data, crops)
        widths = {axis: (max(before, 0), max(after, 0)) for axis, (before, after) in widths.items()}
    full = tuple(widths.get(axis, (0, 0)) for axis in range(call.rank(data)))
    if all(pair == (0, 0) for pair in full):
        return data
    return call.op("pad", data, pad_width=full, pad_value=value)


def _pad_order(size: int, before: int, after: int, mode: str) -> np.ndarray:
    """Which elements stand along a padded axis. Negative pads crop, and what is left fills the others."""
    left = np.arange(size)[max(-before, 0) : size - max(-after, 0)]
    if before + after + size > 1 << 24 or not left.size:
        raise Unsupported(f"pads of {before} and {after} in mode {mode} for {size} elements are not supported")
    kinds: dict[str, Literal["edge", "reflect", "wrap"]] = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
    return np.pad(left, (max(before, 0), max(after, 0)), mode=kinds[mode])


# Other ways of choosing.


@converter("OneHot", since=9, decides=(1, 2))
def one_hot(call: OnnxCall) -> Value:
    """Indices outside [-depth, depth) give no hot element; negative ones count from the end."""
    depth = int(call.number(1, "the depth"))
    off, on = (float(item) for item in call.constant(2, "the values"))
    indices = call.cast(call[0], INT64)
    dtype = call.dtype(call[2])
    return call.op("one_hot", indices, depth=depth, axis=call.attr("axis"), on_value=on, off_value=off, dtype=dtype)


@converter("EyeLike", since=9)
def eye_like(call: OnnxCall) -> Value:
    rows, columns = _small_matrix(call.shape(call[0]))
    code = call.attr("dtype")
    dtype = call.dtype(call[0]) if code is None else dtype_of(code, "attribute 'dtype'")
    return call.make(np.eye(rows, columns, call.attr("k")), dtype)


def _small_matrix(shape: StaticShape) -> tuple[int, int]:
    if len(shape) != 2 or numel(shape) > 1 << 24:
        raise Unsupported(f"a matrix of shape {shape} is not supported")
    return shape[0], shape[1]


@converter("Trilu", since=14, decides=(1,))
def trilu(call: OnnxCall) -> Value:
    """The upper or lower triangle: the data where a known mask says so, else 0."""
    data, given = call[0], call.get(1)
    if given is not None and given.extents is not None:
        return _open_triangle(call, data, call.reshape(given, ()))
    k = int(call.number(1, "k", 0))
    if not is_static(data.shape):
        return _open_triangle(call, data, call.make(k, INT64))
    shape = call.shape(data)
    ones = np.ones(_small_matrix(shape[-2:]), bool)
    mask = np.triu(ones, k) if call.attr("upper") else np.tril(ones, k)
    condition = call.broadcast_to(call.make(mask), shape)
    return call.op("where", condition, data, call.op("zeros_like", data))


def _open_triangle(call: OnnxCall, data: Value, k: Value) -> Value:
    """The same by the numbers of rows and columns: the upper triangle is where column - row >= k."""
    rows, columns = call.told(call.dims(data))[-2:]
    distance = call.op("broadcast_sub", call.positions(columns, 1, 2, INT64), call.positions(rows, 0, 2, INT64))
    compare = "broadcast_greater_equal" if call.attr("upper") else "broadcast_less_equal"
    return call.where(call.op(compare, distance, k), data, call.op("zeros_like", data))


@converter("ReverseSequence", since=10, decides=(1,))
def reverse_sequence(call: OnnxCall) -> Value:
    """Known lengths make known places to take from."""
    lengths = call.ints(1, "the lengths")
    time, batch = call.attr("time_axis"), call.attr("batch_axis")
    data, shape = call[0], call.shape(call[0])
    call.check_table(2, *shape[:2])
    places = np.indices(shape[:2])[time]
    for index, length in enumerate(lengths):
        part = (slice(length), index) if time == 0 else (index, slice(length))
        places[part] = np.arange(length)[::-1]
    if {time, batch} != {0, 1}:
        raise FormatError("the time and batch axes must be 0 and 1")
    places = places.reshape(shape[:2] + (1,) * (len(shape) - 2))
    return call.op("gather_elements", data, call.broadcast_to(call.make(places, INT64), shape), axis=time)
