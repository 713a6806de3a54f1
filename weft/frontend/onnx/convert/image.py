"""Converters of what changes the size of images, along any axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import BOOL, FLOAT32, FLOAT64, INT64, DType, is_complex, is_float, is_integer
from ....base.errors import FormatError, Unsupported
from ....base.shape import Dim, is_static, mul_dims, normalize_axis
from ...emitter import Value
from ...windows import padded
from ..call import OnnxCall
from ..registry import converter
from .resampling import Filter, ResizedAxis, coordinates, nearest, taps

_METHODS = {"nearest": "NEAREST_NEIGHBOR", "linear": "BILINEAR"}
_OF_IMAGES = ("asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel")  # the operator's


class Resizing(NamedTuple):
    """What the attributes say."""

    mode: str
    coordinates: str
    nearest: str
    coefficient: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation: float | None = None  # what stands outside of the region, if that counts


@converter("Upsample", since=9, decides=(1,))
@converter("Resize", since=10, decides=(1,))
def upsample(call: OnnxCall) -> Value:
    return _by_scales(call, call.constant(1, "the scales").tolist(), _old_resizing(call))


@converter("Upsample", since=7)
def upsample_by_attribute(call: OnnxCall) -> Value:
    return _by_scales(call, call.attr("scales"), _old_resizing(call))


def _old_resizing(call: OnnxCall) -> Resizing:
    return Resizing(_mode(call), "asymmetric", "floor")


def _mode(call: OnnxCall) -> str:
    mode = {"bilinear": "linear"}.get(call.attr("mode"), call.attr("mode"))
    if mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(f"{call.op_type} with mode {mode!r} is not supported")
    return str(mode)


@converter("Resize", since=11, decides=(1, 2, 3))
def resize(call: OnnxCall) -> Value:
    """By scales or to sizes; coordinates as the mode says."""
    how = Resizing(
        _mode(call),
        call.attr("coordinate_transformation_mode"),
        call.attr("nearest_mode"),
        call.attr("cubic_coeff_a"),
        bool(call.attr("antialias", 0)),
        bool(call.attr("exclude_outside", 0)),
        call.attr("extrapolation_value"),
    )
    call.ignore(1)  # the region, which is asked for where it counts
    scales = None if call.get(2) is None else call.constant(2, "the scales").tolist()
    if scales:
        call.ignore("keep_aspect_ratio_policy", 3)
        return _by_scales(call, _on_all_axes(call, scales, [1.0] * call.rank(call[0])), how)
    return _to_sizes(call, how)


def _axes(call: OnnxCall) -> list[int]:
    """The axes that scales, sizes and regions speak of."""
    rank = call.rank(call[0])
    return [normalize_axis(axis, rank) for axis in call.attr("axes") or range(rank)]


def _on_all_axes(call: OnnxCall, numbers: Sequence[float], rest: Sequence[float]) -> list[float]:
    """One number for each axis: where `axes` names some, the others take that of `rest`."""
    axes = _axes(call)
    if len(numbers) != len(axes):
        raise FormatError(f"{numbers} for axes {axes}")
    given = dict(zip(axes, numbers))
    return [given.get(axis, number) for axis, number in enumerate(rest)]


def _by_scales(call: OnnxCall, scales: list[float], how: Resizing) -> Value:
    dims = call.dims(call[0])
    if not is_static(dims) and len(scales) == len(dims) and all(float(scale).is_integer() for scale in scales):
        return _open_images(call, [mul_dims(dim, int(scale)) for dim, scale in zip(dims, scales)], scales, how)
    shape = call.shape(call[0])
    if len(scales) != len(shape) or not all(0 < scale < 1 << 20 for scale in scales):
        raise FormatError(f"scales {scales} for the shape {shape}")
    sizes = [math.floor(dim * scale) for dim, scale in zip(shape, scales)]
    return _resized(call, sizes, scales, how)


def _to_sizes(call: OnnxCall, how: Resizing) -> Value:
    """To given sizes, or to the largest or smallest with the same ratio that fits them."""
    dims, policy = call.dims(call[0]), call.attr("keep_aspect_ratio_policy", "stretch")
    if not is_static(dims) and policy == "stretch" and call.attr("axes") is None:
        return _open_images(call, call.told(call.extents(3, "the sizes")), None, how)
    shape = call.shape(call[0])
    sizes = [int(size) for size in _on_all_axes(call, call.ints(3, "the sizes"), shape)]
    if policy == "stretch":
        return _resized(call, sizes, None, how)
    best = {"not_larger": min, "not_smaller": max}.get(policy)
    if best is None or 0 in shape:
        raise FormatError(f"keep_aspect_ratio_policy {policy!r} for the shape {shape}")
    scale = best(sizes[axis] / shape[axis] for axis in _axes(call))
    scales = _on_all_axes(call, [scale] * len(_axes(call)), [1.0] * len(shape))
    sizes = [math.floor(dim * scale + 0.5) for dim, scale in zip(shape, scales)]
    return _resized(call, sizes, scales, how)


def _open_images(call: OnnxCall, sizes: Sequence[Dim], scales: list[float] | None, how: Resizing) -> Value:
    """Height and width that are expressions; whole scales cut nothing off."""
    dims = call.dims(call[0])
    of_numbers = how.mode == "nearest" or is_float(call.dtype(call[0]))
    if len(dims) != 4 or tuple(sizes[:2]) != dims[:2] or how.mode not in _METHODS or not of_numbers:
        call.shape(call[0])
    if how.coordinates not in _OF_IMAGES or how.antialias:
        call.shape(call[0])
    return _resized_images(call, sizes, scales, how)


def _resized(call: OnnxCall, sizes: list[int], scales: list[float] | None, how: Resizing) -> Value:
    shape = call.shape(call[0])
    if 0 in sizes or 0 in shape:
        if 0 in shape and 0 not in sizes:
            raise FormatError(f"nothing of shape {shape} cannot be resized to {sizes}")
        return call.op("zeros", shape=tuple(sizes), dtype=call.dtype(call[0]))
    dtype = call.dtype(call[0])
    of_images = is_float(dtype) or (how.mode == "nearest" and is_integer(dtype))
    if of_images and _is_of_images(shape, sizes, scales, how):
        return _resized_images(call, sizes, scales, how)
    rows = [
        ResizedAxis(axis, extent, out, out / extent, float(out))
        if scales is None
        else ResizedAxis(axis, extent, out, scales[axis], scales[axis] * extent)
        for axis, (extent, out) in enumerate(zip(shape, sizes))
    ]
    if how.coordinates == "tf_crop_and_resize":
        regions = _regions(call, len(shape))
        rows = [row._replace(region=region) for row, region in zip(rows, regions)]
    return _resampled(call, [row for row in rows if _changes(row)], how)


def _changes(row: ResizedAxis) -> bool:
    return (row.extent, row.scale, row.region) != (row.out, 1.0, (0.0, 1.0))


def _regions(call: OnnxCall, rank: int) -> list[tuple[float, float]]:
    """The part of each axis that is resized, from 0 to 1."""
    axes, region = _axes(call), [float(number) for number in call.constant(1, "the region")]
    if len(region) != 2 * len(axes):
        raise FormatError(f"a region {region} for axes {axes}")
    given = dict(zip(axes, zip(region[: len(axes)], region[len(axes) :])))
    return [given.get(axis, (0.0, 1.0)) for axis in range(rank)]


# Images, by one operator.


def _is_of_images(shape: Sequence[int], sizes: Sequence[int], scales: list[float] | None, how: Resizing) -> bool:
    """Whether that is what the operator does: height and width, or one of them, of rank 3 or 4."""
    if len(shape) not in (3, 4) or tuple(sizes[:2]) != tuple(shape[:2]) or how.mode not in _METHODS:
        return False
    cut = scales is not None and any(dim * scale != size for dim, scale, size in zip(shape, scales, sizes))
    if cut and (how.coordinates == "align_corners" or how.mode == "nearest"):
        return False  # there the coordinates are those of a scale that is no ratio of sizes
    return how.coordinates in _OF_IMAGES and not how.antialias


def _resized_images(call: OnnxCall, sizes: Sequence[Dim], scales: list[float] | None, how: Resizing) -> Value:
    data, lines = call[0], len(sizes) == 3
    attrs: dict[str, Any] = {"size": tuple([1, *sizes[2:]][-2:]), "method": _METHODS[how.mode]}
    if scales is not None:
        attrs["scales"] = tuple([1.0, *scales[2:]][-2:])
    data = call.op("expand_dims", data, axis=2) if lines else data
    resized = call.op("resize", data, coordinate_mode=how.coordinates, nearest_mode=how.nearest, **attrs)
    return call.reshape(resized, sizes) if lines else resized


# Any axes, one after the other.


def _resampled(call: OnnxCall, rows: list[ResizedAxis], how: Resizing) -> Value:
    data, dtype = call[0], call.dtype(call[0])
    exact = how.mode == "nearest" or is_float(dtype) or is_complex(dtype)
    data = call.widened(data) if exact else call.cast(data, FLOAT64)
    outside = []
    for row in rows:
        at = coordinates(row, how.coordinates)
        outside.append((row.axis, (at < 0) | (at > row.extent - 1)))
        if how.mode == "nearest":
            data = call.op("take", data, call.make(nearest(row, at, how.nearest), INT64), axis=row.axis)
        else:
            data = _filtered(call, data, row, at, how)
    if how.coordinates == "tf_crop_and_resize":
        data = _with_fill(call, data, outside, how.extrapolation or 0.0)
    return call.cast(data, dtype) if exact else _whole(call, data, dtype, how)


def _whole(call: OnnxCall, data: Value, dtype: DType, how: Resizing) -> Value:
    """Numbers cut towards zero, or rounded where they are filtered against aliases; what is whole but
    for rounding errors is whole."""
    data = call.cast(data, FLOAT32)
    data = call.op("round", data) if how.antialias else data
    low, high = (0, 1) if dtype == BOOL else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    data = call.op("clip", call.op("trunc", data), a_min=float(low), a_max=float(high))
    return call.cast(data, dtype)


def _filtered(call: OnnxCall, data: Value, row: ResizedAxis, at: np.ndarray, how: Resizing) -> Value:
    """Sums over the taps of every place, which stand behind the axis meanwhile."""
    chosen = taps(row, at, Filter(how.mode, how.coefficient, how.antialias, how.exclude_outside))
    call.check_table(*chosen.weights.shape)
    table = (*chosen.weights.shape, *[1] * (call.rank(data) - row.axis - 1))
    elements = call.op("take", data, call.make(chosen.elements, INT64), axis=row.axis)
    shares = call.op("broadcast_mul", elements, call.make(chosen.weights.reshape(table), call.dtype(data)))
    if not chosen.weights.all():  # an element that does not count may be infinite
        counts = call.make(chosen.weights.reshape(table) != 0)
        shares = call.op("broadcast_where", counts, shares, call.make(0, call.dtype(data)))
    return call.op("sum", shares, axis=(row.axis + 1,))


def _with_fill(call: OnnxCall, data: Value, outside: list[tuple[int, np.ndarray]], fill: float) -> Value:
    """A number in all places that are outside along some axis."""
    for axis, places in outside:
        if places.any():
            mask = call.make(places.reshape(-1, *[1] * (call.rank(data) - axis - 1)))
            data = call.op("broadcast_where", mask, call.make(fill, call.dtype(data)), data)
    return data


@converter("CenterCropPad", since=18, decides=(1,))
def center_crop_pad(call: OnnxCall) -> Value:
    """The middle of what is too large, and zeros around what is too small; the odd one of them is
    behind."""
    data, axes, sizes = call[0], _axes(call), call.ints(1, "the shape")
    if len(sizes) != len(axes) or min(sizes, default=0) < 0:
        raise FormatError(f"a shape {sizes} for axes {axes}")
    parts, sides = {}, {}
    for axis, size in zip(axes, sizes):
        extra = size - call.extent(data, axis)
        sides[axis] = (max(extra, 0) // 2, max(extra, 0) - max(extra, 0) // 2)
        start = max(-extra, 0) // 2
        parts[axis] = (start, start + min(size, size - extra), 1)
    return padded(call, call.sliced(data, parts), sides)
