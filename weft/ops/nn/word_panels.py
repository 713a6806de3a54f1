"""Filters packed for kernels that multiply and sum what lies in 32 bits at once: four bytes, or two bfloat16."""

from __future__ import annotations

import numpy as np

from ... import te
from ...base.dtype import DTYPES, DType, dtype_name
from ...base.errors import DTypeError
from ...base.shape import ceil_div_dims, mul_dims
from ...core.schema import INT, attr, schema
from .._families import INJECTIVE, Array, Dtypes, Inferred, Shapes, define, ranked

WORD_BYTES = 4
WORD_DTYPES = (DTYPES["int8"], DTYPES["bfloat16"])


def per_word(dtype: DType) -> int:
    """How many numbers of a dtype lie in a word."""
    return WORD_BYTES // dtype.itemsize


@schema
class PanelAttrs:
    lanes: int = attr(INT, "filters in a panel", low=1)
    together: int = attr(INT, "numbers in a word: 4 of int8, 2 of bfloat16", low=2, high=4)


def _shape(params: PanelAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    filters, channels, rows, columns = ranked(ins[0], 4, "the weight")
    steps = mul_dims(rows, columns, ceil_div_dims(channels, params.together))
    return list(ins), [(ceil_div_dims(filters, params.lanes), steps, params.lanes, params.together)]


def _dtype(params: PanelAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    dtype = ins[0] if ins[0] is not None else outs[0]
    if dtype is not None and (dtype not in WORD_DTYPES or per_word(dtype) != params.together):
        raise DTypeError(f"words of {params.together} numbers of {dtype_name(dtype)}", why="4 of int8 or 2 of bfloat16")
    return [dtype], [dtype]


def _reference(params: PanelAttrs, w: Array) -> Array:
    filters, channels, rows, columns = w.shape
    (shape,) = _shape(params, [w.shape], [None])[1]
    steps = -(-channels // params.together)
    wide = np.zeros((shape[0] * params.lanes, rows, columns, steps * params.together), w.dtype)
    wide[:filters, :, :, :channels] = w.transpose(0, 2, 3, 1)
    return wide.reshape(shape[0], params.lanes, shape[1], params.together).swapaxes(1, 2)


def _compute(params: PanelAttrs, w: te.Tensor) -> te.Tensor:
    filters, channels, _, columns = w.shape
    (shape,) = _shape(params, [w.shape], [None])[1]
    steps = max(-(-channels // params.together), 1)

    def element(panel: te.Expr, step: te.Expr, lane: te.Expr, number: te.Expr) -> te.Expr:
        column, channel = panel * params.lanes + lane, step % steps * params.together + number
        tap = step // steps
        inside = [column < filters] if filters % params.lanes else []
        inside += [channel < channels] if channels % params.together else []
        return te.read_or(w, (column, channel, tap // columns, tap % columns), te.all_of(inside), 0)

    return te.compute(shape, element, name="panels")


word_panels = define(
    "_word_panels",
    "Filters (o, i, h, w) in panels: out[p, (h, w, i // t), l, i % t] = weight[p * lanes + l, i, h, w], 0 beyond.",
    inputs={"weight": "the filters, of int8 or bfloat16"},
    named=False,
    attrs=PanelAttrs,
    pattern=INJECTIVE,
    shape=_shape,
    dtype=_dtype,
    reference=_reference,
    compute=_compute,
)
