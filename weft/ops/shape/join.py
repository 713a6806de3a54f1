"""Operators that put tensors together along an axis, take them apart, and repeat them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ... import te
from ...base.errors import InvalidValue, ShapeError
from ...base.shape import (
    Dim,
    Ranked,
    Shape,
    StaticShape,
    add_dims,
    all_numbers,
    floor_div_dims,
    normalize_axis,
    show,
    sub_dims,
    unify,
)
from ...core.op import VARIADIC
from ...core.schema import EXTENTS, INT, Kind, attr, schema
from .. import _layouts as layouts
from .._families import INJECTIVE, Array, F, Inferred, Shapes, changed, define, first_dtype, holomorphic


def _variadic(name: str, doc: str, what: str, **columns: Any) -> Any:
    op = define(name, doc, inputs={}, pattern=INJECTIVE, **columns)
    return op.set_num_inputs(VARIADIC).add_argument("data", "Tensors", what)


# Along an axis that is there.


@schema
class ConcatenateAttrs:
    axis: int = attr(INT, "along which axis; negative ones count from the end", default=1)


def _concatenate_shape(params: ConcatenateAttrs | ConcatenateGradAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if not ins:
        raise ShapeError("concatenate has no inputs")
    rank = next((len(shape) for shape in (*ins, *outs) if shape is not None), None)
    if rank is None:
        return [None] * len(ins), [None]
    axis = normalize_axis(params.axis, rank)
    others: Ranked = (None,) * rank
    for index, shape in enumerate((*ins, *outs)):
        others = _same_but(others, shape, axis, index)
    parts = [unify(changed(others, axis, None), shape) for shape in ins]
    total = add_dims(*(shape[axis] for shape in parts))
    if outs[0] is not None:
        parts, total = _last_part(parts, axis, outs[0][axis], total), _or(total, outs[0][axis])
    return parts, [changed(others, axis, total)]


def _or(total: Dim, known: Dim) -> Dim:
    return known if total is None else total


def _same_but(others: Ranked, shape: Shape, axis: int, index: int) -> Ranked:
    """What is known about the dimensions that all inputs share."""
    try:
        return others if shape is None else unify(others, _masked(shape, axis))
    except ShapeError as error:
        raise ShapeError(
            f"input {index} of concatenate has shape {show(shape)}",
            why=f"the others are {show(others)}, and only axis {axis} may differ",
        ) from error


def _masked(shape: Ranked, axis: int) -> Ranked:
    return changed(shape, axis, None) if axis < len(shape) else shape


def _last_part(ins: list[Any], axis: int, total: Dim, known: Dim) -> list[Any]:
    """If one input's size is all that is unknown, it is what the others leave."""
    unknown = [i for i, shape in enumerate(ins) if shape[axis] is None]
    sizes = [shape[axis] for shape in ins if shape[axis] is not None]
    if len(unknown) == 1 and isinstance(total, int) and all(isinstance(s, int) for s in sizes):
        if total < sum(sizes):
            raise ShapeError(f"concatenate of {sum(sizes)} elements or more gives {total}")
        ins[unknown[0]] = changed(ins[unknown[0]], axis, total - sum(sizes))
    return ins


def _concatenate_compute(params: ConcatenateAttrs, *xs: te.Tensor) -> te.Tensor:
    axis = normalize_axis(params.axis, xs[0].rank)
    total = sum(x.shape[axis] for x in xs)

    def value(*i: te.Expr) -> te.Expr:
        taken: Any = te.const(0, xs[0].dtype)
        start = total
        for x in reversed(xs):
            start -= x.shape[axis]
            if x.shape[axis]:
                inside = (i[axis] >= start) & (i[axis] < start + x.shape[axis])
                taken = te.read_or(x, changed(i, axis, i[axis] - start), inside, taken)
        return taken

    return te.compute(changed(xs[0].shape, axis, total), value)


concatenate = _variadic(
    "concatenate",
    "Tensors one after another along an axis.",
    "the parts",
    level=1,
    attrs=ConcatenateAttrs,
    shape=_concatenate_shape,
    layout=layouts.concatenated,
)
concatenate.reference = lambda p, *xs: np.concatenate(xs, p.axis)
concatenate.compute = _concatenate_compute


def _concatenate_places(params: ConcatenateAttrs, shapes: Sequence[StaticShape]) -> list[tuple[int, ...]]:
    """Where each part begins in the whole."""
    axis = normalize_axis(params.axis, len(shapes[0]))
    starts = np.cumsum([0, *(shape[axis] for shape in shapes[:-1])]).tolist()
    return [changed((0,) * len(shapes[0]), axis, start) for start in starts]


concatenate.set_attr("FPlaces", _concatenate_places)


def _concatenate_gradient(ctx: Any, g: Any) -> list[Any]:
    if len(ctx.inputs) == 1:
        return [g]
    parts = F._concatenate_grad(g, *ctx.inputs, axis=ctx.params.axis, num_args=len(ctx.inputs))
    return [parts[index] for index in range(len(ctx.inputs))]


concatenate.complex_gradient = holomorphic
concatenate.gradient = _concatenate_gradient


@schema
class ConcatenateGradAttrs:
    axis: int = attr(INT, "along which axis", default=1)
    num_args: int = attr(INT, "how many parts there are", low=1)


def _concatenate_grad_shape(params: ConcatenateGradAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    parts, whole = _concatenate_shape(params, [unify(a, b) for a, b in zip(ins[1:], outs)], [ins[0]])
    return [whole[0], *parts], parts


def _starts(params: ConcatenateGradAttrs, xs: Sequence[Array | te.Tensor]) -> list[int]:
    sizes = [x.shape[normalize_axis(params.axis, len(x.shape))] for x in xs]
    return list(itertools.accumulate(sizes[:-1], initial=0))


def part_views(params: ConcatenateGradAttrs, g: Array, *xs: Array) -> list[Array]:
    """What belongs to each part, as views of a gradient of the whole."""
    axis = normalize_axis(params.axis, g.ndim)
    return [
        g[(slice(None),) * axis + (slice(start, start + x.shape[axis]),)] for start, x in zip(_starts(params, xs), xs)
    ]


def _concatenate_grad_reference(params: ConcatenateGradAttrs, g: Array, *xs: Array) -> tuple[Array, ...]:
    return tuple(view.copy() for view in part_views(params, g, *xs))


def _part(g: te.Tensor, axis: int, start: int, shape: Sequence[int]) -> te.Tensor:
    return te.compute(shape, lambda *i: g[changed(i, axis, i[axis] + start)])


def _concatenate_grad_compute(params: ConcatenateGradAttrs, g: te.Tensor, *xs: te.Tensor) -> tuple[te.Tensor, ...]:
    axis = normalize_axis(params.axis, g.rank)
    return tuple(_part(g, axis, start, x.shape) for start, x in zip(_starts(params, xs), xs))


concatenate_grad = define(
    "_concatenate_grad",
    "The parts of a gradient that belong to the inputs of concatenate.",
    inputs={},
    attrs=ConcatenateGradAttrs,
    pattern=INJECTIVE,
    shape=_concatenate_grad_shape,
    dtype=first_dtype,
)
concatenate_grad.set_num_inputs(lambda params: params.num_args + 1)
concatenate_grad.set_num_outputs(lambda params: params.num_args)
concatenate_grad.add_argument("ograd", "Tensor", "the gradient of the whole")
concatenate_grad.add_argument("data", "Tensors", "have the shapes of the parts")
concatenate_grad.ignored_inputs = lambda params: range(1, params.num_args + 1)
concatenate_grad.reference = _concatenate_grad_reference
concatenate_grad.views = part_views
concatenate_grad.compute = _concatenate_grad_compute
concatenate_grad.complex_gradient = holomorphic
concatenate_grad.gradient = lambda ctx, *gs: [F.concatenate(*_filled(ctx, gs), axis=ctx.params.axis), *[None] * len(gs)]


def _filled(ctx: Any, gs: Sequence[Any]) -> list[Any]:
    """Gradients of all outputs: zero for those that nothing depends on."""
    return [F.zeros_like(out) if g is None else g for g, out in zip(gs, ctx.outputs)]


def _parse_sections(text: str) -> int | tuple[int, ...]:
    """A bare number counts parts; a tuple says where parts begin."""
    return INT.parse(text) if text.strip()[:1].isdigit() else EXTENTS.parse(text)


def _print_sections(value: Any) -> str:
    return str(value) if isinstance(value, int) else EXTENTS.print(value)


SECTIONS = Kind("int or tuple of extents", _parse_sections, _print_sections, symbolic=True)


@schema
class SplitAttrs:
    indices_or_sections: int | tuple[int, ...] = attr(
        SECTIONS, "a number of equal parts, or where the parts after the first begin", low=0
    )
    axis: int = attr(INT, "along which axis", default=1)


def _num_parts(params: SplitAttrs) -> int:
    cuts = params.indices_or_sections
    return cuts if isinstance(cuts, int) else len(cuts) + 1


def _sizes(params: SplitAttrs, dim: Dim) -> list[Dim]:
    """How large the parts are."""
    cuts = params.indices_or_sections
    if isinstance(cuts, int):
        return _equal_sizes(cuts, dim)
    if not all_numbers(cuts):
        return [sub_dims(end, start) for start, end in pairwise((0, *cuts, dim))]
    if list(cuts) != sorted(cuts):
        raise InvalidValue(f"split at {cuts}", why="indices must be sorted ascending")
    if isinstance(dim, int) and cuts and cuts[-1] >= dim:
        raise ShapeError(
            f"split at {cuts} of a dimension of {dim}", why="the sum of sections must match the input.shape[axis]"
        )
    inner = [b - a for a, b in zip((0, *cuts), cuts)]
    start = cuts[-1] if cuts else 0
    return [*inner, sub_dims(dim, start)]


def _equal_sizes(parts: int, dim: Dim) -> list[Dim]:
    if parts < 1:
        raise InvalidValue(f"split into {parts} parts")
    if isinstance(dim, int) and dim % parts:
        raise ShapeError(f"a dimension of {dim} cannot be split into {parts} equal parts")
    return [floor_div_dims(dim, parts)] * parts


def _split_shape(params: SplitAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    rank = next((len(shape) for shape in (*ins, *outs) if shape is not None), None)
    if rank is None:
        return [None], [None] * len(outs)
    axis = normalize_axis(params.axis, rank)
    others: Ranked = (None,) * rank
    for shape in (*ins, *outs):
        others = others if shape is None else unify(others, _masked(shape, axis))
    dim = ins[0][axis] if ins[0] is not None else None
    parts = [shape[axis] if shape is not None else None for shape in outs]
    dim = _or(dim, add_dims(*parts))
    return [changed(others, axis, dim)], [changed(others, axis, s) for s in _sizes(params, dim)]


def part_ends(params: SplitAttrs, dim: int) -> list[Any]:
    """Where parts of an extent begin, and where the last one ends."""
    return list(itertools.accumulate(_sizes(params, dim), initial=0))


def split_views(params: SplitAttrs, x: Array) -> list[Array]:
    axis = normalize_axis(params.axis, x.ndim)
    head = (slice(None),) * axis
    return [x[(*head, slice(*ends))] for ends in pairwise(part_ends(params, x.shape[axis]))]


def _split_reference(params: SplitAttrs, x: Array) -> tuple[Array, ...]:
    return tuple(part.copy() for part in split_views(params, x))


def _split_compute(params: SplitAttrs, x: te.Tensor) -> tuple[te.Tensor, ...]:
    axis = normalize_axis(params.axis, x.rank)
    cuts = part_ends(params, x.shape[axis])
    return tuple(_part(x, axis, start, changed(x.shape, axis, end - start)) for start, end in pairwise(cuts))


split = define(
    "split", "The parts of a tensor along an axis.", level=3, attrs=SplitAttrs, pattern=INJECTIVE, shape=_split_shape
)
split.set_num_outputs(_num_parts)
split.reference = _split_reference
split.views = split_views
split.compute = _split_compute
split.complex_gradient = holomorphic
split.gradient = lambda ctx, *gs: [F.concatenate(*_filled(ctx, gs), axis=ctx.params.axis)]

# Along an axis that is new.


@schema
class StackAttrs:
    axis: int = attr(INT, "where the new axis goes", default=0)


def _stack_shape(params: StackAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if not ins:
        raise ShapeError("stack has no inputs")
    shape: Shape = None
    for known in ins:
        shape = unify(shape, known)
    if outs[0] is not None:
        axis = normalize_axis(params.axis, len(outs[0]))
        shape = unify(shape, (*outs[0][:axis], *outs[0][axis + 1 :]))
    if shape is None:
        return [None] * len(ins), [None]
    axis = normalize_axis(params.axis, len(shape) + 1)
    return [shape] * len(ins), [(*shape[:axis], len(ins), *shape[axis:])]


def _stack_compute(params: StackAttrs, *xs: te.Tensor) -> te.Tensor:
    axis = normalize_axis(params.axis, xs[0].rank + 1)

    def value(*i: te.Expr) -> te.Expr:
        at = (*i[:axis], *i[axis + 1 :])
        taken = xs[-1][at]
        for number in range(len(xs) - 2, -1, -1):
            taken = te.select(i[axis].equal(number), xs[number][at], taken)
        return taken

    return te.compute((*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:]), value)


stack = _variadic(
    "stack", "Tensors of one shape along a new axis.", "the slices", level=5, attrs=StackAttrs, shape=_stack_shape
)
stack.reference = lambda p, *xs: np.stack(xs, p.axis)
stack.compute = _stack_compute


def _stack_gradient(ctx: Any, g: Any) -> list[Any]:
    count, axis = len(ctx.inputs), ctx.params.axis
    if count == 1:
        return [F.reshape_like(g, ctx.inputs[0])]
    parts = F.split(g, indices_or_sections=count, axis=axis)
    return [F.reshape_like(parts[i], x) for i, x in enumerate(ctx.inputs)]


stack.complex_gradient = holomorphic
stack.gradient = _stack_gradient
