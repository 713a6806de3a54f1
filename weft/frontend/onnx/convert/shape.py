"""Converters of constants, fills, and what gives the same elements another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....base.dtype import FLOAT32, INT64
from ....base.errors import FormatError
from ....base.extents import Extent
from ....base.shape import Dim, broadcast, floor_div_dims, is_static, mul_dims, normalize_axis, numel
from ...emitter import FOLDED_ELEMENTS, Value
from ...shapes import depth_to_space, space_to_depth, squeezed_shape, with_the_rest
from ..call import OnnxCall
from ..registry import converter

# Constants.


_CONSTANT_DTYPES = {
    "value_float": FLOAT32,
    "value_floats": FLOAT32,
    "value_int": INT64,
    "value_ints": INT64,
    "value": None,
    "sparse_value": None,
}


@converter("Constant")
def constant(call: OnnxCall) -> Value:
    for name, dtype in _CONSTANT_DTYPES.items():
        data = call.attr(name)
        if data is not None:
            return call.make(data, dtype)
    raise FormatError("a Constant without a value")


@converter("ConstantOfShape", since=9, decides=(0,))
def constant_of_shape(call: OnnxCall) -> Value:
    shape = call.told(call.extents(0, "the shape"))
    fill = call.attr("value")
    fill = np.zeros(1, np.float32) if fill is None else fill
    if fill.size != 1:
        raise FormatError("the value must be one number")
    if any(isinstance(dim, int) and dim < 0 for dim in shape):
        raise FormatError(f"the shape {shape} is negative")
    if is_static(shape) and math.prod(shape) <= FOLDED_ELEMENTS:
        return call.make(np.full(shape, fill.reshape(())))
    return call.broadcast_to(call.make(fill.reshape(())), shape)


@converter("Shape", by_shape=True)
def shape_of(call: OnnxCall) -> Value:
    """The shape, or a part of it."""
    dims = call.dims(call[0])
    return _told(call, dims[call.attr("start", 0) : call.attr("end", len(dims))])


def _told(call: OnnxCall, dims: Sequence[Dim]) -> Value:
    """Dimensions as a value."""
    return call.make_extents([Extent.of(dim) for dim in call.told(dims)])


@converter("Size", by_shape=True)
def size_of(call: OnnxCall) -> Value:
    (size,) = call.told([mul_dims(*call.dims(call[0]))])
    return call.make_extents(Extent.of(size))


@converter("Range", since=11, decides=(0, 1, 2))
def range_(call: OnnxCall) -> Value:
    start, stop, step = (_limit(call, i) for i in range(3))
    dtype = call.dtype(call[0])
    return call.op("arange", start=start, stop=stop, step=step, dtype=dtype)


def _limit(call: OnnxCall, index: int) -> float | Extent:
    """A limit of a range."""
    symbolic = call[index].extents
    if symbolic is None:
        return call.number(index, "a limit of the range")
    if symbolic.size != 1:
        raise FormatError(f"a limit of the range must be one number, not {symbolic.size}")
    limit: Extent = symbolic.item()
    return limit


# Reshapes.


@converter("Reshape", since=5, decides=(1,))
def reshape(call: OnnxCall) -> Value:
    """0 keeps the dimension (unless allowzero), -1 is what remains."""
    wanted, data = call.told(call.extents(1, "the new shape")), call[0]
    if any(isinstance(dim, int) and dim < -1 for dim in wanted):
        raise FormatError(f"the new shape {wanted} makes no sense")
    zeros = bool(call.attr("allowzero", 0)) and 0 in wanted
    if zeros and -1 in wanted:
        raise FormatError(f"the new shape {wanted} has a 0 and a -1 with allowzero")
    if not zeros and is_static(wanted) and not is_static(data.shape):
        return call.reshape(data, wanted)
    shape = call.dims(data)
    full = wanted if zeros else tuple(_kept(shape, i) if dim == 0 else dim for i, dim in enumerate(wanted))
    if is_static(shape) and is_static(full):
        return call.reshape(data, with_the_rest(full, numel(shape)))
    rest = floor_div_dims(mul_dims(*shape), mul_dims(*(dim for dim in full if dim != -1)))
    return call.reshape(data, [rest if dim == -1 else dim for dim in full])


def _kept(shape: Sequence[Dim], axis: int) -> Dim:
    if axis >= len(shape):
        raise FormatError(f"the new shape keeps dimension {axis} of a tensor of {len(shape)}")
    return shape[axis]


@converter("Flatten")
def flatten(call: OnnxCall) -> Value:
    data = call[0]
    rank = call.rank(data)
    axis = call.attr("axis")
    axis = rank if axis == rank else normalize_axis(axis, rank)
    if axis == 1 and rank > 1:
        return call.op("flatten", data)
    shape = call.dims(data)
    return call.reshape(data, (mul_dims(*shape[:axis]), mul_dims(*shape[axis:])))


def _axes(call: OnnxCall) -> list[int] | None:
    """The axes of Squeeze and Unsqueeze: an attribute until opset 12, then an input."""
    axes: list[int] | None = call.attr("axes") if call.opset < 13 else call.optional_ints(1, "the axes")
    return axes


@converter("Squeeze", decides=(1,))
def squeeze(call: OnnxCall) -> Value:
    data, axes = call[0], _axes(call)
    if axes is None or is_static(data.shape):
        return call.reshape(data, squeezed_shape(call.shape(data), axes))
    gone = call.axes(axes, data)
    left = [dim for axis, dim in enumerate(call.dims(data)) if axis not in gone]
    return call.op("squeeze", data, axis=gone) if left and gone else call.reshape(data, left)


@converter("Unsqueeze", decides=(1,))
def unsqueeze(call: OnnxCall) -> Value:
    data, axes = call[0], _axes(call)
    if axes is None:
        raise FormatError("the axes are missing")
    rank = call.rank(data) + len(axes)
    places = sorted(normalize_axis(axis, rank) for axis in axes)
    if len(set(places)) != len(places):
        raise FormatError(f"the axes {axes} name one twice")
    for place in places:
        data = call.op("expand_dims", data, axis=place)
    return data


@converter("Transpose")
def transpose(call: OnnxCall) -> Value:
    axes = call.attr("perm")
    return call.transposed(call[0], reversed(range(call.rank(call[0]))) if axes is None else axes)


@converter("Expand", since=8, decides=(1,))
def expand(call: OnnxCall) -> Value:
    """Broadcasts both ways: a dimension that is 1 in the new shape keeps the data's."""
    wanted = call.told(call.extents(1, "the new shape"))
    if any(isinstance(dim, int) and dim < 0 for dim in wanted):
        raise FormatError(f"the new shape {wanted} is negative")
    return call.broadcast_to(call[0], broadcast(call.dims(call[0]), wanted) or ())


@converter("Tile", since=6, decides=(1,))
def tile(call: OnnxCall) -> Value:
    return call.op("tile", call[0], reps=tuple(call.extents(1, "the repeats")))


@converter("DepthToSpace", "SpaceToDepth")
def blocks(call: OnnxCall) -> Value:
    """DCR has the block before the channels, CRD after them."""
    way = depth_to_space if call.op_type == "DepthToSpace" else space_to_depth
    return way(call, call[0], call.attr("blocksize"), call.attr("mode", "DCR") != "DCR")
