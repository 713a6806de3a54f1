"""Products whose weights are levels of a few bits, with a scale for each group of products of a column.

    out[..., n] = sum over k of data[..., k] * (level[n, k] * scale[n, k // group])

Levels are of int8, or of 4 bits from -8 to 7: two in a byte, the first in its lower half, each plus 8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import FLOAT32, INT32, DType, as_dtype, dtype_name
from ...base.errors import DTypeError, ShapeError
from ...base.shape import Dim, Shape, ceil_div_dims, show, unify, unify_dim
from ...core.schema import INT, attr, schema
from .._families import OUT_FUSABLE, Array, Dtypes, Inferred, Shapes, define

FLOAT16, INT8, UINT8 = (as_dtype(name) for name in ("float16", "int8", "uint8"))
HALF = 8  # what is added to a level of 4 bits
WEIGHT_DTYPES = {8: INT8, 4: UINT8}


@schema
class LevelAttrs:
    units: int = attr(INT, "columns of the result", low=1)
    bits: int = attr(INT, "of a level: 8 or 4", default=8, low=4, high=8)
    group: int = attr(INT, "products that share a scale: a multiple of 8", default=32, low=8, high=128)


def check_levels(params: Any) -> None:
    """Refuses numbers of bits and sizes of groups that there is nothing for."""
    if params.bits not in WEIGHT_DTYPES:
        raise ShapeError(f"levels of {params.bits} bits", why="there are levels of 8 and of 4 bits")
    if params.group % 8:
        raise ShapeError(f"groups of {params.group} products", why="a group is a multiple of 8")


def needs(what: str, dtype: DType | None, *wanted: DType) -> None:
    """Refuses another dtype than those."""
    if dtype is not None and dtype not in wanted:
        raise DTypeError(f"{what} of {dtype_name(dtype)}", why="expected " + " or ".join(map(dtype_name, wanted)))


def _shape(params: LevelAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    check_levels(params)
    data, weight, scale = ins
    out = outs[0]
    if data is not None and not data:
        raise ShapeError("a product needs at least one dimension")
    depth: Dim = None if data is None else data[-1]
    if weight is not None and len(weight) == 2 and params.bits == 8:
        depth = unify_dim(depth, weight[1])
    columns = depth if params.bits == 8 else None if depth is None else ceil_div_dims(depth, 2)
    groups = None if depth is None else ceil_div_dims(depth, params.group)
    weights = [unify(weight, (params.units, columns)), unify(scale, (params.units, groups))]
    leading: Shape = None if data is None else data[:-1]
    leading = unify(leading, None if out is None else out[:-1])
    if leading is None:
        return [None, *weights], [None]
    return [(*leading, depth), *weights], [(*leading, params.units)]


def _dtype(params: LevelAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    check_levels(params)
    needs("data", ins[0], FLOAT32)
    needs(f"levels of {params.bits} bits", ins[1], WEIGHT_DTYPES[params.bits])
    needs("scales", ins[2], FLOAT32, FLOAT16)
    return [FLOAT32, WEIGHT_DTYPES[params.bits], ins[2]], [FLOAT32]


def unpacked_levels(weight: Array, depth: int) -> Array:
    """Levels of 4 bits, one a byte.

    >>> unpacked_levels(np.array([[0x0F, 0x98]], np.uint8), 3).tolist()
    [[7, -8, 0]]
    """
    both = np.stack([weight & 15, weight >> 4], -1).reshape(weight.shape[0], -1)
    return both[:, :depth].astype(np.int8) - np.int8(HALF)


def _reference(params: LevelAttrs, x: Array, weight: Array, scale: Array) -> Array:
    depth = x.shape[-1]
    levels = weight if params.bits == 8 else unpacked_levels(weight, depth)
    scales = np.repeat(scale.astype(np.float64), params.group, 1)[:, :depth]
    return np.matmul(x.astype(np.float64), (levels * scales).T).astype(np.float32)


def _compute(params: LevelAttrs, x: te.Tensor, weight: te.Tensor, scale: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(x.shape[-1])

    def element(*index: te.Expr) -> te.Expr:
        unit = index[-1]
        factor = te.cast(scale[unit, k.var // params.group], FLOAT32)
        return te.sum(x[(*index[:-1], k.var)] * (level_at(params, weight, unit, k.var) * factor), k)

    return te.compute((*x.shape[:-1], params.units), element, name="levels")


def level_at(params: Any, weight: te.Tensor, unit: te.Expr, k: te.Expr) -> te.Expr:
    """A level as a float."""
    if params.bits == 8:
        return te.cast(weight[unit, k], FLOAT32)
    both = te.cast(weight[unit, k // 2], INT32)
    return te.cast(((both >> te.cast(k % 2 * 4, INT32)) & 15) - HALF, FLOAT32)


dense_levels = define(
    "dense_levels",
    "A product with weights that are levels of 8 or 4 bits: out[..., n] = sum over k of data[..., k] * "
    "(weight[n, k] * scale[n, k // group]). Levels of 4 bits lie two in a byte, each plus 8.",
    inputs={
        "data": "rows, of float32",
        "weight": "(units, k) of int8, or (units, (k + 1) // 2) of uint8",
        "scale": "(units, groups), of float32 or float16",
    },
    attrs=LevelAttrs,
    pattern=OUT_FUSABLE,
    shape=_shape,
    dtype=_dtype,
    reference=_reference,
    compute=_compute,
)


def shown(shapes: Sequence[Shape]) -> str:
    """Shapes side by side, for errors."""
    return ", ".join(map(show, shapes))
