"""Running products, extremes and sums of exponentials along an axis, and the linear recurrence
that their gradients are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import INT64, is_float
from ...base.shape import normalize_axis, unify
from ...core.op import Op
from ...core.schema import BOOL, INT, attr, schema
from .. import _layouts as layouts
from .._families import F, changed, define, floating, holomorphic, in_dtype, no_flow, numeric
from .._kernels import Body, along, each_block, rows_of, wide_dtype
from ..reduce.reductions import wide


@schema
class AxisAttrs:
    axis: int = attr(INT, "along which axis", default=0)


@schema
class CumprodAttrs:
    axis: int = attr(INT, "along which axis", default=0)
    exclusive: bool = attr(BOOL, "leave the element itself out", default=False)


@schema
class ShiftAttrs:
    axis: int = attr(INT, "along which axis", default=0)
    back: bool = attr(BOOL, "towards the start", default=False)


@schema
class RecurrenceAttrs:
    axis: int = attr(INT, "along which axis", default=0)
    reverse: bool = attr(BOOL, "start from the end", default=False)


def _along_axis(params: Any, ins: Any, outs: Any) -> Any:
    """All shapes are one, which has the axis."""
    shape = None
    for known in (*ins, *outs):
        shape = unify(shape, known)
    if shape is not None:
        normalize_axis(params.axis, len(shape))
    return [shape] * len(ins), [shape] * len(outs)


def _scan(name: str, doc: str, attrs: type, **columns: Any) -> Op:
    return define(name, doc, level=5, attrs=attrs, shape=_along_axis, layout=layouts.fixed_copy, **columns)


Step = Callable[..., tuple[Any, Any]]


def _kernels(name: str, start: Any, step: Step, reverse: Callable[[Any], bool]) -> Any:
    """Rows one after the other: `step(params, old, *values)` gives the new state and what is
    written. The state is kept in a wide dtype."""

    def kernels(params: Any, inputs: Any, outputs: Any) -> Any:
        ((shape, dtype),) = outputs
        rows = rows_of(shape, params.axis)
        kind = wide_dtype(dtype)
        body = Body(name, inputs, outputs)
        views = dict.fromkeys(range(len(inputs) + 1), rows)
        kernel = body.kernel(views, math.prod(shape))
        with kernel as (b, *xs, out), each_block(b, rows) as (o, first):
            state = b.alloc("state", kind, (rows.block,))
            with along(b, rows) as i:
                b.store(state, i, te.const(start, kind))
            with b.loop("k", rows.extent) as k:
                row = rows.extent - 1 - k if reverse(params) else k
                with along(b, rows) as i:
                    at = (o, row, first + i)
                    old = b.let("old", state[i])
                    values = [te.cast(x[at], kind) for x in xs]
                    new, written = step(params, old, *values)
                    new = b.let("new", new)
                    b.store(out, at, te.cast(written(old, new), dtype))
                    b.store(state, i, new)
        return body.kernels

    return kernels


# Products.


def _shifted(x: Any, axis: int, back: bool, fill: Any = 0) -> Any:
    """Each element at the place of the next one, or of the one before."""
    axis = normalize_axis(axis, x.ndim)
    edge = np.full(changed(x.shape, axis, min(1, x.shape[axis])), fill, x.dtype)
    keep = slice(1, None) if back else slice(0, max(x.shape[axis] - 1, 0))
    inner = x[changed((slice(None),) * x.ndim, axis, keep)]
    return np.concatenate([inner, edge] if back else [edge, inner], axis)


def _cumprod_reference(params: Any, x: Any) -> Any:
    axis = normalize_axis(params.axis, x.ndim)
    products = np.cumprod(wide(x), axis, dtype=None if is_float(x.dtype) else x.dtype)
    return _shifted(products, axis, False, 1) if params.exclusive else products


def _cumprod_step(params: Any, old: te.Expr, x: te.Expr) -> Any:
    return old * x, (lambda old, new: old if params.exclusive else new)


def _cumprod_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx_k = (the product before k) times (g_k + x_k+1 (g_k+1 + x_k+2 ...))"""
    axis = ctx.params.axis
    g = F._shift(g, axis=axis, back=True) if ctx.params.exclusive else g
    after = F._recurrence(ctx.inputs[0], g, axis=axis, reverse=True)
    return [F.elemwise_mul(F.cumprod(ctx.inputs[0], axis=axis, exclusive=True), after)]


cumprod = _scan("cumprod", "The product of all elements up to each one along an axis.", CumprodAttrs, dtype=numeric)
cumprod.native_from = 1024
cumprod.reference = in_dtype(_cumprod_reference)
cumprod.kernels = _kernels("cumprod", 1, _cumprod_step, lambda p: False)
cumprod.complex_gradient = holomorphic
cumprod.gradient = _cumprod_gradient

shift = _scan("_shift", "Each element moved by one along an axis; 0 comes in.", ShiftAttrs, dtype=numeric)
shift.reference = lambda p, x: _shifted(x, p.axis, p.back)
shift.kernels = _kernels("shift", 0, lambda p, old, x: (x, lambda old, new: old), lambda p: p.back)
shift.complex_gradient = holomorphic
shift.gradient = lambda ctx, g: [F._shift(g, axis=ctx.params.axis, back=not ctx.params.back)]


def _recurrence_reference(params: Any, a: Any, b: Any) -> Any:
    axis = normalize_axis(params.axis, a.ndim)
    a, b = (np.moveaxis(wide(x), axis, 0) for x in (a, b))
    out = np.empty_like(b)
    order = range(len(b) - 1, -1, -1) if params.reverse else range(len(b))
    for place, k in enumerate(order):
        before = k + 1 if params.reverse else k - 1
        factor = a[before] if params.reverse and place else a[k]
        out[k] = b[k] + factor * out[before] if place else b[k]
    return np.moveaxis(out, 0, axis)


def _recurrence_step(params: Any, old: te.Expr, a: te.Expr, b: te.Expr) -> Any:
    """Backwards, the state is a times the sum, as the element before takes it."""
    if params.reverse:
        return a * (old + b), lambda old, new: old + b
    return a * old + b, lambda old, new: new


def _recurrence_gradient(ctx: Any, g: Any) -> list[Any]:
    """db is the recurrence the other way; da_k = db s of the two places that a_k joins"""
    axis, reverse = ctx.params.axis, ctx.params.reverse
    db = F._recurrence(ctx.inputs[0], g, axis=axis, reverse=not reverse)
    s = ctx.outputs[0]
    before = F._shift(db if reverse else s, axis=axis)
    return [F.elemwise_mul(before, s if reverse else db), db]


recurrence = _scan(
    "_recurrence",
    "s_k = b_k + a_k s_k-1 along an axis; reversed, s_k = b_k + a_k+1 s_k+1.",
    RecurrenceAttrs,
    inputs={"a": "the factors", "b": "what is added"},
    named=False,
    dtype=numeric,
    native_from=1024,
)
recurrence.reference = in_dtype(_recurrence_reference)
recurrence.kernels = _kernels("recurrence", 0, _recurrence_step, lambda p: p.reverse)
recurrence.complex_gradient = holomorphic
recurrence.gradient = _recurrence_gradient

# Sums of exponentials.


def _log_sum_step(params: Any, old: te.Expr, x: te.Expr) -> Any:
    high, low = te.max(old, x), te.min(old, x)
    far = te.isinf(high)
    total = high + te.log1p(te.exp(low - te.select(far, 0.0, high)))
    return te.select(far, high, total), (lambda old, new: new)


def _log_sum_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx_k = exp(x_k - y_k) t_k with t_k = g_k + exp(y_k - y_k+1) t_k+1"""
    axis = ctx.params.axis
    y = F.clip(ctx.outputs[0], a_min=-3e38, a_max=math.inf)  # -inf has no difference to itself
    decay = F.exp(F.elemwise_sub(F._shift(y, axis=axis), y))
    later = F._recurrence(decay, g, axis=axis, reverse=True)
    return [F.elemwise_mul(F.exp(F.elemwise_sub(ctx.inputs[0], y)), later)]


logcumsumexp = _scan(
    "logcumsumexp", "log of the sum of exp of all elements up to each one along an axis.", AxisAttrs, dtype=floating
)
logcumsumexp.native_from = 1024
logcumsumexp.reference = in_dtype(lambda p, x: np.logaddexp.accumulate(wide(x), normalize_axis(p.axis, x.ndim)))
logcumsumexp.kernels = _kernels("logcumsumexp", -math.inf, _log_sum_step, lambda p: False)
logcumsumexp.gradient = _log_sum_gradient

# Where the running extremes stand.


def _positions(extreme: Any) -> Callable[[Any, Any], Any]:
    """The last place up to each one at which the running extreme stands; NaN is beyond all."""

    def reference(params: Any, x: Any) -> Any:
        axis = normalize_axis(params.axis, x.ndim)
        best = extreme.accumulate(x, axis) if x.size else x
        is_nan = np.isnan(x) if is_float(x.dtype) else np.zeros(x.shape, bool)
        places = np.arange(x.shape[axis]).reshape([-1] + [1] * (x.ndim - 1 - axis))
        return np.maximum.accumulate(np.where((x == best) | is_nan, places, 0), axis)

    return reference


def _position_kernels(name: str, beats: Callable[[Any, Any], Any]) -> Any:
    def kernels(params: Any, inputs: Any, outputs: Any) -> Any:
        ((shape, dtype),) = inputs
        rows = rows_of(shape, params.axis)
        body = Body(name, inputs, outputs)
        kernel = body.kernel({0: rows, 1: rows}, math.prod(shape))
        with kernel as (b, x, out), each_block(b, rows) as (o, first):
            best = b.alloc("best", dtype, (rows.block,))
            place = b.alloc("place", INT64, (rows.block,))
            with b.loop("k", rows.extent) as k, b.loop("lane", rows.block) as i:
                value = b.let("value", x[o, k, first + i])
                old = b.let("old", te.select(k.equal(0), value, best[i]))
                turn = b.let("turn", beats(value, old))
                b.store(best, i, te.select(turn, value, old))
                b.store(place, i, te.select(turn, k, place[i]))
                b.store(out, (o, k, first + i), place[i])
        return body.kernels

    return kernels


def _beats(order: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def beats(value: te.Expr, old: te.Expr) -> te.Expr:
        if is_float(value.dtype):
            return te.isnan(value) | order(value, old)
        if value.dtype.kind == "b":
            return order(te.cast(value, "uint8"), te.cast(old, "uint8"))
        return order(value, old)

    return beats


def _extreme(name: str, word: str, extreme: Any, order: Callable[[Any, Any], Any]) -> None:
    op = _scan(
        name,
        f"The place of the {word} of all elements up to each one along an axis; of equal "
        "ones the last, NaN before all.",
        AxisAttrs,
    )
    op.dtype = lambda params, ins, outs: ([None], [INT64])
    op.reference = _positions(extreme)
    op.kernels = _position_kernels(name, _beats(order))
    op.gradient = no_flow


_extreme("cummax_index", "largest", np.maximum, lambda a, b: a >= b)
_extreme("cummin_index", "smallest", np.minimum, lambda a, b: a <= b)
