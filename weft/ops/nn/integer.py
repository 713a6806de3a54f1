"""Products and convolutions of integers of 8 bits, summed in int32: what quantised networks consist of.

    sums of (data - data_zero) (weight - weight_zero)

Sums that do not fit in 32 bits wrap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import INT32, as_dtype, dtype_name
from ...base.errors import DTypeError, ShapeError
from ...base.layout import Layout
from ...base.shape import Dim, broadcast, show, unify, unify_dim
from ...core.op import Op
from ...core.schema import BOOL, INT, INTS, attr, schema
from .._families import OUT_FUSABLE, Array, Dtypes, Inferred, Shapes, changed, define, known
from .._layouts import Answer, Layouts, fixed_unknown
from ._windows import Window

INT16 = as_dtype("int16")
BYTES = (as_dtype("uint8"), as_dtype("int8"))


@schema
class ZeroAttrs:
    use_data_zero: bool = attr(BOOL, "whether there is a zero point of the data; else it is 0", default=True)
    use_weight_zero: bool = attr(BOOL, "whether there is one of the weight", default=True)


def _names(params: ZeroAttrs) -> list[str]:
    zeros = [name for name in ("data_zero", "weight_zero") if getattr(params, f"use_{name}")]
    return ["data", "weight", *zeros]


def zeros_of(params: Any, zeros: Sequence[Any]) -> tuple[Any, Any]:
    """The zero points among the inputs after the first two, None for one that is not there."""
    left = iter(zeros)
    return (next(left) if params.use_data_zero else None), (next(left) if params.use_weight_zero else None)


def _dtype(params: ZeroAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    for dtype in ins[:2]:
        if dtype is not None and dtype not in BYTES:
            raise DTypeError(f"an integer product of {dtype_name(dtype)}", why="it takes uint8 and int8")
    data, weight = ins[:2]
    return [data, weight, *([data] if params.use_data_zero else []), *([weight] if params.use_weight_zero else [])], [
        INT32
    ]


def _less(x: Array, zero: Array | None) -> Array:
    """What levels stand for, in float64, which holds every sum of products exactly."""
    return x.astype(np.float64) if zero is None else x.astype(np.float64) - zero.astype(np.float64)


def _wrapped(sums: Array) -> Array:
    return sums.astype(np.int64).astype(np.int32)


def _product_op(name: str, doc: str, inputs: dict[str, str], **columns: Any) -> Op:
    op = define(name, doc, level=5, inputs=inputs, named=False, pattern=OUT_FUSABLE, dtype=_dtype, **columns)
    op.set_num_inputs(lambda params: len(_names(params)))
    op.input_names = _names
    return op


# Products of matrices.


def _matmul_shape(params: ZeroAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, weight = ins[:2]
    if data is None or weight is None:
        return list(ins), [None]
    if len(data) < 2 or len(weight) < 2:
        raise ShapeError(f"shapes {show(data)} and {show(weight)} are no matrices")
    depth = unify_dim(data[-1], weight[-2])
    batch: Any = broadcast(data[:-2], weight[:-2])
    left, right = (*data[:-1], depth), (*weight[:-2], depth, weight[-1])
    for zero, whole, axis in zip(zeros_of(params, ins[2:]), (left, right), (-1, -2)):
        if known(zero):
            each = changed(whole, len(whole) + axis, 1)
            unify(broadcast(zero, each), each)
    return [left, right, *ins[2:]], [(*batch, data[-2], weight[-1])]


def _matmul_reference(params: ZeroAttrs, a: Array, b: Array, *zeros: Array) -> Array:
    a_zero, b_zero = zeros_of(params, zeros)
    return _wrapped(np.matmul(_less(a, a_zero), _less(b, b_zero)))


def _matmul_compute(params: ZeroAttrs, a: te.Tensor, b: te.Tensor, *zeros: te.Tensor) -> te.Tensor:
    a_zero, b_zero = zeros_of(params, zeros)
    batch: Any = broadcast(a.shape[:-2], b.shape[:-2])
    k = te.reduce_axis(a.shape[-1], "k")

    def value(*i: te.Expr) -> te.Expr:
        *outer, row, column = i
        x = _te_less(a, (*outer, row, k.var), a_zero)
        return te.sum(x * _te_less(b, (*outer, k.var, column), b_zero), k)

    return te.compute((*batch, a.shape[-2], b.shape[-1]), value, name="integer_matmul")


def _te_less(x: te.Tensor, index: Sequence[Any], zero: te.Tensor | None) -> te.Expr:
    level = te.cast(x[_broadcast_at(x, index)], INT32)
    return level if zero is None else level - te.cast(zero[_broadcast_at(zero, index)], INT32)


def _broadcast_at(x: te.Tensor, index: Sequence[Any]) -> tuple[Any, ...]:
    """Where an element of something larger stands in a tensor that broadcasts to it."""
    inner = index[len(index) - x.rank :]
    return tuple(0 if extent == 1 else at for at, extent in zip(inner, x.shape))


integer_matmul = _product_op(
    "integer_matmul",
    "Products of matrices of integers in the last two axes, in int32; the axes before them broadcast.",
    {
        "data": "the left factor, of uint8 or int8",
        "weight": "the right factor, of uint8 or int8",
        "data_zero": "the level of data that stands for 0: one number, or (..., rows, 1), if use_data_zero",
        "weight_zero": "that of weight: one number, or (..., 1, columns), if use_weight_zero",
    },
    attrs=ZeroAttrs,
    shape=_matmul_shape,
    layout=fixed_unknown,
    reference=_matmul_reference,
    compute=_matmul_compute,
)


# Convolutions.


@schema
class IntegerConvAttrs(ZeroAttrs):
    channels: int = attr(INT, "number of output channels", low=1)
    kernel_size: tuple[int, ...] = attr(INTS, "extents of the filters", low=1)
    strides: tuple[int, ...] = attr(INTS, "steps along each axis", low=1)
    padding: tuple[int, ...] = attr(INTS, "elements before each axis, then those behind each", low=0)
    dilation: tuple[int, ...] = attr(INTS, "distance of filter taps", low=1)
    groups: int = attr(INT, "inputs and outputs are split in so many groups", default=1, low=1)


def conv_windows(params: IntegerConvAttrs) -> list[Window]:
    """The window along each spatial axis."""
    count = len(params.kernel_size)
    if not len(params.strides) == len(params.dilation) == len(params.padding) / 2 == count:
        raise ShapeError(
            f"kernel_size {params.kernel_size}, strides {params.strides}, dilation {params.dilation} and "
            f"padding {params.padding} are of different numbers of axes"
        )
    sides = zip(params.padding[:count], params.padding[count:])
    rows = zip(params.kernel_size, params.strides, sides, params.dilation)
    return [Window(size, stride, before, after, dilation) for size, stride, (before, after), dilation in rows]


def _conv_shape(params: IntegerConvAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, windows = ins[0], conv_windows(params)
    if data is None:
        return list(ins), [None]
    if len(data) != len(windows) + 2:
        raise ShapeError(f"data of shape {show(data)} for filters of {params.kernel_size}")
    extents = [window.out_extent(extent) for window, extent in zip(windows, data[2:])]
    weight = (params.channels, _of_group(data[1], params), *params.kernel_size)
    data_zero, weight_zero = zeros_of(params, ins[2:])
    for zero, most in ((data_zero, 1), (weight_zero, params.channels)):
        if known(zero) and zero and zero != (1,):
            unify(zero, (most,))
    return [data, weight, *ins[2:]], [(data[0], params.channels, *extents)]


def _of_group(channels: Dim, params: IntegerConvAttrs) -> Dim:
    if params.channels % params.groups or (isinstance(channels, int) and channels % params.groups):
        raise ShapeError(f"{channels} channels to {params.channels} cannot be split in {params.groups} groups")
    return channels // params.groups if isinstance(channels, int) else None


def _conv_layout(params: IntegerConvAttrs, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Images and filters as they were written."""
    if len(params.kernel_size) != 2:
        return fixed_unknown(params, ins, last, outs)
    return [Layout("NCHW"), Layout("OIHW"), *ins[2:]], [Layout("NCHW")]


def _conv_reference(params: IntegerConvAttrs, x: Array, w: Array, *zeros: Array) -> Array:
    data_zero, weight_zero = zeros_of(params, zeros)
    windows = conv_windows(params)
    data = _less(x, None if data_zero is None else data_zero.reshape(()))
    data = np.pad(data, [(0, 0), (0, 0), *((window.before, window.after) for window in windows)])
    along = None if weight_zero is None else weight_zero.reshape(-1, *(1,) * (w.ndim - 1))
    filters = _less(w, along).reshape(params.groups, params.channels // params.groups, *w.shape[1:])
    extents: list[Any] = [window.out_extent(extent) for window, extent in zip(windows, x.shape[2:])]
    total = np.zeros((x.shape[0], params.groups, filters.shape[1], *extents))
    for taps in np.ndindex(*params.kernel_size):
        steps = zip(windows, taps, extents)
        places = [slice(t * v.dilation, t * v.dilation + (n - 1) * v.stride + 1, v.stride) for v, t, n in steps]
        part = data[(slice(None), slice(None), *places)]
        part = part.reshape(x.shape[0], params.groups, w.shape[1], *extents)
        total += np.einsum("goi,ngi...->ngo...", filters[(..., *taps)], part)
    return _wrapped(total.reshape(x.shape[0], params.channels, *extents))


def _conv_compute(params: IntegerConvAttrs, x: te.Tensor, w: te.Tensor, *zeros: te.Tensor) -> te.Tensor:
    data_zero, weight_zero = zeros_of(params, zeros)
    windows = conv_windows(params)
    (shape,) = _conv_shape(params, [x.shape, w.shape, *(zero.shape for zero in zeros)], [None])[1]
    padded = _te_padded(windows, x, data_zero)
    inputs, outputs = w.shape[1], params.channels // params.groups
    channel = te.reduce_axis(inputs)
    taps = [te.reduce_axis(size) for size in params.kernel_size]
    steps = [tap.var for tap in taps]

    def value(n: te.Expr, o: te.Expr, *place: te.Expr) -> te.Expr:
        at = [p * v.stride + t * v.dilation for p, t, v in zip(place, steps, windows)]
        source = channel.var if params.groups == 1 else o // outputs * inputs + channel.var
        level = te.cast(w[(o, channel.var, *steps)], INT32)
        if weight_zero is not None:
            level = level - te.cast(weight_zero[_one_of(weight_zero, o)], INT32)
        return te.sum(te.cast(padded[(n, source, *at)], INT32) * level, [channel, *taps])

    return te.compute(shape, value, name="integer_conv")


def _one_of(zero: te.Tensor, channel: te.Expr) -> tuple[Any, ...]:
    return (channel,) if zero.shape not in ((), (1,)) else (0,) * zero.rank


def _te_padded(windows: Sequence[Window], x: te.Tensor, zero: te.Tensor | None) -> te.Tensor:
    """What the levels of an image stand for, with zeros around it."""
    sides = [(0, 0), (0, 0), *((window.before, window.after) for window in windows)]
    shape = tuple(before + extent + after for extent, (before, after) in zip(x.shape, sides))

    def element(*i: te.Expr) -> te.Expr:
        at = [place - before if before else place for place, (before, _) in zip(i, sides)]
        rows = [(place, extent) for place, extent, side in zip(at, x.shape, sides) if any(side)]
        inside = te.all_of([condition for place, extent in rows for condition in (place >= 0, place < extent)])
        level = te.cast(te.read_or(x, at, inside, 0), INT16)
        if zero is not None:
            level = level - te.cast(zero[(0,) * zero.rank], INT16)
        return level if inside is None else te.select(inside, level, 0)

    return te.compute(shape, element, name="padded")


integer_conv = _product_op(
    "integer_conv",
    "Convolution of integers over any number of axes, in int32; around the data is what stands for 0.",
    {
        "data": "(n, channels, extents...), of uint8 or int8",
        "weight": "(filters, channels of a group, extents...), of uint8 or int8",
        "data_zero": "the level of data that stands for 0, if use_data_zero",
        "weight_zero": "that of weight: one number, or one for each filter, if use_weight_zero",
    },
    attrs=IntegerConvAttrs,
    shape=_conv_shape,
    layout=_conv_layout,
    reference=_conv_reference,
    compute=_conv_compute,
)
