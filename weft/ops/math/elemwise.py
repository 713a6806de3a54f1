"""Element-wise operators of one tensor: activations, rounding, logic, and those with a number."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL, DType, dtype_name, is_complex, is_float, is_stored
from ...base.errors import DTypeError
from ...base.shape import unify
from ...core.op import Op, Rule, set_role
from ...core.schema import BOOL as BOOL_ATTR
from ...core.schema import DTYPE, FLOAT, attr, schema
from .. import _layouts as layouts
from .._families import (
    ELEM_WISE,
    Array,
    Dtypes,
    F,
    Inferred,
    Shapes,
    as_written,
    binary,
    clamped,
    conj,
    define,
    divide,
    floating,
    full_dtype,
    holomorphic,
    in_dtype,
    integral,
    no_flow,
    number,
    numeric,
    pointwise,
    power,
    same_shape,
    scalar,
    square,
    unary,
)

# Rounding. The gradient is zero almost everywhere.


def _zero_gradient(ctx: Any, g: Any) -> list[Any]:
    return [F.zeros_like(ctx.inputs[0])]


def _rounding(name: str, doc: str, reference: Rule, compute: Rule) -> Op:
    """Integers are whole already."""
    op = unary(name, doc, level=3, dtype=numeric)
    op.reference = in_dtype(lambda x: x if x.dtype.kind in "iu" else reference(x))
    op.compute = pointwise(compute)
    op.gradient = _zero_gradient
    return op


floor = _rounding("floor", "The largest integer not above x.", np.floor, te.floor)
ceil = _rounding("ceil", "The smallest integer not below x.", np.ceil, te.ceil)
trunc = _rounding("trunc", "x without its fraction.", np.trunc, te.trunc)
round_ = _rounding("round", "The nearest integer; halves go to the even one.", np.rint, te.round)

sign = unary("sign", "-1, 0 or 1, as x is negative, zero or positive; NaN stays NaN.", level=3, dtype=numeric)
sign.reference = in_dtype(np.sign)
sign.compute = pointwise(
    lambda x: te.select(x > 0, 1, te.select(x < 0, number(-1, x.dtype), x))  # NaN is x
)
sign.gradient = _zero_gradient


def _abs_gradient(ctx: Any, g: Any) -> list[Any]:
    """dz = g z / |z|"""
    return [F.elemwise_mul(F.cast_like(g, ctx.inputs[0]), F.sgn(ctx.inputs[0]))]


def _magnitude_dtype(params: Any, ins: Any, outs: Any) -> Any:
    """That of the parts, of complex numbers."""
    if ins[0] is not None and is_complex(ins[0]):
        return [ins[0]], [np.empty(0, ins[0]).real.dtype]
    return numeric(params, ins, outs)


abs_ = unary("abs", "|x|", level=3, dtype=_magnitude_dtype)
abs_.reference = np.abs
abs_.compute = pointwise(te.abs)
abs_.gradient = lambda ctx, g: [F.elemwise_mul(g, F.sign(ctx.inputs[0]))]  # dx = g sign(x)
abs_.complex_gradient = _abs_gradient

# Activations, and the functions they are made of.


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x))"""
    if is_complex(x.dtype):
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1, small) / (1 + small)


sigmoid = unary("sigmoid", "1 / (1 + exp(-x))", level=1, dtype=floating)
sigmoid.reference = in_dtype(logistic)
sigmoid.compute = pointwise(te.sigmoid)
sigmoid.native_from = 256
sigmoid.complex_gradient = holomorphic
sigmoid.gradient = lambda ctx, g: [  # dx = g y (1 - y)
    F.elemwise_mul(F.elemwise_mul(g, ctx.outputs[0]), 1 - ctx.outputs[0])
]

tanh = unary("tanh", "The hyperbolic tangent.", level=1, dtype=floating)
tanh.reference = in_dtype(np.tanh)
tanh.compute = pointwise(te.tanh)
tanh.complex_gradient = holomorphic
tanh.gradient = lambda ctx, g: [  # dx = g (1 - y^2)
    F.elemwise_mul(g, 1 - F.elemwise_mul(ctx.outputs[0], ctx.outputs[0]))
]

exp = unary("exp", "e to the power of x.", level=1, dtype=floating)
exp.reference = in_dtype(np.exp)
exp.compute = pointwise(te.exp)
exp.complex_gradient = holomorphic
exp.gradient = lambda ctx, g: [F.elemwise_mul(g, ctx.outputs[0])]  # dx = g y

log = unary("log", "The natural logarithm.", level=1, dtype=floating)
log.reference = in_dtype(np.log)
log.compute = pointwise(te.log)
log.complex_gradient = holomorphic
log.gradient = lambda ctx, g: [F.elemwise_div(g, ctx.inputs[0])]  # dx = g / x

sqrt = unary("sqrt", "The square root.", level=1, dtype=floating)
sqrt.reference = in_dtype(np.sqrt)
sqrt.compute = pointwise(te.sqrt)
sqrt.complex_gradient = holomorphic
sqrt.gradient = lambda ctx, g: [F.elemwise_div(g, ctx.outputs[0] * 2)]  # dx = g / 2y

erf = unary("erf", "The error function, 2/sqrt(pi) times the integral of exp(-t^2).", level=3, dtype=floating)
erf.reference = in_dtype(np.vectorize(math.erf, otypes=[np.float64]))
erf.compute = pointwise(te.erf)
erf.native_from = 256
erf.gradient = lambda ctx, g: [  # dx = g 2/sqrt(pi) exp(-x^2)
    F.elemwise_mul(g, F.exp(-F.elemwise_mul(ctx.inputs[0], ctx.inputs[0])) * (2 / math.sqrt(math.pi)))
]

sin = unary("sin", "The sine.", level=3, dtype=floating)
sin.reference = in_dtype(np.sin)
sin.compute = pointwise(te.sin)
sin.complex_gradient = holomorphic
sin.gradient = lambda ctx, g: [F.elemwise_mul(g, F.cos(ctx.inputs[0]))]  # dx = g cos x

cos = unary("cos", "The cosine.", level=3, dtype=floating)
cos.reference = in_dtype(np.cos)
cos.compute = pointwise(te.cos)
cos.complex_gradient = holomorphic
cos.gradient = lambda ctx, g: [-F.elemwise_mul(g, F.sin(ctx.inputs[0]))]  # dx = -g sin x

relu = unary("relu", "max(x, 0)", level=1, dtype=numeric)
relu.reference = lambda x: np.maximum(x, np.zeros((), x.dtype))
relu.compute = pointwise(lambda x: te.max(x, 0))
relu.gradient = lambda ctx, g: [  # dx = g, 0 where y <= 0
    F._keep_between(g, ctx.outputs[0], a_min=0.0, a_max=math.inf, strict=True)
]

negative = unary("negative", "-x", level=3, dtype=numeric)
negative.reference = np.negative
negative.compute = pointwise(lambda x: -x)
negative.complex_gradient = holomorphic
negative.gradient = lambda ctx, g: [F.negative(g)]

copy = unary("copy", "x itself.", level=3, layout=layouts.renamed)
copy.reference = np.array
copy.same_if_alike = True
copy.compute = pointwise(lambda x: x)
copy.complex_gradient = holomorphic
copy.gradient = lambda ctx, g: [F.copy(g)]

block_grad = unary("block_grad", "x itself, through which no gradient flows.", level=4)
block_grad.reference = np.array
block_grad.compute = pointwise(lambda x: x)
block_grad.complex_gradient = as_written
block_grad.gradient = _zero_gradient
block_grad.inplace_identity = [True]
block_grad.alias = {0: 0}

logical_not = unary("logical_not", "1 where x is 0, else 0, in the dtype of x.", level=4)
logical_not.reference = in_dtype(np.logical_not)
logical_not.compute = pointwise(lambda x: te.cast(x.equal(0), x.dtype))
logical_not.complex_gradient = as_written
logical_not.gradient = no_flow

# One tensor and a number, which is cast to the tensor's dtype.


def _with_number(name: str, doc: str, reference: Rule, compute: Rule, gradient: Rule, dtype: Rule = numeric) -> Op:
    """`reference` and `compute` get x and the number, `gradient` ctx and that of the output."""
    op = scalar(f"__{name}_scalar__", doc, dtype=dtype)
    op.reference = in_dtype(lambda p, x: reference(x, np.asarray(number(p.scalar, x.dtype), x.dtype)))
    op.compute = pointwise(lambda p, x: compute(x, te.const(number(p.scalar, x.dtype), x.dtype)))
    op.gradient = gradient
    if dtype is numeric:
        op.complex_gradient = holomorphic
    set_role(f"{name}_scalar", op.name)
    return op


def _arithmetic(name: str, doc: str, body: Rule, gradient: Rule) -> Op:
    return _with_number(name, doc, body, body, gradient)


def _rdiv_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = -g s / x^2"""
    return [F.elemwise_div(g * -ctx.params.scalar, square(ctx.inputs[0]))]


add_scalar = _arithmetic("add", "x + s", lambda x, s: x + s, lambda ctx, g: [F.copy(g)])
sub_scalar = _arithmetic("sub", "x - s", lambda x, s: x - s, lambda ctx, g: [g])
rsub_scalar = _arithmetic("rsub", "s - x", lambda x, s: s - x, lambda ctx, g: [F.negative(g)])
mul_scalar = _arithmetic("mul", "x * s", lambda x, s: x * s, lambda ctx, g: [g * ctx.params.scalar])
div_scalar = _arithmetic("div", "x / s; of integers, rounded down.", divide, lambda ctx, g: [g / ctx.params.scalar])
rdiv_scalar = _arithmetic("rdiv", "s / x; of integers, rounded down.", lambda x, s: divide(s, x), _rdiv_gradient)

PRODUCTS = (2, 3, 4, -1, -2)  # exponents of powers that are a few products


def _pow_body(x: te.Expr, s: te.Const) -> te.Expr:
    exponent = s.value
    if exponent not in PRODUCTS or not is_float(x.dtype):
        return te.pow(x, s)
    square = x * x
    power = {1: x, 2: square, 3: square * x, 4: square * square}[abs(int(exponent))]
    return power if exponent > 0 else 1 / power


def _pow_scalar_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g s x^(s - 1), which is 0 for s = 0 even where x is 0"""
    s = ctx.params.scalar
    x = ctx.inputs[0]
    if s == 0:
        return [F.zeros_like(x)]
    return [F.elemwise_mul(g, (x if s == 2 else x ** (s - 1)) * s)]


pow_scalar = _with_number("pow", "x to the power of s.", power, _pow_body, _pow_scalar_gradient)


def _rpow_gradient(ctx: Any, g: Any) -> list[Any]:
    """dx = g y ln s"""
    s = ctx.params.scalar
    slope = math.log(s) if s > 0 else (-math.inf if s == 0 else math.nan)
    return [F.elemwise_mul(g, ctx.outputs[0] * slope)]


rpow_scalar = _with_number(
    "rpow", "s to the power of x.", lambda x, s: power(s, x), lambda x, s: te.pow(s, x), _rpow_gradient
)
lshift_scalar = _with_number(
    "lshift", "x shifted left by s bits.", np.left_shift, lambda x, s: x << s, no_flow, integral
)
rshift_scalar = _with_number(
    "rshift", "x shifted right by s bits.", np.right_shift, lambda x, s: x >> s, no_flow, integral
)


@schema
class ClipAttrs:
    a_min: float = attr(FLOAT, "the smallest value that stays")
    a_max: float = attr(FLOAT, "the largest value that stays")


clip = unary("clip", "x limited to [a_min, a_max].", level=4, attrs=ClipAttrs, dtype=numeric)
clip.reference = in_dtype(lambda p, x: np.minimum(np.maximum(x, clamped(p.a_min, x.dtype)), clamped(p.a_max, x.dtype)))
clip.compute = pointwise(lambda p, x: te.min(te.max(x, clamped(p.a_min, x.dtype)), clamped(p.a_max, x.dtype)))
clip.gradient = lambda ctx, g: [  # dx = g where a_min <= x <= a_max
    F._keep_between(g, ctx.inputs[0], a_min=ctx.params.a_min, a_max=ctx.params.a_max)
]

hard_tanh = unary("_hard_tanh", "clip, with no gradient at the limits.", level=10, attrs=ClipAttrs, dtype=numeric)
hard_tanh.reference, hard_tanh.compute = clip.reference, clip.compute
hard_tanh.gradient = lambda ctx, g: [  # dx = g where a_min < x < a_max
    F._keep_between(g, ctx.inputs[0], a_min=ctx.params.a_min, a_max=ctx.params.a_max, strict=True)
]


@schema
class KeepBetweenAttrs:
    a_min: float = attr(FLOAT, "the lower limit")
    a_max: float = attr(FLOAT, "the upper limit")
    strict: bool = attr(BOOL_ATTR, "finite limits count as outside, and NaN as inside", default=False)


def _kept_between(select: Rule, p: KeepBetweenAttrs, g: Any, x: Any) -> Any:
    """A choice and not a product, which would make NaN of 0 and an infinite or undefined g."""
    low, high, nothing = clamped(p.a_min, x.dtype), clamped(p.a_max, x.dtype), number(0, g.dtype)
    if not p.strict:
        return select((x >= low) & (x <= high), g, nothing)
    kept = select(x <= low, nothing, g) if p.a_min > -math.inf else g
    return select(x >= high, nothing, kept) if p.a_max < math.inf else kept


keep_between = binary(
    "_keep_between",
    "x where y is between limits, else 0.",
    level=10,
    pattern=ELEM_WISE,
    attrs=KeepBetweenAttrs,
    dtype=numeric,
)
keep_between.reference = in_dtype(partial(_kept_between, np.where))
keep_between.compute = pointwise(partial(_kept_between, te.select))
keep_between.native_from = 256
keep_between.gradient = lambda ctx, g: [
    F._keep_between(g, ctx.inputs[1], a_min=ctx.params.a_min, a_max=ctx.params.a_max, strict=ctx.params.strict),
    None,
]

# More functions.


def _smooth(
    name: str, doc: str, reference: Rule, compute: Rule, slope: Rule, complex_gradient: Rule = holomorphic
) -> Op:
    """A differentiable function; `slope(x, y)` is its derivative."""
    op = unary(name, doc, level=5, dtype=floating)
    op.reference = in_dtype(reference)
    op.compute = pointwise(compute)
    op.gradient = lambda ctx, g: [F.elemwise_mul(g, slope(ctx.inputs[0], ctx.outputs[0]))]
    op.complex_gradient = complex_gradient
    return op


log1p = _smooth("log1p", "log(1 + x)", np.log1p, te.log1p, lambda x, y: 1 / (x + 1))
expm1 = _smooth("expm1", "exp(x) - 1", np.expm1, te.expm1, lambda x, y: y + 1)
tan = _smooth("tan", "The tangent.", np.tan, te.tan, lambda x, y: square(y) + 1)
asin = _smooth("asin", "The arc sine.", np.arcsin, te.asin, lambda x, y: F.rsqrt(1 - square(x)))
acos = _smooth("acos", "The arc cosine.", np.arccos, te.acos, lambda x, y: -F.rsqrt(1 - square(x)))
atan = _smooth("atan", "The arc tangent.", np.arctan, te.atan, lambda x, y: 1 / (square(x) + 1))
sinh = _smooth("sinh", "The hyperbolic sine.", np.sinh, te.sinh, lambda x, y: F.cosh(x))
cosh = _smooth("cosh", "The hyperbolic cosine.", np.cosh, te.cosh, lambda x, y: F.sinh(x))
asinh = _smooth("asinh", "The inverse of sinh.", np.arcsinh, te.asinh, lambda x, y: F.rsqrt(square(x) + 1))


def _acosh_gradient(ctx: Any, g: Any) -> list[Any]:
    """dz = g / sqrt(z - 1) sqrt(z + 1) of the conjugate: the root of the product has the other sign
    left of the imaginary axis"""
    z = conj(ctx.inputs[0])
    return [F.elemwise_mul(g, F.elemwise_mul(F.rsqrt(z - 1), F.rsqrt(z + 1)))]


acosh = _smooth(
    "acosh", "The inverse of cosh.", np.arccosh, te.acosh, lambda x, y: F.rsqrt(square(x) - 1), _acosh_gradient
)
atanh = _smooth("atanh", "The inverse of tanh.", np.arctanh, te.atanh, lambda x, y: 1 / (1 - square(x)))
reciprocal = _smooth("reciprocal", "1 / x", lambda x: 1 / x, lambda x: 1 / x, lambda x, y: -square(y))
rsqrt = _smooth(
    "rsqrt", "1 / sqrt(x)", lambda x: 1 / np.sqrt(x), te.rsqrt, lambda x, y: F.elemwise_mul(square(y), y) * -0.5
)


def _predicate(name: str, doc: str, reference: Rule, compute: Rule) -> Op:
    op = unary(name, doc, level=5)
    op.dtype = lambda params, ins, outs: ([None], [BOOL])
    op.reference = reference
    op.compute = pointwise(compute)
    op.gradient = no_flow
    op.complex_gradient = as_written
    return op


def _never_of_integers(test: Rule) -> Rule:
    kinds = lambda dtype: is_float(dtype) or is_complex(dtype)
    return lambda x: test(x) if kinds(x.dtype) else np.zeros(x.shape, bool)


isnan = _predicate("isnan", "Whether x is no number.", _never_of_integers(np.isnan), lambda x: _test(te.isnan, x))
isinf = _predicate("isinf", "Whether x is infinite.", _never_of_integers(np.isinf), lambda x: _test(te.isinf, x))


def _test(predicate: Rule, x: te.Expr) -> te.Expr:
    return predicate(x) if is_float(x.dtype) else te.const(False, BOOL)


# Casts.


@schema
class CastAttrs:
    dtype: DType = attr(DTYPE, "the dtype of the result")


def _converted(x: Array, dtype: DType) -> Array:
    if is_stored(x.dtype) and is_stored(dtype):  # float32 has all their values
        x = x.astype(np.float32)
    if is_complex(x.dtype) and not is_complex(dtype):
        x = x != 0 if dtype == BOOL else x.real
    with np.errstate(all="ignore"):
        if dtype == np.uint32 and is_float(x.dtype):
            # numpy's own answer for what does not fit depends on where in the array it stands
            return x.astype(np.int64).astype(dtype)
        return x.astype(dtype)


def _cast_expr(x: te.Expr, dtype: DType) -> te.Expr:
    return x.not_equal(0) if dtype == BOOL and x.dtype != BOOL else te.cast(x, dtype)


cast = unary(
    "cast",
    "x in another dtype; floats lose their fraction on the way to integers, and what "
    "does not fit, NaN included, is the lowest int32 or int64, cut down to the dtype.",
    level=1,
    attrs=CastAttrs,
    dtype=full_dtype,
)
cast.reference = lambda p, x: _converted(x, p.dtype)
cast.compute = pointwise(lambda p, x: _cast_expr(x, p.dtype))
cast.complex_gradient = as_written
cast.gradient = lambda ctx, g: [F.cast_like(g, ctx.inputs[0])]


def _bitcast_dtype(params: Any, ins: Dtypes, outs: Dtypes) -> Inferred:
    if ins[0] is not None and ins[0].itemsize != params.dtype.itemsize:
        raise DTypeError(
            f"the bits of {dtype_name(ins[0])} are no {dtype_name(params.dtype)}",
            why=f"elements have {ins[0].itemsize} and {params.dtype.itemsize} bytes",
        )
    return [None], [params.dtype]


bitcast = define(
    "bitcast",
    "The bits of x as another dtype, whose elements have as many bytes.",
    level=5,
    attrs=CastAttrs,
    shape=same_shape,
    dtype=_bitcast_dtype,
    alias={0: 0},
)
bitcast.reference = lambda p, x: x.copy().view(p.dtype)

cast_like = define(
    "cast_like",
    "data in the dtype of like, whose values and shape do not matter.",
    level=5,
    inputs={"data": "what to cast", "like": "has the wanted dtype"},
    pattern=ELEM_WISE,
    layout=layouts.first,
    ignored_inputs=[1],
)
cast_like.shape = lambda params, ins, outs: _first_shape(ins, outs)
cast_like.dtype = lambda params, ins, outs: ([None, outs[0] if ins[1] is None else ins[1]], [ins[1]])
cast_like.reference = lambda x, like: _converted(x, like.dtype)
cast_like.compute = lambda x, like: te.compute(x.shape, lambda *i: _cast_expr(x[i], like.dtype))
cast_like.complex_gradient = as_written
cast_like.gradient = lambda ctx, g: [F.cast_like(g, ctx.inputs[0]), None]


def _first_shape(ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[0], outs[0])
    return [shape, None], [shape]


set_role("cast", "cast")
set_role("copy", "copy")
