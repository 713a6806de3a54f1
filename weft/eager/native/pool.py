"""Pools and resizing of large eager tensors by programs of open sizes. Images of all items and channels are
one row of images; pools over whole images are reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...base.dtype import FLOAT32, FLOAT64
from ...core.op import Op
from ...lower.cpu.pool_grad import POOL_GRADIENTS
from ...ops.nn.adaptive_pool import bins_of, sizes_of
from ...ops.vision.image import Axis, axes_of, sources_of, unscaled
from .calls import Array, Declined, Run, floats, native, numbers
from .generic import run_generic, run_template
from .product import multiply
from .reduce import reduced

LARGEST_WEIGHTS = 1 << 13  # elements of a matrix that resizes an axis


def _flat(images: Array) -> Array:
    """(images, 1, height, width)"""
    return images.reshape(prod(images.shape[:2]), 1, *images.shape[2:])


def _images(*names: str) -> Callable[[Run], Run]:
    """Registers for floats in layout NCHW: they come as (images, 1, height, width), and so does the result."""

    def register(run: Run) -> Run:
        def reshaped(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
            if params.layout != "NCHW":
                raise Declined("layout")
            result = run(op, params, [_flat(array) for array in arrays])
            return None if result is None else result.reshape(*arrays[0].shape[:2], *result.shape[2:])

        return native(*names, takes=floats)(reshaped)

    return register


@_images(
    "max_pool2d",
    "_max_pool2d_pick",
    "avg_pool2d",
    "_global_max_pool2d_grad",
    "_global_max_pool2d_pick",
    "_global_avg_pool2d_grad",
    "upsampling",
    "resize",
)
def run_windows(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    return run_generic(op, params, arrays)[0]


@_images(*POOL_GRADIENTS)
def run_gradient(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    return run_template(op, params, arrays)[0]


@_images("global_max_pool2d")
def run_global_max(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    return reduced("max", arrays[0], (2, 3)).reshape(-1, 1, 1, 1)


@_images("global_avg_pool2d")
def run_global_mean(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    return _means(arrays[0])


def _means(x: Array) -> Array:
    means = reduced("mean", x, (2, 3))
    return means.astype(x.dtype, copy=False).reshape(-1, 1, 1, 1)


@_images("adaptive_avg_pool2d")
def run_adaptive(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """down x across', where each row of those has the shares that make the mean of a bin; None where most are zeros."""
    (x,) = arrays
    if set(params.output_size) == {1}:
        return _means(x)
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
    g = _flat(arrays[0])
    if params.layout == "NCHW" and g.dtype in (FLOAT32, FLOAT64):
        shape = _flat(arrays[1]).shape if len(arrays) > 1 else unscaled(params, g.shape)
        axes = axes_of(params, shape, g.shape)
        if max([axis.extent * axis.out for axis in axes]) <= LARGEST_WEIGHTS and _is_finite(g):
            down, across = map(_weights, axes)
            result = _between(g, down.T, across)
            return result.reshape(*arrays[0].shape[:2], *result.shape[2:])
    return run_template(op, params, arrays)[0]


@lru_cache(64)
def _weights(axis: Axis) -> Array:
    """(places, elements): what each place got of each element"""
    weights = np.zeros((axis.out, axis.extent))
    for index, weight in sources_of(axis):
        np.add.at(weights, (np.arange(axis.out), index), weight)
    return weights
