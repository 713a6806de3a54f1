"""Resampling along one axis: which elements every place of a resized axis takes, and how much each
of them counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....base.errors import Unsupported

Numbers = np.ndarray


class ResizedAxis(NamedTuple):
    """An axis that is resized. The length is that of the output before it is rounded down; the region
    is a part of the axis from 0 to 1, for tf_crop_and_resize."""

    axis: int
    extent: int
    out: int
    scale: float
    length: float
    region: tuple[float, float] = (0.0, 1.0)


class Filter(NamedTuple):
    """How elements around a coordinate count."""

    mode: str
    coefficient: float = -0.75  # of cubic
    antialias: bool = False
    exclude_outside: bool = False


class Taps(NamedTuple):
    """(places, taps): elements, and their weights."""

    elements: Numbers
    weights: Numbers


def coordinates(axis: ResizedAxis, mode: str) -> Numbers:
    """Where the places of the resized axis stand among its elements.

    >>> coordinates(ResizedAxis(0, 2, 4, 2.0, 4.0), "half_pixel")
    array([-0.25,  0.25,  0.75,  1.25])
    """
    place, scale, last = np.arange(axis.out, dtype=np.float64), axis.scale, axis.extent - 1
    centred = (place + 0.5) / scale - 0.5
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and axis.out > 1):
        return centred
    if mode == "pytorch_half_pixel":
        return place * 0
    if mode == "half_pixel_symmetric":  # what is rounded off is shared by both ends
        return axis.extent * (axis.length - axis.out) / (2 * axis.length) + centred
    if mode == "asymmetric":
        return place / scale
    if mode == "tf_half_pixel_for_nn":
        return (place + 0.5) / scale
    if mode == "align_corners":
        return place * 0 if axis.length == 1 else place * last / (axis.length - 1)
    if mode != "tf_crop_and_resize":
        raise Unsupported(f"Resize with coordinates {mode!r} is not supported")
    start, end = axis.region
    if axis.out == 1:
        return place + 0.5 * (start + end) * last
    return start * last + place * (end - start) * last / (axis.out - 1)


def nearest(axis: ResizedAxis, at: Numbers, mode: str) -> Numbers:
    """The element that is nearest to each coordinate. Scales come in float32, so whole coordinates are
    whole no closer than that."""
    at = at.astype(np.float32).astype(np.float64)
    rounded = {
        "floor": np.floor(at),
        "ceil": np.ceil(at),
        "round_prefer_floor": np.ceil(at - 0.5),
        "round_prefer_ceil": np.floor(at + 0.5),
    }
    if mode not in rounded:
        raise Unsupported(f"Resize with nearest_mode {mode!r} is not supported")
    elements: Numbers = np.clip(rounded[mode], 0, axis.extent - 1).astype(np.int64)
    return elements


def taps(axis: ResizedAxis, at: Numbers, how: Filter) -> Taps:
    """The elements around each coordinate; those outside are the ones at the ends, or do not count.
    Against aliases the filter is as wide as the output's places are apart."""
    reach = {"linear": 1, "cubic": 2}[how.mode]
    stretch = min(axis.scale, 1.0) if how.antialias else 1.0
    first = int(np.floor(-reach / stretch)) + 1
    low = np.floor(at)
    steps = np.arange(first, 2 - first)
    elements = low[:, None] + steps
    distance = (elements - at[:, None]) * stretch
    weights = np.clip(1 - np.abs(distance), 0, 1) if reach == 1 else _cubic(distance, how.coefficient)
    if how.exclude_outside:
        weights = np.where((elements < 0) | (elements >= axis.extent), 0, weights)
    if how.antialias or how.exclude_outside:
        weights = weights / weights.sum(1, keepdims=True)
    return Taps(np.clip(elements, 0, axis.extent - 1).astype(np.int64), weights)


def _cubic(distance: Numbers, a: float) -> Numbers:
    """(a + 2) |d|^3 - (a + 3) |d|^2 + 1 up to 1, a |d|^3 - 5 a |d|^2 + 8 a |d| - 4 a up to 2."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
