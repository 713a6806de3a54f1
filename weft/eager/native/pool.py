"""Pools of large eager tensors that are reductions or products, and the transposes of resizing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...base.dtype import FLOAT32, FLOAT64
from ...core.op import Op
from ...ops.nn.adaptive_pool import bins_of, sizes_of
from ...ops.vision.image import Axis, axes_of, sources_of, unscaled
from .calls import Array, Declined, floats, native, numbers
from .generic import run_template
from .product import multiply
from .reduce import reduced

LARGEST_WEIGHTS = 1 << 13  # elements of a matrix that resizes an axis


def _images(params: Any, x: Array) -> Array:
    """Images whose height and width come last."""
    if params.layout != "NCHW":
        raise Declined("layout")
    return x


def _of_whole_images(name: str, combine: str) -> None:
    @native(name, takes=floats)
    def run(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
        return _whole(combine, _images(params, arrays[0]))


_of_whole_images("global_max_pool2d", "max")
_of_whole_images("global_avg_pool2d", "mean")


def _whole(combine: str, x: Array) -> Array:
    return reduced(combine, x, (2, 3), (*x.shape[:2], 1, 1))


@native("adaptive_avg_pool2d", takes=floats)
def run_adaptive(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """down x across', where each row of those has the shares that make the mean of a bin; None where most are zeros."""
    x = _images(params, arrays[0])
    if set(params.output_size) == {1}:
        return _whole("mean", x)
    down, across = (_shares(*pair) for pair in zip(x.shape[2:], sizes_of(params)))
    if max(down.size, across.size) > LARGEST_WEIGHTS:
        return None
    if not _is_finite(x):
        raise Declined("not finite")
    return _between(x, down, across.T)


@lru_cache(64)
def _shares(extent: int, count: int) -> Array:
    """(bins, elements)"""
    place = np.arange(extent)
    starts, ends = (ends[:, None] for ends in bins_of(extent, count))
    shares: Array = ((place >= starts) & (place < ends)) / (ends - starts)
    return shares


def _is_finite(x: Array) -> bool:
    """Products multiply all by all, which infinity does not survive."""
    return bool(np.isfinite(reduced("sum", x, (0, 1, 2, 3))))


def _between(x: Array, left: Array, right: Array) -> Array:
    return multiply(left.astype(x.dtype), multiply(x, right.astype(x.dtype)))


@native("_upsampling_grad", "_resize_grad", takes=numbers)
def run_resize_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """The transposes of resizing: small images by products, others by the operator's own loops."""
    g = arrays[0]
    if params.layout == "NCHW" and g.dtype in (FLOAT32, FLOAT64):
        shape = arrays[1].shape if len(arrays) > 1 else unscaled(params, g.shape)
        axes = axes_of(params, shape, g.shape)
        if max([axis.extent * axis.out for axis in axes]) <= LARGEST_WEIGHTS and _is_finite(g):
            down, across = map(_weights, axes)
            return _between(g, down.T, across)
    return run_template(op, params, arrays)[0]


@lru_cache(64)
def _weights(axis: Axis) -> Array:
    """(places, elements): what each place got of each element"""
    weights = np.zeros((axis.out, axis.extent))
    for index, weight in sources_of(axis):
        np.add.at(weights, (np.arange(axis.out), index), weight)
    return weights
