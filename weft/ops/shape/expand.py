"""Operators that bring a tensor to the shape of another: sums over what broadcast, and copies along
what was reduced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import is_float
from ...base.shape import Shape, unify
from .._families import BROADCAST, COMM_REDUCE, F, Inferred, Shapes, define, first_dtype, holomorphic
from ..math.broadcast import must_stretch, stretched
from ..reduce.reductions import AxesAttrs, axes_of, over, reduced_axes, sum_expr, wide


def _collapse_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[1], outs[0])
    must_stretch(shape, ins[0])
    return [None, shape], [shape]


def collapse_axes(shape: Sequence[int], target: Sequence[int]) -> list[int]:
    """The axes along which an array of the target's shape would broadcast."""
    lead = len(shape) - len(target)
    return [axis for axis, dim in enumerate(shape) if axis < lead or (target[axis - lead] == 1 and dim != 1)]


def _summed(x: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
    total = np.sum(wide(x), tuple(axes), dtype=None if is_float(x.dtype) else x.dtype)
    return np.asarray(total).reshape(shape).astype(x.dtype)


def _collapse_reference(x: Any, like: Any) -> Any:
    return _summed(x, collapse_axes(x.shape, like.shape), like.shape)


def _collapse_compute(x: te.Tensor, like: te.Tensor) -> te.Tensor:
    axes, lead = collapse_axes(x.shape, like.shape), x.rank - like.rank
    if not axes:
        return te.compute(like.shape, lambda *i: x[i])
    ks, place = over(x, axes)

    def value(*i: te.Expr) -> te.Expr:
        kept = [i[axis - lead] for axis in range(x.rank) if axis not in axes]
        return sum_expr(x[place(kept)], ks)

    return te.compute(like.shape, value)


collapse_sum = define(
    "collapse_sum",
    "The sum of data over the axes along which `as` would broadcast to it.",
    inputs={"data": "what to sum", "as": "has the wanted shape"},
    named=False,
    pattern=COMM_REDUCE,
    shape=_collapse_shape,
    dtype=first_dtype,
    ignored_inputs=[1],
    native_from=1024,
)
collapse_sum.same_if_alike = True
collapse_sum.reference = _collapse_reference
collapse_sum.compute = _collapse_compute
collapse_sum.complex_gradient = holomorphic
collapse_sum.gradient = lambda ctx, g: [F.broadcast_like(g, ctx.inputs[0]), None]


def _check_expands(params: Any, narrow: Shape, wide: Shape) -> None:
    """An error unless one shape is the other without the axes, or broadcasts to it axis by axis."""
    if narrow is None or wide is None:
        return
    if len(narrow) == len(wide):
        must_stretch(narrow, wide)
        return
    axes = reduced_axes(params, len(wide))
    if len(axes) < len(wide) or narrow != ():
        unify(narrow, tuple(dim for axis, dim in enumerate(wide) if axis not in axes) or (1,))


def _expand_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    wide = unify(ins[1], outs[0])
    _check_expands(params, ins[0], wide)
    return [None, wide], [wide]


def expanded_view(params: Any, x: Any, shape: Sequence[int]) -> Any:
    """An array repeated to the shape, without a copy."""
    if x.ndim != len(shape):
        axes = reduced_axes(params, len(shape))
        x = x.reshape([1 if axis in axes else dim for axis, dim in enumerate(shape)])
    return np.broadcast_to(x, shape)


def _expand_compute(params: Any, x: te.Tensor, like: te.Tensor) -> te.Tensor:
    if x.rank == like.rank:
        return stretched(x, like.shape)
    axes = reduced_axes(params, like.rank)

    def value(*i: te.Expr) -> te.Expr:
        kept = [at for axis, at in enumerate(i) if axis not in axes]
        return x[tuple(kept or [0] * x.rank)]

    return te.compute(like.shape, value)


expand_like = define(
    "expand_like",
    "The input repeated to the shape of another tensor. With as many axes, it is repeated along "
    "those of size 1; with fewer, it lacks the named axes (all, if none is named), as a reduction "
    "along them leaves it.",
    level=4,
    inputs={"input": "what to repeat", "shape_like": "has the wanted shape"},
    named=False,
    attrs=AxesAttrs,
    pattern=BROADCAST,
    shape=_expand_shape,
    dtype=first_dtype,
    ignored_inputs=[1],
)
expand_like.reference = lambda p, x, like: expanded_view(p, x, like.shape).copy()
expand_like.views = lambda p, x, like: [expanded_view(p, x, like.shape)]
expand_like.compute = _expand_compute
expand_like.complex_gradient = holomorphic
expand_like.gradient = lambda ctx, g: [F._expand_like_grad(g, ctx.inputs[0], **axes_of(ctx.params)), None]


def _expand_grad_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[1], outs[0])
    _check_expands(params, shape, ins[0])
    return [None, shape], [shape]


def repeated_axes(params: Any, wide: Sequence[int], narrow: Sequence[int]) -> list[int]:
    """The axes along which expand_like repeats a shape to make it wide."""
    same_rank = len(wide) == len(narrow)
    return collapse_axes(wide, narrow) if same_rank else reduced_axes(params, len(wide))


def _expand_grad_reference(params: Any, g: Any, x: Any) -> Any:
    return _summed(g, repeated_axes(params, g.shape, x.shape), x.shape)


def _expand_grad_compute(params: Any, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    if g.rank == x.rank:
        return _collapse_compute(g, x)
    axes = reduced_axes(params, g.rank)
    if not axes:
        return te.compute(x.shape, lambda *i: g[()])
    ks, place = over(g, axes)
    return te.compute(x.shape, lambda *i: sum_expr(g[place(i[: g.rank - len(axes)])], ks))


expand_like_grad = define(
    "_expand_like_grad",
    "The sum of ograd over what expand_like repeated.",
    inputs={"ograd": "the gradient of the output", "input": "what was repeated"},
    named=False,
    attrs=AxesAttrs,
    pattern=COMM_REDUCE,
    shape=_expand_grad_shape,
    dtype=first_dtype,
    ignored_inputs=[1],
    native_from=1024,
)
expand_like_grad.reference = _expand_grad_reference
expand_like_grad.compute = _expand_grad_compute
expand_like_grad.complex_gradient = holomorphic
expand_like_grad.gradient = lambda ctx, g: [F.expand_like(g, ctx.inputs[0], **axes_of(ctx.params)), None]
