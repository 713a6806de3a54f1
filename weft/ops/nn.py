"""dense, dropout, softmax and pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import te
from ..base.dtype import DTYPES, INT64, is_float
from ..base.errors import ShapeError
from ..base.shape import Dim, Shape, mul_dims, normalize_axis, unify, unify_dim
from ..core.schema import BOOL, FLOAT, INT, attr, schema
from . import _layouts as layouts
from ._families import (
    INJECTIVE,
    OPAQUE,
    OUT_FUSABLE,
    F,
    define,
    floating,
    in_dtype,
    numeric,
)

Array = NDArray[Any]
Shapes = Sequence[Shape]
Inferred = tuple[list[Any], list[Any]]

# dense


@schema
class DenseAttrs:
    units: int = attr(INT, "number of outputs", low=1)
    use_bias: bool = attr(BOOL, "whether there is a bias", default=True)


def _dense_shape(params: DenseAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    """The last axis of the data goes from k to units; leading axes are carried both ways."""
    data, weight, out = ins[0], ins[1], outs[0]
    rank = next((len(shape) for shape in (data, out) if shape is not None), None)
    if rank == 0:
        raise ShapeError("dense needs data of at least one dimension")
    k: Dim = data[-1] if data is not None else None
    if weight is not None and len(weight) == 2:
        k = unify_dim(k, weight[1])
    own = [(params.units, k), (params.units,)][: len(ins) - 1]
    if rank is None:
        return [None, *own], [None]
    leading = unify(data[:-1] if data is not None else None, out[:-1] if out is not None else None)
    assert leading is not None
    return [(*leading, k), *own], [(*leading, params.units)]


def _dense_layout(params: DenseAttrs, ins: Any, last: Any, outs: Any) -> Any:
    """Keeps the layout its data first had; the output's axes mean something else."""
    return layouts.fixed_unknown(params, ins, last, outs)


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if is_float(x.dtype) and x.dtype.itemsize < 4 else x


def _dense_reference(params: DenseAttrs, x: Array, w: Array, *bias: Array) -> Array:
    out = np.asarray(_wide(x) @ _wide(w).T)
    if bias:
        out += _wide(bias[0])
    return out.astype(x.dtype, copy=False)


def _dense_compute(params: DenseAttrs, x: te.Tensor, w: te.Tensor, *bias: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(x.shape[-1])
    out = te.compute(
        (*x.shape[:-1], params.units),
        lambda *i: te.sum(x[(*i[:-1], k.var)] * w[i[-1], k.var], k),
        name="dense",
    )
    if not bias:
        return out
    return te.compute(out.shape, lambda *i: out[i] + bias[0][i[-1]], name="bias_add")


def _dense_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g w; dw = g' x; db = the sum of g over all but the last axis."""
    x, w = ctx.inputs[:2]
    return [
        F.matmul(g, w),
        F.matmul(F._as_rows(g), F._as_rows(x), transpose_a=True),
        *([F.sum(g, axis=(-1,), exclude=True)] if ctx.params.use_bias else []),
    ]


_DENSE_INPUTS = {
    "data": "the input, of shape (..., k)",
    "weight": "(units, k)",
    "bias": "(units,), if use_bias",
}
dense = define(
    "dense", "data weight' + bias: a fully connected layer over the last axis.", level=1,
    inputs=_DENSE_INPUTS, named=False, attrs=DenseAttrs, pattern=OUT_FUSABLE, shape=_dense_shape,
    dtype=numeric, layout=_dense_layout, reference=_dense_reference, compute=_dense_compute,
    gradient=_dense_gradient,
)  # fmt: skip
dense.set_num_inputs(lambda params: 3 if params.use_bias else 2)
dense.input_names = lambda params: list(_DENSE_INPUTS)[: 3 if params.use_bias else 2]


def _rows_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return [None], [None]
    if not ins[0]:
        raise ShapeError("a scalar has no rows")
    return [ins[0]], [(mul_dims(*ins[0][:-1]), ins[0][-1])]


def _as_rows(x: Array) -> Array:
    return x.reshape(int(np.prod(x.shape[:-1], dtype=np.int64)), x.shape[-1]).copy()


def _rows_compute(x: te.Tensor) -> te.Tensor:
    shape = (int(np.prod(x.shape[:-1], dtype=np.int64)), x.shape[-1])

    def element(row: te.Expr, column: te.Expr) -> te.Expr:
        index: list[Any] = [column]
        for extent in reversed(x.shape[:-1]):
            index.insert(0, row % max(extent, 1))
            row = row // max(extent, 1)
        return x[tuple(index)]

    return te.compute(shape, element)


as_rows = define(
    "_as_rows", "x with all axes but the last merged into one.", level=10, pattern=INJECTIVE,
    shape=_rows_shape, layout=layouts.fixed_unknown, reference=_as_rows, compute=_rows_compute,
    gradient=lambda ctx, g: [F.reshape_like(g, ctx.inputs[0])], alias={0: 0}, inplace=[(0, 0)],
    inplace_identity=[True],
)  # fmt: skip

# softmax


@schema
class AxisAttrs:
    axis: int = attr(INT, "the axis that is summed over", default=-1)


def _axis_shape(params: AxisAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[0], outs[0])
    if shape is not None:
        normalize_axis(params.axis, len(shape))
    return [shape], [shape]


def along(x: te.Tensor, axes: Sequence[int], name: str, body: Any, reducer: Any) -> te.Tensor:
    """A reduction over some axes, which stay with extent 1: `body` takes an index of x."""
    reduced = {axis: te.reduce_axis(x.shape[axis]) for axis in axes}
    shape = tuple(1 if axis in reduced else extent for axis, extent in enumerate(x.shape))

    def element(*i: Any) -> Any:
        index = tuple(reduced[a].var if a in reduced else v for a, v in enumerate(i))
        return reducer(body(index), list(reduced.values()))

    return te.compute(shape, element, name=name)


def one(index: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    """The index of a reduced tensor that belongs to one of the whole tensor."""
    return tuple(0 if axis in axes else value for axis, value in enumerate(index))


def _shifted(params: AxisAttrs, x: Array) -> Array:
    wide = x.astype(np.float64)
    if not wide.shape[params.axis]:
        return wide
    return wide - wide.max(axis=params.axis, keepdims=True)


def _softmax_reference(params: AxisAttrs, x: Array) -> Array:
    e = np.exp(_shifted(params, x))
    return e / e.sum(axis=params.axis, keepdims=True)


def _log_softmax_reference(params: AxisAttrs, x: Array) -> Array:
    shifted = _shifted(params, x)
    return shifted - np.log(np.exp(shifted).sum(axis=params.axis, keepdims=True))


def _exp_sum(x: te.Tensor, axis: tuple[int, ...]) -> tuple[te.Tensor, te.Tensor]:
    """The largest element along an axis, and the sum of the exponentials of what is above it."""
    top = along(x, axis, "max", lambda i: x[i], te.max_of)
    total = along(x, axis, "exp_sum", lambda i: te.exp(x[i] - top[one(i, axis)]), te.sum)
    return top, total


def _softmax_compute(params: AxisAttrs, x: te.Tensor) -> te.Tensor:
    axis = (normalize_axis(params.axis, x.rank),)
    top, total = _exp_sum(x, axis)
    return te.compute(
        x.shape,
        lambda *i: te.exp(x[i] - top[one(i, axis)]) / total[one(i, axis)],
        name="softmax",
    )


def _log_softmax_compute(params: AxisAttrs, x: te.Tensor) -> te.Tensor:
    axis = (normalize_axis(params.axis, x.rank),)
    top, total = _exp_sum(x, axis)
    return te.compute(
        x.shape,
        lambda *i: x[i] - top[one(i, axis)] - te.log(total[one(i, axis)]),
        name="log_softmax",
    )


def _softmax_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = y (g - sum of g y)"""
    y = ctx.outputs[0]
    total = F.sum(F.elemwise_mul(g, y), axis=(ctx.params.axis,), keepdims=True)
    return [F.elemwise_mul(y, F.broadcast_sub(g, total))]


def _log_softmax_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g - exp(y) sum of g"""
    total = F.sum(g, axis=(ctx.params.axis,), keepdims=True)
    return [F.elemwise_sub(g, F.broadcast_mul(F.exp(ctx.outputs[0]), total))]


softmax = define(
    "softmax", "exp(x) / sum of exp(x) along the axis.", level=1, attrs=AxisAttrs,
    pattern=OUT_FUSABLE, shape=_axis_shape, dtype=floating, layout=layouts.fixed_copy,
    compute=_softmax_compute, reference=in_dtype(_softmax_reference), gradient=_softmax_gradient,
    inplace=[(0, 0)],
)  # fmt: skip
log_softmax = define(
    "log_softmax", "x - log(sum of exp(x)) along the axis.", level=1, attrs=AxisAttrs,
    pattern=OUT_FUSABLE, shape=_axis_shape, dtype=floating, layout=layouts.fixed_copy,
    compute=_log_softmax_compute, reference=in_dtype(_log_softmax_reference),
    gradient=_log_softmax_gradient, inplace=[(0, 0)],
)  # fmt: skip

# dropout. Training draws from a counter-based generator, whose state (key, counter) is an input
# that each run moves on: the bits of element i are a mix of key + (counter + i + 1) * GOLDEN.

UINT64 = DTYPES["uint64"]
_GOLDEN, _MIX1, _MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _mix(z: Any, shift: Any, times: Any) -> Any:
    """64 well-mixed bits of a number; `shift` and `times` make constants of its kind."""
    z = (z ^ (z >> shift(30))) * times(_MIX1)
    z = (z ^ (z >> shift(27))) * times(_MIX2)
    return z ^ (z >> shift(31))


@schema
class DropoutAttrs:
    rate: float = attr(FLOAT, "the share of elements set to 0", default=0.5, low=0, high=1)
    training: bool = attr(BOOL, "false: the data is handed on", default=False)


def _dropout_shape(params: DropoutAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(unify(ins[0], outs[0]), outs[1])
    return [shape, (2,)][: len(ins)], [shape, shape]


def _dropout_dtype(params: DropoutAttrs, ins: Any, outs: Any) -> Inferred:
    (dtype,), made = floating(params, ins[:1], outs)
    return [dtype, UINT64][: len(ins)], made


def _keep_scale(params: DropoutAttrs) -> float:
    return 1 / (1 - params.rate) if params.rate < 1 else 0.0


def _dropout_reference(params: DropoutAttrs, x: Array, *state: Array) -> tuple[Array, ...]:
    if not params.training:
        return x.copy(), np.ones_like(x)
    key, counter = state[0]
    with np.errstate(over="ignore"):
        number = np.arange(1, x.size + 1, dtype=np.uint64) + counter
        bits = _mix(key + number * np.uint64(_GOLDEN), np.uint64, np.uint64)
        moved = np.array([key, counter + np.uint64(x.size)], np.uint64)
    uniform = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)
    kept = (uniform >= np.float32(params.rate)) * np.float32(_keep_scale(params))
    mask = kept.reshape(x.shape).astype(x.dtype)
    return x * mask, mask, moved


def _dropout_compute(
    params: DropoutAttrs, x: te.Tensor, *state: te.Tensor
) -> tuple[te.Tensor, ...]:
    if not params.training:
        return (
            te.compute(x.shape, lambda *i: x[i]),
            te.compute(x.shape, lambda *i: te.const(1, x.dtype)),
        )
    mask = te.compute(x.shape, _drawn_mask(params, x, state[0]), name="dropout_mask")
    size = int(np.prod(x.shape, dtype=np.int64))
    moved = te.compute(
        (2,),
        lambda i: state[0][i] + te.cast(te.select(i.equal(1), te.const(size, INT64), 0), UINT64),
        name="dropout_state",
    )
    return te.compute(x.shape, lambda *i: x[i] * mask[i], name="dropout"), mask, moved


def _drawn_mask(params: DropoutAttrs, x: te.Tensor, state: te.Tensor) -> Any:
    def element(*index: Any) -> Any:
        place: Any = te.const(1, INT64)
        for value, step in zip(index, np.cumprod((1, *x.shape[:0:-1]))[::-1].tolist()):
            place = place + value * step
        number = te.cast(place, UINT64) + state[1]
        constant = lambda value: te.const(value, UINT64)
        bits = _mix(state[0] + number * constant(_GOLDEN), constant, constant)
        uniform = te.cast(bits >> constant(40), "float32") * 2**-24
        kept = te.select(uniform >= params.rate, te.const(_keep_scale(params), "float32"), 0.0)
        return te.cast(kept, x.dtype)

    return element


def _dropout_gradient(ctx: Any, g: Any, *_: Any) -> list[Any]:
    """dx = g mask"""
    if not ctx.params.training:
        return [g]
    return [F.elemwise_mul(g, ctx.outputs[1]), None]


_DROPOUT_INPUTS = {
    "data": "the input",
    "state": "key and counter (two uint64) of the generator, when training; moved on by each run",
}
dropout = define(
    "dropout", "data mask, where mask is 0 for a random share `rate`, else 1 / (1 - rate).",
    level=1, inputs=_DROPOUT_INPUTS, named=False, attrs=DropoutAttrs, pattern=OPAQUE,
    shape=_dropout_shape, dtype=_dropout_dtype, reference=_dropout_reference,
    compute=_dropout_compute, gradient=_dropout_gradient, visible_outputs=1,
    output_names=["output", "mask"],
)  # fmt: skip
dropout.set_num_inputs(lambda params: 2 if params.training else 1).set_num_outputs(2)
dropout.input_names = lambda params: list(_DROPOUT_INPUTS)[: 2 if params.training else 1]
dropout.mutates = lambda params: [1] if params.training else []
dropout.effect = lambda params: "random" if params.training else "pure"
dropout.layout = lambda params, ins, last, outs: (
    list(ins), [ins[0]] * len(outs)
)  # fmt: skip
