"""Converters of constants, fills, and what gives the same elements another shape."""

from __future__ import annotations

import math

import numpy as np

from ....base.dtype import INT64
from ....base.errors import FormatError, Unsupported
from ....base.shape import broadcast, is_static, normalize_axis, numel
from ...emitter import FOLDED_ELEMENTS, Value
from ..call import Call
from ..registry import ALIKE, Alike, converter

ALIKE.update(Concat=Alike("concatenate", {"axis": "axis"}))


# Constants.


_CONSTANT_DTYPES = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value": None,
}


@converter("Constant")
def constant(call: Call) -> Value:
    for name, dtype in _CONSTANT_DTYPES.items():
        data = call.attr(name)
        if data is not None:
            return call.make(data, dtype)
    raise Unsupported("a Constant of strings or a sparse tensor is not supported")


@converter("ConstantOfShape", since=9)
def constant_of_shape(call: Call) -> Value:
    shape = tuple(call.ints(0, "the shape"))
    fill = call.attr("value")
    fill = np.zeros(1, np.float32) if fill is None else fill
    if fill.size != 1:
        raise FormatError("the value must be one number")
    if any(dim < 0 for dim in shape):
        raise FormatError(f"the shape {shape} is negative")
    if math.prod(shape) <= FOLDED_ELEMENTS:
        return call.make(np.full(shape, fill.reshape(())))
    return call.broadcast_to(call.make(fill.reshape(())), shape)


@converter("Shape", since=1)
def shape_of(call: Call) -> Value:
    """The shape, or a part of it; known at import."""
    shape = call[0].shape
    if shape is None:
        call.shape(call[0])
    part = shape[call.attr("start", 0) : call.attr("end", len(shape))]
    if not is_static(part):
        call.shape(call[0])
    return call.make(part, INT64)


@converter("Size")
def size_of(call: Call) -> Value:
    return call.make(numel(call.shape(call[0])), INT64)


@converter("Range", since=11)
def range_(call: Call) -> Value:
    start, stop, step = (call.number(i, "a limit of the range") for i in range(3))
    dtype = call.dtype(call[0])
    return call.op("arange", start=start, stop=stop, step=step, dtype=dtype)


# Reshapes.


@converter("Reshape", since=5)
def reshape(call: Call) -> Value:
    """0 keeps the dimension (unless allowzero), -1 is what remains."""
    wanted = call.ints(1, "the new shape")
    data = call[0]
    if call.attr("allowzero", 0):
        wanted = _without_zeros(call, wanted)
    elif is_static(data.shape):
        wanted = [_kept(data, i) if dim == 0 else dim for i, dim in enumerate(wanted)]
    if is_static(data.shape) and -1 in wanted:
        wanted = _with_the_rest(wanted, numel(data.shape))
    if is_static(data.shape) and 0 in wanted and numel(data.shape):
        raise FormatError(f"{numel(data.shape)} elements do not fit the shape {wanted}")
    if any(dim < -1 for dim in wanted):
        raise FormatError(f"the new shape {wanted} makes no sense")
    return call.reshape(data, wanted)


def _without_zeros(call: Call, wanted: list[int]) -> list[int]:
    if 0 in wanted:
        call.shape(call[0])
    if 0 in wanted and -1 in wanted:
        raise FormatError(f"the new shape {wanted} has a 0 and a -1 with allowzero")
    return wanted


def _kept(data: Value, axis: int) -> int:
    if axis >= len(data.shape):
        raise FormatError(f"the new shape keeps dimension {axis} of a tensor of {data.rank}")
    return data.shape[axis]


def _with_the_rest(wanted: list[int], count: int) -> list[int]:
    rest = math.prod(dim for dim in wanted if dim != -1)
    if wanted.count(-1) != 1 or (rest and count % rest) or (not rest and count):
        raise FormatError(f"{count} elements do not fit the shape {wanted}")
    return [(count // rest if rest else 0) if dim == -1 else dim for dim in wanted]


@converter("Flatten")
def flatten(call: Call) -> Value:
    data = call[0]
    rank = call.rank(data)
    axis = call.attr("axis")
    axis = rank if axis == rank else normalize_axis(axis, rank)
    if axis == 1 and rank > 1:
        return call.op("flatten", data)
    shape = call.shape(data)
    return call.reshape(data, (math.prod(shape[:axis]), math.prod(shape[axis:])))


def _axes(call: Call) -> list[int] | None:
    """The axes of Squeeze and Unsqueeze: an attribute until opset 12, then an input."""
    return call.attr("axes") if call.opset < 13 else call.ints(1, "the axes")


@converter("Squeeze")
def squeeze(call: Call) -> Value:
    data, axes = call[0], _axes(call)
    shape = call.shape(data)
    if axes is None:
        gone = [axis for axis, dim in enumerate(shape) if dim == 1]
    else:
        gone = [normalize_axis(axis, len(shape)) for axis in axes]
    if any(shape[axis] != 1 for axis in gone):
        raise FormatError(f"axes {gone} of the shape {shape} are not all 1")
    left = [dim for axis, dim in enumerate(shape) if axis not in gone]
    if 0 in left:
        return call.op("squeeze", data, axis=tuple(gone))
    return call.reshape(data, left)


@converter("Unsqueeze")
def unsqueeze(call: Call) -> Value:
    data, axes = call[0], _axes(call)
    rank = call.rank(data) + len(axes)
    places = sorted(normalize_axis(axis, rank) for axis in axes)
    if len(set(places)) != len(places):
        raise FormatError(f"the axes {axes} name one twice")
    for place in places:
        data = call.op("expand_dims", data, axis=place)
    return data


@converter("Transpose")
def transpose(call: Call) -> Value:
    axes = call.attr("perm")
    axes = tuple(reversed(range(call.rank(call[0])))) if axes is None else tuple(axes)
    if list(axes) == list(range(len(axes))) == list(range(call.rank(call[0]))):
        return call[0]
    return call.op("transpose", call[0], axes=axes)


@converter("Expand", since=8)
def expand(call: Call) -> Value:
    """Broadcasts both ways: a dimension that is 1 in the new shape keeps the data's."""
    wanted = tuple(call.ints(1, "the new shape"))
    if any(dim < 0 for dim in wanted):
        raise FormatError(f"the new shape {wanted} is negative")
    return call.broadcast_to(call[0], broadcast(call.shape(call[0]), wanted))


@converter("Tile", since=6)
def tile(call: Call) -> Value:
    return call.op("tile", call[0], reps=tuple(call.ints(1, "the repeats")))


@converter("DepthToSpace")
def depth_to_space(call: Call) -> Value:
    """DCR has the block before the channels, CRD after them."""
    n, c, h, w = call.shape(call[0])
    b = call.attr("blocksize")
    if b < 1 or c % (b * b):
        raise FormatError(f"{c} channels do not split into blocks of {b}")
    if call.attr("mode", "DCR") == "DCR":
        split, order = (n, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (n, c // b**2, b, b, h, w), (0, 1, 4, 2, 5, 3)
    made = call.op("transpose", call.reshape(call[0], split), axes=order)
    return call.reshape(made, (n, c // b**2, h * b, w * b))


@converter("SpaceToDepth")
def space_to_depth(call: Call) -> Value:
    n, c, h, w = call.shape(call[0])
    b = call.attr("blocksize")
    if b < 1 or h % b or w % b:
        raise FormatError(f"an image of {h} x {w} does not split into blocks of {b}")
    split = call.reshape(call[0], (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if call.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    made = call.op("transpose", split, axes=order)
    return call.reshape(made, (n, c * b * b, h // b, w // b))
