"""Converters of fills, and of what moves elements about without looking at them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from ....base.dtype import DTYPES, INT64
from ....base.errors import FormatError, Unsupported
from ....base.shape import is_static, normalize_axis
from ....core.ir import Fact
from ...emitter import FOLDED_ELEMENTS, Value
from ...shapes import depth_to_space, next_dim, space_to_depth, squeezed_shape, with_the_rest
from ..call import Call, OpenFill
from ..registry import converter

# Fills.


@converter("_zeros", "_ones", "_full", "_zeros_without_dtype")
def fill(call: Call) -> Value:
    """A 0 in the shape is a dimension that is left open."""
    number = call.attr("value") if call.op_type == "_full" else float(call.op_type == "_ones")
    shape, dtype = tuple(call.attr("shape") or ()), call.dtype_attr() or DTYPES["float32"]
    if 0 in shape or not shape:
        return OpenFill(call.name, Fact(tuple(dim or None for dim in shape), dtype), number)
    return call.op("full", shape=shape, dtype=dtype, fill_value=number)


@converter("_arange")
def arange(call: Call) -> Value:
    """[start, stop) in steps, each number `repeat` times; without a stop, [0, start)."""
    start, stop, step = call.attr("start"), call.attr("stop"), call.attr("step")
    if call.attr("infer_range"):
        raise Unsupported("_arange whose length follows from its use is not supported")
    start, stop = (0.0, start) if stop is None else (start, stop)
    numbers, times = call.op("arange", start=start, stop=stop, step=step, dtype=call.dtype_attr()), call.attr("repeat")
    return numbers if times == 1 else call.op("repeat", numbers, repeats=times, axis=0)


@converter("_contrib_arange_like")
def arange_like(call: Call) -> Value:
    """start, start + step, ... as long as an axis, or in the whole shape."""
    shape, axis, times = call.shape(call[0]), call.attr("axis"), call.attr("repeat")
    count = math.prod(shape) if axis is None else shape[axis]
    start, step = call.attr("start"), call.attr("step")
    if count > FOLDED_ELEMENTS or times < 1 or not math.isfinite(start + step):
        raise Unsupported(f"_contrib_arange_like of {count} elements is not supported")
    numbers = start + step * (np.arange(count) // times)
    return call.make(numbers.reshape(shape if axis is None else -1), call.dtype(call[0]))


@converter("_eye")
def eye(call: Call) -> Value:
    rows, columns = call.attr("N"), call.attr("M") or call.attr("N")
    if not 0 < rows * columns <= FOLDED_ELEMENTS:
        raise Unsupported(f"_eye of {rows} x {columns} is not supported")
    return call.make(np.eye(rows, columns, call.attr("k")), call.dtype_attr())


@converter("shape_array", "size_array")
def shape_array(call: Call) -> Value:
    shape = call.shape(call[0])
    return call.make(shape if call.op_type == "shape_array" else [math.prod(shape)], INT64)


# Other shapes for the same elements.


_CODES = {0: "keep", -2: "all", -3: "product", -4: "split"}


@converter("Reshape")
def reshape(call: Call) -> Value:
    codes = call.attr("shape") or _legacy_codes(call)
    call.ignore("target_shape", "keep_highest")
    if call.attr("reverse") or is_static(call[0].shape):
        return reshaped_by(call, codes, _CODES, call.attr("reverse"))
    return call.op("reshape", call[0], shape=tuple(codes))


def reshaped_by(call: Call, codes: Sequence[int], meanings: Mapping[int, str], reverse: bool) -> Value:
    """The input in the shape that codes make: -1 is what remains, and others are what `meanings` says. Where codes and
    dimensions are both read backwards, a split stands behind its parts."""
    way = slice(None, None, -1 if reverse else 1)
    dims: list[int] = []
    left, rest = list(call.shape(call[0])[way]), iter(codes[way])
    for code in rest:
        meaning = meanings.get(code)
        if meaning == "keep":
            dims.append(next_dim(left))
        elif meaning == "drop" and next_dim(left) != 1:
            raise FormatError(f"the code {code} in a new shape stands for a dimension of 1")
        elif meaning == "all":  # that are left
            dims, left = dims + left, []
        elif meaning == "product":
            dims.append(next_dim(left) * next_dim(left))
        elif meaning == "split":  # into the two numbers that follow
            dims += with_the_rest(_two_parts(rest), next_dim(left))
        elif meaning is None:
            if code < -1:
                raise FormatError(f"the code {code} in a new shape is unknown")
            dims.append(code)
            left = left[1:]
    return call.reshape(call[0], with_the_rest(dims, math.prod(call.shape(call[0])))[way])


def _two_parts(codes: Iterator[int]) -> list[int]:
    parts = list(islice(codes, 2))
    if len(parts) != 2 or 0 in parts:
        raise FormatError(f"a dimension cannot be split into {parts}")
    return parts


def _legacy_codes(call: Call) -> list[int]:
    """Those of the oldest form, in which 0 is what remains, and the first dimension may be kept."""
    codes = [-1 if dim == 0 else dim for dim in call.attr("target_shape")]
    if not codes:
        raise FormatError("a Reshape without a shape")
    return [0, *codes[1:]] if call.attr("keep_highest") else codes


@converter("squeeze")
def squeeze(call: Call) -> Value:
    """Drops axes of size 1; one is left where all are."""
    return call.reshape(call[0], squeezed_shape(call.shape(call[0]), call.attr("axis")) or (1,))


@converter("reshape_like")
def reshape_like(call: Call) -> Value:
    """Some axes of the data become some axes of another tensor."""
    mine, other = call.shape(call[0]), call.shape(call[1])
    left = slice(call.attr("lhs_begin"), call.attr("lhs_end"))
    right = slice(call.attr("rhs_begin"), call.attr("rhs_end"))
    begin, end, _ = left.indices(len(mine))
    shape = mine[:begin] + other[right] + mine[end:]
    if math.prod(shape) != math.prod(mine):
        raise FormatError(f"{mine} cannot be reshaped like {other} to {shape}")
    return call.reshape(call[0], shape)


@converter("transpose")
def transpose(call: Call) -> Value:
    """By a list of axes; without one they are reversed."""
    return call.transposed(call[0], call.attr("axes") or reversed(range(call.rank(call[0]))))


@converter("SwapAxis")
def swap_axes(call: Call) -> Value:
    order = list(range(call.rank(call[0])))
    a, b = (normalize_axis(call.attr(name), len(order)) for name in ("dim1", "dim2"))
    order[a], order[b] = order[b], order[a]
    return call.transposed(call[0], order)


@converter("depth_to_space", "space_to_depth")
def blocks(call: Call) -> Value:
    way = depth_to_space if call.op_type == "depth_to_space" else space_to_depth
    return way(call, call[0], call.attr("block_size"))


# Copies.


@converter("repeat")
def repeat(call: Call) -> Value:
    axis = call.attr("axis")
    axis = axis if axis is None else normalize_axis(axis, call.rank(call[0]))
    return call.op("repeat", call[0], repeats=call.attr("repeats"), axis=axis)


@converter("reverse", "_npi_flip")
def reverse(call: Call) -> Value:
    data = call[0]
    for axis in call.attr("axis"):
        data = call.op("flip", data, axis=call.axis(axis, data))
    return data


@converter("broadcast_to")
def broadcast_to(call: Call) -> Value:
    """A 0 in the shape keeps the dimension."""
    shape, wanted = call.shape(call[0]), call.attr("shape")
    if len(shape) != len(wanted):
        raise FormatError(f"{shape} cannot be broadcast to {wanted}")
    return call.broadcast_to(call[0], tuple(want or dim for dim, want in zip(shape, wanted)))


@converter("broadcast_axis")
def broadcast_axis(call: Call) -> Value:
    """Axes of size 1 get other sizes."""
    shape, axes, sizes = list(call.shape(call[0])), call.attr("axis"), call.attr("size")
    if len(axes) != len(sizes):
        raise FormatError(f"axes {axes} and sizes {sizes} differ in number")
    for axis, size in zip(axes, sizes):
        axis = normalize_axis(axis, len(shape))
        if shape[axis] != 1:
            raise FormatError(f"axis {axis} of the shape {tuple(shape)} is not 1")
        shape[axis] = size
    return call.broadcast_to(call[0], tuple(shape))


# Joining and cutting.


@converter("Concat", "_rnn_param_concat")
def concat(call: Call) -> Value:
    values, axis = call.all(), call.attr("dim")
    constants = [value.constant for value in values if value.constant is not None]
    if 1 < len(constants) == len(values):
        return call.make(np.concatenate(constants, axis))
    return call.joined(values, axis)


@converter("stack")
def stack(call: Call) -> Value:
    values = call.all()
    if len(values) == 1:
        return call.op("expand_dims", values[0], axis=call.attr("axis"))
    return call.op("stack", *values, axis=call.attr("axis"))


@converter("SliceChannel")
def split(call: Call) -> list[Value]:
    """Equal parts along an axis, which goes where it has become 1 and that is asked for."""
    data, count = call[0], call.attr("num_outputs")
    axis = normalize_axis(call.attr("axis"), call.rank(data))
    if count < 1:
        raise FormatError(f"a split into {count} parts")
    parts = [data] if count == 1 else call.ops("split", data, indices_or_sections=count, axis=axis)
    return _squeezed(call, parts, axis)


def _squeezed(call: Call, parts: list[Value], axis: int) -> list[Value]:
    if not call.attr("squeeze_axis"):
        return parts
    return [call.op("squeeze", part, axis=(axis,)) for part in parts]


@converter("_split_v2")
def split_at(call: Call) -> list[Value]:
    """Parts that start at places, or equal ones."""
    data, places, count = call[0], call.attr("indices"), call.attr("sections")
    axis = normalize_axis(call.attr("axis"), call.rank(data))
    extent = call.shape(data)[axis]
    if count > 0:
        if extent % count:
            raise FormatError(f"{extent} elements do not split into {count} equal parts")
        places = tuple(range(0, extent, extent // count))
    if not places:
        raise FormatError("a split into no parts")
    ends = [*places[1:], extent]
    parts = [call.sliced(data, {axis: (min(start, extent), min(end, extent), 1)}) for start, end in zip(places, ends)]
    return _squeezed(call, parts, axis)


@converter("slice")
def slice_(call: Call) -> Value:
    """Begin, end and step along the first axes, as in Python."""
    begin, end, step = call.attr("begin"), call.attr("end"), call.attr("step")
    step = step or (None,) * len(begin)
    rank = call.rank(call[0])
    if not len(begin) == len(end) == len(step) or len(begin) > rank or 0 in step:
        raise FormatError("begin, end and step do not fit together")
    parts = {}
    for axis, bounds in enumerate(zip(begin, end, step)):
        if bounds != (None, None, None):
            parts[axis] = slice(*bounds).indices(call.extent(call[0], axis))
    return call.sliced(call[0], parts) if parts else call[0]


@converter("slice_axis")
def slice_axis(call: Call) -> Value:
    axis = normalize_axis(call.attr("axis"), call.rank(call[0]))
    bounds = slice(call.attr("begin"), call.attr("end")).indices(call.extent(call[0], axis))
    return call.sliced(call[0], {axis: bounds})


@converter("slice_like")
def slice_like(call: Call) -> Value:
    """Cut to the size of another tensor, along some axes or all of them."""
    data, like = call[0], call[1]
    axes = call.attr("axes")
    if not is_static(data.shape) or not is_static(like.shape):
        return call.op("slice_like", data, like, axis=axes)
    parts = {}
    for axis in (call.axis(axis, data) for axis in axes or range(len(data.shape))):
        if axis >= len(like.shape) or like.shape[axis] > data.shape[axis]:
            raise FormatError(f"{data.shape} cannot be cut to {like.shape} along axis {axis}")
        parts[axis] = (0, like.shape[axis], 1)
    return call.sliced(data, parts)


@converter("Crop")
def crop(call: Call) -> Value:
    """Images cut to a size, or to that of another image, from an offset or the middle."""
    data = call[0]
    extents = call.shape(data)[2:]
    wanted = call.shape(call[1])[2:] if len(call) == 2 else call.attr("h_w")
    call.ignore("h_w", "offset")
    starts = call.attr("offset")
    if call.attr("center_crop"):
        starts = [(extent - want) // 2 for extent, want in zip(extents, wanted)]
    parts = {}
    for axis, (extent, want, start) in enumerate(zip(extents, wanted, starts), start=2):
        if start < 0 or want < 1 or start + want > extent:
            raise FormatError(f"{want} elements from {start} on of {extent}")
        parts[axis] = (start, start + want, 1)
    return call.sliced(data, parts)


@converter("Pad")
def pad(call: Call) -> Value:
    """(before, after) of every axis, one after the other."""
    widths, mode = call.attr("pad_width"), call.attr("mode")
    if len(widths) != 2 * call.rank(call[0]):
        raise FormatError(f"{len(widths)} widths for {call.rank(call[0])} axes")
    pairs = tuple(zip(widths[::2], widths[1::2]))
    value = call.attr("constant_value")
    return call.op("pad", call[0], pad_width=pairs, mode=mode, pad_value=value)


@converter("diag")
def diagonal(call: Call) -> Value:
    """The diagonal of a matrix, or a matrix with a known diagonal."""
    data = call[0]
    shape, k = call.shape(data), call.attr("k")
    if len(shape) != 2 or (call.attr("axis1"), call.attr("axis2")) != (0, 1):
        raise Unsupported(f"diag of shape {shape} is not supported")
    call.check_table(*shape)
    places = np.diagonal(np.arange(math.prod(shape)).reshape(shape), k)
    return call.op("take", call.reshape(data, (-1,)), call.make(places, INT64), axis=0)
