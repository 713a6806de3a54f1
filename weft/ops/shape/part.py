"""A regular part of a tensor, which may be empty, and its transpose: what basic indexing takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.errors import ShapeError
from ...base.shape import Shape, mul_dims, show
from ...core.schema import EXTENTS, INTS, attr, schema
from .._families import INJECTIVE, F, attributes, backward, define, first_dtype, holomorphic, shape_of_second
from .views import reindexed


@schema
class PartAttrs:
    start: tuple[int, ...] = attr(EXTENTS, "the first index along each axis", low=0)
    length: tuple[int, ...] = attr(EXTENTS, "how many indices along each axis", low=0)
    step: tuple[int, ...] = attr(INTS, "from one index to the next, along each axis", low=1)
    shape: tuple[int, ...] = attr(EXTENTS, "what the part is seen as", low=0)


def _check(params: PartAttrs, shape: Shape) -> None:
    """Raises when the part is not inside a tensor of that shape, as far as it is known in numbers."""
    seen, taken = mul_dims(*params.shape), mul_dims(*params.length)
    if isinstance(seen, int) and isinstance(taken, int) and seen != taken:
        raise ShapeError(f"a part of {show(params.length)} cannot become {show(params.shape)}")
    if shape is None:
        return
    rows = (params.start, params.length, params.step)
    if any(len(row) != len(shape) for row in rows):
        raise ShapeError(f"a part of {show(shape)} needs its bounds along {len(shape)} axes")
    for start, length, step, dim in zip(*rows, shape):
        is_known = all(isinstance(number, int) for number in (start, length, dim))
        if is_known and length and start + (length - 1) * step >= dim:  # type: ignore[operator]
            raise ShapeError(
                f"{length} indices from {start} by {step} are not in {dim}", why=f"the data has shape {show(shape)}"
            )


def _slices(params: PartAttrs) -> tuple[slice, ...]:
    return tuple(
        slice(start, start + length * step, step)
        for start, length, step in zip(params.start, params.length, params.step)
    )


def _part_shape(params: PartAttrs, ins: Any, outs: Any) -> Any:
    _check(params, ins[0])
    return [None], [params.shape]


def part_view(params: PartAttrs, x: Any) -> Any:
    """The part of an array, without a copy where its shape allows that."""
    _check(params, x.shape)
    return x[_slices(params)].reshape(params.shape)


def _part_reference(params: PartAttrs, x: Any) -> Any:
    return part_view(params, x).copy()


def _part_compute(params: PartAttrs, x: te.Tensor) -> te.Tensor:
    def value(*i: Any) -> Any:
        return x[tuple(at * s + b for at, s, b in zip(i, params.step, params.start))]

    return reindexed(te.compute(params.length, value), params.shape)


part = define(
    "part",
    "data[start : start + length step : step] along each axis, in a shape with as many elements.",
    level=4,
    attrs=PartAttrs,
    pattern=INJECTIVE,
    shape=_part_shape,
    reference=_part_reference,
    views=lambda params, x: [part_view(params, x)],
    compute=_part_compute,
    gradient=lambda ctx, g: [F._part_grad(g, ctx.inputs[0], **attributes(ctx.params))],
    complex_gradient=holomorphic,
)


def _part_grad_shape(params: PartAttrs, ins: Any, outs: Any) -> Any:
    inferred = shape_of_second(params, ins, outs)
    _check(params, inferred[1][0])
    return [params.shape, inferred[0][1]], inferred[1]


def _part_grad_reference(params: PartAttrs, g: Any, x: Any) -> Any:
    grad = np.zeros(x.shape, g.dtype)
    grad[_slices(params)] = g.reshape(params.length)
    return grad


def _part_grad_compute(params: PartAttrs, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    source = reindexed(g, params.length)

    def value(*i: Any) -> Any:
        places, inside = [], []
        for at, start, length, step in zip(i, params.start, params.length, params.step):
            offset = at - start
            inside += [at >= start, at < start + length * step]
            inside += [(offset % step).equal(0)] if step > 1 else []
            places.append(offset // step)
        return te.read_or(source, places, te.all_of(inside), 0)

    if 0 in x.shape or 0 in params.length:
        return te.compute(x.shape, lambda *i: te.const(0, g.dtype))
    return te.compute(x.shape, value)


part_grad = backward(
    "_part_grad",
    "A gradient where the part was taken, 0 elsewhere.",
    attrs=PartAttrs,
    pattern=INJECTIVE,
    shape=_part_grad_shape,
    dtype=first_dtype,
    reference=_part_grad_reference,
    compute=_part_grad_compute,
    gradient=lambda ctx, g: [F.part(g, **attributes(ctx.params)), None],
    complex_gradient=holomorphic,
)
