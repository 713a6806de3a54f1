"""Convolutions of eager arrays by open kernels: operators' params and arrays come in, their outputs go out.

Declined are other layouts and dtypes, nothing to compute, shapes that do not fit, and filters that are infinite or
NaN where taps stand outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...base.cpu_target import host
from ...base.dtype import FLOAT32, FLOAT64, DType
from ...compiler.open.kernels import open_kernel
from ...core.op import Op
from ...lower.cpu.conv_filters import filters_kernel
from ...lower.cpu.windows.depthwise import SUMMED, added_parts_kernel, depthwise_filters_kernel, depthwise_kernel
from ...lower.cpu.windows.patch_convolution import convolution_kernel
from ...lower.cpu.windows.window_plans import (
    WindowPlan,
    WindowSum,
    forward_sum,
    plan_filters,
    plan_sum,
    suits_taps,
    transposed_sum,
)
from ...ops.nn import conv_grad  # noqa: F401  operators named here
from ...ops.nn._convolution import convolution_of
from ...ops.nn.conv import Conv2DTransposeAttrs
from ...runtime.cpu.open_kernel import OpenKernel
from ...te.loops import Kernel
from .calls import Array, Declined, Facts, Run, facts_of, inferred, native
from .copy import copy_into, dense
from .generic import run_template
from .product import multiply

Outputs = list[Array]

PLANS = 1024
LARGEST = 1 << 30  # extents and pads whose sums are 32-bit numbers

KERNELS: dict[str, Callable[..., Kernel]] = {
    "convolution": convolution_kernel,
    "depthwise": depthwise_kernel,
    "filters": filters_kernel,
    "depthwise_filters": depthwise_filters_kernel,
    "added_parts": added_parts_kernel,
}


def _kernel(kind: str, dtype: DType, *form: int) -> OpenKernel:
    return open_kernel((kind, *form, dtype), lambda target: KERNELS[kind](*form, target, dtype))


# Plans, by the shapes and dtypes of all inputs.

Job = Callable[..., WindowSum]  # of a convolution, the shape that comes out, and those that come in


def _check(params: Any, facts: Facts) -> None:
    """Declines calls that the kernels have no form for."""
    dtypes = {dtype for _, dtype in facts}
    if len(dtypes) > 1 or not dtypes <= {FLOAT32, FLOAT64} or params.out_dtype not in ("same", *map(str, dtypes)):
        raise Declined("dtype")
    layouts = (params.layout, params.kernel_layout, getattr(params, "out_layout", "NCHW"))
    if layouts not in (("NCHW", "OIHW", "NCHW"), ("NCHW", "OIHW", "__undef__")):
        raise Declined("layout")
    extents = [extent for shape, _ in facts for extent in shape]
    if 0 in extents:
        raise Declined("empty")
    reach = max(params.kernel_size) * max(params.dilation)
    if max([*params.strides, *params.padding, reach, *extents]) >= LARGEST:
        raise Declined("size")


def _convolution(
    name: str, run: Callable[..., Outputs], plan: Callable[..., WindowPlan], job: Job, places: Sequence[int] = ()
) -> Run:
    """Registers a convolution by the window sum that it is: how that is run and planned, and the places of the
    arrays that run takes, if not all in order."""

    @lru_cache(PLANS)
    def planned(op: Op, params: Any, facts: Facts) -> WindowPlan | None:
        _check(params, facts)
        out = inferred(op, params, facts)[0].shape
        windows = job(convolution_of(params), out, *[shape for shape, _ in facts])
        if not min(windows.out):
            raise Declined("empty")
        return None if suits_taps(windows) else plan(windows, host(), facts[0][1])

    def call(op: Op, params: Any, arrays: Sequence[Array]) -> Outputs:
        chosen = [arrays[place] for place in places] if places else arrays
        made = planned(op, params, facts_of(arrays))
        return _by_taps(params, *chosen) if made is None else run(made, *chosen)

    return native(name, fitting=False)(call)


# Calls.


def _run_sum(plan: WindowPlan, source: Array, weight: Array, *bias: Array) -> Outputs:
    out = np.empty(plan.out, source.dtype)
    added = bias[0] if bias else np.zeros(plan.out[1], source.dtype)
    if plan.pointwise and not bias:
        return _run_pointwise(plan, source, weight, out)
    nonfinite = np.zeros(plan.lanes, source.dtype)
    inputs = [dense(a) for a in (source, weight, added)]
    arrays = (*inputs, *plan.tables, out, nonfinite)
    _kernel(plan.kind, source.dtype).run(arrays, plan.scalars, plan.turns, plan.work)
    _check_spread(plan, nonfinite, weight)
    return [out]


def _by_taps(params: Any, source: Array, weight: Array, *bias: Array) -> Outputs:
    """A transposed convolution, or a gradient that is one, by the template of models."""
    given = _transpose(params, weight.shape[1] * params.groups, bool(bias))
    return run_template(_TRANSPOSE, given, [source, weight, *bias])


@lru_cache(256)
def _transpose(params: Any, channels: int, use_bias: bool) -> Conv2DTransposeAttrs:
    names = ("kernel_size", "strides", "padding", "dilation", "groups")
    same = {name: getattr(params, name) for name in names}
    return Conv2DTransposeAttrs(channels=channels, use_bias=use_bias, **same)


_TRANSPOSE = Op.get("conv2d_transpose")


def _run_pointwise(plan: WindowPlan, source: Array, weight: Array, out: Array) -> Outputs:
    """Products of the filters, or of their transpose, and each image."""
    filters = weight[:, :, 0, 0].T if plan.transposed else weight[:, :, 0, 0]
    multiply(filters, _matrices(source), out=_matrices(out))
    return [out]


def _matrices(images: Array) -> Array:
    """A matrix of channels and pixels for each image."""
    return images.reshape(*images.shape[:2], -1)


def _check_spread(plan: WindowPlan, nonfinite: Array, factor: Array) -> None:
    """Declines what is infinite or NaN and met zeros that stand for nothing."""
    if plan.outside and np.isnan(nonfinite).any() and not np.isfinite(factor).all():
        raise Declined("not finite")


def _run_filters(plan: WindowPlan, source: Array, windows: Array) -> Outputs:
    dtype = source.dtype
    out = np.empty(plan.out, dtype)
    if plan.pointwise:
        parts = np.empty((len(source), *plan.out), dtype) if len(source) > 1 else out
        multiplied = parts.reshape(len(source), *plan.out[:2])
        multiply(_matrices(windows), _matrices(source).swapaxes(1, 2), out=multiplied)
        return [_added(parts, out)]
    parts = np.empty((plan.splits, *plan.out), dtype) if plan.splits > 1 else out
    if plan.form is not None:
        _run_template(plan, source, windows, parts.reshape(plan.splits, *plan.out))
        return [_added(parts, out)]
    nonfinite = np.zeros(plan.lanes, dtype)
    arrays = (dense(source), dense(windows), *plan.tables, parts, nonfinite)
    _kernel(plan.kind, dtype).run(arrays, plan.scalars, plan.turns, plan.work)
    _check_spread(plan, nonfinite, windows)
    return [_added(parts, out)]


def _run_template(plan: WindowPlan, source: Array, windows: Array, parts: Array) -> None:
    """Packs and multiplies the images of one part after the other."""
    assert plan.form is not None
    wide, other = (windows, source) if plan.form.by_output else (source, windows)
    images, groups, *scalars = plan.scalars
    first = 0
    for number, part in enumerate(parts):
        end = images * (number + 1) // len(parts)
        arrays = (in_blocks(wide[first:end], groups, plan.lanes), dense(other[first:end]), part)
        numbers = (end - first, groups, *scalars)
        _kernel(plan.kind, part.dtype, *plan.form).run(arrays, numbers, plan.turns, plan.work / len(parts))
        first = end


def in_blocks(images: Array, groups: int, lanes: int) -> Array:
    """The channels of each group in blocks, whose last may have lanes that hold nothing: (image and group, block,
    pixel, lane)."""
    deep, pixels = images.shape[1] // groups, prod(images.shape[2:])
    whole, rest = divmod(deep, lanes)
    rows = images.reshape(len(images) * groups, deep, pixels)
    made = np.empty((len(rows), -(-deep // lanes), pixels, lanes), images.dtype)
    copy_into(made[:, :whole], rows[:, : deep - rest].reshape(len(rows), whole, lanes, pixels).swapaxes(2, 3))
    if rest:
        copy_into(made[:, whole, :, :rest], rows[:, deep - rest :].swapaxes(1, 2))
    return made


def _added(parts: Array, out: Array) -> Array:
    """The sum of parts, in order, unless the output is the only one."""
    if parts is not out:
        turns = -(-out.size // SUMMED)
        numbers = (len(parts), out.size, turns)
        _kernel("added_parts", out.dtype).run((parts, out), numbers, turns, parts.size / 2)
    return out


_convolution("conv2d", _run_sum, plan_sum, lambda conv, out, x, w, *bias: forward_sum(conv, x, w, out))
_convolution("conv2d_transpose", _run_sum, plan_sum, lambda conv, out, x, w, *bias: transposed_sum(conv, x, w, out))
_convolution("_conv2d_transpose_grad_data", _run_sum, plan_sum, lambda conv, out, g, w: forward_sum(conv, g, w, out))
_data_grad = _convolution(
    "_conv2d_grad_data", _run_sum, plan_sum, lambda conv, out, g, x, w: transposed_sum(conv, g, w, out), (0, 2)
)
_weight_grad = _convolution(
    "_conv2d_grad_weight", _run_filters, plan_filters, lambda conv, out, g, x: forward_sum(conv, x, out, g), (1, 0)
)
_convolution(
    "_conv2d_transpose_grad_weight", _run_filters, plan_filters, lambda conv, out, g, x: forward_sum(conv, g, out, x)
)

_DATA_GRAD, _WEIGHT_GRAD = Op.get("_conv2d_grad_data"), Op.get("_conv2d_grad_weight")


@native("_conv2d_grad", fitting=False)
def run_conv2d_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Outputs:
    data, weight = _data_grad(_DATA_GRAD, params, arrays), _weight_grad(_WEIGHT_GRAD, params, arrays[:2])
    return [*data, *weight, *([arrays[0].sum(axis=(2, 3)).sum(axis=0)] if params.use_bias else [])]
