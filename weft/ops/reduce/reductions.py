"""Reductions along axes, the masks and expansions that their gradients need, and scans."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL, FLOAT32, INT32, DType, is_float
from ...base.errors import InvalidValue, ShapeError, Unsupported
from ...base.quiet import quietly
from ...base.shape import Shape, normalize_axis, show
from ...core.op import Op
from ...core.schema import BOOL as BOOL_ATTR
from ...core.schema import DTYPE, FLOAT, INTS, attr, schema
from .. import _layouts as layouts
from .._families import (
    BROADCAST,
    COMM_REDUCE,
    OPAQUE,
    F,
    Inferred,
    Shapes,
    define,
    divide,
    full_dtype,
    holomorphic,
    in_float32,
    no_flow,
    numeric,
    unary,
)

AXIS = "the axes, negative ones from the end; () for all"
EXCLUDE = "take all axes but those given"
KEEPDIMS = "keep reduced axes, with size 1"
SCALAR = "what is left of all axes has none, instead of one of size 1"


@schema
class ReduceAttrs:
    axis: tuple[int, ...] = attr(INTS, AXIS, default=())
    keepdims: bool = attr(BOOL_ATTR, KEEPDIMS, default=False)
    exclude: bool = attr(BOOL_ATTR, EXCLUDE, default=False)
    dtype: DType = attr(DTYPE, "the dtype of argmax and argmin", default=INT32)
    scalar: bool = attr(BOOL_ATTR, SCALAR, default=False)


@schema
class AxesAttrs:
    axis: tuple[int, ...] = attr(INTS, AXIS, default=())
    exclude: bool = attr(BOOL_ATTR, EXCLUDE, default=False)


@schema
class CountAttrs(AxesAttrs):
    less: float = attr(FLOAT, "what the number of elements is lessened by", default=0.0)


def reduced_axes(params: Any, rank: int) -> list[int]:
    """The axes that are reduced, ascending."""
    if not params.axis:
        return list(range(rank))
    axes = [normalize_axis(axis, rank, what="reduction axis") for axis in params.axis]
    if len(set(axes)) != len(axes):
        raise InvalidValue(f"reduction axes {params.axis} name one axis twice")
    return [axis for axis in range(rank) if (axis in axes) != params.exclude]


def reduced_shape(params: Any, shape: Shape) -> Any:
    """What is left of a shape; a reduction of everything leaves (1,), or () if it is a scalar."""
    nothing = () if params.scalar else (1,)
    if shape is None:
        return nothing if not params.axis and not params.keepdims else None
    axes = reduced_axes(params, len(shape))
    if params.keepdims:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    if len(axes) == len(shape):
        return nothing
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def _reduce_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    return [None], [reduced_shape(params, ins[0])]


def over(x: te.Tensor, axes: Sequence[int]) -> tuple[list[te.ReduceAxis], Callable[..., Any]]:
    """Reduce axes for some axes of a tensor, and a function from the other indices to all."""
    ks = {axis: te.reduce_axis(x.shape[axis], f"k{axis}") for axis in axes}

    def place(kept: Sequence[Any]) -> tuple[Any, ...]:
        rest = iter(kept)
        return tuple(ks[a].var if a in ks else next(rest) for a in range(x.rank))

    return list(ks.values()), place


def _reduce_compute(reduce: Callable[..., Any], keep: bool | None = None) -> Callable[..., Any]:
    """A reduction by `te.sum` and the like; `keep` overrides the attribute keepdims."""

    def compute(params: Any, x: te.Tensor) -> te.Tensor:
        axes = reduced_axes(params, x.rank)
        keepdims = params.keepdims if keep is None else keep
        shape = shape_after(x.shape, axes, keepdims, keep is None and params.scalar)
        if not axes:
            return te.compute(shape, lambda *i: x[i[: x.rank]])
        ks, place = over(x, axes)
        kept = [axis for axis in range(x.rank) if axis not in axes]

        def body(*i: te.Expr) -> Any:
            at = [i[axis] for axis in kept] if keepdims else i[: len(kept)]
            return reduce(x[place(at)], ks)

        return te.compute(shape, body)

    return compute


def shape_after(shape: Sequence[int], axes: Sequence[int], keepdims: bool, scalar: bool = False) -> tuple[int, ...]:
    """What is left of a known shape."""
    if keepdims:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(d for axis, d in enumerate(shape) if axis not in axes) or (
        (1,) if len(axes) == len(shape) and not scalar else ()
    )


def _reduce_reference(reduce: Callable[..., Any]) -> Callable[..., Any]:
    def reference(params: Any, x: Any) -> Any:
        axes = tuple(reduced_axes(params, x.ndim))
        with np.errstate(all="ignore"):
            values = np.asarray(reduce(x, axes) if axes else x)
            return values.reshape(reduced_shape(params, x.shape)).astype(x.dtype)

    return reference


def wide(x: Any) -> Any:
    """Sums of floats are kept in float64 until they are complete."""
    return x.astype(np.float64) if is_float(x.dtype) else x


def _reduction(name: str, doc: str, **columns: Any) -> Any:
    return define(
        name, doc, attrs=ReduceAttrs, pattern=COMM_REDUCE, layout=layouts.reduced, **{"shape": _reduce_shape, **columns}
    )


def axes_of(params: Any) -> dict[str, Any]:
    """The axes as attributes of what a gradient is made of."""
    return {"axis": params.axis, "exclude": params.exclude}


def _kept(params: Any) -> dict[str, Any]:
    return {**axes_of(params), "keepdims": params.keepdims, "scalar": params.scalar}


def expanded(ctx: Any, g: Any) -> Any:
    """What was left of the input, repeated to its shape."""
    return F.expand_like(g, ctx.inputs[0], **axes_of(ctx.params))


def sum_expr(body: te.Expr, ks: Any) -> te.Expr:
    return te.any(body, ks) if body.dtype == BOOL else te.sum(body, ks)


def _prod_expr(body: te.Expr, ks: Any) -> te.Expr:
    return te.all(body, ks) if body.dtype == BOOL else te.prod(body, ks)


sum_ = _reduction("sum", "The sum along axes; of bools, whether one is true.", native_from=1)
sum_.reference = _reduce_reference(lambda x, axes: x.any(axes) if x.dtype == BOOL else np.sum(wide(x), axes))
sum_.compute = _reduce_compute(sum_expr)
sum_.complex_gradient = holomorphic
sum_.gradient = lambda ctx, g: [expanded(ctx, g)]

prod = _reduction("prod", "The product along axes; of bools, whether all are true.", native_from=1)
prod.reference = _reduce_reference(lambda x, axes: x.all(axes) if x.dtype == BOOL else np.prod(wide(x), axes))
prod.compute = _reduce_compute(_prod_expr)
prod.complex_gradient = holomorphic
prod.gradient = lambda ctx, g: [  # dx = g times the product of the others
    F.elemwise_mul(expanded(ctx, g), F._prod_others(ctx.inputs[0], **axes_of(ctx.params)))
]

mean = _reduction(
    "mean",
    "The sum along axes divided by the number of summands; of integers, rounded down.",
    dtype=numeric,
    native_from=1,
)


def reduced_count(params: Any, shape: Sequence[int]) -> int:
    """How many elements each result is made of."""
    return math.prod([shape[axis] for axis in reduced_axes(params, len(shape))])


def _mean_reference(params: Any, x: Any) -> Any:
    axes = tuple(reduced_axes(params, x.ndim))
    with np.errstate(all="ignore"):
        total = np.sum(wide(x), axes, dtype=None if is_float(x.dtype) else x.dtype)
        values = divide(total, np.asarray(reduced_count(params, x.shape)).astype(total.dtype))
    return np.asarray(values).reshape(reduced_shape(params, x.shape)).astype(x.dtype)


@in_float32
def _mean_compute(params: Any, x: te.Tensor) -> te.Tensor:
    total = sum_.compute(params, x)
    divisor = te.cast(te.as_expr(reduced_count(params, x.shape)), x.dtype)
    return te.compute(total.shape, lambda *i: divide(total[i], divisor))


mean.reference = _mean_reference
mean.compute = _mean_compute
mean.complex_gradient = holomorphic
mean.gradient = lambda ctx, g: [  # dx = g / the number of summands
    expanded(ctx, F._divide_by_count(g, ctx.inputs[0], **axes_of(ctx.params)))
]

divide_by_count = define(
    "_divide_by_count",
    "The input divided by how many elements of another tensor a reduction along axes takes.",
    inputs={"input": "what to divide", "shape_like": "has the axes"},
    named=False,
    attrs=CountAttrs,
    pattern=BROADCAST,
    shape=lambda params, ins, outs: ([outs[0], None], [ins[0]]),
    dtype=numeric,
    ignored_inputs=[1],
)


def _divide_reference(params: CountAttrs, g: Any, like: Any) -> Any:
    if g.dtype.itemsize == 2 and is_float(g.dtype):  # which may be too narrow for the count
        return _divide_reference(params, g.astype(np.float32), like).astype(g.dtype)
    count = max(reduced_count(params, like.shape) - params.less, 0)
    return np.asarray(quietly(divide, g, np.asarray(count).astype(g.dtype)))


@in_float32
def _divide_compute(params: CountAttrs, g: te.Tensor, like: te.Tensor) -> te.Tensor:
    count = te.cast(te.as_expr(reduced_count(params, like.shape)), g.dtype)
    if params.less:
        count = te.max(count - te.const(params.less, g.dtype), te.const(0, g.dtype))
    return te.compute(g.shape, lambda *i: divide(g[i], count))


divide_by_count.reference = _divide_reference
divide_by_count.compute = _divide_compute
divide_by_count.complex_gradient = holomorphic
divide_by_count.gradient = lambda ctx, g: [
    F._divide_by_count(g, ctx.inputs[1], less=ctx.params.less, **axes_of(ctx.params)),
    None,
]


def _limit(dtype: DType, sign: int) -> Any:
    """What a maximum (sign -1) or minimum (sign 1) over nothing is."""
    if is_float(dtype):
        return np.asarray(sign * np.inf, dtype)
    if dtype == BOOL:
        return sign > 0
    return np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min


def _extremum_gradient(mask: str) -> Callable[..., Any]:
    """The gradient goes to the elements that are the result, in equal shares."""

    def gradient(ctx: Any, g: Any) -> list[Any]:
        chosen = F.cast_like(Op.get(mask)(ctx.inputs[0], **axes_of(ctx.params)), g)
        share = F.elemwise_div(g, F.sum(chosen, **_kept(ctx.params)))
        return [F._keep_between(expanded(ctx, share), chosen, a_min=1.0, a_max=1.0)]

    return gradient


max_ = _reduction(
    "max", "The largest along axes, NaN if there is one; the lowest of the dtype over nothing.", native_from=1
)
max_.reference = _reduce_reference(lambda x, axes: x.max(axes, initial=_limit(x.dtype, -1)))
max_.compute = _reduce_compute(te.max_of)
max_.gradient = _extremum_gradient("_max_mask")

min_ = _reduction(
    "min", "The smallest along axes, NaN if there is one; the highest of the dtype over nothing.", native_from=1
)
min_.reference = _reduce_reference(lambda x, axes: x.min(axes, initial=_limit(x.dtype, 1)))
min_.compute = _reduce_compute(te.min_of)
min_.gradient = _extremum_gradient("_min_mask")


def _mask(name: str, doc: str, extreme: Any, compute: Callable[..., Any]) -> Any:
    op = unary(name, doc, level=1, attrs=AxesAttrs, pattern=OPAQUE, native_from=32768)
    op.dtype = lambda params, ins, outs: ([None], [FLOAT32])

    def mask_reference(params: Any, x: Any) -> Any:
        axes = tuple(reduced_axes(params, x.ndim))
        best = extreme(x, axes) if axes else x
        return (_same_value(x, best)).astype(np.float32)

    def mask_compute(params: Any, x: te.Tensor) -> te.Tensor:
        axes = reduced_axes(params, x.rank)
        best = compute(params, x)

        def value(*i: te.Expr) -> te.Expr:
            top = best[tuple(0 if axis in axes else at for axis, at in enumerate(i))]
            return te.cast(_is_value(x[i], top), "float32")

        return te.compute(x.shape, value)

    op.reference, op.compute, op.gradient = mask_reference, mask_compute, no_flow
    return op


def _same_value(x: Any, best: Any) -> Any:
    return (x == best) | (np.isnan(x) if is_float(x.dtype) else False)


def _is_value(x: te.Expr, best: te.Expr) -> te.Expr:
    """Equal, or NaN: where there is a NaN the result is one, and nothing else equals it."""
    return x.equal(best) | te.isnan(x) if is_float(x.dtype) else x.equal(best)


_mask(
    "_max_mask",
    "1 where an element is the largest along axes, else 0.",
    lambda x, axes: x.max(axes, keepdims=True, initial=_limit(x.dtype, -1)),
    _reduce_compute(te.max_of, keep=True),
)
_mask(
    "_min_mask",
    "1 where an element is the smallest along axes, else 0.",
    lambda x, axes: x.min(axes, keepdims=True, initial=_limit(x.dtype, 1)),
    _reduce_compute(te.min_of, keep=True),
)


def _others_reference(params: Any, x: Any) -> Any:
    axes = reduced_axes(params, x.ndim)
    moved = np.moveaxis(wide(x), axes, range(x.ndim - len(axes), x.ndim))
    flat = moved.reshape(moved.shape[: x.ndim - len(axes)] + (-1 if moved.size else 0,))
    ones = np.ones(flat.shape[:-1] + (1,), flat.dtype)
    before = np.cumprod(np.concatenate([ones, flat], -1), -1)[..., :-1]
    after = np.cumprod(np.concatenate([ones, flat[..., ::-1]], -1), -1)[..., :-1][..., ::-1]
    products = (before * after).reshape(moved.shape)
    return np.moveaxis(products, range(x.ndim - len(axes), x.ndim), axes).astype(x.dtype)


def _others_compute(params: Any, x: te.Tensor) -> te.Tensor:
    axes = reduced_axes(params, x.rank)
    if not axes:
        return te.compute(x.shape, lambda *i: te.const(1, x.dtype))
    ks, place = over(x, axes)

    def value(*i: te.Expr) -> te.Expr:
        at = place([index for axis, index in enumerate(i) if axis not in axes])
        itself: Any = te.all_of([k.var.equal(i[axis]) for k, axis in zip(ks, axes)])
        return te.prod(te.select(itself, te.const(1, x.dtype), x[at]), ks)

    return te.compute(x.shape, value)


prod_others = unary(
    "_prod_others",
    "For every element, the product of the others along axes.",
    level=10,
    attrs=AxesAttrs,
    pattern=OPAQUE,
    dtype=numeric,
    native_from=1024,
)
prod_others.reference = _others_reference
prod_others.compute = _others_compute


def _others_gradient(ctx: Any, g: Any) -> list[Any]:
    """The product of the others is that of those before times that of those after: g goes to both
    by the rule of cumprod."""
    p = ctx.params
    if len(p.axis) > 1 or p.exclude:
        raise Unsupported("the second derivative of a product along several axes", hint="take one after another")
    flat = (lambda x: x) if p.axis else (lambda x: F.reshape(x, shape=(-1,)))
    axis = p.axis[0] if p.axis else 0
    x, ograd = flat(ctx.inputs[0]), flat(g)
    turned = F.flip(x, axis=axis)
    before, after = (F.cumprod(y, axis=axis, exclusive=True) for y in (x, turned))
    after = F.flip(after, axis=axis)
    on_x = _cumprod_slope(x, F.elemwise_mul(ograd, after), axis)
    on_turned = _cumprod_slope(turned, F.flip(F.elemwise_mul(ograd, before), axis=axis), axis)
    total = F.elemwise_add(on_x, F.flip(on_turned, axis=axis))
    return [F.reshape_like(total, ctx.inputs[0])]


def _cumprod_slope(x: Any, g: Any, axis: int) -> Any:
    """The gradient of an exclusive running product."""
    after = F._recurrence(x, F._shift(g, axis=axis, back=True), axis=axis, reverse=True)
    return F.elemwise_mul(F.cumprod(x, axis=axis, exclusive=True), after)


prod_others.gradient = _others_gradient
prod_others.complex_gradient = holomorphic

# Positions of the largest and the smallest.


def _arg_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is not None and any(ins[0][a] == 0 for a in reduced_axes(params, len(ins[0]))):
        raise ShapeError(f"shape {show(ins[0])} has no element along the reduced axes")
    return _reduce_shape(params, ins, outs)


def _arg_reference(pick: Callable[..., Any]) -> Callable[..., Any]:
    def reference(params: Any, x: Any) -> Any:
        shape = _arg_shape(params, [x.shape], [None])[1][0]
        axes = reduced_axes(params, x.ndim)
        moved = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
        count = math.prod(x.shape[axis] for axis in axes)
        rows = [dim for axis, dim in enumerate(x.shape) if axis not in axes]
        return pick(moved.reshape(rows + [count]), -1).astype(params.dtype).reshape(shape)

    return reference


def _arg_compute(extreme: Callable[..., Any]) -> Callable[..., Any]:
    """The smallest flat position along the axes at which the extreme value stands."""
    best_of = _reduce_compute(extreme, keep=True)

    def compute(params: Any, x: te.Tensor) -> te.Tensor:
        axes = reduced_axes(params, x.rank)
        shape = shape_after(x.shape, axes, params.keepdims, params.scalar)
        if not axes:
            return te.compute(shape, lambda *i: te.const(0, params.dtype))
        best = best_of(params, x)
        ks, place = over(x, axes)
        kept = [axis for axis in range(x.rank) if axis not in axes]
        past = math.prod(x.shape[axis] for axis in axes)

        def first(*i: te.Expr) -> te.Expr:
            outer = [i[axis] for axis in kept] if params.keepdims else list(i[: len(kept)])
            at = place(outer)
            top = best[tuple(0 if axis in axes else index for axis, index in enumerate(at))]
            here = _is_value(x[at], top)
            return te.min_of(te.select(here, _flat(ks), past), ks)

        position = te.compute(shape, first)
        return te.compute(shape, lambda *i: te.cast(position[i], params.dtype))

    return compute


def _flat(ks: Sequence[te.ReduceAxis]) -> te.Expr:
    """The position that several indices make together."""
    flat: Any = ks[0].var
    for k in ks[1:]:
        flat = flat * k.extent + k.var
    return flat


_ARG = "along axes, counted over them together; of equal ones the first, NaN before all."

for _name, _which, _pick, _extreme in (
    ("argmax", "largest", np.argmax, te.max_of),
    ("argmin", "smallest", np.argmin, te.min_of),
):
    _op = _reduction(
        _name, f"The position of the {_which} {_ARG}", shape=_arg_shape, dtype=full_dtype, native_from=16384
    )
    _op.reference, _op.compute, _op.gradient = _arg_reference(_pick), _arg_compute(_extreme), no_flow
