"""Integer products as kernels like them: four bytes that lie side by side are multiplied and summed at once, those of
the data without a sign, those of the weights with one.

    sums of data * weight + offset[column] - zero[column] * sums of data

A build puts these in place of other integer products: they have no gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import INT32, DType, as_dtype, dtype_name
from ...base.errors import DTypeError, ShapeError
from ...base.layout import Layout
from ...base.shape import Shape, add_dims, ceil_div_dims, mul_dims, show, unify_dim
from ...core.op import Op
from ...core.schema import BOOL, INT, INTS, SIDES, attr, schema
from .._families import INJECTIVE, OUT_FUSABLE, Array, Dtypes, Inferred, Shapes, define, known, ranked
from .._layouts import Answer, Layouts
from ._windows import Windows, windows_of

QUAD = 4  # bytes that are multiplied and summed together
UINT8, INT8 = as_dtype("uint8"), as_dtype("int8")
NHWC = Layout("NHWC")


def _needs(dtype: DType | None, wanted: DType) -> None:
    if dtype is not None and dtype != wanted:
        raise DTypeError(f"bytes of {dtype_name(dtype)}", why=f"they are of {dtype_name(wanted)}")


# Images.


@schema
class ByteImageAttrs:
    padding: tuple[int, ...] = attr(INTS, "elements around: (top, left, bottom, right)", low=0)


def _image_shape(params: ByteImageAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return list(ins), [None]
    if known(ins[1]) and ins[1] not in ((), (1,)):
        raise ShapeError(f"a zero point of shape {show(ins[1])} for an image")
    n, height, width, channels = ranked(ins[0], 4, "an image")
    top, left, bottom, right = params.padding
    extents = [add_dims(height, top + bottom), add_dims(width, left + right)]
    return list(ins), [(n, *extents, mul_dims(ceil_div_dims(channels, QUAD), QUAD))]


def _image_dtype(params: ByteImageAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    dtype = ins[0] if ins[0] is not None else ins[1]
    if dtype is not None and dtype not in (UINT8, INT8):
        raise DTypeError(f"an image of {dtype_name(dtype)}", why="its levels are of uint8 or int8")
    return [dtype, dtype], [UINT8]


def _image_layout(params: ByteImageAttrs, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    return [NHWC, Layout()], [NHWC]


def _image_reference(params: ByteImageAttrs, x: Array, zero: Array) -> Array:
    shift = 0 if x.dtype == np.uint8 else 128
    top, left, bottom, right = params.padding
    sides = [(0, 0), (top, bottom), (left, right), (0, 0)]
    levels = np.pad(x.astype(np.int16), sides, constant_values=int(zero.reshape(()))) + shift
    return np.pad(levels.astype(np.uint8), [(0, 0)] * 3 + [(0, -x.shape[3] % QUAD)])


def _image_compute(params: ByteImageAttrs, x: te.Tensor, zero: te.Tensor) -> te.Tensor:
    shift = 0 if x.dtype == UINT8 else 128
    top, left, bottom, right = params.padding
    _, height, width, channels = x.shape
    (shape,) = _image_shape(params, [x.shape, zero.shape], [None])[1]

    def element(n: te.Expr, h: te.Expr, w: te.Expr, c: te.Expr) -> te.Expr:
        y, z = h - top, w - left
        inside = [y >= 0, y < height] if top or bottom else []
        inside += [z >= 0, z < width] if left or right else []
        there = [c < channels] if channels % QUAD else []
        level = te.read_or(x, (n, y, z, c), te.all_of([*inside, *there]), 0)
        within = te.all_of(inside)
        if within is not None:
            level = te.select(within, level, zero[(0,) * zero.rank])
        level = te.cast(level, UINT8) + shift
        return te.select(there[0], level, 0) if there else level

    return te.compute(shape, element, name="byte_image")


byte_image = define(
    "_byte_image",
    "An image of levels in uint8, those of int8 plus 128, the zero point around it; channels of 0 fill the last four.",
    inputs={"data": "(n, h, w, c), of uint8 or int8", "zero_point": "one level"},
    named=False,
    attrs=ByteImageAttrs,
    pattern=INJECTIVE,
    shape=_image_shape,
    dtype=_image_dtype,
    layout=_image_layout,
    reference=_image_reference,
    compute=_image_compute,
)


# Sums of products.


@schema
class ByteProductAttrs:
    units: int = attr(INT, "columns of the result", low=1)
    use_zeros: bool = attr(BOOL, "whether weights have zero points", default=False)


@schema
class ByteConvAttrs(ByteProductAttrs):
    kernel_size: tuple[int, ...] = attr(SIDES, "height and width of the filters", low=1)
    strides: tuple[int, ...] = attr(SIDES, "steps down and across", default=(1, 1), low=1)
    dilation: tuple[int, ...] = attr(SIDES, "distance of filter taps", default=(1, 1), low=1)


def _dtype(params: ByteProductAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    for dtype, wanted in zip(ins, (UINT8, INT8, INT32, INT32)):
        _needs(dtype, wanted)
    return [UINT8, INT8, INT32, INT32][: len(ins)], [INT32]


def _check_panels(params: ByteProductAttrs, panels: Shape, steps: Any) -> None:
    count, depth, lanes, four = ranked(panels, 4, "the panels")
    unify_dim(four, QUAD)
    unify_dim(depth, steps)
    if lanes == 0:
        raise ShapeError(f"panels of shape {show(panels)} have no columns")
    if isinstance(lanes, int):
        unify_dim(count, -(-params.units // lanes))


def _vectors(params: ByteProductAttrs, ins: Shapes) -> list[Any]:
    """The shapes of offsets and zero points."""
    return [(params.units,)] * (len(ins) - 2)


def _whole_quads(count: Any) -> Any:
    if isinstance(count, int) and count % QUAD:
        raise ShapeError(f"{count} bytes to multiply are no whole fours")
    return count // QUAD if isinstance(count, int) else None


def _matmul_shape(params: ByteProductAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return list(ins), [None]
    if not ins[0]:
        raise ShapeError("a product needs at least one dimension")
    _check_panels(params, ins[1], _whole_quads(ins[0][-1]))
    return [*ins[:2], *_vectors(params, ins)], [(*ins[0][:-1], params.units)]


def byte_windows(params: ByteConvAttrs) -> Windows:
    return windows_of(params.kernel_size, params.strides, (0, 0), params.dilation)


def _conv_shape(params: ByteConvAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return list(ins), [None]
    n, height, width, channels = ranked(ins[0], 4, "an image")
    steps = _whole_quads(channels)
    down, across = byte_windows(params)
    _check_panels(params, ins[1], None if steps is None else down.size * across.size * steps)
    out = (n, down.out_extent(height), across.out_extent(width), params.units)
    return [*ins[:2], *_vectors(params, ins)], [out]


def _conv_layout(params: ByteConvAttrs, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    return [NHWC, *[Layout()] * (len(ins) - 1)], [NHWC]


def _columns(params: ByteProductAttrs, panels: Array) -> Array:
    """Panels as a matrix: (products of a sum, units)."""
    count, depth, lanes, _ = panels.shape
    return panels.transpose(1, 3, 0, 2).reshape(depth * QUAD, count * lanes)[:, : params.units]


def _finished(rows: Array, matrix: Array, offsets: Array, zeros: Sequence[Array]) -> Array:
    sums = np.matmul(rows.astype(np.float64), matrix.astype(np.float64)) + offsets
    for zero in zeros:
        sums -= rows.astype(np.float64).sum(-1, keepdims=True) * zero
    return sums.astype(np.int64).astype(np.int32)


def _matmul_reference(params: ByteProductAttrs, x: Array, panels: Array, offsets: Array, *zeros: Array) -> Array:
    return _finished(x, _columns(params, panels), offsets, zeros)


def _conv_reference(params: ByteConvAttrs, x: Array, panels: Array, offsets: Array, *zeros: Array) -> Array:
    windows = byte_windows(params)
    view = np.lib.stride_tricks.sliding_window_view(x, [window.reach for window in windows], (1, 2))
    down, across = windows
    view = view[:, :: down.stride, :: across.stride, :, :: down.dilation, :: across.dilation]
    rows = view.transpose(0, 1, 2, 4, 5, 3).reshape(*view.shape[:3], panels.shape[1] * QUAD)
    return _finished(rows, _columns(params, panels), offsets, zeros)


def _te_sum(
    params: ByteProductAttrs, shape: tuple[int, ...], panels: te.Tensor, vectors: Sequence[te.Tensor], level: Any
) -> te.Tensor:
    """The result from `level(index, step, byte)`, a byte of the data that a sum reads."""
    offsets, *zeros = vectors
    lanes = panels.shape[2]
    step, byte = te.reduce_axis(panels.shape[1], "step"), te.reduce_axis(QUAD, "byte")

    def element(*index: te.Expr) -> te.Expr:
        column = index[-1]
        weight = te.cast(panels[column // lanes, step.var, column % lanes, byte.var], INT32)
        if zeros:
            weight = weight - zeros[0][column]
        return te.sum(te.cast(level(index, step.var, byte.var), INT32) * weight, [step, byte])

    sums = te.compute(shape, element, name="sums")
    return te.compute(shape, lambda *i: sums[i] + offsets[i[-1]], name="byte_product")


def _matmul_compute(params: ByteProductAttrs, x: te.Tensor, panels: te.Tensor, *vectors: te.Tensor) -> te.Tensor:
    def level(index: Sequence[te.Expr], step: te.Expr, byte: te.Expr) -> te.Expr:
        return x[(*index[:-1], step * QUAD + byte)]

    return _te_sum(params, (*x.shape[:-1], params.units), panels, vectors, level)


def _conv_compute(params: ByteConvAttrs, x: te.Tensor, panels: te.Tensor, *vectors: te.Tensor) -> te.Tensor:
    down, across = byte_windows(params)
    steps = max(x.shape[3] // QUAD, 1)
    (shape,) = _conv_shape(params, [x.shape, panels.shape, *(v.shape for v in vectors)], [None])[1]

    def level(index: Sequence[te.Expr], step: te.Expr, byte: te.Expr) -> te.Expr:
        n, h, w, _ = index
        tap = step // steps
        y, z = down.source(h, tap // across.size), across.source(w, tap % across.size)
        return x[n, y, z, step % steps * QUAD + byte]

    return _te_sum(params, shape, panels, vectors, level)


def _depthwise_shape(params: ByteConvAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return list(ins), [None]
    n, height, width, channels = ranked(ins[0], 4, "an image")
    if isinstance(channels, int) and channels < params.units:
        raise ShapeError(f"an image of {channels} channels for {params.units} filters")
    down, across = byte_windows(params)
    filters = (down.size, across.size, params.units)
    out = (n, down.out_extent(height), across.out_extent(width), params.units)
    return [ins[0], filters, *_vectors(params, ins)], [out]


def _depthwise_reference(params: ByteConvAttrs, x: Array, w: Array, offsets: Array, *zeros: Array) -> Array:
    filters = w.astype(np.int64) - sum(zeros)
    rows, columns = ((e - v.reach) // v.stride + 1 for e, v in zip(x.shape[1:3], byte_windows(params)))
    sums = np.zeros((x.shape[0], rows, columns, params.units), np.int64)
    down, across = byte_windows(params)
    for p, q in np.ndindex(down.size, across.size):
        _, source_rows = down.inside_slices(p, rows, x.shape[1])
        _, source_columns = across.inside_slices(q, columns, x.shape[2])
        sums += x[:, source_rows, source_columns, : params.units].astype(np.int64) * filters[p, q]
    return (sums + offsets).astype(np.int32)


def _depthwise_compute(params: ByteConvAttrs, x: te.Tensor, w: te.Tensor, *vectors: te.Tensor) -> te.Tensor:
    down, across = byte_windows(params)
    offsets, *zeros = vectors
    (shape,) = _depthwise_shape(params, [x.shape, w.shape, *(v.shape for v in vectors)], [None])[1]
    p, q = te.reduce_axis(down.size, "p"), te.reduce_axis(across.size, "q")

    def element(n: te.Expr, h: te.Expr, v: te.Expr, c: te.Expr) -> te.Expr:
        weight = te.cast(w[p.var, q.var, c], INT32)
        for zero in zeros:
            weight = weight - zero[c]
        level = x[n, down.source(h, p.var), across.source(v, q.var), c]
        return te.sum(te.cast(level, INT32) * weight, [p, q])

    sums = te.compute(shape, element, name="sums")
    return te.compute(shape, lambda *i: sums[i] + offsets[i[-1]], name="byte_depthwise")


_INPUTS = {
    "data": "of uint8; for panels in whole fours along the last axis",
    "weight": "of int8: panels from _word_panels, or filters",
    "offsets": "a number for each column, of int32",
    "zeros": "the zero point of each column of weights, of int32, if use_zeros",
}


def _product(name: str, doc: str, **columns: Any) -> Op:
    op = define(name, doc, inputs=_INPUTS, named=False, pattern=OUT_FUSABLE, dtype=_dtype, **columns)
    op.set_num_inputs(lambda params: 4 if params.use_zeros else 3)
    op.input_names = lambda params: list(_INPUTS)[: 4 if params.use_zeros else 3]
    return op


byte_depthwise = _product(
    "_byte_depthwise",
    "Convolution of every channel of an image (n, h, w, c) of bytes by its own filter (h, w, c), in int32.",
    attrs=ByteConvAttrs,
    shape=_depthwise_shape,
    layout=_conv_layout,
    reference=_depthwise_reference,
    compute=_depthwise_compute,
)
byte_matmul = _product(
    "_byte_matmul",
    "Sums of products of bytes over the last axis of the data, in int32.",
    attrs=ByteProductAttrs,
    shape=_matmul_shape,
    reference=_matmul_reference,
    compute=_matmul_compute,
)
byte_conv2d = _product(
    "_byte_conv2d",
    "Convolution of an image (n, h, w, c) of bytes, in int32.",
    attrs=ByteConvAttrs,
    shape=_conv_shape,
    layout=_conv_layout,
    reference=_conv_reference,
    compute=_conv_compute,
)
