"""Products whose weights are floats of 16 bits and whose sums are float32, as they are written and as kernels like
them. A build puts these in place of other products: they have no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BFLOAT16, FLOAT16, FLOAT32, DType, dtype_name
from ...base.errors import DTypeError, ShapeError
from ...base.shape import unify
from ...core.schema import INT, attr, schema
from .._families import OUT_FUSABLE, Array, Dtypes, Inferred, Shapes, define
from .words import (
    WindowAttrs,
    check_panels,
    columns_of,
    number_of_window,
    whole_words,
    window_rows,
    word_conv_layout,
    word_conv_shape,
)

PAIR = 2  # numbers that are multiplied and summed together


@schema
class NarrowAttrs:
    units: int = attr(INT, "columns of the result", low=1)


def _needs(what: str, dtype: DType | None, *wanted: DType) -> None:
    if dtype is not None and dtype not in wanted:
        raise DTypeError(f"{what} of {dtype_name(dtype)}", why="of " + " or ".join(map(dtype_name, wanted)))


def _product(x: Array, matrix: Array) -> Array:
    return np.matmul(x.astype(np.float32), np.ascontiguousarray(matrix.astype(np.float32)))


# As written.


def _dense_shape(params: NarrowAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, weight = ins
    if data is None:
        return list(ins), [None]
    if not data:
        raise ShapeError("a product needs at least one dimension")
    weight = unify(weight, (params.units, data[-1]))
    return [data, weight], [(*data[:-1], params.units)]


def _dense_dtype(params: NarrowAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    _needs("rows", ins[0], FLOAT32)
    _needs("weights", ins[1], BFLOAT16, FLOAT16)
    return [FLOAT32, ins[1]], [FLOAT32]


def _dense_reference(params: NarrowAttrs, x: Array, w: Array) -> Array:
    return _product(x, w.T)


def _dense_compute(params: NarrowAttrs, x: te.Tensor, w: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(x.shape[-1])

    def element(*index: te.Expr) -> te.Expr:
        return te.sum(x[(*index[:-1], k.var)] * te.cast(w[index[-1], k.var], FLOAT32), k)

    return te.compute((*x.shape[:-1], params.units), element, name="narrow_dense")


narrow_dense = define(
    "_narrow_dense",
    "data weight' over the last axis, summed in float32; with weights of bfloat16 a build may round the data, too.",
    inputs={"data": "rows (..., k)", "weight": "(units, k), of bfloat16 or float16"},
    named=False,
    attrs=NarrowAttrs,
    pattern=OUT_FUSABLE,
    shape=_dense_shape,
    dtype=_dense_dtype,
    reference=_dense_reference,
    compute=_dense_compute,
)


# In pairs.


def _pair_shape(params: NarrowAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, panels = ins
    if data is None or panels is None:
        return list(ins), [None]
    if not data:
        raise ShapeError("a product needs at least one dimension")
    check_panels(params.units, panels, whole_words(data[-1], PAIR), PAIR)
    return list(ins), [(*data[:-1], params.units)]


def _pair_dtype(params: NarrowAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    for dtype in ins:
        _needs("pairs", dtype, BFLOAT16)
    return [BFLOAT16, BFLOAT16], [FLOAT32]


def _pair_reference(params: NarrowAttrs, x: Array, panels: Array) -> Array:
    return _product(x, columns_of(panels, params.units))


def _te_sum(shape: Any, panels: te.Tensor, number_at: Any) -> te.Tensor:
    """The result from `number_at(index, step, number)`, what a sum reads of the data."""
    lanes = panels.shape[2]
    step, number = te.reduce_axis(panels.shape[1], "step"), te.reduce_axis(PAIR, "number")

    def element(*index: te.Expr) -> te.Expr:
        weight = panels[index[-1] // lanes, step.var, index[-1] % lanes, number.var]
        row = number_at(index, step.var, number.var)
        return te.sum(te.cast(row, FLOAT32) * te.cast(weight, FLOAT32), [step, number])

    return te.compute(shape, element, name="pair_product")


def _pair_compute(params: NarrowAttrs, x: te.Tensor, panels: te.Tensor) -> te.Tensor:
    row = lambda index, step, number: x[(*index[:-1], step * PAIR + number)]
    return _te_sum((*x.shape[:-1], params.units), panels, row)


pair_matmul = define(
    "_pair_matmul",
    "Sums of products of bfloat16 over the last axis of the data, two at a time, in float32.",
    inputs={"data": "rows of whole pairs", "weight": "panels from _word_panels"},
    named=False,
    attrs=NarrowAttrs,
    pattern=OUT_FUSABLE,
    shape=_pair_shape,
    dtype=_pair_dtype,
    reference=_pair_reference,
    compute=_pair_compute,
)


def _conv_shape(params: WindowAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None or ins[1] is None:
        return list(ins), [None]
    return list(ins), [word_conv_shape(params, ins[0], ins[1], PAIR)]


def _conv_reference(params: WindowAttrs, x: Array, panels: Array) -> Array:
    return _product(window_rows(params, x), columns_of(panels, params.units))


def _conv_compute(params: WindowAttrs, x: te.Tensor, panels: te.Tensor) -> te.Tensor:
    shape = word_conv_shape(params, x.shape, panels.shape, PAIR)
    return _te_sum(shape, panels, number_of_window(params, x, PAIR))


pair_conv2d = define(
    "_pair_conv2d",
    "Convolution of an image (n, h, w, c) of bfloat16, two channels at a time, in float32.",
    inputs={"data": "(n, h, w, c), of whole pairs", "weight": "panels from _word_panels"},
    named=False,
    attrs=WindowAttrs,
    pattern=OUT_FUSABLE,
    shape=_conv_shape,
    dtype=_pair_dtype,
    layout=word_conv_layout,
    reference=_conv_reference,
    compute=_conv_compute,
)
