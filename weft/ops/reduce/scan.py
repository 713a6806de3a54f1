"""Running sums along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import is_float
from ...base.shape import normalize_axis
from ...core.schema import BOOL, INT, attr, schema
from .. import _layouts as layouts
from .._families import F, axis_shape, define, holomorphic, numeric
from .._kernels import Body, along, each_block, rows_of, wide_dtype
from .reductions import wide


@schema
class CumsumAttrs:
    axis: int = attr(INT, "along which axis", default=0)
    exclusive: bool = attr(BOOL, "leave the element itself out", default=False)
    reverse: bool = attr(BOOL, "start from the end", default=False)


def _cumsum_reference(params: Any, x: Any) -> Any:
    axis = normalize_axis(params.axis, x.ndim)
    ordered = np.flip(x, axis) if params.reverse else x
    total = np.cumsum(wide(ordered), axis, dtype=None if is_float(x.dtype) else x.dtype)
    if params.exclusive:
        total = np.roll(total, 1, axis)
        total[(slice(None),) * axis + (slice(0, 1),)] = 0
    return (np.flip(total, axis) if params.reverse else total).astype(x.dtype)


def _cumsum_kernels(params: Any, inputs: Any, outputs: Any) -> Any:
    ((shape, dtype),) = inputs
    rows = rows_of(shape, params.axis)
    wide = wide_dtype(dtype)
    body = Body("cumsum", inputs, outputs)
    kernel = body.kernel({0: rows, 1: rows}, math.prod(shape))
    with kernel as (b, x, out), each_block(b, rows) as (o, first):
        total = b.alloc("total", wide, (rows.block,))
        with along(b, rows) as i:
            b.store(total, i, 0)
        with b.loop("k", rows.extent) as k:
            row = rows.extent - 1 - k if params.reverse else k
            with along(b, rows) as i:
                at = (o, row, first + i)
                old = b.let("old", total[i])
                new = b.let("new", old + te.cast(x[at], wide))
                b.store(total, i, new)
                b.store(out, at, te.cast(old if params.exclusive else new, dtype))
    return body.kernels


cumsum = define(
    "cumsum",
    "The sum of all elements up to each one along an axis.",
    level=5,
    attrs=CumsumAttrs,
    shape=axis_shape,
    dtype=numeric,
    layout=layouts.fixed_copy,
    native_from=1024,
)
cumsum.reference = _cumsum_reference
cumsum.kernels = _cumsum_kernels
cumsum.complex_gradient = holomorphic
cumsum.gradient = lambda ctx, g: [  # an element counts for all after it
    F.cumsum(g, axis=ctx.params.axis, exclusive=ctx.params.exclusive, reverse=not ctx.params.reverse)
]
