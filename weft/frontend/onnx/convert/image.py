"""Converters of what changes the size of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from ....base.errors import FormatError, Unsupported
from ....base.shape import normalize_axis
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter

Number = TypeVar("Number", int, float)
_METHODS = {"nearest": "NEAREST_NEIGHBOR", "linear": "BILINEAR", "bilinear": "BILINEAR"}
_COORDINATES = ("asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel")
_NO_EFFECT = ("cubic_coeff_a", "exclude_outside", "extrapolation_value")  # on what is supported


@converter("Upsample", since=9, decides=(1,))
@converter("Resize", since=10, decides=(1,))
def upsample(call: OnnxCall) -> Value:
    return _resize_by(call, call.constant(1, "the scales").tolist(), "asymmetric", "floor")


@converter("Upsample", since=7)
def upsample_by_attribute(call: OnnxCall) -> Value:
    return _resize_by(call, call.attr("scales"), "asymmetric", "floor")


@converter("Resize", since=11, decides=(1, 2, 3))
def resize(call: OnnxCall) -> Value:
    """By scales or to sizes; coordinates as the mode says."""
    call.ignore(*_NO_EFFECT, 1)  # input 1, the region, only counts for tf_crop_and_resize
    coordinates, nearest = call.attr("coordinate_transformation_mode"), call.attr("nearest_mode")
    if coordinates not in _COORDINATES:
        raise Unsupported(f"Resize with coordinates {coordinates!r} is not supported")
    if call.attr("antialias", 0) or call.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unsupported("Resize with antialias or a kept aspect ratio is not supported")
    scales = None if call.get(2) is None else call.constant(2, "the scales").tolist()
    if scales:
        return _resize_by(call, _on_all_axes(call, scales, [1.0]), coordinates, nearest)
    sizes = _on_all_axes(call, call.ints(3, "the sizes"), call.shape(call[0]))
    return _resized(call, sizes, None, coordinates, nearest)


def _on_all_axes(call: OnnxCall, numbers: Sequence[Number], rest: Sequence[Number]) -> list[Number]:
    """One number for each axis: where `axes` names some, the others take `rest`."""
    rank = call.rank(call[0])
    axes = call.attr("axes") or list(range(rank))
    if len(numbers) != len(axes):
        raise FormatError(f"scales or sizes {numbers} for axes {axes}")
    full = list(rest) * (rank // len(rest))
    for axis, number in zip(axes, numbers):
        full[normalize_axis(axis, rank)] = number
    return full


def _resize_by(call: OnnxCall, scales: list[float], coordinates: str, nearest: str) -> Value:
    shape = call.shape(call[0])
    if len(scales) != len(shape) or not all(0 < scale < 1 << 20 for scale in scales):
        raise FormatError(f"scales {scales} for the shape {shape}")
    sizes = [math.floor(dim * scale) for dim, scale in zip(shape, scales)]
    whole = all(dim * scale == size for dim, scale, size in zip(shape, scales, sizes))
    if coordinates == "align_corners" and not whole:
        raise Unsupported(f"align_corners with scales {scales}, which cut an element, of {shape}")
    return _resized(call, sizes, scales, coordinates, nearest)


def _resized(call: OnnxCall, sizes: list[int], scales: list[float] | None, coordinates: str, nearest: str) -> Value:
    data, shape, mode = call[0], call.shape(call[0]), call.attr("mode")
    if mode not in _METHODS:
        raise Unsupported(f"{call.op_type} with mode {mode!r} is not supported")
    if len(shape) not in (3, 4) or tuple(sizes[:2]) != shape[:2]:
        raise Unsupported(f"{call.op_type} from {shape} to {sizes} is not supported")
    if len(shape) == 3:
        data = call.op("expand_dims", data, axis=2)
    attrs: dict[str, Any] = {"size": tuple([1, *sizes[2:]][-2:]), "method": _METHODS[mode]}
    if scales is not None:
        attrs["scales"] = tuple([1.0, *scales[2:]][-2:])
    resized = call.op("resize", data, coordinate_mode=coordinates, nearest_mode=nearest, **attrs)
    return call.reshape(resized, sizes) if len(shape) == 3 else resized
