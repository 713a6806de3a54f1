"""What gradients of filters are made of on GPUs: what windows of pictures stand on, laid out in memory, products that
go over all pixels, in parts, and the sum of those.

A build puts them in place of those gradients, after gradients are taken: they have none."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.dtype import FLOAT32, DType, is_float
from ...base.errors import DTypeError, ShapeError
from ...base.shape import unify_dim
from ...core.infer import unify_dtype
from ...core.schema import INT, PADS, SIDES, attr, schema
from .. import _layouts as layouts
from .._families import INJECTIVE, OUT_FUSABLE, Array, Inferred, Shapes, define, numeric
from ..nn._windows import read, window_view, windows_of


@schema
class PatchesAttrs:
    kernel_size: tuple[int, ...] = attr(SIDES, "height and width of the windows", low=1)
    strides: tuple[int, ...] = attr(SIDES, "steps down and across", default=(1, 1), low=1)
    padding: tuple[int, ...] = attr(
        PADS, "zeros around: all, (height, width), or (top, left, bottom, right)", default=(0, 0), low=0
    )
    dilation: tuple[int, ...] = attr(SIDES, "distance of taps", default=(1, 1), low=1)


def _windows(params: PatchesAttrs) -> Any:
    return windows_of(params.kernel_size, params.strides, params.padding, params.dilation)


def _shape(params: PatchesAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return [None], [None]
    if len(ins[0]) != 4:
        raise ShapeError("windows go over pictures of four axes, channels last")
    windows = _windows(params)
    count, height, width, channels = ins[0]
    places = [window.out_extent(extent) for window, extent in zip(windows, (height, width))]
    return [ins[0]], [(count, *places, *(window.size for window in windows), channels)]


def _reference(params: PatchesAttrs, x: Array) -> Array:
    outs: Any = _shape(params, [x.shape], [None])[1][0][1:3]
    view = window_view(x.transpose(0, 3, 1, 2), _windows(params), outs)
    return view.transpose(0, 2, 3, 4, 5, 1).copy()


def _compute(params: PatchesAttrs, x: te.Tensor) -> te.Tensor:
    shape: Any = _shape(params, [x.shape], [None])[1][0]

    def element(n: Any, row: Any, column: Any, down: Any, across: Any, channel: Any) -> Any:
        places, conditions = [], list[te.Expr]()
        for window, at, tap, axis in zip(_windows(params), (row, column), (down, across), (1, 2)):
            places.append(window.source(at, tap))
            conditions += window.inside(places[-1], x.shape[axis], shape[axis])
        return read(x, (n, *places, channel), conditions, 0)

    return te.compute(shape, element, name="patches")


define(
    "_patches",
    "Of pictures in NHWC what each window stands on, zeros where that is outside: (images, rows of windows, columns of "
    "windows, taps down, taps across, channels).",
    attrs=PatchesAttrs,
    pattern=INJECTIVE,
    shape=_shape,
    layout=layouts.fixed_unknown,
    reference=_reference,
    compute=_compute,
)

# Products over pixels


def _products_shape(params: None, ins: Shapes, outs: Shapes) -> Inferred:
    left, right = ins
    if left is None or right is None:
        return [left, right], [None]
    if len(left) != 3 or len(right) != 3:
        raise ShapeError("parts of matrices have three axes: parts, pixels, channels")
    parts, pixels = (unify_dim(left[axis], right[axis]) for axis in (0, 1))
    return [(parts, pixels, left[2]), (parts, pixels, right[2])], [(parts, left[2], right[2])]


def _products_dtype(params: None, ins: Any, outs: Any) -> Inferred:
    dtype: DType | None = unify_dtype(*ins)
    if dtype is not None and not (is_float(dtype) and dtype.itemsize <= FLOAT32.itemsize):
        raise DTypeError(f"sums in float32 of products of {dtype}")
    return [dtype, dtype], [FLOAT32]


def _products_reference(a: Array, b: Array) -> Array:
    left, right = (x.astype(np.float32) for x in (a, b))
    with np.errstate(all="ignore"):
        return np.matmul(left.swapaxes(1, 2), right)


def _products_compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(a.shape[1], "k")
    one = lambda x, part, at: te.cast(x[part, k.var, at], FLOAT32)
    shape = (a.shape[0], a.shape[2], b.shape[2])
    return te.compute(shape, lambda part, i, j: te.sum(one(a, part, i) * one(b, part, j), k), name="pixel_products")


define(
    "_pixel_products",
    "The sums over the pixels of each part of what two tensors have there, channel by channel, in float32: "
    "out[p, i, j] = sum over k of lhs[p, k, i] rhs[p, k, j].",
    inputs={"lhs": "(parts, pixels, channels)", "rhs": "(parts, pixels, channels)"},
    pattern=OUT_FUSABLE,
    shape=_products_shape,
    dtype=_products_dtype,
    layout=layouts.fixed_unknown,
    reference=_products_reference,
    compute=_products_compute,
)

# The sum of parts


@schema
class FilterSumsAttrs:
    channels: int = attr(INT, "number of filters", low=1)
    depth: int = attr(INT, "number of channels of a filter", low=1)
    kernel_size: tuple[int, ...] = attr(SIDES, "height and width of the filters", low=1)


def _sums_shape(params: FilterSumsAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    (parts,), (height, width) = ins, params.kernel_size
    if parts is not None:
        rows, columns = parts[1:]
        if (isinstance(rows, int) and rows < params.channels) or (
            isinstance(columns, int) and columns < params.depth * height * width
        ):
            raise ShapeError(
                f"parts of {rows} x {columns} hold no {params.channels} filters of {params.depth} channels"
            )
    return [parts], [(params.channels, params.depth, height, width)]


def _sums_reference(params: FilterSumsAttrs, x: Array) -> Array:
    height, width = params.kernel_size
    total = (x.astype(np.float64) if is_float(x.dtype) else x).sum(0)[
        : params.channels, : height * width * params.depth
    ]
    taps = total.reshape(params.channels, height, width, params.depth)
    return taps.transpose(0, 3, 1, 2).astype(x.dtype)


def _sums_compute(params: FilterSumsAttrs, x: te.Tensor) -> te.Tensor:
    height, width = params.kernel_size
    part = te.reduce_axis(x.shape[0], "part")

    def element(o: Any, i: Any, down: Any, across: Any) -> Any:
        return te.sum(x[part.var, o, (down * width + across) * params.depth + i], part)

    return te.compute((params.channels, params.depth, height, width), element, name="filter_sums")


define(
    "_filter_sums",
    "The sum of parts, of which each has a row for every filter, with (taps down, taps across, channels) in it, as "
    "filters in OIHW. What is behind them in parts is left.",
    attrs=FilterSumsAttrs,
    pattern=OUT_FUSABLE,
    shape=_sums_shape,
    dtype=numeric,
    layout=layouts.fixed_unknown,
    reference=_sums_reference,
    compute=_sums_compute,
)
