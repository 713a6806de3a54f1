"""Shapes that nodes of any importer ask for: of what is left, of what is dropped, of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ..base.errors import FormatError
from ..base.shape import StaticShape, floor_div_dims, mul_dims, normalize_axis
from .building import Building
from .emitter import Value


def with_the_rest(shape: Sequence[int], count: int) -> StaticShape:
    """The shape of `count` elements in which -1 stands for what remains.

    >>> with_the_rest((2, -1), 6)
    (2, 3)
    """
    known = prod(dim for dim in shape if dim != -1)
    full = tuple((count // known if known else 0) if dim == -1 else dim for dim in shape)
    if list(shape).count(-1) > 1 or any(dim < 0 for dim in full) or prod(full) != count:
        raise FormatError(f"{count} elements do not fit the shape {list(shape)}")
    return full


def next_dim(left: list[int]) -> int:
    """The dimension that a code of a new shape speaks of."""
    if not left:
        raise FormatError("the new shape asks for more dimensions than there are")
    return left.pop(0)


def squeezed_shape(shape: StaticShape, axes: Iterable[int] | None) -> StaticShape:
    """The shape without some axes of 1, or without all of them.

    >>> squeezed_shape((1, 3, 1), [-1]), squeezed_shape((1, 3, 1), None)
    ((1, 3), (3,))
    """
    if axes is None:
        return tuple(dim for dim in shape if dim != 1)
    gone = {normalize_axis(axis, len(shape)) for axis in axes}
    if any(shape[axis] != 1 for axis in gone):
        raise FormatError(f"axes {sorted(gone)} of the shape {shape} are not all 1")
    return tuple(dim for axis, dim in enumerate(shape) if axis not in gone)


def depth_to_space(call: Building, value: Value, block: int, channels_first: bool = False) -> Value:
    """Channels as blocks of the image; the block stands before the channels, or behind them."""
    n, c, h, w = call.told(call.dims(value))
    if block < 1 or (isinstance(c, int) and c % (block * block)):
        raise FormatError(f"{c} channels do not split into blocks of {block}")
    rest = floor_div_dims(c, block**2)
    split = call.reshape(value, (n, rest, block, block, h, w) if channels_first else (n, block, block, rest, h, w))
    moved = call.op("transpose", split, axes=(0, 1, 4, 2, 5, 3) if channels_first else (0, 3, 4, 1, 5, 2))
    return call.reshape(moved, (n, rest, mul_dims(h, block), mul_dims(w, block)))


def space_to_depth(call: Building, value: Value, block: int, channels_first: bool = False) -> Value:
    """The way back."""
    n, c, h, w = call.told(call.dims(value))
    if block < 1 or any(isinstance(dim, int) and dim % block for dim in (h, w)):
        raise FormatError(f"an image of {h} x {w} does not split into blocks of {block}")
    rows, columns = floor_div_dims(h, block), floor_div_dims(w, block)
    split = call.reshape(value, (n, c, rows, block, columns, block))
    moved = call.op("transpose", split, axes=(0, 1, 3, 5, 2, 4) if channels_first else (0, 3, 5, 1, 2, 4))
    return call.reshape(moved, (n, mul_dims(c, block * block), rows, columns))


def one_a_channel(call: Building, value: Value, groups: int, channels: int) -> Value:
    """Scales or shifts of channels, of which those of a group may share one."""
    if groups < 1 or channels % groups:
        raise FormatError(f"{channels} channels do not split into {groups} groups")
    if call.shape(value) == (channels,):
        return value
    wide = call.broadcast_to(call.reshape(value, (groups, 1)), (groups, channels // groups))
    return call.reshape(wide, (channels,))
