"""Running sums along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..base.dtype import is_float
from ..base.shape import Shape, normalize_axis
from ..core.schema import BOOL, INT, attr, schema
from . import _layouts as layouts
from ._families import OPAQUE, F, define, numeric, same_shape
from .reduce import wide


@schema
class CumsumAttrs:
    axis: int = attr(INT, "along which axis", default=0)
    exclusive: bool = attr(BOOL, "leave the element itself out", default=False)
    reverse: bool = attr(BOOL, "start from the end", default=False)


def _cumsum_shape(params: Any, ins: Sequence[Shape], outs: Sequence[Shape]) -> Any:
    made = same_shape(params, ins, outs)
    if made[0][0] is not None:
        normalize_axis(params.axis, len(made[0][0]))
    return made


def _cumsum_reference(params: Any, x: Any) -> Any:
    axis = normalize_axis(params.axis, x.ndim)
    ordered = np.flip(x, axis) if params.reverse else x
    total = np.cumsum(wide(ordered), axis, dtype=None if is_float(x.dtype) else x.dtype)
    if params.exclusive:
        total = np.roll(total, 1, axis)
        total[(slice(None),) * axis + (slice(0, 1),)] = 0
    return (np.flip(total, axis) if params.reverse else total).astype(x.dtype)


def _cumsum_compute(params: Any, x: te.Tensor) -> te.Tensor:
    """Sums inside blocks, then of whole blocks: n^1.5 additions, and nothing to write twice."""
    axis = normalize_axis(params.axis, x.rank)
    n = x.shape[axis]
    block = n if n <= 32 else math.isqrt(n - 1) + 1
    block = max(block, 1)
    blocks = -(-n // block)
    head, tail = x.shape[:axis], x.shape[axis + 1 :]
    k, c = te.reduce_axis(block, "k"), te.reduce_axis(blocks, "c")
    zero = te.const(0, x.dtype)

    def inside(*i: te.Expr) -> te.Expr:
        b, row = i[axis], i[axis + 1]
        at = b * block + k.var
        source = n - 1 - at if params.reverse else at
        wanted = (k.var <= row) & (at < n)
        return te.sum(te.read_or(x, (*i[:axis], source, *i[axis + 2 :]), wanted, 0), k)

    sums = te.compute((*head, blocks, block, *tail), inside)

    def before(*i: te.Expr) -> te.Expr:
        total = sums[(*i[:axis], c.var, block - 1, *i[axis + 1 :])]
        return te.sum(te.select(c.var < i[axis], total, zero), c)

    starts = te.compute((*head, blocks, *tail), before)

    def value(*i: te.Expr) -> te.Expr:
        place = n - 1 - i[axis] if params.reverse else i[axis]
        if params.exclusive:
            place = place - 1
        at = te.max(place, 0)
        start = starts[(*i[:axis], at // block, *i[axis + 1 :])]
        total = sums[(*i[:axis], at // block, at % block, *i[axis + 1 :])] + start
        return te.select(place >= 0, total, zero) if params.exclusive else total

    return te.compute(x.shape, value)


cumsum = define(
    "cumsum", "The sum of all elements up to each one along an axis.", level=5, attrs=CumsumAttrs,
    pattern=OPAQUE, shape=_cumsum_shape, dtype=numeric, layout=layouts.fixed_copy,
)  # fmt: skip
cumsum.reference = _cumsum_reference
cumsum.compute = _cumsum_compute
cumsum.gradient = lambda ctx, g: [  # an element counts for all after it
    F.cumsum(g, axis=ctx.params.axis, exclusive=ctx.params.exclusive,
             reverse=not ctx.params.reverse)
]  # fmt: skip
