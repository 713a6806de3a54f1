"""Operators that take a regular part of a tensor."""

from __future__ import annotations

from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.errors import InvalidValue, ShapeError
from ...base.extents import Extent, Untold, ceil_div, greatest, least
from ...base.shape import Dim, normalize_axis, show
from ...core.schema import EXTENTS, INTS, Params, attr, schema
from .. import _layouts as layouts
from .._families import (
    INJECTIVE,
    Array,
    F,
    Inferred,
    Shapes,
    attributes,
    backward,
    backward_shape,
    define,
    first_dtype,
    holomorphic,
    shape_of_second,
)


@schema
class StridedSliceAttrs:
    begin: tuple[int, ...] = attr(EXTENTS, "the first index along each axis; negative from the end")
    end: tuple[int, ...] = attr(EXTENTS, "the index before which to stop, along each axis")
    stride: tuple[int, ...] = attr(EXTENTS, "from one index to the next; 1 if left out", default=())


def _bounds(params: StridedSliceAttrs, rank: int) -> list[tuple[int, int | None, int]]:
    """Begin, end (None for all) and stride along each axis."""
    count = max(len(params.begin), len(params.end), len(params.stride))
    if count > rank:
        raise ShapeError(f"a slice along {count} axes of {rank} dimensions")
    if 0 in params.stride:
        raise InvalidValue("the stride of a slice is 0")
    rows = []
    for axis in range(rank):
        begin = params.begin[axis] if axis < len(params.begin) else 0
        end = params.end[axis] if axis < len(params.end) else None
        rows.append((begin, end, params.stride[axis] if axis < len(params.stride) else 1))
    return rows


def taken_indices(params: StridedSliceAttrs, shape: Any) -> list[range]:
    """The indices taken along each axis."""
    return [
        range(*slice(begin, end, stride).indices(dim))
        for (begin, end, stride), dim in zip(_bounds(params, len(shape)), shape)
    ]


_WHOLE = 2**31 - 1  # from here on a bound is beyond the last element, whatever the extent


def _slice_dim(begin: Dim, end: Dim, stride: Dim, dim: Dim) -> Dim:
    """How many indices a slice takes along an axis, where an expression is among its bounds."""
    if isinstance(end, int) and end >= _WHOLE and isinstance(stride, int) and stride > 0:
        end = None
    if dim is None or not isinstance(stride, int) or begin is None:
        return dim if (begin, end, stride) == (0, None, 1) else None
    back = stride < 0
    try:
        extent = Extent.of(dim)
        first = _clipped(begin, extent, back)
        last = extent * (not back) - back if end is None else _clipped(end, extent, back)
        return greatest(0, ceil_div(first - last if back else last - first, abs(stride))).dim
    except Untold:
        return None


def _clipped(place: int | str, extent: Extent, back: bool) -> Extent:
    """Where a bound of a slice stands, as slice.indices says."""
    low, high = Extent.of(-int(back)), extent - back
    if isinstance(place, int) and abs(place) >= _WHOLE:
        return high if place > 0 else low
    at = Extent.of(place)
    return greatest(at + extent, low) if at < 0 else least(at, high)


def _strided_slice_shape(params: StridedSliceAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return [None], [None]
    rows = _bounds(params, len(ins[0]))
    dims: list[Dim] = []
    for axis, dim in enumerate(ins[0]):
        begin, end, stride = rows[axis]
        if isinstance(dim, int) and all(isinstance(bound, (int, NoneType)) for bound in rows[axis]):
            rest = () if end is None else (end,)
            one = StridedSliceAttrs(begin=(begin,), end=rest, stride=(stride,))
            dims.append(len(taken_indices(one, (dim,))[0]))
        else:
            dims.append(_slice_dim(begin, end, stride, dim))
    return [None], [tuple(dims)]


class _Taken(NamedTuple):
    """Indices start, start + step, ...: so many."""

    start: Any
    step: int
    count: Any


def _taken(begin: Any, end: Any, step: Any, dim: Any) -> _Taken:
    """The indices taken along an axis, where a size may be an argument."""
    if not any(map(te.is_open, (begin, end, dim))) or te.is_open(step) or step < 0:
        indices = range(*slice(begin, end, step).indices(dim))
        return _Taken(indices.start, indices.step, len(indices))
    start, stop = (_placed(bound, dim) for bound in (begin, dim if end is None else end))
    if type(start) is int and start == 0 and step == 1:
        return _Taken(0, 1, stop)
    return _Taken(start, step, te.greater(0, (stop - start + (step - 1)) // step))


def _placed(bound: Any, dim: Any) -> Any:
    """Where a bound stands, cut off at the ends of an axis."""
    if bound is dim or (not te.is_open(bound) and (bound == 0 or bound >= _WHOLE)):
        return dim if bound is dim or bound else 0
    return te.greater(bound + dim, 0) if bound < 0 else te.lesser(bound, dim)


def _strided_slice_compute(params: StridedSliceAttrs, x: te.Tensor) -> te.Tensor:
    taken = [_taken(*bounds, dim) for bounds, dim in zip(_bounds(params, x.rank), x.shape)]

    def value(*i: te.Expr) -> te.Expr:
        return x[tuple(at * axis.step + axis.start for at, axis in zip(i, taken))]

    return te.compute([axis.count for axis in taken], value)


strided_slice = define(
    "strided_slice",
    "data[begin:end:stride] along each axis, as Python's slices: negative numbers count from the "
    "end, and what is outside is cut off.",
    level=1,
    attrs=StridedSliceAttrs,
    pattern=INJECTIVE,
    shape=_strided_slice_shape,
    layout=layouts.fixed_copy,
)
strided_slice.reference = lambda p, x: x[np.ix_(*taken_indices(p, x.shape))] if x.ndim else x.copy()
strided_slice.compute = _strided_slice_compute
strided_slice.complex_gradient = holomorphic
strided_slice.gradient = lambda ctx, g: [F._strided_slice_grad(g, ctx.inputs[0], **attributes(ctx.params))]


def _strided_slice_grad_reference(params: StridedSliceAttrs, g: Array, x: Array) -> Array:
    grad = np.zeros(x.shape, g.dtype)
    if x.ndim:
        grad[np.ix_(*taken_indices(params, x.shape))] = g
        return grad
    return g.copy()


def _strided_slice_grad_compute(params: StridedSliceAttrs, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    taken = taken_indices(params, x.shape)

    def value(*i: te.Expr) -> te.Expr:
        places, inside = [], []
        for at, indices in zip(i, taken):
            low, step = min(indices[0], indices[-1]), abs(indices.step)
            offset = at - low
            place = offset // step
            inside += [at >= low, at <= max(indices[0], indices[-1])]
            inside += [(offset % step).equal(0)] if step > 1 else []
            places.append(place if indices.step > 0 else len(indices) - 1 - place)
        return te.read_or(g, places, te.all_of(inside), 0)

    if 0 in x.shape or not all(taken):
        return te.compute(x.shape, lambda *i: te.const(0, g.dtype))
    return te.compute(x.shape, value)


strided_slice_grad = backward(
    "_strided_slice_grad",
    "A gradient where the slice was taken, 0 elsewhere.",
    pattern=INJECTIVE,
    dtype=first_dtype,
    attrs=StridedSliceAttrs,
    shape=backward_shape(_strided_slice_shape),
    reference=_strided_slice_grad_reference,
    compute=_strided_slice_grad_compute,
)
strided_slice_grad.complex_gradient = holomorphic
strided_slice_grad.gradient = lambda ctx, g: [F.strided_slice(g, **attributes(ctx.params)), None]


@schema
class SliceLikeAttrs:
    axis: tuple[int, ...] = attr(INTS, "the axes to cut; () for all that both have", default=())


def _like_axes(params: SliceLikeAttrs, rank: int, like: int) -> list[int]:
    if not params.axis:
        return list(range(min(rank, like)))
    axes = [normalize_axis(axis, rank) for axis in params.axis]
    for axis in axes:
        normalize_axis(axis, like)
    return axes


def _slice_like_shape(params: SliceLikeAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, like = ins
    if data is None or like is None:
        return [None, None], [None]
    dims = list(data)
    for axis in _like_axes(params, len(data), len(like)):
        have, want = data[axis], like[axis]
        if isinstance(have, int) and isinstance(want, int) and want > have:
            raise ShapeError(f"axis {axis} of shape {show(data)} cannot be cut to that of {show(like)}")
        dims[axis] = want
    return [None, None], [tuple(dims)]


def _cut_shape(params: SliceLikeAttrs, x: Array | te.Tensor, like: Array | te.Tensor) -> Any:
    return _slice_like_shape(params, [x.shape, like.shape], [None])[1][0]


slice_like = define(
    "slice_like",
    "The first elements of data along axes, as many as another tensor has.",
    level=4,
    inputs={"data": "what to cut", "slice_like": "has the wanted sizes"},
    attrs=SliceLikeAttrs,
    pattern=INJECTIVE,
    shape=_slice_like_shape,
    dtype=first_dtype,
    ignored_inputs=[1],
)
slice_like.reference = lambda p, x, like: x[tuple(map(slice, _cut_shape(p, x, like)))].copy()
slice_like.compute = lambda p, x, like: te.compute(_cut_shape(p, x, like), lambda *i: x[i])
slice_like.complex_gradient = holomorphic
slice_like.gradient = lambda ctx, g: [F._slice_like_grad(g, ctx.inputs[0]), None]


def _slice_like_grad_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    _, (data,) = inferred = shape_of_second(params, ins, outs)
    g = ins[0]
    if g is not None and data is not None:
        larger = [a for a, b in zip(g, data) if isinstance(a, int) and isinstance(b, int) and a > b]
        if len(g) != len(data) or larger:
            raise ShapeError(f"a slice of {show(data)} cannot have shape {show(g)}")
    return inferred


def _slice_like_grad_reference(g: Array, x: Array) -> Array:
    grad = np.zeros(x.shape, g.dtype)
    grad[tuple(map(slice, g.shape))] = g
    return grad


def _slice_like_grad_compute(g: te.Tensor, x: te.Tensor) -> te.Tensor:
    def value(*i: te.Expr) -> te.Expr:
        inside = [at < dim for at, dim, wide in zip(i, g.shape, x.shape) if dim < wide]
        return te.read_or(g, i, te.all_of(inside), 0)

    return te.compute(x.shape, value)


slice_like_grad = backward(
    "_slice_like_grad",
    "A gradient followed by zeros, to the shape of data.",
    pattern=INJECTIVE,
    dtype=first_dtype,
    shape=_slice_like_grad_shape,
    reference=_slice_like_grad_reference,
    compute=_slice_like_grad_compute,
)
slice_like_grad.complex_gradient = holomorphic
slice_like_grad.gradient = lambda ctx, g: [F.slice_like(g, ctx.inputs[0]), None]
