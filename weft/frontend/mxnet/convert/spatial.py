"""Converters of spatial transformers, and of what prepares images."""

from __future__ import annotations

import math

import numpy as np

from ....base.dtype import FLOAT32
from ....base.errors import FormatError
from ...emitter import Value
from ..call import Call
from ..registry import converter


def _sampled(call: Call, data: Value, grid: Value) -> Value:
    """The data at places (n, 2, height, width), where -1 and 1 are the outermost elements."""
    places = call.op("transpose", grid, axes=(0, 2, 3, 1))
    return call.op("grid_sample", data, places, align_corners=True)


@converter("BilinearSampler")
def bilinear_sampler(call: Call) -> Value:
    call.ignore("cudnn_off")
    return _sampled(call, call[0], call[1])


@converter("GridGenerator")
def grid_generator(call: Call) -> Value:
    """Places of an affine map, or of every element moved."""
    kind = call.attr("transform_type")
    if kind == "affine":
        return _affine(call, call[0], call.attr("target_shape"))
    if kind != "warp":
        raise FormatError(f"unknown transform_type {kind!r}")
    call.ignore("target_shape")
    _, two, height, width = call.shape(call[0])
    if two != 2:
        raise FormatError(f"moves of {two} numbers, and not 2")
    call.check_table(2, height, width)
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    sizes = np.maximum([[width - 1], [height - 1]], 1).reshape(1, 2, 1, 1) / 2
    dtype = call.dtype(call[0])
    moved = call.op("broadcast_add", call[0], call.make(np.stack([columns, rows])[None], dtype))
    places = call.op("broadcast_div", moved, call.make(sizes, dtype))
    return call.op("__sub_scalar__", places, scalar=1.0)


def _affine(call: Call, maps: Value, target: tuple[int, ...]) -> Value:
    """(n, 2, height, width): the map of every element of the target, from -1 to 1."""
    if len(target) != 2 or min(target) < 1:
        raise FormatError(f"a target of shape {target}")
    height, width = target
    call.check_table(3, height, width)
    rows, columns = (np.linspace(-1, 1, extent) if extent > 1 else [-1.0] for extent in target)
    y, x = np.meshgrid(rows, columns, indexing="ij")
    table = np.stack([x, y, np.ones_like(x)]).reshape(3, height * width)
    count = math.prod(call.shape(maps)) // 6
    lines = call.reshape(maps, (count * 2, 3))
    places = call.op("matmul", lines, call.make(table, call.dtype(maps)))
    return call.reshape(places, (count, 2, height, width))


@converter("SpatialTransformer")
def spatial_transformer(call: Call) -> Value:
    call.ignore("cudnn_off")
    if call.attr("transform_type") != "affine" or call.attr("sampler_type") != "bilinear":
        raise FormatError("a transformer that is not affine and bilinear")
    target = call.attr("target_shape")
    if not any(target):
        target = call.shape(call[0])[2:]
    return _sampled(call, call[0], _affine(call, call[1], target))


@converter("Correlation")
def correlation(call: Call) -> Value:
    names = "kernel_size max_displacement stride1 stride2 pad_size is_multiply".split()
    attrs = {name: call.attr(name) for name in names}
    call.only_first_output()
    return call.op("correlation", call[0], call[1], **attrs)


# Images as files have them: (height, width, channels), with or without a batch.


def _check_images(call: Call) -> None:
    if call.rank(call[0]) not in (3, 4):
        raise FormatError(f"images of shape {call[0].shape}")


@converter("_image_to_tensor")
def to_tensor(call: Call) -> Value:
    """Channels first, from 0..255 to 0..1."""
    _check_images(call)
    axes = (2, 0, 1) if call.rank(call[0]) == 3 else (0, 3, 1, 2)
    moved = call.op("transpose", call.cast(call[0], FLOAT32), axes=axes)
    return call.op("__div_scalar__", moved, scalar=255.0)


@converter("_image_normalize")
def normalize(call: Call) -> Value:
    """(x - mean) / std, for each channel."""
    _check_images(call)
    channels = call.shape(call[0])[-3]
    rows = []
    for name in ("mean", "std"):
        numbers = call.attr(name)[:channels]
        if len(numbers) not in (1, channels):
            raise FormatError(f"{name} has {len(numbers)} numbers for {channels} channels")
        rows.append(call.make(np.reshape(numbers, (-1, 1, 1)), call.dtype(call[0])))
    return call.op("broadcast_div", call.op("broadcast_sub", call[0], rows[0]), rows[1])


@converter("_image_crop")
def crop(call: Call) -> Value:
    _check_images(call)
    rank = call.rank(call[0])
    shape, parts = call.shape(call[0]), {}
    for axis, (start, size) in ((rank - 3, ("y", "height")), (rank - 2, ("x", "width"))):
        first, extent = call.attr(start), call.attr(size)
        if not 0 <= first < first + extent <= shape[axis]:
            raise FormatError(f"elements {first} to {first + extent} of {shape[axis]}")
        parts[axis] = (first, first + extent, 1)
    return call.sliced(call[0], parts)


@converter("_image_flip_left_right", "_image_flip_top_bottom")
def flip(call: Call) -> Value:
    _check_images(call)
    back = 2 if call.op_type == "_image_flip_left_right" else 3
    return call.op("flip", call[0], axis=call.rank(call[0]) - back)
