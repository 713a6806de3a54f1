"""Pools and resizing of large eager tensors by open kernels. Images of all items and channels are
one row of images; pools over whole images are reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from ...base.dtype import FLOAT32, FLOAT64
from ...compiler.open.kernels import open_kernel
from ...core.op import Op
from ...lower.cpu.open.pool_grad import first_largest_kernel, shares_kernel
from ...ops.nn.adaptive_pool import bins_of, sizes_of
from ...ops.nn.pool import GlobalPool2DAttrs, Pool, pool_of, window_counts
from ...ops.vision.image import Axis, axes_of, sources_of, unscaled
from .copy import dense
from .generic import run_generic, run_written
from .product import multiply
from .reduce import MAX, SUM, reduced

Array = np.ndarray[Any, Any]
Run = Callable[[Op, Any, Sequence[Array]], Any]

SHARED, FOUND = 1.0, 1.0  # nanoseconds of one tap of a window
LARGEST_WEIGHTS = 1 << 13  # elements of a matrix that resizes an axis


def _images(run: Run) -> Run:
    """For floats in layout NCHW: as (images, 1, height, width) and back."""

    def reshaped(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
        if params.layout != "NCHW":
            return None
        if any(a.dtype not in (FLOAT32, FLOAT64) or not a.size for a in arrays):
            return None
        flat = [a.reshape(prod(a.shape[:2]), 1, *a.shape[2:]) for a in arrays]
        made = run(op, params, flat)
        return None if made is None else made.reshape(*arrays[0].shape[:2], *made.shape[2:])

    return reshaped


@_images
def run_windows(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    return run_generic(op, params, arrays)[0]


@_images
def run_max_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    _, x, y = arrays
    kernel = open_kernel(("first_largest", x.dtype), partial(first_largest_kernel, x.dtype))
    pool, out = pool_of(params, x.shape), np.empty(x.shape, x.dtype)
    given = [dense(array) for array in arrays]
    kernel.run([*given, out], _scalars(pool, len(x)), len(x), y.size * _taps(pool) * FOUND)
    return out


@_images
def run_avg_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    g, x = arrays
    pool = pool_of(params, x.shape)
    if pool.windows[1].stride == 1:  # then elements, side by side in lanes, ask their windows
        return run_generic(op, params, arrays)[0]
    shares = np.divide(g, window_counts(params, pool), dtype=g.dtype)
    kernel = open_kernel(("window_shares", g.dtype), partial(shares_kernel, g.dtype))
    out = np.empty(x.shape, x.dtype)
    kernel.run([shares, out], _scalars(pool, len(x)), len(x), g.size * _taps(pool) * SHARED)
    return out


def _scalars(pool: Pool, images: int) -> list[int]:
    """As the kernels of `lower.cpu.open.pool_grad` take them."""
    made = [images]
    for extent, count, win in zip(pool.extents, pool.outs, pool.windows):
        made += [extent, count, win.size, win.stride, win.before, win.dilation]
    return made


def _taps(pool: Pool) -> int:
    return pool.windows[0].size * pool.windows[1].size


@_images
def run_global_max(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    return reduced(MAX, arrays[0], (2, 3)).reshape(-1, 1, 1, 1)


@_images
def run_global_mean(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    return _means(arrays[0])


def _means(x: Array) -> Array:
    total = reduced(SUM, x, (2, 3)) / prod(x.shape[2:])
    return total.astype(x.dtype, copy=False).reshape(-1, 1, 1, 1)


def _is_global(params: Any) -> bool:
    return set(params.output_size) == {1}


@_images
def run_adaptive(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """down x across', where each row of those has the shares that make the mean of a bin."""
    (x,) = arrays
    if _is_global(params):
        return _means(x)
    return _between(x, *_bin_shares(params, x), backward=False)


@_images
def run_adaptive_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    g, x = arrays
    if _is_global(params):
        return run_generic(_GLOBAL_GRAD, GlobalPool2DAttrs(), arrays)[0]
    return _between(g, *_bin_shares(params, x), backward=True)


_GLOBAL_GRAD = Op.get("_global_avg_pool2d_grad")


def _bin_shares(params: Any, x: Array) -> list[Array]:
    return [_shares(*pair) for pair in zip(x.shape[2:], sizes_of(params))]


@lru_cache(64)
def _shares(extent: int, count: int) -> Array:
    """(bins, elements)"""
    place = np.arange(extent)
    starts, ends = (ends[:, None] for ends in bins_of(extent, count))
    return ((place >= starts) & (place < ends)) / (ends - starts)


def _between(x: Array, down: Array, across: Array, backward: bool) -> Array | None:
    """down x across', or the transpose of that, down' x across. Products multiply all by all, which
    infinity does not survive: None where there is one, or where most of it would be zeros."""
    if max(down.size, across.size) > LARGEST_WEIGHTS:
        return None
    if not np.isfinite(reduced(SUM, x, (0, 1, 2, 3))):
        return None
    left, right = (down.T, across) if backward else (down, across.T)
    return multiply(left.astype(x.dtype), multiply(x, right.astype(x.dtype)))


def run_resize_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """The transposes of resizing: small images by products, others by the operator's own loops."""
    if any(a.dtype.kind not in "fiub" or not a.size for a in arrays):
        return None
    made: Array | None = _by_products(op, params, arrays)
    return run_written(op, params, arrays)[0] if made is None else made


@_images
def _by_products(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """down' g across, where those say what each place got of each element."""
    g = arrays[0]
    shape = arrays[1].shape if len(arrays) > 1 else unscaled(params, g.shape)
    axes = axes_of(params, shape, g.shape)
    if any(axis.extent * axis.out > LARGEST_WEIGHTS for axis in axes):
        return None
    return _between(g, *map(_weights, axes), backward=True)


@lru_cache(64)
def _weights(axis: Axis) -> Array:
    """(places, elements)"""
    made = np.zeros((axis.out, axis.extent))
    for index, weight in sources_of(axis):
        np.add.at(made, (np.arange(axis.out), index), weight)
    return made


CALLS = {
    "max_pool2d": (1 << 6, run_windows),
    "_max_pool2d_grad": (1 << 6, run_max_grad),
    "_max_pool2d_pick": (1 << 6, run_windows),
    "avg_pool2d": (1 << 6, run_windows),
    "_avg_pool2d_grad": (1 << 6, run_avg_grad),
    "global_max_pool2d": (1 << 6, run_global_max),
    "_global_max_pool2d_grad": (1 << 6, run_windows),
    "_global_max_pool2d_pick": (1 << 6, run_windows),
    "global_avg_pool2d": (1 << 6, run_global_mean),
    "_global_avg_pool2d_grad": (1 << 6, run_windows),
    "adaptive_avg_pool2d": (1 << 6, run_adaptive),
    "_adaptive_avg_pool2d_grad": (1 << 6, run_adaptive_grad),
    "upsampling": (1 << 6, run_windows),
    "_upsampling_grad": (1 << 12, run_resize_grad),
    "_resize_grad": (1 << 12, run_resize_grad),
    "resize": (1 << 6, run_windows),
}
