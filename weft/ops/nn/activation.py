"""Activations beyond the basic ones of elemwise: each a function of one element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import is_complex
from ...base.shape import normalize_axis, unify_dim
from ...core.schema import FLOAT, INT, attr, choice, schema
from .._families import BROADCAST, Array, F, Inferred, Shapes, define, floating, holomorphic, in_dtype, pointwise, unary
from ..math.elemwise import logistic


def _wide(x: Array) -> Array:
    return x.astype(np.complex128 if is_complex(x.dtype) else np.float64)


def _positive(x: Any) -> Any:
    """Whether x > 0, as 1 and 0."""
    return F.broadcast_greater(x, F.zeros_like(x))


# Rectifiers.


@schema
class LeakyReluAttrs:
    alpha: float = attr(FLOAT, "slope for negative x", default=0.25, low=0)


leaky_relu = unary("leaky_relu", "x where x > 0, else alpha x.", level=1, attrs=LeakyReluAttrs, dtype=floating)
leaky_relu.reference = in_dtype(lambda p, x: np.where(x > 0, x, x * p.alpha))
leaky_relu.compute = pointwise(lambda p, x: te.select(x > 0, x, x * p.alpha))
leaky_relu.native_from = 256
leaky_relu.gradient = lambda ctx, g: [  # dx = g where x > 0, else alpha g
    F.broadcast_where(_positive(ctx.inputs[0]), g, g * ctx.params.alpha)
]


@schema
class PReluAttrs:
    axis: int = attr(INT, "the axis that alpha is along", default=1)


def _prelu_shape(params: PReluAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    (data,), (alpha, out) = ins[:1], (ins[1], outs[0])
    shape = data if data is not None else out
    if shape is None:
        return [None, None], [None]
    axis = normalize_axis(params.axis, len(shape))
    along = unify_dim(shape[axis], alpha[0] if alpha is not None and len(alpha) == 1 else None)
    shape = tuple(along if i == axis else dim for i, dim in enumerate(shape))
    return [shape, (along,)], [shape]


def _prelu_reference(params: PReluAttrs, x: Array, alpha: Array) -> Array:
    axis = normalize_axis(params.axis, x.ndim)
    slope = alpha.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return np.where(x > 0, x, (x * slope).astype(x.dtype))


def _prelu_compute(params: PReluAttrs, x: te.Tensor, alpha: te.Tensor) -> te.Tensor:
    axis = normalize_axis(params.axis, x.rank)
    return te.compute(x.shape, lambda *i: te.select(x[i] > 0, x[i], x[i] * alpha[i[axis]]))


def _prelu_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g where x > 0, else alpha g; dalpha = the sum of g x where x <= 0."""
    x, alpha = ctx.inputs
    axis = (ctx.params.axis,)
    slope = F.expand_like(alpha, x, axis=axis, exclude=True)
    positive = _positive(x)
    negative = F.broadcast_where(positive, F.zeros_like(x), F.elemwise_mul(g, x))
    return [F.broadcast_where(positive, g, F.elemwise_mul(g, slope)), F.sum(negative, axis=axis, exclude=True)]


prelu = define(
    "prelu",
    "x where x > 0, else alpha x, with an alpha for each place along the axis.",
    level=4,
    inputs={"data": "the input", "alpha": "the slopes"},
    attrs=PReluAttrs,
    pattern=BROADCAST,
    shape=_prelu_shape,
    dtype=floating,
    reference=_prelu_reference,
    compute=_prelu_compute,
    native_from=256,
    gradient=_prelu_gradient,
    inplace=[(0, 0)],
)


@schema
class EluAttrs:
    alpha: float = attr(FLOAT, "what it approaches for large negative x, negated", default=1.0)


elu = unary("elu", "x where x > 0, else alpha (exp(x) - 1).", level=5, attrs=EluAttrs, dtype=floating)
elu.reference = in_dtype(lambda p, x: np.where(x > 0, _wide(x), p.alpha * np.expm1(np.minimum(_wide(x), 0))))
elu.compute = pointwise(lambda p, x: te.select(x > 0, x, te.expm1(te.min(x, 0)) * p.alpha))
elu.native_from = 256


def _elu_slope(x: Any, alpha: float) -> Any:
    """1 where x > 0, else alpha exp(x)"""
    falling = F.exp(F.clip(x, a_min=-math.inf, a_max=0.0)) * alpha  # does not overflow
    positive = _positive(x)
    return positive + (1 - positive) * falling


elu.gradient = lambda ctx, g: [F.elemwise_mul(g, _elu_slope(ctx.inputs[0], ctx.params.alpha))]


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805

selu = unary("selu", "1.0507 times elu(x) with alpha 1.6733: keeps mean 0 and variance 1.", level=5, dtype=floating)
selu.reference = in_dtype(
    lambda x: _SELU_SCALE * np.where(x > 0, _wide(x), _SELU_ALPHA * np.expm1(np.minimum(_wide(x), 0)))
)
selu.compute = pointwise(lambda x: te.select(x > 0, x, te.expm1(te.min(x, 0)) * _SELU_ALPHA) * _SELU_SCALE)
selu.native_from = 256
selu.gradient = lambda ctx, g: [  # dx = scale g where x > 0, else scale alpha g exp(x)
    F.elemwise_mul(g, _elu_slope(ctx.inputs[0], _SELU_ALPHA)) * _SELU_SCALE
]

# Smooth ones.


@schema
class GeluAttrs:
    approximate: str = attr(choice("none", "tanh"), "how to compute it", default="none")


_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


def _gelu_reference(params: GeluAttrs, x: Array) -> Array:
    wide = _wide(x)
    if params.approximate == "tanh":
        return wide * 0.5 * (1 + np.tanh(_TANH_SCALE * (wide + _TANH_CUBE * wide**3)))
    erf = np.vectorize(math.erf, otypes=[np.float64])(wide / math.sqrt(2))
    return wide * 0.5 * (1 + erf)


def _gelu_body(params: GeluAttrs, x: te.Expr) -> te.Expr:
    if params.approximate == "tanh":
        inner = (x + x * x * x * _TANH_CUBE) * _TANH_SCALE
        return x * 0.5 * (te.tanh(inner) + 1)
    return x * 0.5 * (te.erf(x * math.sqrt(0.5)) + 1)


def _gelu_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g (c + x c'), where y = x c."""
    x = ctx.inputs[0]
    square = F.elemwise_mul(x, x)
    if ctx.params.approximate == "tanh":
        t = F.tanh(F.elemwise_mul(x, square * _TANH_CUBE + 1) * _TANH_SCALE)
        slope = (1 - F.elemwise_mul(t, t)) * (square * (3 * _TANH_CUBE) + 1)
        return [F.elemwise_mul(g, (t + 1) * 0.5 + F.elemwise_mul(x, slope) * (_TANH_SCALE / 2))]
    share = (F.erf(x * math.sqrt(0.5)) + 1) * 0.5
    density = F.exp(square * -0.5) * (1 / math.sqrt(2 * math.pi))
    return [F.elemwise_mul(g, share + F.elemwise_mul(x, density))]


gelu = unary(
    "gelu",
    "x times the normal distribution of x: x (1 + erf(x / sqrt 2)) / 2.",
    level=5,
    attrs=GeluAttrs,
    dtype=floating,
)
gelu.reference = in_dtype(_gelu_reference)
gelu.compute = pointwise(_gelu_body)
gelu.native_from = 256
gelu.gradient = _gelu_gradient

silu = unary("silu", "x sigmoid(x), also called swish.", level=5, dtype=floating)
silu.reference = in_dtype(lambda x: _wide(x) * logistic(_wide(x)))
silu.compute = pointwise(lambda x: x * te.sigmoid(x))
silu.native_from = 256


def _silu_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g s (1 + x (1 - s)) with s = sigmoid(x)."""
    x = ctx.inputs[0]
    s = F.sigmoid(x)
    return [F.elemwise_mul(g, F.elemwise_mul(s, F.elemwise_mul(x, 1 - s) + 1))]


silu.gradient = _silu_gradient
silu.complex_gradient = holomorphic

softplus = unary("softplus", "log(1 + exp(x))", level=5, dtype=floating)
softplus.reference = in_dtype(lambda x: np.logaddexp(0, _wide(x)))
softplus.compute = pointwise(lambda x: te.max(x, 0) + te.log1p(te.exp(-te.abs(x))))
softplus.native_from = 256
softplus.gradient = lambda ctx, g: [F.elemwise_mul(g, F.sigmoid(ctx.inputs[0]))]

softsign = unary("softsign", "x / (1 + |x|)", level=5, dtype=floating)
softsign.reference = in_dtype(lambda x: _wide(x) / (1 + np.abs(_wide(x))))
softsign.compute = pointwise(lambda x: x / (te.abs(x) + 1))
softsign.native_from = 256
softsign.gradient = lambda ctx, g: [  # dx = g / (1 + |x|)^2
    F.elemwise_div(g, (F.abs(ctx.inputs[0]) + 1) ** 2)
]

mish = unary("mish", "x tanh(log(1 + exp(x)))", level=5, dtype=floating)
mish.reference = in_dtype(lambda x: _wide(x) * np.tanh(np.logaddexp(0, _wide(x))))
mish.compute = pointwise(lambda x: x * te.tanh(te.max(x, 0) + te.log1p(te.exp(-te.abs(x)))))
mish.native_from = 256


def _mish_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g (t + x (1 - t^2) sigmoid(x)) with t = tanh(softplus(x))."""
    x = ctx.inputs[0]
    t = F.tanh(F.softplus(x))
    slope = F.elemwise_mul(1 - F.elemwise_mul(t, t), F.sigmoid(x))
    return [F.elemwise_mul(g, t + F.elemwise_mul(x, slope))]


mish.gradient = _mish_gradient

# Piecewise linear ones.


@schema
class HardSigmoidAttrs:
    alpha: float = attr(FLOAT, "the slope", default=0.2)
    beta: float = attr(FLOAT, "the value at 0", default=0.5)


hard_sigmoid = unary(
    "hard_sigmoid", "alpha x + beta, limited to [0, 1].", level=5, attrs=HardSigmoidAttrs, dtype=floating
)
hard_sigmoid.reference = in_dtype(lambda p, x: np.clip(_wide(x) * p.alpha + p.beta, 0, 1))
hard_sigmoid.compute = pointwise(lambda p, x: te.min(te.max(x * p.alpha + p.beta, 0), 1))
hard_sigmoid.native_from = 256


def _hard_sigmoid_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = alpha g where 0 < y < 1, which is where y (1 - y) > 0."""
    y = ctx.outputs[0]
    inside = _positive(F.elemwise_mul(y, 1 - y))
    return [F.broadcast_where(inside, g * ctx.params.alpha, F.zeros_like(g))]


hard_sigmoid.gradient = _hard_sigmoid_gradient
hard_sigmoid.keeps_output = True

hard_swish = unary("hard_swish", "x times (x + 3) / 6 limited to [0, 1].", level=5, dtype=floating)
hard_swish.reference = in_dtype(lambda x: _wide(x) * np.clip(_wide(x) / 6 + 0.5, 0, 1))
hard_swish.compute = pointwise(lambda x: x * te.min(te.max(x * (1 / 6) + 0.5, 0), 1))
hard_swish.native_from = 256


def _hard_swish_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g where x >= 3, 0 where x <= -3, else g (x / 3 + 1 / 2)."""
    x = ctx.inputs[0]
    slope = F._keep_between(x * (1 / 3) - 0.5, x, a_min=-math.inf, a_max=3.0, strict=True) + 1
    slope = F._keep_between(slope, x, a_min=-3.0, a_max=math.inf, strict=True)
    return [F.broadcast_where(slope, F.elemwise_mul(g, slope), slope)]


hard_swish.gradient = _hard_swish_gradient
