"""Integer products as kernels like them: four bytes that lie side by side are multiplied and summed at once, those of
the data without a sign, those of the weights with one.

    sums of data * weight + offset[column] - zero[column] * sums of data

A build puts these in place of other integer products: they have no gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import INT32, DType, dtype_name
from ...base.errors import DTypeError, ShapeError
from ...core.op import Op
from ...core.schema import BOOL, INT, attr, schema
from .._families import OUT_FUSABLE, Array, Dtypes, Inferred, Shapes, define, ranked
from .words import (
    INT8,
    UINT8,
    WindowAttrs,
    check_panels,
    columns_of,
    number_of_window,
    whole_words,
    window_rows,
    word_conv_layout,
    word_conv_shape,
    word_windows,
)

QUAD = 4  # bytes that are multiplied and summed together


def _needs(dtype: DType | None, wanted: DType) -> None:
    if dtype is not None and dtype != wanted:
        raise DTypeError(f"bytes of {dtype_name(dtype)}", why=f"they are of {dtype_name(wanted)}")


# Sums of products.


@schema
class ByteProductAttrs:
    units: int = attr(INT, "columns of the result", low=1)
    use_zeros: bool = attr(BOOL, "whether weights have zero points", default=False)


@schema
class ByteConvAttrs(WindowAttrs, ByteProductAttrs):
    pass


def _dtype(params: ByteProductAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    for dtype, wanted in zip(ins, (UINT8, INT8, INT32, INT32)):
        _needs(dtype, wanted)
    return [UINT8, INT8, INT32, INT32][: len(ins)], [INT32]


def _vectors(params: ByteProductAttrs, ins: Shapes) -> list[Any]:
    """The shapes of offsets and zero points."""
    return [(params.units,)] * (len(ins) - 2)


def _matmul_shape(params: ByteProductAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return list(ins), [None]
    if not ins[0]:
        raise ShapeError("a product needs at least one dimension")
    check_panels(params.units, ins[1], whole_words(ins[0][-1], QUAD), QUAD)
    return [*ins[:2], *_vectors(params, ins)], [(*ins[0][:-1], params.units)]


def _conv_shape(params: ByteConvAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return list(ins), [None]
    return [*ins[:2], *_vectors(params, ins)], [word_conv_shape(params, ins[0], ins[1], QUAD)]


def _finished(rows: Array, matrix: Array, offsets: Array, zeros: Sequence[Array]) -> Array:
    sums = np.matmul(rows.astype(np.float64), matrix.astype(np.float64)) + offsets
    for zero in zeros:
        sums -= rows.astype(np.float64).sum(-1, keepdims=True) * zero
    return sums.astype(np.int64).astype(np.int32)


def _matmul_reference(params: ByteProductAttrs, x: Array, panels: Array, offsets: Array, *zeros: Array) -> Array:
    return _finished(x, columns_of(panels, params.units), offsets, zeros)


def _conv_reference(params: ByteConvAttrs, x: Array, panels: Array, offsets: Array, *zeros: Array) -> Array:
    return _finished(window_rows(params, x), columns_of(panels, params.units), offsets, zeros)


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
    shape: Any = word_conv_shape(params, x.shape, panels.shape, QUAD)
    return _te_sum(params, shape, panels, vectors, number_of_window(params, x, QUAD))


def _depthwise_shape(params: ByteConvAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return list(ins), [None]
    n, height, width, channels = ranked(ins[0], 4, "an image")
    if isinstance(channels, int) and channels < params.units:
        raise ShapeError(f"an image of {channels} channels for {params.units} filters")
    down, across = word_windows(params)
    filters = (down.size, across.size, params.units)
    out = (n, down.out_extent(height), across.out_extent(width), params.units)
    return [ins[0], filters, *_vectors(params, ins)], [out]


def _depthwise_reference(params: ByteConvAttrs, x: Array, w: Array, offsets: Array, *zeros: Array) -> Array:
    filters = w.astype(np.int64) - sum(zeros)
    rows, columns = ((e - v.reach) // v.stride + 1 for e, v in zip(x.shape[1:3], word_windows(params)))
    sums = np.zeros((x.shape[0], rows, columns, params.units), np.int64)
    down, across = word_windows(params)
    for p, q in np.ndindex(down.size, across.size):
        _, source_rows = down.inside_slices(p, rows, x.shape[1])
        _, source_columns = across.inside_slices(q, columns, x.shape[2])
        sums += x[:, source_rows, source_columns, : params.units].astype(np.int64) * filters[p, q]
    return (sums + offsets).astype(np.int32)


def _depthwise_compute(params: ByteConvAttrs, x: te.Tensor, w: te.Tensor, *vectors: te.Tensor) -> te.Tensor:
    down, across = word_windows(params)
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
    layout=word_conv_layout,
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
    layout=word_conv_layout,
    reference=_conv_reference,
    compute=_conv_compute,
)
