"""Convolutions of eager arrays by programs all numbers of which are arguments: operators' params and
arrays come in, their outputs go out.

Declined are other layouts and dtypes, nothing to compute, and shapes that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ...base.cpu_target import host
from ...base.dtype import FLOAT32, FLOAT64, DType
from ...core.op import Op
from ...lower.cpu.conv_filters import Form
from ...lower.cpu.taps import Line
from ...lower.cpu.windows.kernels import filter_parts, is_useful, write_filters, write_sum
from ...lower.cpu.windows.window_sum import WindowSum
from ...ops.nn import conv_grad  # noqa: F401  operators named here
from ...ops.nn._convolution import convolution_of
from ...ops.nn.conv import Conv2DTransposeAttrs
from .calls import Array, Declined, Facts, Run, facts_of, inferred, native
from .copy import copy_into
from .generic import Call, numbers_call, run_template
from .product import multiply
from .reduce import reduced

Outputs = list[Array]
Shape = tuple[int, ...]

PLANS = 1024
LARGEST = 1 << 30  # extents and pads whose sums are 32-bit numbers
MATRIX_PIXELS = 128  # of an image that is multiplied as a matrix
MAX_PRODUCTS = 1 << 24  # that are kept at once


# Plans, by the shapes and dtypes of all inputs.


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


Job = Callable[..., tuple[Shape, Shape, bool]]  # of the shapes that come out and in: source, result, whether transposed


def _convolution(name: str, run: Callable[..., Outputs], job: Job, places: Sequence[int] = ()) -> Run:
    """Registers a convolution by the sum over windows that it is: how that is run, and the places of the arrays that
    run takes, if not all in order."""

    @lru_cache(PLANS)
    def planned(op: Op, params: Any, facts: Facts) -> WindowSum:
        _check(params, facts)
        out = inferred(op, params, facts)[0].shape
        source, made, transposed = job(out, *[shape for shape, _ in facts])
        if not min(made):
            raise Declined("empty")
        conv = convolution_of(params)
        lines = [Line(*axis, transposed) for axis in zip(conv.windows, made[2:], source[2:])]
        channels = (source[1] // conv.groups, made[1] // conv.groups)
        return WindowSum.of(source[0], conv.groups, *channels, *lines)

    def call(op: Op, params: Any, arrays: Sequence[Array]) -> Outputs:
        windows = planned(op, params, facts_of(arrays))
        return run(windows, params, *([arrays[place] for place in places] if places else arrays))

    return native(name, fitting=False)(call)


@lru_cache(PLANS)
def _is_pointwise(job: WindowSum) -> bool:
    """Whether each result is made from one pixel, of images that are not tiny."""
    alike = all((axis.taps, axis.step, axis.out_step, axis.before) == (1, 1, 1, 0) for axis in job[-2:])
    return alike and job.source[2:] == job.out[2:] and job.groups == 1 and prod(job.out[2:]) >= MATRIX_PIXELS


# Sums over windows.


@lru_cache(PLANS)
def _sum_call(job: WindowSum, dtype: DType) -> Call | None:
    """None where another template is better."""
    return numbers_call(write_sum, dtype, numbers=job.numbers) if is_useful(job, host(), dtype) else None


def _run_sum(job: WindowSum, params: Any, source: Array, weight: Array, *bias: Array) -> Outputs:
    if not bias and _is_pointwise(job):
        return _run_pointwise(job, source, weight)
    call = _sum_call(job, source.dtype)
    if call is None:
        return run_template(_TRANSPOSE, _transposed(params, job.out[1], bool(bias)), [source, weight, *bias])
    return call.run([source, weight, bias[0] if bias else np.zeros(job.out[1], source.dtype)])


@lru_cache(256)
def _transposed(params: Any, channels: int, use_bias: bool) -> Conv2DTransposeAttrs:
    names = ("kernel_size", "strides", "padding", "dilation", "groups")
    same = {name: getattr(params, name) for name in names}
    return Conv2DTransposeAttrs(channels=channels, use_bias=use_bias, **same)


_TRANSPOSE = Op.get("conv2d_transpose")


def _run_pointwise(job: WindowSum, source: Array, weight: Array) -> Outputs:
    """Products of the filters, or of their transpose, and each image."""
    out = np.empty(job.out, source.dtype)
    filters = weight[:, :, 0, 0].T if job.down.sign < 0 else weight[:, :, 0, 0]
    multiply(filters, _matrices(source), out=_matrices(out))
    return [out]


def _matrices(images: Array) -> Array:
    """A matrix of channels and pixels for each image."""
    return images.reshape(*images.shape[:2], -1)


# Filters.


@lru_cache(PLANS)
def _filters_of(job: WindowSum, dtype: DType) -> tuple[Form | None, list[tuple[slice, Call]]]:
    """The form in which filters are made, and the call for each part of the images."""
    form, ends = filter_parts(job, host(), dtype)

    def call(images: int) -> Call:
        return numbers_call(write_filters, form, dtype, numbers=job._replace(images=images).numbers)

    return form, [(slice(first, end), call(end - first)) for first, end in pairwise(ends)]


def _run_filters(job: WindowSum, params: Any, source: Array, windows: Array) -> Outputs:
    if _is_pointwise(job) and len(source) * prod(job.filters) <= MAX_PRODUCTS:
        parts = multiply(_matrices(windows), _matrices(source).swapaxes(1, 2))
        return [_added(parts).reshape(job.filters)]
    form, calls = _filters_of(job, source.dtype)
    parts = np.empty((len(calls), *job.filters), source.dtype)
    for part, (images, call) in zip(parts, calls):
        given = [source[images], windows[images]]
        if form is not None:
            wide, other = given[::-1] if form.by_output else given
            given = [in_blocks(wide, job.groups, host().lanes(source.dtype)), other]
        call.run(given, [part])
    return [_added(parts)]


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


def _added(parts: Array) -> Array:
    """The sum of parts, in order."""
    return parts[0] if len(parts) == 1 else reduced("sum", parts, (0,))


_convolution("conv2d", _run_sum, lambda out, x, w, *bias: (x, out, False))
_convolution("conv2d_transpose", _run_sum, lambda out, x, w, *bias: (x, out, True))
_convolution("_conv2d_transpose_grad_data", _run_sum, lambda out, g, w: (g, out, False))
_data_grad = _convolution("_conv2d_grad_data", _run_sum, lambda out, g, x, w: (g, out, True), (0, 2))
_weight_grad = _convolution("_conv2d_grad_weight", _run_filters, lambda out, g, x: (x, g, False), (1, 0))
_convolution("_conv2d_transpose_grad_weight", _run_filters, lambda out, g, x: (g, x, False))

_DATA_GRAD, _WEIGHT_GRAD = Op.get("_conv2d_grad_data"), Op.get("_conv2d_grad_weight")


@native("_conv2d_grad", fitting=False)
def run_conv2d_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Outputs:
    data, weight = _data_grad(_DATA_GRAD, params, arrays), _weight_grad(_WEIGHT_GRAD, params, arrays[:2])
    return [*data, *weight, *([arrays[0].sum(axis=(2, 3)).sum(axis=0)] if params.use_bias else [])]
