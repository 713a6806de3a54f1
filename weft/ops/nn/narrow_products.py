"""Products whose weights are floats of 16 bits and whose sums are float32, as they are written and as kernels like
them. A build puts these in place of other products: they have no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BFLOAT16, FLOAT16, FLOAT32, DType, dtype_name
from ...base.errors import DTypeError, ShapeError
from ...base.shape import show, unify, unify_dim
from ...core.schema import INT, attr, schema
from .._families import OUT_FUSABLE, Array, Dtypes, Inferred, Shapes, define, ranked

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
    count, steps, lanes, pair = ranked(panels, 4, "the panels")
    unify_dim(pair, PAIR)
    if isinstance(data[-1], int):
        if data[-1] % PAIR:
            raise ShapeError(f"{data[-1]} numbers to multiply are no whole pairs")
        unify_dim(data[-1] // PAIR, steps)
    if lanes == 0:
        raise ShapeError(f"panels of shape {show(panels)} have no columns")
    if isinstance(lanes, int):
        unify_dim(count, -(-params.units // lanes))
    return list(ins), [(*data[:-1], params.units)]


def _pair_dtype(params: NarrowAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    for dtype in ins:
        _needs("pairs", dtype, BFLOAT16)
    return [BFLOAT16, BFLOAT16], [FLOAT32]


def _pair_reference(params: NarrowAttrs, x: Array, panels: Array) -> Array:
    count, steps, lanes, _ = panels.shape
    matrix = panels.transpose(1, 3, 0, 2).reshape(steps * PAIR, count * lanes)
    return _product(x, matrix[:, : params.units])


def _pair_compute(params: NarrowAttrs, x: te.Tensor, panels: te.Tensor) -> te.Tensor:
    lanes = panels.shape[2]
    step, number = te.reduce_axis(panels.shape[1], "step"), te.reduce_axis(PAIR, "number")

    def element(*index: te.Expr) -> te.Expr:
        row: Any = x[(*index[:-1], step.var * PAIR + number.var)]
        weight = panels[index[-1] // lanes, step.var, index[-1] % lanes, number.var]
        return te.sum(te.cast(row, FLOAT32) * te.cast(weight, FLOAT32), [step, number])

    return te.compute((*x.shape[:-1], params.units), element, name="pair_product")


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
