"""What batch norm and its gradient are made of where channels are last: sums over rows of channels, and what is done to
each element with a number for its channel. In float32, whatever the data is, which is rounded once.

A build puts them in place of norms on GPUs, after gradients are taken: they have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import FLOAT32, DType, is_float
from ...base.errors import DTypeError, ShapeError
from ...base.shape import Shape, unify
from ...core.infer import unify_dtype
from .. import _layouts as layouts
from .._families import BROADCAST, OGRAD, Array, Inferred, Shapes, define


def _rows(*shapes: Shape) -> Any:
    """The shape that rows have in common."""
    known: Shape = None
    for shape in shapes:
        known = unify(known, shape)
    if known is not None and len(known) != 2:
        raise ShapeError("rows of channels have two axes")
    return known


def _short(*dtypes: Any) -> DType | None:
    """The dtype that rows have in common."""
    known: DType | None = None
    for dtype in dtypes:
        known = unify_dtype(known, dtype)
    if known is not None and not (is_float(known) and known.itemsize <= FLOAT32.itemsize):
        raise DTypeError(f"sums in float32 of {known}")
    return known


def _vectors(dtypes: Sequence[Any], short: Any) -> list[Any]:
    """A number for each channel is float32, or what the rows are."""
    if short is not None and any(dtype not in (None, FLOAT32, short) for dtype in dtypes):
        raise DTypeError(f"numbers for channels of {', '.join(map(str, dtypes))}", why=f"they are {short} or float32")
    return list(dtypes)


def _moments_shape(params: None, ins: Shapes, outs: Shapes) -> Inferred:
    rows = _rows(ins[0])
    return [rows], [None if rows is None else rows[1:]] * 2


def _moments_reference(x: Array) -> list[Array]:
    wide = x.astype(np.float64)
    return [wide.mean(0).astype(np.float32), wide.var(0).astype(np.float32)]


def _total(x: te.Tensor, name: str, body: Any) -> te.Tensor:
    """The sum of a body over rows, for each channel."""
    row = te.reduce_axis(x.shape[0], "row")
    return te.compute(x.shape[1:], lambda c: te.sum(body(row.var, c), row), name=name)


def _wide(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: te.cast(x[i], FLOAT32), name=x.name)


def _mean(x: te.Tensor, name: str, body: Any) -> te.Tensor:
    total, count = _total(x, f"{name}_sum", body), te.as_expr(x.shape[0], FLOAT32)
    return te.compute(total.shape, lambda c: total[c] / count, name=name)


def _moments_compute(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """In two passes."""
    wide = _wide(x)
    mean = _mean(wide, "mean", lambda row, c: wide[row, c])
    left = lambda row, c: wide[row, c] - mean[c]
    return mean, _mean(wide, "variance", lambda row, c: left(row, c) * left(row, c))


define(
    "_channel_moments",
    "Mean and variance of each channel over all rows, in float32.",
    inputs={"data": "(rows, channels)"},
    shape=_moments_shape,
    dtype=lambda params, ins, outs: ([_short(*ins)], [FLOAT32, FLOAT32]),
    layout=layouts.fixed_unknown,
    reference=_moments_reference,
    compute=_moments_compute,
    output_names=["mean", "var"],
)


def _slopes_shape(params: None, ins: Shapes, outs: Shapes) -> Inferred:
    rows = _rows(ins[0], ins[1])
    channels = None if rows is None else rows[1:]
    return [rows, rows, channels], [channels] * 2


def _slopes_dtype(params: None, ins: Any, outs: Any) -> Inferred:
    short = _short(*ins[:2])
    return [short, short, *_vectors(ins[2:], short)], [FLOAT32, FLOAT32]


def _slopes_reference(g: Array, x: Array, mean: Array) -> list[Array]:
    ograd, left = g.astype(np.float64), x.astype(np.float64) - mean.astype(np.float64)
    return [(ograd * left).sum(0).astype(np.float32), ograd.sum(0).astype(np.float32)]


def _slopes_compute(g: te.Tensor, x: te.Tensor, mean: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    ograd, wide, mean = _wide(g), _wide(x), _wide(mean)
    along = _total(x, "along", lambda row, c: ograd[row, c] * (wide[row, c] - mean[c]))
    return along, _total(g, "plain", lambda row, c: ograd[row, c])


define(
    "_channel_slopes",
    "For each channel the sum over all rows of ograd times what the data has over its mean, and that of ograd, in "
    "float32.",
    inputs={**OGRAD, "data": "(rows, channels)", "mean": "the mean of each channel, in float32"},
    shape=_slopes_shape,
    dtype=_slopes_dtype,
    layout=layouts.fixed_unknown,
    reference=_slopes_reference,
    compute=_slopes_compute,
    output_names=["along", "plain"],
)

# Element by element


def _each_shape(tensors: int) -> Any:
    """So many tensors of one shape, then vectors."""

    def rule(params: None, ins: Shapes, outs: Shapes) -> Inferred:
        known = outs[0]
        for shape in ins[:tensors]:
            known = unify(known, shape)
        vectors = [None if known is None else known[-1:]] * (len(ins) - tensors)
        return [*[known] * tensors, *vectors], [known]

    return rule


def _each_dtype(tensors: int) -> Any:
    def rule(params: None, ins: Any, outs: Any) -> Inferred:
        short = _short(*ins[:tensors], *outs)
        return [*[short] * tensors, *_vectors(ins[tensors:], short)], [short]

    return rule


def _scaled_reference(x: Array, mean: Array, factor: Array, shift: Array) -> Array:
    with np.errstate(all="ignore"):
        made = (x.astype(np.float64) - mean.astype(np.float64)) * factor.astype(np.float64)
        return (made + shift.astype(np.float64)).astype(x.dtype)


def _scaled_compute(x: te.Tensor, mean: te.Tensor, factor: te.Tensor, shift: te.Tensor) -> te.Tensor:
    wide, mean, factor, shift = map(_wide, (x, mean, factor, shift))

    def element(*i: Any) -> Any:
        c = i[-1]
        return te.cast((wide[i] - mean[c]) * factor[c] + shift[c], x.dtype)

    return te.compute(x.shape, element, name="scaled")


VECTORS = {"mean": "is taken off", "factor": "multiplies"}
define(
    "_channel_scaled",
    "(data - mean) factor + shift, with a number of float32 for each channel; channels are last.",
    inputs={"data": "(..., channels)", **VECTORS, "shift": "is added"},
    pattern=BROADCAST,
    shape=_each_shape(1),
    dtype=_each_dtype(1),
    layout=layouts.fixed_unknown,
    reference=_scaled_reference,
    compute=_scaled_compute,
)


def _tilted_reference(g: Array, x: Array, mean: Array, factor: Array, slope: Array, shift: Array) -> Array:
    ograd, wide, *vectors = (array.astype(np.float64) for array in (g, x, mean, factor, slope, shift))
    with np.errstate(all="ignore"):
        return (ograd * vectors[1] + (wide - vectors[0]) * vectors[2] + vectors[3]).astype(x.dtype)


def _tilted_compute(
    g: te.Tensor, x: te.Tensor, mean: te.Tensor, factor: te.Tensor, slope: te.Tensor, shift: te.Tensor
) -> te.Tensor:
    ograd, wide, mean, factor, slope, shift = map(_wide, (g, x, mean, factor, slope, shift))

    def element(*i: Any) -> Any:
        c = i[-1]
        return te.cast(ograd[i] * factor[c] + (wide[i] - mean[c]) * slope[c] + shift[c], x.dtype)

    return te.compute(x.shape, element, name="tilted")


define(
    "_channel_tilted",
    "ograd factor + (data - mean) slope + shift, with a number of float32 for each channel; channels are last.",
    inputs={**OGRAD, "data": "(..., channels)", **VECTORS, "slope": "of the data", "shift": "is added"},
    pattern=BROADCAST,
    shape=_each_shape(2),
    dtype=_each_dtype(2),
    layout=layouts.fixed_unknown,
    reference=_tilted_reference,
    compute=_tilted_compute,
)
