"""Operators that copy the elements of a tensor, and the sums that are their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.shape import mul_dims, normalize_axis
from ...core.op import Op, Rule
from ...core.schema import EXTENT, EXTENTS, INT, attr, optional, schema
from .._families import (
    INJECTIVE,
    Array,
    F,
    Inferred,
    ShapeRule,
    Shapes,
    attributes,
    backward,
    backward_shape,
    changed,
    define,
    holomorphic,
    numeric,
)
from .views import reindexed


@schema
class TileAttrs:
    reps: tuple[int, ...] = attr(EXTENTS, "how often along each axis, aligned at the last", low=0)


def _tile_plan(params: TileAttrs, shape: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Shape and repetitions, both with as many axes as the longer one."""
    rank = max(len(shape), len(params.reps))
    wide = (1,) * (rank - len(shape)) + tuple(shape)
    return wide, (1,) * (rank - len(params.reps)) + params.reps


def _tile_shape(params: TileAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return [None], [None]
    wide, reps = _tile_plan(params, ins[0])
    return [None], [tuple(mul_dims(dim, rep) for dim, rep in zip(wide, reps))]


def _tile_compute(params: TileAttrs, x: te.Tensor) -> te.Tensor:
    wide, reps = _tile_plan(params, x.shape)
    lead = len(wide) - x.rank

    def value(*i: te.Expr) -> te.Expr:
        axes = zip(i[lead:], x.shape, reps[lead:])
        return x[tuple(at if rep == 1 else at % dim for at, dim, rep in axes)]

    return te.compute([dim * rep for dim, rep in zip(wide, reps)], value)


tile = define(
    "tile", "Copies of a tensor side by side.", level=5, attrs=TileAttrs, pattern=INJECTIVE, shape=_tile_shape
)
tile.reference = lambda p, x: np.tile(x, p.reps)
tile.compute = _tile_compute
tile.complex_gradient = holomorphic
tile.gradient = lambda ctx, g: [F._tile_grad(g, ctx.inputs[0], reps=ctx.params.reps)]


def _summing(name: str, doc: str, attrs: type, shape: ShapeRule, reference: Rule, compute: Rule, forward: Rule) -> Op:
    """A gradient that sums what an operator, whose shape rule is `shape`, repeated; `forward`
    repeats again."""
    op = backward(name, doc, attrs=attrs, shape=backward_shape(shape), dtype=numeric)
    op.reference, op.compute = reference, compute
    op.gradient = lambda ctx, g: [forward(ctx.params, g), None]
    op.complex_gradient = holomorphic
    return op


def _tile_grad_reference(params: TileAttrs, g: Array, x: Array) -> Array:
    wide, reps = _tile_plan(params, x.shape)
    paired = [size for pair in zip(reps, wide) for size in pair]
    return g.reshape(paired).sum(tuple(range(0, len(paired), 2)), dtype=g.dtype).reshape(x.shape)


def _tile_grad_compute(params: TileAttrs, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    wide, reps = _tile_plan(params, x.shape)
    lead = len(wide) - x.rank
    ks = [te.reduce_axis(rep, f"r{axis}") for axis, rep in enumerate(reps)]

    def value(*i: te.Expr) -> te.Expr:
        axes = (*[te.const(0, "int64")] * lead, *i)
        at = tuple(k.var * dim + index for k, dim, index in zip(ks, wide, axes))
        return te.sum(g[at], ks) if ks else g[at]

    return te.compute(x.shape, value)


_summing(
    "_tile_grad",
    "The sum of a gradient over the copies that tile made.",
    TileAttrs,
    _tile_shape,
    _tile_grad_reference,
    _tile_grad_compute,
    lambda p, g: F.tile(g, reps=p.reps),
)


@schema
class RepeatAttrs:
    repeats: int = attr(EXTENT, "how often each element is there", low=0)
    axis: int | None = attr(optional(INT), "along which axis; None for the flattened tensor", default=None)


def _repeat_shape(params: RepeatAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if params.axis is None:
        size = None if ins[0] is None else mul_dims(*ins[0])
        return [None], [(mul_dims(size, params.repeats),)]
    if ins[0] is None:
        return [None], [None]
    axis = normalize_axis(params.axis, len(ins[0]))
    return [None], [changed(ins[0], axis, mul_dims(ins[0][axis], params.repeats))]


def _repeat_compute(params: RepeatAttrs, x: te.Tensor) -> te.Tensor:
    if params.axis is None:
        x = reindexed(x, (int(np.prod(x.shape, dtype=np.int64)),))
    axis = normalize_axis(params.axis or 0, x.rank)
    shape = changed(x.shape, axis, x.shape[axis] * params.repeats)
    return te.compute(shape, lambda *i: x[changed(i, axis, i[axis] // max(params.repeats, 1))])


repeat = define(
    "repeat",
    "Each element several times, one after another.",
    level=5,
    attrs=RepeatAttrs,
    pattern=INJECTIVE,
    shape=_repeat_shape,
)
repeat.reference = lambda p, x: np.repeat(x, p.repeats, p.axis)
repeat.compute = _repeat_compute


repeat.complex_gradient = holomorphic
repeat.gradient = lambda ctx, g: [F._repeat_grad(g, ctx.inputs[0], **attributes(ctx.params))]


def _repeat_grad_reference(params: RepeatAttrs, g: Array, x: Array) -> Array:
    axis = normalize_axis(params.axis or 0, g.ndim)
    paired = (*g.shape[:axis], g.shape[axis] // max(params.repeats, 1), params.repeats)
    if not params.repeats:
        return np.zeros(x.shape, g.dtype)
    whole = g.reshape((*paired, *g.shape[axis + 1 :]))
    return whole.sum(axis + 1, dtype=g.dtype).reshape(x.shape)


def _repeat_grad_compute(params: RepeatAttrs, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    axis = normalize_axis(params.axis or 0, g.rank)
    k = te.reduce_axis(params.repeats, "r")
    size = x.shape[axis] if params.axis is not None else int(np.prod(x.shape, dtype=np.int64))

    def value(*i: te.Expr) -> te.Expr:
        return te.sum(g[changed(i, axis, i[axis] * params.repeats + k.var)], k)

    total = te.compute(changed(g.shape, axis, size), value)
    return total if params.axis is not None else reindexed(total, x.shape)


_summing(
    "_repeat_grad",
    "The sum of a gradient over the copies that repeat made.",
    RepeatAttrs,
    _repeat_shape,
    _repeat_grad_reference,
    _repeat_grad_compute,
    lambda p, g: F.repeat(g, **attributes(p)),
)
