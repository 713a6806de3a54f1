"""Matrix products with packed weights: the columns in panels as wide as a vector, each panel with
all its rows in one go, so that a kernel reads the weights as one stream.

A build puts them in place of other products, after gradients are taken: they have none."""

from __future__ import annotations

import numpy as np

from ... import te
from ...base.dtype import BFLOAT16, FLOAT16, FLOAT32
from ...base.errors import ShapeError
from ...base.shape import ceil_div_dims, show, unify_dim
from ...core.schema import BOOL, INT, attr, schema
from .._families import INJECTIVE, OUT_FUSABLE, Array, Dtypes, Inferred, Shapes, define, numeric, ranked


@schema
class PackAttrs:
    lanes: int = attr(INT, "columns in a panel", low=1)
    transposed: bool = attr(BOOL, "whether columns are the first axis of the data", default=False)


def _pack_shape(params: PackAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return [None], [None]
    if len(ins[0]) != 2:
        raise ShapeError(f"a matrix has two dimensions, not {show(ins[0])}")
    rows, columns = ins[0][::-1] if params.transposed else ins[0]
    panels = ceil_div_dims(columns, params.lanes)
    return [None], [(panels, rows, params.lanes)]


def _pack_reference(params: PackAttrs, w: Array) -> Array:
    matrix = w.T if params.transposed else w
    rows, columns = matrix.shape
    panels = -(-columns // params.lanes)
    if columns % params.lanes:
        wide = np.zeros((rows, panels * params.lanes), w.dtype)
        wide[:, :columns] = matrix
        matrix = wide
    return matrix.reshape(rows, panels, params.lanes).swapaxes(0, 1)


def _pack_compute(params: PackAttrs, w: te.Tensor) -> te.Tensor:
    (shape,) = _pack_shape(params, [w.shape], [None])[1]
    columns = w.shape[0] if params.transposed else w.shape[1]

    def element(panel: te.Expr, row: te.Expr, lane: te.Expr) -> te.Expr:
        column = panel * params.lanes + lane
        index = (column, row) if params.transposed else (row, column)
        return te.read_or(w, index, column < columns, 0) if columns % params.lanes else w[index]

    return te.compute(shape, element, name="panels")


pack_panels = define(
    "_pack_panels",
    "A matrix as panels of columns: out[p, k, l] = data[k, p * lanes + l], 0 beyond the last.",
    attrs=PackAttrs,
    pattern=INJECTIVE,
    shape=_pack_shape,
    reference=_pack_reference,
    compute=_pack_compute,
)


@schema
class PackedMatmulAttrs:
    units: int = attr(INT, "columns of the result", low=1)


def _packed_shape(params: PackedMatmulAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, weight = ins
    if data is None or weight is None:
        return [None, None], [None]
    if not data:
        raise ShapeError("a product needs at least one dimension")
    panels, rows, lanes = ranked(weight, 3, "the panels")
    unify_dim(data[-1], rows)
    if lanes == 0:
        raise ShapeError(f"panels of shape {show(weight)} have no columns")
    if isinstance(lanes, int):
        unify_dim(panels, -(-params.units // lanes))
    return [None, None], [(*data[:-1], params.units)]


def _packed_dtype(params: PackedMatmulAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    """All the same, but that weights of float32 rows may have 16 bits."""
    if ins[1] in (BFLOAT16, FLOAT16) and ins[0] == FLOAT32:
        return list(ins), [FLOAT32]
    return numeric(params, ins, outs)


def _packed_reference(params: PackedMatmulAttrs, x: Array, panels: Array) -> Array:
    count, rows, lanes = panels.shape
    matrix = panels.swapaxes(0, 1).reshape(rows, count * lanes)[:, : params.units]
    if matrix.dtype != x.dtype:
        matrix = matrix.astype(x.dtype)
    return np.matmul(x, np.ascontiguousarray(matrix)).astype(x.dtype, copy=False)


def _packed_compute(params: PackedMatmulAttrs, x: te.Tensor, panels: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(panels.shape[1])
    lanes = panels.shape[2]

    def element(*index: te.Expr) -> te.Expr:
        *outer, column = index
        weight = panels[column // lanes, k.var, column % lanes]
        return te.sum(x[(*outer, k.var)] * te.cast(weight, x.dtype), k)

    return te.compute((*x.shape[:-1], params.units), element, name="product")


packed_matmul = define(
    "_packed_matmul",
    "out[..., n] = sum over k of data[..., k] * weight[n // lanes, k, n % lanes]",
    inputs={"data": "the rows", "weight": "the panels of the columns"},
    named=False,
    attrs=PackedMatmulAttrs,
    pattern=OUT_FUSABLE,
    shape=_packed_shape,
    dtype=_packed_dtype,
    reference=_packed_reference,
    compute=_packed_compute,
)
