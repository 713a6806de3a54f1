"""Operators that bring a tensor to the shape of another: sums over what broadcast, and copies along
what was reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import te
from ..base.dtype import is_float
from ..base.shape import Shape, unify
from . import _layouts as layouts
from ._families import BROADCAST, COMM_REDUCE, F, define, first_dtype, holomorphic
from .broadcast import must_stretch
from .reduce import AxesAttrs, over, reduced_axes, sum_expr, wide


def _collapse_shape(params: Any, ins: Sequence[Shape], outs: Sequence[Shape]) -> Any:
    shape = unify(ins[1], outs[0])
    must_stretch(shape, ins[0])
    return [None, shape], [shape]


def collapse_axes(shape: Sequence[int], target: Sequence[int]) -> list[int]:
    """The axes along which an array of the target's shape would broadcast."""
    lead = len(shape) - len(target)
    return [
        axis
        for axis, dim in enumerate(shape)
        if axis < lead or (target[axis - lead] == 1 and dim != 1)
    ]


def _collapse_reference(x: Any, like: Any) -> Any:
    axes = tuple(collapse_axes(x.shape, like.shape))
    total = np.sum(wide(x), axes, dtype=None if is_float(x.dtype) else x.dtype)
    return np.asarray(total).reshape(like.shape).astype(x.dtype)


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
    "collapse_sum", "The sum of data over the axes along which `as` would broadcast to it.",
    level=10, inputs={"data": "what to sum", "as": "has the wanted shape"}, named=False,
    pattern=COMM_REDUCE, shape=_collapse_shape, dtype=first_dtype, layout=layouts.fixed_unknown,
    ignored_inputs=[1],
)  # fmt: skip
collapse_sum.reference = _collapse_reference
collapse_sum.compute = _collapse_compute
collapse_sum.complex_gradient = holomorphic
collapse_sum.gradient = lambda ctx, g: [F.broadcast_like(g, ctx.inputs[0]), None]


def _expand_shape(params: Any, ins: Sequence[Shape], outs: Sequence[Shape]) -> Any:
    wide = unify(ins[1], outs[0])
    if ins[0] is not None and wide is not None:
        axes = reduced_axes(params, len(wide))
        short = tuple(dim for axis, dim in enumerate(wide) if axis not in axes)
        kept = tuple(1 if axis in axes else dim for axis, dim in enumerate(wide))
        wanted = kept if len(ins[0]) == len(wide) else (short or (1,))
        if len(axes) < len(wide) or ins[0] != ():
            unify(ins[0], wanted)
    return [None, wide], [wide]


def _expand_index(params: Any, rank: int, shape: Sequence[int]) -> Callable[..., Any]:
    """From the indices of the output to those of an input of this rank."""
    axes = reduced_axes(params, len(shape))

    def index(i: Sequence[Any]) -> tuple[Any, ...]:
        if rank == len(shape):
            return tuple(0 if axis in axes else at for axis, at in enumerate(i))
        kept = [at for axis, at in enumerate(i) if axis not in axes]
        return tuple(kept or [0] * rank)

    return index


def _expand_reference(params: Any, x: Any, like: Any) -> Any:
    axes = reduced_axes(params, like.ndim)
    if x.ndim != like.ndim:
        kept = tuple(1 if axis in axes else dim for axis, dim in enumerate(like.shape))
        x = x.reshape(kept)
    return np.broadcast_to(x, like.shape).copy()


def _expand_compute(params: Any, x: te.Tensor, like: te.Tensor) -> te.Tensor:
    index = _expand_index(params, x.rank, like.shape)
    return te.compute(like.shape, lambda *i: x[index(i)])


expand_like = define(
    "expand_like",
    "The input repeated along axes to the shape of another tensor: undoes the shape of a reduction "
    "along those axes, whether it kept them or not.",
    level=4, inputs={"input": "what to repeat", "shape_like": "has the wanted shape"},
    named=False, attrs=AxesAttrs, pattern=BROADCAST, shape=_expand_shape, dtype=first_dtype,
    layout=layouts.fixed_unknown, ignored_inputs=[1],
)  # fmt: skip
expand_like.reference = _expand_reference
expand_like.compute = _expand_compute
expand_like.complex_gradient = holomorphic
expand_like.gradient = lambda ctx, g: [  # the sum over what was repeated
    F.reshape_like(F.sum(g, axis=ctx.params.axis, exclude=ctx.params.exclude), ctx.inputs[0]),
    None,
]
