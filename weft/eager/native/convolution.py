"""Convolutions of eager arrays by open kernels: operators' params and arrays come in, their outputs
go out, or None where the reference is to run: other layouts and dtypes, nothing to compute, shapes
that do not fit, and filters that are infinite or NaN where taps stand outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ...base.cpu_target import host
from ...base.dtype import FLOAT32, FLOAT64, DType
from ...base.errors import Error
from ...compiler.open.kernels import open_kernel
from ...lower.cpu.open.convolution import convolution_kernel
from ...lower.cpu.open.depthwise import depthwise_filters_kernel, depthwise_kernel
from ...lower.cpu.open.filters import SUMMED, added_parts_kernel, filters_kernel
from ...lower.cpu.open.fold import fold_kernel
from ...lower.cpu.open.window_plans import (
    Shape,
    WindowPlan,
    WindowSum,
    forward_sum,
    plan_filters,
    plan_sum,
    transposed_sum,
)
from ...ops.nn._convolution import convolution_of
from ...ops.nn.conv import conv_shape, transpose_shape
from ...runtime.cpu.open_kernel import OpenKernel
from .copy import dense
from .product import multiply

Array = np.ndarray[Any, Any]
Shapes = tuple[Shape, ...]
Outputs = list[Array] | None

PLANS = 1024
LARGEST = 1 << 30  # extents and pads whose sums are 32-bit numbers

KERNELS = {
    "convolution": convolution_kernel,
    "depthwise": depthwise_kernel,
    "filters": filters_kernel,
    "depthwise_filters": depthwise_filters_kernel,
    "added_parts": added_parts_kernel,
    "fold": fold_kernel,
}


def _kernel(kind: str, dtype: DType) -> OpenKernel:
    return open_kernel((kind, dtype), lambda target: KERNELS[kind](target, dtype))


# Which calls are taken.


def _suits(params: Any, shapes: Shapes, dtypes: Sequence[DType]) -> bool:
    if dtypes[0] not in (FLOAT32, FLOAT64) or any(dtype != dtypes[0] for dtype in dtypes):
        return False
    if params.layout != "NCHW" or params.kernel_layout != "OIHW":
        return False
    if getattr(params, "out_layout", "NCHW") not in ("NCHW", "__undef__"):
        return False
    if params.out_dtype not in ("same", dtypes[0].name):
        return False
    reach = max(params.kernel_size) * max(params.dilation)
    extents = [extent for shape in shapes for extent in shape]
    numbers = [*params.strides, *params.padding, reach, *extents]
    return bool(max(numbers) < LARGEST and min(extents) > 0)


def _shapes_of(rule: Callable[..., Any], params: Any, data: Shape) -> tuple[list[Shape], Shape]:
    """The shapes of the inputs and of the output that some data asks for."""
    count = 3 if params.use_bias else 2
    ins, (out,) = rule(params, [data, *[None] * (count - 1)], [None])
    return ins, out


# Plans, by the shapes of all inputs. None where these do not fit each other.


def _planned(plan: Callable[..., WindowPlan]) -> Callable[..., Callable[..., WindowPlan | None]]:
    """The plan of the sum that a function finds in params and shapes."""
    return lambda make: lru_cache(PLANS)(partial(_found, plan, make))


def _found(
    plan: Callable[..., WindowPlan],
    make: Callable[[Any, Shapes], WindowSum | None],
    params: Any,
    shapes: Shapes,
    dtypes: tuple[DType, ...],
) -> WindowPlan | None:
    if not _suits(params, shapes, dtypes):
        return None
    try:
        job = make(params, shapes)
    except Error:
        return None
    return None if job is None or not min(job.out) else plan(job, host(), dtypes[0])


@_planned(plan_sum)
def _conv(params: Any, shapes: Shapes) -> WindowSum | None:
    ins, out = _shapes_of(conv_shape, params, shapes[0])
    if ins != list(shapes):
        return None
    return forward_sum(convolution_of(params), shapes[0], shapes[1], out)


@_planned(plan_sum)
def _conv_grad_data(params: Any, shapes: Shapes) -> WindowSum | None:
    g, x, w = shapes
    ins, out = _shapes_of(conv_shape, params, x)
    if (ins[1], out) != (w, g):
        return None
    return transposed_sum(convolution_of(params), g, w, x)


@_planned(plan_filters)
def _conv_grad_weight(params: Any, shapes: Shapes) -> WindowSum | None:
    g, x = shapes
    ins, out = _shapes_of(conv_shape, params, x)
    return forward_sum(convolution_of(params), x, ins[1], g) if out == g else None


@_planned(plan_sum)
def _transpose(params: Any, shapes: Shapes) -> WindowSum | None:
    ins, out = _shapes_of(transpose_shape, params, shapes[0])
    if ins != list(shapes):
        return None
    return transposed_sum(convolution_of(params), shapes[0], shapes[1], out)


@_planned(plan_sum)
def _transpose_grad_data(params: Any, shapes: Shapes) -> WindowSum | None:
    g, w = shapes
    conv = convolution_of(params)
    extra = (params.output_padding[0], params.output_padding[-1])
    made = [win.out_extent(n - more) for win, n, more in zip(conv.windows, g[2:], extra)]
    data: Any = (g[0], w[0], *made)
    ins, out = _shapes_of(transpose_shape, params, data)
    return forward_sum(conv, g, w, data) if (ins[1], out) == (w, g) else None


@_planned(plan_filters)
def _transpose_grad_weight(params: Any, shapes: Shapes) -> WindowSum | None:
    g, x = shapes
    ins, out = _shapes_of(transpose_shape, params, x)
    return forward_sum(convolution_of(params), g, ins[1], x) if out == g else None


def _plan_for(plans: Callable[..., WindowPlan | None], params: Any, arrays: Sequence[Array]) -> WindowPlan | None:
    return plans(params, tuple([a.shape for a in arrays]), tuple([a.dtype for a in arrays]))


# Calls.


def _run_sum(plan: WindowPlan | None, source: Array, weight: Array, *bias: Array) -> Outputs:
    if plan is None:
        return None
    out = np.empty(plan.out, source.dtype)
    added = bias[0] if bias else np.zeros(plan.out[1], source.dtype)
    if plan.kind == "fold":
        return _run_fold(plan, source, weight, dense(added), out)
    if plan.pointwise and not bias:
        return _run_pointwise(plan, source, weight, out)
    nonfinite = np.zeros(plan.lanes, source.dtype)
    inputs = [dense(a) for a in (source, weight, added)]
    arrays = (*inputs, *plan.tables, out, nonfinite)
    _kernel(plan.kind, source.dtype).run(arrays, plan.scalars, plan.turns, plan.work)
    return None if plan.outside and _spread(nonfinite, weight) else [out]


def _run_fold(plan: WindowPlan, source: Array, weight: Array, bias: Array, out: Array) -> Outputs:
    """Products of all windows by matrix products, for each group, then their sums."""
    images, channels, *extents = source.shape
    groups = plan.out[1] // weight.shape[1]
    filters = weight.reshape(groups, channels // groups, -1)
    windows = source.reshape(images, groups, channels // groups, extents[0] * extents[1])
    if windows.shape[1] == windows.shape[3] == 1:
        products = multiply(windows[:, 0, :, 0], filters[0])
    else:
        products = multiply(filters.swapaxes(-1, -2), windows)
    arrays = (products, bias, plan.tables[0], out)
    _kernel("fold", source.dtype).run(arrays, plan.scalars, plan.turns, plan.work)
    return [out]


def _run_pointwise(plan: WindowPlan, source: Array, weight: Array, out: Array) -> Outputs:
    """Products of the filters, or of their transpose, and each image."""
    filters = weight[:, :, 0, 0].T if plan.transposed else weight[:, :, 0, 0]
    multiply(filters, _matrices(source), out=_matrices(out))
    return [out]


def _matrices(images: Array) -> Array:
    """A matrix of channels and pixels for each image."""
    return images.reshape(*images.shape[:2], -1)


def _spread(nonfinite: Array, factor: Array) -> bool:
    """Whether what is infinite or NaN met zeros that stand for nothing."""
    return bool(np.isnan(nonfinite).any()) and not np.isfinite(factor).all()


def _run_filters(plan: WindowPlan | None, source: Array, windows: Array) -> Outputs:
    if plan is None:
        return None
    dtype = source.dtype
    out = np.empty(plan.out, dtype)
    if plan.pointwise:
        parts = np.empty((len(source), *plan.out), dtype) if len(source) > 1 else out
        multiplied = parts.reshape(len(source), *plan.out[:2])
        multiply(_matrices(windows), _matrices(source).swapaxes(1, 2), out=multiplied)
        return [_added(parts, out)]
    parts = np.empty((plan.splits, *plan.out), dtype) if plan.splits > 1 else out
    nonfinite = np.zeros(plan.lanes, dtype)
    source, windows = dense(source), dense(windows)
    pair = (windows, source) if plan.swapped else (source, windows)
    arrays = (*pair, *plan.tables, parts, nonfinite)
    _kernel(plan.kind, dtype).run(arrays, plan.scalars, plan.turns, plan.work)
    return None if plan.outside and _spread(nonfinite, windows) else [_added(parts, out)]


def _added(parts: Array, out: Array) -> Array:
    """The sum of parts, in order, unless the output is the only one."""
    if parts is not out:
        turns = -(-out.size // SUMMED)
        numbers = (len(parts), out.size, turns)
        _kernel("added_parts", out.dtype).run((parts, out), numbers, turns, parts.size / 2)
    return out


def conv2d(params: Any, arrays: Sequence[Array]) -> Outputs:
    return _run_sum(_plan_for(_conv, params, arrays), *arrays)


def conv2d_grad_data(params: Any, arrays: Sequence[Array]) -> Outputs:
    plan = _plan_for(_conv_grad_data, params, arrays)
    return _run_sum(plan, arrays[0], arrays[2])


def conv2d_grad_weight(params: Any, arrays: Sequence[Array]) -> Outputs:
    return _run_filters(_plan_for(_conv_grad_weight, params, arrays), arrays[1], arrays[0])


def conv2d_grad(params: Any, arrays: Sequence[Array]) -> Outputs:
    data = conv2d_grad_data(params, arrays)
    weight = None if data is None else conv2d_grad_weight(params, arrays[:2])
    if data is None or weight is None:
        return None
    bias = [arrays[0].sum(axis=(2, 3)).sum(axis=0)] if params.use_bias else []
    return [*data, *weight, *bias]


def conv2d_transpose(params: Any, arrays: Sequence[Array]) -> Outputs:
    return _run_sum(_plan_for(_transpose, params, arrays), *arrays)


def conv2d_transpose_grad_data(params: Any, arrays: Sequence[Array]) -> Outputs:
    return _run_sum(_plan_for(_transpose_grad_data, params, arrays), *arrays)


def conv2d_transpose_grad_weight(params: Any, arrays: Sequence[Array]) -> Outputs:
    return _run_filters(_plan_for(_transpose_grad_weight, params, arrays), arrays[0], arrays[1])


CONVOLUTIONS: dict[str, Callable[[Any, Sequence[Array]], Outputs]] = {
    "conv2d": conv2d,
    "conv2d_transpose": conv2d_transpose,
    "_conv2d_grad": conv2d_grad,
    "_conv2d_grad_data": conv2d_grad_data,
    "_conv2d_grad_weight": conv2d_grad_weight,
    "_conv2d_transpose_grad_data": conv2d_transpose_grad_data,
    "_conv2d_transpose_grad_weight": conv2d_transpose_grad_weight,
}
