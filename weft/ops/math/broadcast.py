"""Operators of two or more tensors, element by element: of equal shapes, or broadcasting."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ... import te
from ...base.errors import ShapeError
from ...base.shape import Shape, StaticShape, show, unify
from ...core.op import Op, Rule, set_role
from ...core.schema import EXTENTS, INT, Params, attr, schema
from .. import _layouts as layouts
from .._families import (
    BROADCAST,
    ELEM_WISE,
    F,
    Inferred,
    Shapes,
    as_written,
    binary,
    broadcasting,
    comparison_dtype,
    define,
    divide,
    first_dtype,
    holomorphic,
    in_dtype,
    integral,
    no_flow,
    numeric,
    pointwise,
    power,
    same_shape,
)

# Two tensors of one shape.

elemwise_add = binary("elemwise_add", "x + y of equal shapes.", level=1)
elemwise_add.reference = in_dtype(np.add)
elemwise_add.compute = pointwise(lambda x, y: x + y)
elemwise_add.complex_gradient = holomorphic
elemwise_add.gradient = lambda ctx, g: [F.copy(g), F.copy(g)]

elemwise_sub = binary("elemwise_sub", "x - y of equal shapes.", level=1, dtype=numeric)
elemwise_sub.reference = in_dtype(np.subtract)
elemwise_sub.compute = pointwise(lambda x, y: x - y)
elemwise_sub.complex_gradient = holomorphic
elemwise_sub.gradient = lambda ctx, g: [g, F.negative(g)]

elemwise_mul = binary("elemwise_mul", "x * y of equal shapes.", level=1)
elemwise_mul.reference = in_dtype(np.multiply)
elemwise_mul.compute = pointwise(lambda x, y: x * y)
elemwise_mul.complex_gradient = holomorphic
elemwise_mul.gradient = lambda ctx, g: [  # dx = g y, dy = g x
    F.elemwise_mul(ctx.inputs[1], g),
    F.elemwise_mul(ctx.inputs[0], g),
]

elemwise_div = binary(
    "elemwise_div", "x / y of equal shapes; of integers, rounded down, and 0 where y is 0.", level=1, dtype=numeric
)
elemwise_div.reference = in_dtype(divide)
elemwise_div.keeps_output = True
elemwise_div.compute = pointwise(divide)
elemwise_div.complex_gradient = holomorphic
elemwise_div.gradient = lambda ctx, g: [  # dx = g / y, dy = -g out / y
    F.elemwise_div(g, ctx.inputs[1]),
    F.elemwise_mul(F.elemwise_div(ctx.outputs[0], F.negative(ctx.inputs[1])), g),
]

_MOD = "the remainder of x / y with the sign of y; of integers, 0 where y is 0"

elemwise_mod = binary("elemwise_mod", f"Of equal shapes, {_MOD}.", level=1, dtype=numeric)
elemwise_mod.reference = in_dtype(np.mod)
elemwise_mod.compute = pointwise(lambda x, y: x % y)
elemwise_mod.gradient = lambda ctx, g: [  # dx = g, dy = -g floor(x / y)
    F.copy(g),
    F.negative(F.elemwise_mul(g, F.floor(F.elemwise_div(*ctx.inputs)))),
]

elemwise_pow = binary("elemwise_pow", "x to the power of y.", level=1, dtype=numeric)
elemwise_pow.reference = in_dtype(power)
elemwise_pow.compute = pointwise(te.pow)
elemwise_pow.complex_gradient = holomorphic
elemwise_pow.gradient = lambda ctx, g: [
    _pow_base_gradient(g, *ctx.inputs),
    F.elemwise_mul(g, _pow_slope_of_exponent(ctx.inputs[0], ctx.outputs[0])),
]


def _pow_base_gradient(g: Any, x: Any, y: Any) -> Any:
    """dx = g y x^(y - 1), and 0 for y = 0 even where x is 0"""
    sloped = F.elemwise_mul(g, F.broadcast_mul(y, F.broadcast_pow(x, y - 1)))
    return F.broadcast_where(y, sloped, y)


def _pow_slope_of_exponent(x: Any, out: Any) -> Any:
    """out log x, which is 0 where x is 0"""
    at_zero = F.broadcast_equal(x, F.zeros_like(x))
    return F.broadcast_mul(out, F.log(F.elemwise_add(x, at_zero)))


def _logical(name: str, doc: str, reference: Rule, compute: Rule) -> Op:
    op = binary(name, doc, level=4, pattern=ELEM_WISE)
    op.reference = in_dtype(reference)
    op.compute = pointwise(lambda x, y: te.cast(compute(x.not_equal(0), y.not_equal(0)), x.dtype))
    op.gradient, op.complex_gradient = no_flow, as_written
    return op


logical_and = _logical("logical_and", "1 where x and y are not 0.", np.logical_and, lambda x, y: x & y)
logical_or = _logical("logical_or", "1 where x or y is not 0.", np.logical_or, lambda x, y: x | y)


def _indicator(name: str, sign: str, reference: Rule, compute: Rule) -> Op:
    op = binary(
        name,
        f"1 where x {sign} y, else 0, in float32; shapes are equal.",
        level=4,
        pattern=ELEM_WISE,
        dtype=comparison_dtype,
    )
    op.reference = lambda x, y: reference(x, y).astype(np.float32)
    op.compute = pointwise(lambda x, y: te.cast(compute(x, y), "float32"))
    op.gradient = no_flow
    return op


greater = _indicator("greater", ">", np.greater, lambda x, y: x > y)
less = _indicator("less", "<", np.less, lambda x, y: x < y)

# Two tensors that broadcast.


def _collapsed(ctx: Any, left: Any, right: Any) -> list[Any]:
    """Gradients of the shape of the output, summed to the shapes of the inputs."""
    return [F.collapse_sum(left, ctx.inputs[0]), F.collapse_sum(right, ctx.inputs[1])]


broadcast_add = broadcasting("broadcast_add", "x + y", "__add_symbol__")
broadcast_add.reference = in_dtype(np.add)
broadcast_add.compute = pointwise(lambda x, y: x + y)
broadcast_add.complex_gradient = holomorphic
broadcast_add.gradient = lambda ctx, g: _collapsed(ctx, g, g)

broadcast_sub = broadcasting("broadcast_sub", "x - y", "__sub_symbol__", dtype=numeric)
broadcast_sub.reference = in_dtype(np.subtract)
broadcast_sub.compute = pointwise(lambda x, y: x - y)
broadcast_sub.complex_gradient = holomorphic
broadcast_sub.gradient = lambda ctx, g: _collapsed(ctx, g, F.negative(g))

broadcast_mul = broadcasting("broadcast_mul", "x * y", "__mul_symbol__")
broadcast_mul.reference = in_dtype(np.multiply)
broadcast_mul.compute = pointwise(lambda x, y: x * y)
broadcast_mul.complex_gradient = holomorphic
broadcast_mul.gradient = lambda ctx, g: _collapsed(  # dx = g y, dy = g x
    ctx, F.broadcast_mul(ctx.inputs[1], g), F.broadcast_mul(ctx.inputs[0], g)
)

broadcast_div = broadcasting(
    "broadcast_div", "x / y; of integers, rounded down, and 0 where y is 0.", "__div_symbol__", dtype=numeric
)
broadcast_div.reference = in_dtype(divide)
broadcast_div.keeps_output = True
broadcast_div.compute = pointwise(divide)
broadcast_div.complex_gradient = holomorphic
broadcast_div.gradient = lambda ctx, g: _collapsed(  # dx = g / y, dy = -g out / y
    ctx,
    F.broadcast_div(g, ctx.inputs[1]),
    F.broadcast_mul(F.broadcast_div(ctx.outputs[0], F.negative(ctx.inputs[1])), g),
)

broadcast_mod = broadcasting("broadcast_mod", f"{_MOD.capitalize()}.", "__mod_symbol__", dtype=numeric)
broadcast_mod.reference = in_dtype(np.mod)
broadcast_mod.compute = pointwise(lambda x, y: x % y)
broadcast_mod.gradient = lambda ctx, g: _collapsed(  # dx = g, dy = -g floor(x / y)
    ctx, g, F.negative(F.elemwise_mul(g, F.floor(F.broadcast_div(*ctx.inputs))))
)

broadcast_pow = broadcasting(
    "broadcast_pow", "x to the power of y; of integers, truncated towards zero.", "__pow_symbol__", dtype=numeric
)
broadcast_pow.reference = in_dtype(power)
broadcast_pow.compute = pointwise(te.pow)
broadcast_pow.complex_gradient = holomorphic
broadcast_pow.gradient = lambda ctx, g: _collapsed(
    ctx, _pow_base_gradient(g, *ctx.inputs), F.elemwise_mul(g, _pow_slope_of_exponent(ctx.inputs[0], ctx.outputs[0]))
)


def _pick_gradient(loses: Rule) -> Rule:
    """The gradient goes to the operand that is the result; equal ones share it. Beside NaN no
    operand loses."""

    def gradient(ctx: Any, g: Any) -> list[Any]:
        x, y = ctx.inputs
        share = F.broadcast_where(F.broadcast_equal(x, y), g * 0.5, g)
        nothing = F.zeros_like(g)
        lost = loses(x, y), loses(y, x)
        return _collapsed(ctx, *(F.broadcast_where(beaten, nothing, share) for beaten in lost))

    return gradient


broadcast_max = broadcasting("broadcast_max", "The larger of x and y.", "__max_symbol__")
broadcast_max.reference = in_dtype(np.maximum)
broadcast_max.compute = pointwise(te.max)
broadcast_max.gradient = _pick_gradient(lambda x, y: F.broadcast_less(x, y))

broadcast_min = broadcasting("broadcast_min", "The smaller of x and y.", "__min_symbol__")
broadcast_min.reference = in_dtype(np.minimum)
broadcast_min.compute = pointwise(te.min)
broadcast_min.gradient = _pick_gradient(lambda x, y: F.broadcast_greater(x, y))


def _shift(way: str, reference: Rule, compute: Rule) -> Op:
    name, doc = f"broadcast_{way}_shift", f"x shifted {way} by y bits."
    op = broadcasting(name, doc, f"__{way}_shift_symbol__", dtype=integral)
    op.reference, op.compute, op.gradient = in_dtype(reference), pointwise(compute), no_flow
    return op


broadcast_left_shift = _shift("left", np.left_shift, lambda x, y: x << y)
broadcast_right_shift = _shift("right", np.right_shift, lambda x, y: x >> y)


def _comparison(name: str, sign: str, reference: Rule, compute: Rule, **columns: Any) -> Op:
    op = broadcasting(
        f"broadcast_{name}", f"1 where x {sign} y, else 0, in the dtype of x.", f"__{name}_symbol__", **columns
    )
    op.reference = in_dtype(reference)
    op.compute = pointwise(lambda x, y: te.cast(compute(x, y), x.dtype))
    op.gradient = no_flow
    return op


_comparison("greater", ">", np.greater, lambda x, y: x > y)
_comparison("less", "<", np.less, lambda x, y: x < y)
_comparison("equal", "equals", np.equal, lambda x, y: x.equal(y), complex_gradient=as_written)
_comparison("not_equal", "differs from", np.not_equal, lambda x, y: x.not_equal(y), complex_gradient=as_written)
_comparison("greater_equal", ">=", np.greater_equal, lambda x, y: x >= y)
_comparison("less_equal", "<=", np.less_equal, lambda x, y: x <= y)

for _name in "add sub mul div mod pow max min".split():
    set_role(_name, f"__{_name}_symbol__")

# Any number of tensors of one shape.


@schema
class ElemwiseSumAttrs:
    num_args: int = attr(INT, "how many inputs there are", low=1)


elemwise_sum = define(
    "elemwise_sum",
    "x0 + x1 + ... of equal shapes.",
    level=4,
    inputs={},
    attrs=ElemwiseSumAttrs,
    pattern=ELEM_WISE,
    shape=same_shape,
    layout=layouts.arbitrary,
)
elemwise_sum.set_num_inputs(lambda params: params.num_args)
elemwise_sum.add_argument("args", "Tensors", "the summands")
elemwise_sum.inplace = lambda params: [(i, 0) for i in range(params.num_args)]
elemwise_sum.reference = in_dtype(lambda p, *xs: reduce(np.add, xs))
elemwise_sum.compute = pointwise(lambda p, *xs: reduce(lambda x, y: x + y, xs))
elemwise_sum.complex_gradient = holomorphic
elemwise_sum.gradient = lambda ctx, g: [F.copy(g) for _ in ctx.inputs]

set_role("sum_of_gradients", "elemwise_sum")

# One tensor, stretched to a shape.


@schema
class BroadcastToAttrs:
    shape: tuple[int, ...] = attr(EXTENTS, "the shape; 0 keeps the dimension", default=(), low=0)


def must_stretch(narrow: Shape, wide: Shape) -> None:
    """Raises unless an array of the first shape can broadcast to the second one."""
    if narrow is None or wide is None:
        return
    pairs = zip(narrow[::-1], wide[::-1])
    fits = all(a in (1, b) or not isinstance(a, int) or not isinstance(b, int) for a, b in pairs)
    if len(narrow) > len(wide) or not fits:
        raise ShapeError(
            f"shape {show(narrow)} does not broadcast to {show(wide)}",
            why="counted from the last, each dimension must be equal or 1",
        )


def _broadcast_to_shape(params: BroadcastToAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, target = ins[0], params.shape
    if data is None:
        return [None], [tuple(dim or None for dim in target)]
    lead = len(target) - len(data)
    if 0 in target[: max(lead, 0)]:
        raise ShapeError(
            f"shape {show(target)} keeps a dimension that {show(data)} does not have",
            why="0 stands for the dimension of the input",
        )
    out = tuple(dim or data[axis - lead] for axis, dim in enumerate(target)) if lead >= 0 else ()
    must_stretch(data, out if lead >= 0 else target)
    return [None], [out]


broadcast_to = define(
    "broadcast_to",
    "data repeated along axes of size 1, and new leading ones, to a shape.",
    level=4,
    attrs=BroadcastToAttrs,
    pattern=BROADCAST,
    shape=_broadcast_to_shape,
)


def stretched(x: te.Tensor, shape: tuple[int, ...]) -> te.Tensor:
    """The tensor repeated along axes of size 1, and new leading ones, to the shape."""

    def read(*i: te.Expr) -> te.Expr:
        inner = i[len(i) - x.rank :]
        return x[tuple(0 if dim == 1 else at for at, dim in zip(inner, x.shape))]

    return te.compute(shape, read)


def _target(params: BroadcastToAttrs, shape: StaticShape) -> Any:
    return _broadcast_to_shape(params, [shape], [None])[1][0]


broadcast_to.reference = lambda p, x: np.broadcast_to(x, _target(p, x.shape)).copy()
broadcast_to.compute = lambda p, x: stretched(x, _target(p, x.shape))
broadcast_to.complex_gradient = holomorphic
broadcast_to.gradient = lambda ctx, g: [F.collapse_sum(g, ctx.inputs[0])]


def _broadcast_like_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[1], outs[0])
    must_stretch(ins[0], shape)
    return [None, shape], [shape]


broadcast_like = define(
    "broadcast_like",
    "data repeated along axes of size 1, and new leading ones, to like's shape.",
    level=5,
    inputs={"data": "what to stretch", "like": "has the wanted shape"},
    pattern=BROADCAST,
    shape=_broadcast_like_shape,
    dtype=first_dtype,
    ignored_inputs=[1],
)
broadcast_like.reference = lambda x, like: np.broadcast_to(x, like.shape).copy()
broadcast_like.same_if_alike = True
broadcast_like.compute = lambda x, like: stretched(x, like.shape)
broadcast_like.complex_gradient = holomorphic
broadcast_like.gradient = lambda ctx, g: [F.collapse_sum(g, ctx.inputs[0]), None]
