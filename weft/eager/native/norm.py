"""Cross entropy and norms by the moments of a batch of large eager tensors, and their gradients: axes that are treated
alike are joined first, so that few programs serve all shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ...base.cpu_target import host
from ...base.dtype import FLOAT64, INT64, DType
from ...base.quiet import quietly
from ...core.op import Op
from ...lower.cpu.nests.element import Element, element_of
from ...ops._families import pointwise
from ...ops.nn.cross_entropy import CrossEntropyAttrs, reduced_losses, row_gradients
from ...ops.nn.dense_softmax import axes_around
from ...ops.nn.norm import BatchNormAttrs, moved, unbiasing
from .calls import Array, Declined, floats, native
from .copy import dense
from .generic import run_generic
from .pointwise import run_pointwise


@lru_cache(256)
def _along_one(params: BatchNormAttrs) -> BatchNormAttrs:
    """The same of data as `_around` gives it. Programs do not depend on momentum."""
    return replace(params, axis=1, momentum=0.0)


def _around(x: Array, axis: int) -> Array:
    """(before, along, after), or (before, along) if nothing comes after."""
    return x.reshape(axes_around(x.shape, axis))


# Cross entropy


def _scores_and_classes(arrays: Sequence[Array]) -> None:
    """Floats, maybe gradients and scores, then classes."""
    floats(arrays[:-1])
    if arrays[-1].dtype != INT64:
        raise Declined("dtype")


@lru_cache(64)
def _each_row(smoothing: float) -> CrossEntropyAttrs:
    return CrossEntropyAttrs(axis=1, smoothing=smoothing)


def _beside(vector: Array, x: Array) -> Array:
    """What has an element for each row of (before, along, after)."""
    return vector.reshape(x.shape[0], *x.shape[2:])


@native("softmax_cross_entropy", takes=_scores_and_classes)
def run_cross_entropy(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    x, classes = arrays
    rows = _around(x, params.axis)
    (losses,) = run_generic(op, _each_row(params.smoothing), [rows, _beside(classes, rows)])
    return np.asarray(quietly(reduced_losses, params, losses.reshape(classes.shape), classes)).astype(
        x.dtype, copy=False
    )


@native("_softmax_cross_entropy_grad", takes=_scores_and_classes)
def run_cross_entropy_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    g, x, classes = arrays
    rows = _around(x, params.axis)
    beside = [_beside(quietly(row_gradients, params, g, classes), rows), rows, _beside(classes, rows)]
    return run_generic(op, _each_row(params.smoothing), beside)[0].reshape(x.shape)


# Norms by the moments of a batch.


@native("batch_norm", takes=floats)
def run_batch_norm(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    x, gamma, beta, mean, var = arrays
    if gamma.ndim > 1:
        raise Declined("rank")
    if not params.training:
        scaled = _scaled(params, dense(_around(x, params.axis)), *arrays[1:])
        return [scaled.reshape(x.shape), mean.copy(), var.copy()]
    normed = _by_channel(_MOMENTS, params, [x], [gamma, beta])
    grown = unbiasing(params, x.size // mean.size)
    return [*normed, *moved(params, (mean, var), (normed[1], normed[2] * x.dtype.type(grown)))]


_MOMENTS = Op.get("_batch_norm_moments")


@native("_batch_norm_grad", takes=floats)
def run_batch_norm_grad(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    g, x, gamma, *vectors = arrays
    if gamma.ndim > 1:
        raise Declined("rank")
    return _by_channel(op, params, [g, x], [gamma, *vectors])


def _by_channel(op: Op, params: BatchNormAttrs, images: Sequence[Array], vectors: Sequence[Array]) -> list[Array]:
    """Channels lie last where they are side by side in memory and fill lanes, else between what is before and after."""
    x, axis = images[-1], params.axis
    last = np.moveaxis(x, axis, -1)
    is_last = x.shape[axis] >= host().lanes(x.dtype) and last.flags.c_contiguous
    seen = [_around(np.moveaxis(a, axis, -1), -1) if is_last else _around(a, axis) for a in images]
    data, *made = run_generic(op, _along_one(params), [*seen, *vectors])
    return [np.moveaxis(data.reshape(last.shape), -1, axis) if is_last else data.reshape(x.shape), *made]


def _scaled(params: BatchNormAttrs, x: Array, gamma: Array, beta: Array, mean: Array, var: Array) -> Array:
    """x scale + shift, with both of each channel from float64, of data as `_around` gives it."""
    with np.errstate(all="ignore"):
        scale = (gamma if params.scale else 1) / np.sqrt(var.astype(FLOAT64) + params.epsilon)
        shift = (beta if params.center else 0) - mean * scale
    channels = [array.astype(x.dtype).reshape(-1, *[1] * (x.ndim - 2)) for array in (scale, shift)]
    return run_pointwise("scale and shift", _linear(x.dtype), [x, *channels])


@cache
def _linear(dtype: DType) -> Element:
    body = element_of(pointwise(lambda x, scale, shift: x * scale + shift), [dtype] * 3)
    assert body is not None
    return body
