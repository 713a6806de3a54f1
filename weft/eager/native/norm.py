"""Softmax, cross entropy and normalisations of large eager tensors, and their gradients, by open
kernels: axes that are treated alike are joined first, so that few kernels serve all shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from ...base.cpu_facts import COSTS
from ...base.cpu_target import host
from ...base.dtype import FLOAT64, INT64, DType
from ...base.quiet import quietly
from ...core.op import Op
from ...lower.cpu.open.element import Element, element_of
from ...lower.cpu.open.norms import norm_grad_kernel, norm_kernel, row_norm_grad_kernel, row_norm_kernel
from ...lower.cpu.open.softmax import cross_entropy_grad_kernel, cross_entropy_kernel, softmax_kernel
from ...ops._families import pointwise
from ...ops.math.magnitude import L2NormalizeAttrs
from ...ops.nn.cross_entropy import CrossEntropyAttrs, reduced_losses, row_gradients
from ...ops.nn.dense_softmax import AxisAttrs
from ...ops.nn.norm import BatchNormAttrs, groups_of, moved, unbiasing
from ...te.loops import Kernel
from .calls import Array, Declined, floats, native
from .copy import dense
from .generic import run_generic
from .kernels import kernel
from .pointwise import run_pointwise
from .thresholds import FROM

NORMED, NORMED_GRAD, EXPONENTIAL = COSTS.normed, COSTS.normed_grad, COSTS.exponential
FEW = 16  # elements of a channel that are not worth a row


def _around(x: Array, axis: int) -> Array:
    """(before, along, after), or (before, along) if nothing comes after."""
    axis %= x.ndim
    before, after = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    return x.reshape((before, x.shape[axis], after) if after > 1 else (before, x.shape[axis]))


# softmax, log_softmax and cross entropy


def _is_last(x: Array, axis: int) -> bool:
    """Whether neighbours along an axis are neighbours in memory."""
    return bool(prod(x.shape[axis % x.ndim + 1 :]) == 1)


@native("softmax", "log_softmax", takes=floats)
def run_softmax(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    (x,) = arrays
    if not _is_last(x, params.axis):
        if x.size < FROM.other_axes:
            return None
        return run_generic(op, _ALONG, [_around(x, params.axis)])[0].reshape(x.shape)
    out, length = np.empty(x.shape, x.dtype), x.shape[params.axis]
    rows = x.size // length
    kernel(softmax_kernel, op is _LOG, x.dtype).run([dense(x), out], (rows, length), rows, x.size * EXPONENTIAL)
    return out


_LOG = Op.get("log_softmax")
_ALONG = AxisAttrs(axis=1)


def _scores_and_classes(arrays: Sequence[Array]) -> None:
    """Floats, maybe gradients and scores, then classes."""
    floats(arrays[:-1])
    if arrays[-1].dtype != INT64:
        raise Declined("dtype")


@native("softmax_cross_entropy", takes=_scores_and_classes)
def run_cross_entropy(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    x, classes = arrays
    if _is_last(x, params.axis):
        losses = np.empty(classes.shape, x.dtype)
        _class_rows(False, params, [x, classes, losses])
    elif x.size >= FROM.other_axes:
        rows = _around(x, params.axis)
        losses = run_generic(op, _each_row(params.smoothing), [rows, _beside(classes, rows)])[0].reshape(classes.shape)
    else:
        return None
    return np.asarray(quietly(reduced_losses, params, losses, classes)).astype(x.dtype, copy=False)


@native("_softmax_cross_entropy_grad", takes=_scores_and_classes)
def run_cross_entropy_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    g, x, classes = arrays
    is_last = _is_last(x, params.axis)
    if not is_last and x.size < FROM.other_axes:
        return None
    g = quietly(row_gradients, params, g, classes)
    if not is_last:
        rows = _around(x, params.axis)
        beside = [_beside(g, rows), rows, _beside(classes, rows)]
        return run_generic(op, _each_row(params.smoothing), beside)[0].reshape(x.shape)
    out = np.empty(x.shape, x.dtype)
    _class_rows(True, params, [g, x, classes, out])
    return out


def _beside(vector: Array, x: Array) -> Array:
    """What has an element for each row of (before, along, after)."""
    return vector.reshape(x.shape[0], *x.shape[2:])


@lru_cache(64)
def _each_row(smoothing: float) -> CrossEntropyAttrs:
    return CrossEntropyAttrs(axis=1, smoothing=smoothing)


@lru_cache(256)
def _shares(smoothing: float, length: int) -> Array:
    return np.array([1 - smoothing, smoothing / length])


def _class_rows(backward: bool, params: CrossEntropyAttrs, arrays: list[Array]) -> None:
    *scores, classes, out = arrays
    length, dtype, rows = scores[-1].shape[params.axis], out.dtype, classes.size
    if classes.max() >= length:
        classes = np.minimum(classes, length - 1)
    if backward:
        losses = kernel(cross_entropy_grad_kernel, dtype)
    else:
        losses = kernel(cross_entropy_kernel, params.smoothing > 0, dtype)
    used = [*map(dense, [*scores, classes]), _shares(params.smoothing, length), out]
    losses.run(used, (rows, length), rows, rows * length * EXPONENTIAL)


# Norms over rows, with a scale for each element.


@native("layer_norm", "rms_norm", takes=floats)
def run_trailing(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """layer_norm and rms_norm"""
    x, *scales = arrays
    return _normed_rows(x, prod(x.shape[params.axis % x.ndim :]), 1, params.epsilon, *scales)


@native("_layer_norm_grad", "_rms_norm_grad", takes=floats)
def run_trailing_grad(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    g, x, gamma = arrays
    length, centred = prod(x.shape[params.axis % x.ndim :]), op is _LAYER_GRAD
    data, *sums = _row_gradients(g, x, length, 1, params.epsilon, gamma, centred)
    return [data, *[total.reshape(gamma.shape) for total in sums]]


_LAYER_GRAD = Op.get("_layer_norm_grad")


def _normed_rows(x: Array, length: int, groups: int, epsilon: float, gamma: Array, beta: Array | None = None) -> Array:
    centred, rows = beta is not None, x.size // length
    out = np.empty(x.shape, x.dtype)
    arrays = [*map(dense, (x, gamma, gamma if beta is None else beta)), _wide(epsilon), out]
    kernel(row_norm_kernel, centred, x.dtype).run(arrays, (rows, length, groups), rows, x.size * NORMED)
    return out


def _row_gradients(
    g: Array, x: Array, length: int, groups: int, epsilon: float, gamma: Array, centred: bool
) -> list[Array]:
    """dx, dgamma and, if there is one, dbeta: sums over blocks of rows, then over those."""
    rows = x.size // length
    block = -(-min(max(rows // 16, 8), 64) // groups) * groups
    blocks = -(-rows // block)
    data = np.empty(x.shape, x.dtype)
    sums = [np.empty((blocks, groups * length), x.dtype) for _ in range(2)]
    arrays, scalars = [*map(dense, (g, x, gamma)), _wide(epsilon), data, *sums], (rows, length, groups, block)
    kernel(row_norm_grad_kernel, centred, x.dtype).run(arrays, scalars, blocks, x.size * NORMED_GRAD)
    return [data, *[parts.sum(0) for parts in sums[: 1 + centred]]]


@lru_cache(64)
def _wide(epsilon: float) -> Array:
    return np.array([epsilon], FLOAT64)


@native("l2_normalize", takes=floats)
def run_l2_normalize(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    (x,) = arrays
    if len(params.axis) != 1:
        raise Declined("attributes")
    return run_generic(op, L2NormalizeAttrs(eps=params.eps, axis=(1,)), [_around(x, *params.axis)])[0].reshape(x.shape)


# Norms with a scale for each channel.


# How many sets there are, groups and parts of one, and where those lie: the scalars of kernels for parts, in the order
# that `lower.cpu.open.norms` takes them in.
Sets = tuple[int, ...]


@lru_cache(1024)
def _grouped(shape: tuple[int, ...], groups: int) -> Sets:
    """Every group of channels of an item: a channel is a part."""
    items, channels = shape[:2]
    size, length = channels // groups, prod(shape[2:])
    whole = size * length
    return (items * groups, groups, size, 1, length, 1, whole, channels * length, whole, length, 0)


def _columns(x: Array, axis: int) -> Array | None:
    """The data with channels last, where they are side by side in memory and fill lanes."""
    few = x.shape[axis] < host().lanes(x.dtype)
    if few or (x.flags.c_contiguous and not _is_last(x, axis)):
        return None
    view = np.moveaxis(x, axis, -1)
    return view if view.flags.c_contiguous else None


@lru_cache(1024)
def _batched(shape: tuple[int, ...], axis: int) -> Sets:
    """Every channel of all items: a part of as many segments."""
    axis %= len(shape)
    items, channels, length = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    return (channels, channels, 1, items, length, items, length, 0, length, 0, channels * length)


def _outputs(x: Array, count: int) -> list[Array]:
    """Memory for what has an element for each of the data's, and for two numbers of each part."""
    return [np.empty(shape, x.dtype) for shape in (x.shape, count, count)]


def _normed_parts(x: Array, sets: Sets, epsilon: float, *scales: Array) -> list[Array]:
    """The result, mean and variance."""
    outputs = _outputs(x, sets[0])
    arrays = [*map(dense, (x, *scales)), _wide(epsilon), *outputs]
    kernel(norm_kernel, False, x.dtype).run(arrays, sets, sets[0], x.size * NORMED)
    return outputs


def _part_gradients(g: Array, x: Array, sets: Sets, epsilon: float, gamma: Array, *moments: Array) -> list[Array]:
    """dx, then dgamma and dbeta of each part of a set."""
    count, _, parts, *_ = sets
    outputs = _outputs(x, count * parts)
    arrays = [*map(dense, (g, x, gamma)), _wide(epsilon), *outputs, *map(dense, moments)]
    kernel(norm_grad_kernel, False, bool(moments), x.dtype).run(arrays, sets, count, x.size * NORMED_GRAD)
    return outputs


@native("group_norm", "instance_norm", takes=floats)
def run_groups(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """group_norm and instance_norm; where channels have few elements, each has its own scale."""
    x, *scales = arrays
    groups, inner = groups_of(params, x.shape[1]), prod(x.shape[2:])
    if inner >= FEW:
        return _normed_parts(x, _grouped(x.shape, groups), params.epsilon, *scales)[0]
    wide = [scale.repeat(inner) for scale in scales]
    return _normed_rows(x, x.shape[1] // groups * inner, groups, params.epsilon, *wide)


@native("_group_norm_grad", "_instance_norm_grad", takes=floats)
def run_groups_grad(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    g, x, gamma = arrays
    channels = x.shape[1]
    groups, inner = groups_of(params, channels), prod(x.shape[2:])
    if inner >= FEW:
        data, *sums = _part_gradients(g, x, _grouped(x.shape, groups), params.epsilon, gamma)
        return [data, *[parts.reshape(-1, channels).sum(0) for parts in sums]]
    length, wide = channels // groups * inner, gamma.repeat(inner)
    data, *sums = _row_gradients(g, x, length, groups, params.epsilon, wide, True)
    return [data, *[parts.reshape(channels, inner).sum(1) for parts in sums]]


@native("batch_norm", takes=floats)
def run_batch_norm(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    x, gamma, beta, mean, var = arrays
    if gamma.ndim > 1:
        raise Declined("rank")
    if not params.training:
        scaled = _scaled(params, dense(_around(x, params.axis)), *arrays[1:])
        return [scaled.reshape(x.shape), mean.copy(), var.copy()]
    scale = gamma if params.scale else np.ones_like(gamma)
    shift = beta if params.center else np.zeros_like(beta)
    normed = _normed_channels(x, params.axis, params.epsilon, scale, shift)
    grown = unbiasing(params, x.size // mean.size)
    return [*normed, *moved(params, (mean, var), (normed[1], normed[2] * x.dtype.type(grown)))]


@native("_batch_norm_grad", takes=floats)
def run_batch_norm_grad(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    g, x, gamma, *moments = arrays
    if gamma.ndim > 1:
        raise Declined("rank")
    scale = gamma if params.scale else np.ones_like(gamma)
    return _channel_gradients(g, x, params.axis, params.epsilon, scale, *moments)


def _normed_channels(x: Array, axis: int, epsilon: float, *scales: Array) -> list[Array]:
    """The result, mean and variance."""
    view = _columns(x, axis)
    if view is None:
        return _normed_parts(x, _batched(x.shape, axis), epsilon, *scales)
    return _run_columns((norm_kernel, True), view, axis, [view, *map(dense, scales), _wide(epsilon)], (), NORMED)


def _channel_gradients(g: Array, x: Array, axis: int, epsilon: float, gamma: Array, *moments: Array) -> list[Array]:
    view = _columns(x, axis)
    if view is None:
        return _part_gradients(g, x, _batched(x.shape, axis), epsilon, gamma, *moments)
    before = [dense(np.moveaxis(g, axis, -1)), view, dense(gamma), _wide(epsilon)]
    return _run_columns((norm_grad_kernel, True, True), view, axis, before, list(map(dense, moments)), NORMED_GRAD)


def _run_columns(
    form: tuple[Callable[..., Kernel], *tuple[bool, ...]],
    x: Array,
    axis: int,
    before: Sequence[Array],
    after: Sequence[Array],
    work: float,
) -> list[Array]:
    """The outputs of a kernel for data with channels last, which takes arrays before and after them."""
    columns = x.shape[-1]
    outputs = _outputs(x, columns)
    turns = -(-columns // host().lanes(x.dtype))
    scalars = (x.size // columns, columns)
    kernel(*form, x.dtype).run([*before, *outputs, *after], scalars, turns, x.size * work)
    return [np.moveaxis(outputs[0], -1, axis), *outputs[1:]]


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
