"""Softmax and normalisations of large eager tensors by open kernels: axes that are treated alike
are joined first, so that few kernels serve all shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ..base.dtype import FLOAT32, FLOAT64, DType
from ..compiler.open_kernels import open_kernel
from ..core.op import Op
from ..lower.open.pointwise import Walk, element_of, pointwise_kernel
from ..ops._families import pointwise
from ..ops.magnitude import L2NormalizeAttrs
from ..ops.nn import AxisAttrs
from ..ops.norm import BatchNormAttrs, LayerNormAttrs
from ..runtime.open_kernel import OpenKernel
from .native_generic import run_generic
from .native_pointwise import MOVED

Array = np.ndarray[Any, Any]
Run = Callable[[Op, Any, Sequence[Array]], Any]


def _floats(run: Run) -> Run:
    """For arrays of one floating dtype that are not empty."""

    def checked(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
        dtype = arrays[0].dtype
        if dtype not in (FLOAT32, FLOAT64) or not arrays[0].size:
            return None
        if any(array.dtype != dtype for array in arrays):
            return None
        return run(op, params, arrays)

    return checked


def _around(x: Array, axis: int) -> Array:
    """(before, along, after), or (before, along) if nothing comes after."""
    axis %= x.ndim
    before, after = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    return x.reshape((before, x.shape[axis], after) if after > 1 else (before, x.shape[axis]))


@_floats
def run_softmax(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    (x,) = arrays
    return run_generic(op, _ALONG, [_around(x, params.axis)])[0].reshape(x.shape)


_ALONG = AxisAttrs(axis=1)


@_floats
def run_trailing(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """layer_norm and rms_norm: (rows, elements of a row)."""
    x, *scales = arrays
    length = prod(x.shape[params.axis % x.ndim :])
    rows = [x.reshape(-1, length), *[scale.reshape(length) for scale in scales]]
    return run_generic(op, _trailing(params.epsilon), rows)[0].reshape(x.shape)


@cache
def _trailing(epsilon: float) -> LayerNormAttrs:
    return LayerNormAttrs(axis=-1, epsilon=epsilon)


@_floats
def run_l2_normalize(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    (x,) = arrays
    if len(params.axis) != 1:
        return None
    made = run_generic(op, L2NormalizeAttrs(eps=params.eps, axis=(1,)), [_around(x, *params.axis)])
    return made[0].reshape(x.shape)


@_floats
def run_groups(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """group_norm and instance_norm: (items, channels, elements of a channel)."""
    x, *scales = arrays
    flat = x.reshape(*x.shape[:2], -1)
    return run_generic(op, params, [flat, *scales])[0].reshape(x.shape)


@_floats
def run_batch_norm(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    x, *vectors = arrays
    data = _around(x, params.axis)
    if not params.training:
        made = _scaled(params, np.ascontiguousarray(data), *vectors)
        return [made.reshape(x.shape), *map(np.copy, vectors[2:])]
    made = run_generic(op, _batch_params(params), [data, *vectors])
    return [made[0].reshape(x.shape), *made[1:]]


@cache
def _batch_params(params: BatchNormAttrs) -> BatchNormAttrs:
    values = {name: getattr(params, name) for name in ("epsilon", "center", "scale", "momentum")}
    return BatchNormAttrs(axis=1, training=True, unbiased=params.unbiased, **values)


def _scaled(
    params: BatchNormAttrs, x: Array, gamma: Array, beta: Array, mean: Array, var: Array
) -> Array:
    """x scale + shift, with both of each channel from float64."""
    with np.errstate(all="ignore"):
        scale = (gamma if params.scale else 1) / np.sqrt(var.astype(FLOAT64) + params.epsilon)
        shift = (beta if params.center else 0) - mean * scale
    out = np.empty_like(x)
    scalars = _row_scalars(x.shape)
    rows = x.size // x.shape[-1]
    arrays = [x, scale.astype(x.dtype), shift.astype(x.dtype), out]
    _linear(x.dtype, x.ndim).run(arrays, scalars, rows, x.size * MOVED)
    return out


def _row_scalars(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Extents, then how far data, scale and shift go from row to row: (items, channels, elements)
    or (items, channels)."""
    if len(shape) == 2:
        return (*shape, shape[1], 0, 0)
    return (*shape, shape[1] * shape[2], shape[2], 0, 1, 0, 1)


@cache
def _linear(dtype: DType, rank: int) -> OpenKernel:
    """x scale + shift; with three axes, scale and shift are the same for all of a row."""
    element = element_of(pointwise(lambda x, scale, shift: x * scale + shift), [dtype] * 3)
    assert element is not None
    walk = Walk(rank, (True, rank == 2, rank == 2))
    key = ("scale and shift", dtype, rank)
    return open_kernel(key, lambda target: pointwise_kernel("batch_norm", element, walk, target))


CALLS = {
    "softmax": (1 << 12, run_softmax),
    "log_softmax": (1 << 13, run_softmax),
    "layer_norm": (1 << 12, run_trailing),
    "rms_norm": (1 << 12, run_trailing),
    "l2_normalize": (1 << 13, run_l2_normalize),
    "group_norm": (1 << 12, run_groups),
    "instance_norm": (1 << 12, run_groups),
    "batch_norm": (1 << 13, run_batch_norm),
}
