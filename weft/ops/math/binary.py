"""Functions of two tensors that broadcast, beyond arithmetic; the choice between two; bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL, INT64, dtype_name, is_integer
from ...base.errors import DTypeError
from ...base.shape import broadcast
from ...core.infer import same_dtype
from ...core.op import Op
from .. import _layouts as layouts
from .._families import (
    BROADCAST,
    LHS_RHS,
    F,
    broadcast_shape,
    broadcasting,
    define,
    floating,
    holomorphic,
    in_dtype,
    integral,
    no_flow,
    numeric,
    pointwise,
    square,
    unary,
)
from .._kernels import Body, read_stretched, unravelled, variable

Gradient = Callable[[Any, Any], list[Any]]


def _pair(name: str, doc: str, reference: Any, body: Any, dtype: Any = floating, gradient: Gradient = no_flow) -> Op:
    op = broadcasting(name, doc, dtype=dtype)
    op.reference = in_dtype(reference)
    op.compute = pointwise(body)
    op.gradient = gradient
    return op


def _sloped(slopes: Callable[..., tuple[Any, Any]]) -> Gradient:
    """The gradient by the slopes of both operands, in the shape of the output."""

    def gradient(ctx: Any, g: Any) -> list[Any]:
        sloped = slopes(*ctx.inputs, ctx.outputs[0])
        return [F.collapse_sum(F.elemwise_mul(g, slope), x) for slope, x in zip(sloped, ctx.inputs)]

    return gradient


# Of floats.


def _atan2_slopes(y: Any, x: Any, out: Any) -> tuple[Any, Any]:
    """x / (x^2 + y^2) and -y / (x^2 + y^2), which are 0 where both are 0"""
    total = F.broadcast_add(square(y), square(x))
    safe = total + F.broadcast_equal(total, F.zeros_like(total))
    return F.broadcast_div(x, safe), F.broadcast_div(F.negative(y), safe)


_pair(
    "atan2", "The angle of the point (y, x), between -pi and pi.", np.arctan2, te.atan2, gradient=_sloped(_atan2_slopes)
)


def _hypot_body(x: te.Expr, y: te.Expr) -> te.Expr:
    """Scaled by the larger one, so that squares do not overflow."""
    a, b = te.abs(x), te.abs(y)
    high, low = te.max(a, b), te.min(a, b)
    ratio = te.select(high.equal(0), 0.0, low / high)
    infinite = te.isinf(a) | te.isinf(b)
    return te.select(infinite, math.inf, high * te.sqrt(ratio * ratio + 1))


_pair(
    "hypot",
    "sqrt(x^2 + y^2)",
    np.hypot,
    _hypot_body,
    gradient=_sloped(lambda x, y, out: (F.broadcast_div(x, out), F.broadcast_div(y, out))),
)


def _copysign_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g or -g as the sign was kept or turned, 0 where x is 0; dy = 0"""
    x, y = ctx.inputs
    slope = F.broadcast_mul(F.sign(ctx.outputs[0]), F.sign(x))
    return [F.collapse_sum(F.elemwise_mul(g, slope), x), F.zeros_like(y)]


_pair(
    "copysign",
    "|x| with the sign of y.",
    np.copysign,
    lambda x, y: te.select((y < 0) | (y.equal(0) & (1 / y < 0)), -te.abs(x), te.abs(x)),
    gradient=_copysign_gradient,
)


def _logaddexp_slopes(x: Any, y: Any, out: Any) -> tuple[Any, Any]:
    """exp(x - out) and exp(y - out)"""
    return tuple(F.exp(F.broadcast_sub(value, _finite(out))) for value in (x, y))


def _finite(out: Any) -> Any:
    """-inf is the result of two of them, whose differences to it would be NaN."""
    return F.clip(out, a_min=-3e38, a_max=math.inf)


def _logaddexp_body(x: te.Expr, y: te.Expr) -> te.Expr:
    high, low = te.max(x, y), te.min(x, y)
    far = te.isinf(high)
    return te.select(far, high, high + te.log1p(te.exp(low - te.select(far, 0.0, high))))


logaddexp = _pair(
    "logaddexp", "log(exp(x) + exp(y))", np.logaddexp, _logaddexp_body, gradient=_sloped(_logaddexp_slopes)
)
logaddexp.keeps_output = True

# Divisions.


def _remainder(x: Any, y: Any) -> Any:
    if not is_integer(x.dtype):
        return np.fmod(x, y)
    return np.where(y == 0, 0, np.fmod(x, np.where(y == 0, 1, y)))


def _remainder_body(x: te.Expr, y: te.Expr) -> te.Expr:
    if not is_integer(x.dtype):
        return te.fmod(x, y)
    down = x % y
    turned = down.not_equal(0) & (down < 0).not_equal(x < 0)
    return te.select(turned, down - y, down)


def _fmod_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g, dy = -g trunc(x / y)"""
    times = F.trunc(F.broadcast_div(*ctx.inputs))
    return [F.collapse_sum(g, ctx.inputs[0]), F.collapse_sum(F.negative(F.elemwise_mul(g, times)), ctx.inputs[1])]


_pair(
    "fmod",
    "The remainder of x / y with the sign of x; of integers, 0 where y is 0.",
    _remainder,
    _remainder_body,
    numeric,
    _fmod_gradient,
)


def _floor_body(x: te.Expr, y: te.Expr) -> te.Expr:
    """Rounded from the exact remainder, so that x / y is never rounded across an integer."""
    if is_integer(x.dtype):
        return x // y
    rest = te.fmod(x, y)
    turned = rest.not_equal(0) & (rest < 0).not_equal(y < 0)
    exact = (x - rest) / y - te.cast(turned, x.dtype)
    down = te.floor(exact)
    whole = te.select(exact - down > 0.5, down + 1, down)
    return te.select(y.equal(0), x / y, te.select(exact.equal(0), x / y * 0, whole))


def _zeros(ctx: Any, g: Any) -> list[Any]:
    return [F.zeros_like(x) for x in ctx.inputs]


def _floor_divide(x: Any, y: Any) -> Any:
    if is_integer(x.dtype):
        return np.floor_divide(x, y)
    return np.where(y == 0, x / y, np.floor_divide(x, y))


_pair("floor_divide", "x / y rounded down; of integers, 0 where y is 0.", _floor_divide, _floor_body, numeric, _zeros)

# Bits and whole numbers.


def _of_bits(params: Any, ins: Any, outs: Any) -> Any:
    for dtype in (*ins, *outs):
        if dtype is not None and not (is_integer(dtype) or dtype == BOOL):
            raise DTypeError(f"dtype {dtype_name(dtype)} has no bits to combine")
    return same_dtype(params, list(ins), list(outs))


def _xor(x: te.Expr, y: te.Expr) -> te.Expr:
    return x.not_equal(y) if x.dtype == BOOL else x ^ y


_pair("bitwise_and", "The bits that both have.", np.bitwise_and, lambda x, y: x & y, _of_bits)
_pair("bitwise_or", "The bits that one of both has.", np.bitwise_or, lambda x, y: x | y, _of_bits)
_pair("bitwise_xor", "The bits that only one has.", np.bitwise_xor, _xor, _of_bits)


def _all_bits(dtype: Any) -> int:
    return int(np.invert(np.zeros((), dtype)))


bitwise_not = unary("bitwise_not", "The bits turned; of bools, the opposite.", level=5)
bitwise_not.dtype = _of_bits
bitwise_not.reference = np.invert
bitwise_not.compute = pointwise(
    lambda x: te.logical_not(x) if x.dtype == BOOL else x ^ te.const(_all_bits(x.dtype), x.dtype)
)
bitwise_not.gradient = no_flow


def _gcd_kernels(inputs: Any, outputs: Any) -> Any:
    """Euclid's algorithm, in as many steps as 64 bits can need."""
    ((shape, dtype),) = outputs
    count = math.prod(shape)
    body = Body("gcd", inputs, outputs)
    views = {0: inputs[0][0], 1: inputs[1][0], 2: shape}
    with body.kernel(views, count * 90) as (b, x, y, out), b.parallel("p", count) as p:
        at = [b.let(f"i{d}", place) for d, place in enumerate(unravelled(p, shape))]
        first, second = (
            variable(b, name, te.abs(te.cast(read_stretched(t, at), INT64))) for name, t in (("a", x), ("b", y))
        )
        with b.loop("step", 2 * 8 * dtype.itemsize) as _:
            old = b.let("old", first[()])
            rest = b.let("rest", second[()])
            b.store(first, (), te.select(rest.equal(0), old, rest))
            b.store(second, (), te.select(rest.equal(0), rest, old % rest))
        b.store(out, at, te.cast(first[()], dtype))
    return body.kernels


gcd = define(
    "gcd",
    "The greatest common divisor of two integers, 0 of two zeros.",
    inputs=LHS_RHS,
    named=False,
    dtype=integral,
    shape=broadcast_shape,
    layout=layouts.broadcast_pair,
)
gcd.reference = in_dtype(np.gcd)
gcd.kernels = _gcd_kernels
gcd.gradient = no_flow

# One of two.


def _choice_dtype(params: Any, ins: Any, outs: Any) -> Any:
    (values, outs) = same_dtype(params, list(ins[1:]), list(outs))
    return [ins[0], *values], outs


broadcast_where = define(
    "broadcast_where",
    "x where the condition is not 0, else y; all three broadcast.",
    inputs={"condition": "which", "x": "where it holds", "y": "where it does not"},
    pattern=BROADCAST,
    dtype=_choice_dtype,
)
broadcast_where.shape = lambda params, ins, outs: ([None] * 3, [broadcast(*ins)])
broadcast_where.reference = lambda c, x, y: np.where(c if c.dtype == BOOL else c != 0, x, y)
broadcast_where.compute = pointwise(lambda c, x, y: te.select(c if c.dtype == BOOL else c.not_equal(0), x, y))
broadcast_where.native_from = 2048


def _choice_gradient(ctx: Any, g: Any) -> list[Any]:
    condition, x, y = ctx.inputs
    zeros = F.zeros_like(g)
    return [
        None,
        F.collapse_sum(F.broadcast_where(condition, g, zeros), x),
        F.collapse_sum(F.broadcast_where(condition, zeros, g), y),
    ]


broadcast_where.gradient = _choice_gradient
broadcast_where.complex_gradient = holomorphic
