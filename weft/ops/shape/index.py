"""Operators that read elements at positions given by another tensor, or choose between two.

An index below zero counts from the end; one that is still outside is moved to the nearest element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL, DType, dtype_name, is_integer
from ...base.errors import DTypeError, ShapeError
from ...base.shape import Dim, Shape, StaticShape, normalize_axis, show, unify
from ...core.infer import unify_dtype
from ...core.op import Op
from ...core.schema import INT, Params, attr, choice, optional, schema
from .._families import (
    INJECTIVE,
    Array,
    Dtypes,
    F,
    Inferred,
    Shapes,
    backward_shape,
    changed,
    define,
    holomorphic,
    known,
)
from .._kernels import Body, Rows, Written, add_rows, along, each_block, rows_of, unravelled, wide_dtype
from .views import reindexed

DATA_INDICES = {"data": "what to read from", "indices": "integers that say where"}


def _indexed_dtype(position: int) -> Any:
    """The output has the dtype of the first input; the one at `position` is of integers."""

    def rule(params: Any, ins: Sequence[DType | None], outs: Sequence[DType | None]) -> Any:
        index = ins[position]
        if index is not None and not is_integer(index):
            raise DTypeError(f"indices are {dtype_name(index)}", hint="cast them to int32")
        dtype = unify_dtype(ins[0], outs[0])
        return [dtype, *[None] * (len(ins) - 1)], [dtype]

    return rule


def _clip(index: Any, extent: int) -> Any:
    """Positions as numpy integers within the extent."""
    wide = index.astype(np.int64, copy=False)
    if wide.size and wide.min() >= 0 and wide.max() < extent:
        return wide
    return np.clip(np.where(wide < 0, wide + extent, wide), 0, max(extent - 1, 0))


def _within(index: te.Expr, extent: int) -> te.Expr:
    """The same of an expression."""
    wide = te.cast(index, "int64")
    return te.min(te.max(te.select(wide < 0, wide + extent, wide), 0), extent - 1)


def _must_hold(extent: Dim, indices: Shape) -> None:
    """Raises when there is nothing to read, and something is asked for."""
    if extent == 0 and indices is not None and all(isinstance(d, int) and d for d in indices):
        raise ShapeError(f"indices of shape {show(indices)} into an axis without elements")


def _gathering(name: str, doc: str, **columns: Any) -> Any:
    return define(
        name, doc, inputs=columns.pop("inputs", DATA_INDICES), pattern=INJECTIVE, dtype=_indexed_dtype(1), **columns
    )


def _scattering(name: str, doc: str, forward: Any, **columns: Any) -> Any:
    """A gradient: sums what came from each element of data; `forward` is the shape rule of what
    took the elements."""
    inputs = {"ograd": "the gradient", "data": "has the wanted shape", "indices": "where"}
    return define(
        name,
        doc,
        inputs=inputs,
        named=False,
        shape=backward_shape(forward),
        dtype=_indexed_dtype(2),
        ignored_inputs=[1],
        open_body=True,
        **columns,
    )


def _row_within(b: te.KernelBuilder, index: te.Expr, extent: int) -> te.Expr:
    return b.let("row", _within(index, extent))


# Along one axis.


@schema
class TakeAttrs:
    axis: int | None = attr(optional(INT), "along which axis; None for the flattened data", default=None)


@schema
class GatherAttrs:
    axis: int = attr(INT, "along which axis", default=0)


def _take_shape(params: TakeAttrs | GatherAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, indices = ins
    if params.axis is None:
        if data is not None and 0 in data:
            _must_hold(0, indices)
        return [None, unify(indices, outs[0])], [indices]
    if data is None or indices is None:
        return [None, None], [None]
    axis = normalize_axis(params.axis, len(data))
    _must_hold(data[axis], indices)
    return [None, None], [(*data[:axis], *indices, *data[axis + 1 :])]


def _take_reference(params: TakeAttrs | GatherAttrs, x: Array, indices: Array) -> Array:
    extent = x.size if params.axis is None else x.shape[params.axis]
    if not extent:
        _must_hold(0, indices.shape)
        shape = _take_shape(params, [x.shape, indices.shape], [None])[1][0]
        return np.zeros(shape, x.dtype)
    if indices.size and indices.min() < 0:
        indices = np.where(indices < 0, indices.astype(np.int64) + extent, indices)
    return np.take(x, indices, params.axis, mode="clip")


def _flat(x: te.Tensor) -> te.Tensor:
    return reindexed(x, (math.prod(x.shape),))


def _take_compute(params: TakeAttrs | GatherAttrs, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    if params.axis is None:
        flat = _flat(x)
        return te.compute(indices.shape, lambda *i: flat[_within(indices[i], math.prod(x.shape))])
    axis = normalize_axis(params.axis, x.rank)
    end = axis + indices.rank
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])

    def value(*i: te.Expr) -> te.Expr:
        place = _within(indices[i[axis:end]], x.shape[axis])
        return x[(*i[:axis], place, *i[end:])]

    return te.compute(shape, value)


def _take_gradient(ctx: Any, g: Any) -> list[Any]:
    return [F._take_grad(g, *ctx.inputs, axis=ctx.params.axis), None]


def _taking(name: str, doc: str, level: int, attrs: type, **columns: Any) -> Op:
    return _gathering(
        name,
        doc,
        level=level,
        attrs=attrs,
        shape=_take_shape,
        reference=_take_reference,
        compute=_take_compute,
        gradient=_take_gradient,
        complex_gradient=holomorphic,
        **columns,
    )


take = _taking(
    "take",
    "Elements of data, or its slices along an axis, at the indices. Negative ones count "
    "from the end; one beyond an end takes the element there.",
    3,
    TakeAttrs,
    named=False,
    native_from=512,
)
gather = _taking("gather", "Slices of data along an axis, at the indices.", 5, GatherAttrs)


def _take_grad_reference(params: TakeAttrs, g: Array, x: Array, indices: Array) -> Array:
    grad = np.zeros(x.shape, wide_dtype(g.dtype))
    if params.axis is None and grad.size:
        np.add.at(grad.reshape(-1), _clip(indices, x.size).reshape(-1), g.reshape(-1))
    elif params.axis is not None and grad.size:
        axis = normalize_axis(params.axis, x.ndim)
        np.add.at(grad, (slice(None),) * axis + (_clip(indices, x.shape[axis]),), g)
    return grad.astype(g.dtype)


def _take_grad_kernels(params: TakeAttrs, inputs: Any, outputs: Any) -> list[Written]:
    (_, _, (where, _)), ((shape, _),) = inputs, outputs
    rows = Rows(1, math.prod(shape), 1) if params.axis is None else rows_of(shape, params.axis)
    body = Body("take_grad", inputs, outputs)
    count = math.prod(where)
    places = lambda b, k, indices: [(_row_within(b, indices[k], rows.extent), None)]
    add_rows(body, 0, 3, count, rows, places, {2: (count,)})
    return body.kernels


take_grad = _scattering(
    "_take_grad",
    "The gradient of take and gather.",
    _take_shape,
    attrs=TakeAttrs,
    reference=_take_grad_reference,
    kernels=_take_grad_kernels,
    native_from=512,
)
take_grad.complex_gradient = holomorphic
take_grad.gradient = lambda ctx, g: [F.take(g, ctx.inputs[2], axis=ctx.params.axis), None, None]

# Along several axes at once.


def _gather_nd_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    data, indices = ins
    if indices is not None and len(indices) < 2:
        raise ShapeError(
            f"indices of gather_nd have shape {show(indices)}",
            why="the first axis lists coordinates, so at least two axes are needed",
        )
    if data is None or indices is None or not isinstance(indices[0], int):
        return [None, None], [None]
    if indices[0] > len(data):
        raise ShapeError(f"{indices[0]} coordinates into shape {show(data)}")
    if 0 in data[: indices[0]]:
        _must_hold(0, indices[1:])
    return [None, None], [(*indices[1:], *data[indices[0] :])]


def _gather_nd_places(x: Array, indices: Array) -> tuple[Array, ...]:
    return tuple(_clip(row, dim) for row, dim in zip(indices, x.shape))


def row_numbers(shape: StaticShape, indices: Array) -> Array:
    """The numbers of the rows that columns of coordinates name."""
    numbers = _clip(indices[0], shape[0])
    for row, extent in zip(indices[1:], shape[1:]):
        numbers = numbers * extent + _clip(row, extent)
    return numbers


def _gather_nd_reference(x: Array, indices: Array) -> Array:
    shape = _gather_nd_shape(None, [x.shape, indices.shape], [None])[1][0]
    if not math.prod(shape):
        return np.zeros(shape, x.dtype)
    if not len(indices):
        return np.broadcast_to(x, shape).copy()
    if not x.flags.c_contiguous:
        return np.ascontiguousarray(x[_gather_nd_places(x, indices)])
    rows = x.reshape(-1, *x.shape[len(indices) :])
    return np.take(rows, row_numbers(x.shape, indices), 0, mode="clip")


def _gather_nd_compute(x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    count, rest = indices.shape[0], indices.rank - 1

    def value(*i: te.Expr) -> te.Expr:
        places = [_within(indices[(c, *i[:rest])], x.shape[c]) for c in range(count)]
        return x[(*places, *i[rest:])]

    return te.compute((*indices.shape[1:], *x.shape[count:]), value)


gather_nd = _gathering(
    "gather_nd",
    "out[i...] = data[indices[0, i...], indices[1, i...], ...]",
    level=3,
    shape=_gather_nd_shape,
    reference=_gather_nd_reference,
    compute=_gather_nd_compute,
)
gather_nd.complex_gradient = holomorphic
gather_nd.gradient = lambda ctx, g: [F._gather_nd_grad(g, *ctx.inputs), None]


def _gather_nd_grad_reference(g: Array, x: Array, indices: Array) -> Array:
    grad = np.zeros(x.shape, wide_dtype(g.dtype))
    if g.size and len(indices):
        np.add.at(grad, _gather_nd_places(x, indices), g)
    elif g.size:
        grad = g.sum(tuple(range(indices.ndim - 1)), dtype=grad.dtype)
    return grad.astype(g.dtype)


def _nd_rows(shape: StaticShape, where: StaticShape) -> tuple[Rows, Callable[..., te.Expr]]:
    """Data as rows that `count` coordinates choose from, and a function to the chosen row."""
    rows = Rows(1, math.prod(shape[: where[0]]), math.prod(shape[where[0] :]))

    def place(b: te.KernelBuilder, k: te.Expr, indices: te.Buffer) -> te.Expr:
        flat: Any = te.const(0, "int64")
        for c, extent in enumerate(shape[: where[0]]):
            flat = flat * extent + _within(indices[c, k], extent)
        return b.let("row", flat)

    return rows, place


def _gather_nd_grad_kernels(inputs: Any, outputs: Any) -> list[Written]:
    (_, _, (where, _)), ((shape, _),) = inputs, outputs
    rows, place = _nd_rows(shape, where)
    body = Body("gather_nd_grad", inputs, outputs)
    count = math.prod(where[1:])
    add_rows(body, 0, 3, count, rows, lambda *at: [(place(*at), None)], {2: (where[0], count)})
    return body.kernels


gather_nd_grad = _scattering(
    "_gather_nd_grad",
    "The gradient of gather_nd.",
    _gather_nd_shape,
    reference=_gather_nd_grad_reference,
    kernels=_gather_nd_grad_kernels,
    native_from=512,
)
gather_nd_grad.complex_gradient = holomorphic
gather_nd_grad.gradient = lambda ctx, g: [F.gather_nd(g, ctx.inputs[2]), None, None]


def _scatter_nd_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    data, indices, updates = unify(ins[0], outs[0]), ins[1], ins[2]
    if known(data, indices):
        updates = unify(updates, _gather_nd_shape(params, [data, indices], [None])[1][0])
    return [data, None, updates], [data]


def _scatter_nd_dtype(params: Params, ins: Dtypes, outs: Dtypes) -> Inferred:
    dtype = unify_dtype(unify_dtype(ins[0], ins[2]), outs[0])
    _indexed_dtype(1)(params, ins, outs)
    return [dtype, None, dtype], [dtype]


def _scatter_nd_reference(x: Array, indices: Array, updates: Array) -> Array:
    out = np.array(x, order="C")
    if not updates.size:
        return out
    rest = x.shape[len(indices) :]
    if not len(indices):
        out[...] = updates.reshape(-1, *rest)[-1]
        return out
    numbers = row_numbers(x.shape, indices).reshape(-1)  # in order, so that the last one stays
    out.reshape(-1, *rest)[numbers] = updates.reshape(-1, *rest)
    return out


def _scatter_nd_kernels(inputs: Any, outputs: Any) -> list[Written]:
    return _updated("scatter_nd", inputs, outputs, lambda old, new: new)


def _updated(name: str, inputs: Any, outputs: Any, combined: Callable[[Any, Any], te.Expr]) -> list[Written]:
    """A copy of data, in which `combined(what is there, an update)` takes the place of what is there."""
    ((shape, _), (where, _), _) = inputs
    rows, place = _nd_rows(shape, where)
    count = math.prod(where[1:])
    body = Body(name, inputs, outputs)
    views = {0: rows, 1: (where[0], count), 2: (1, count, rows.inner), 3: rows}
    kernel = body.kernel(views, math.prod(shape) + count * rows.inner)
    with kernel as (b, x, indices, updates, out), each_block(b, rows) as (o, first):
        with b.loop("row", rows.extent) as row, along(b, rows) as i:
            b.store(out, (o, row, first + i), x[o, row, first + i])
        with b.loop("k", count) as k:  # in order, so that the last one stays
            row = place(b, k, indices)
            with along(b, rows) as i:
                b.store(out, (o, row, first + i), combined(out[o, row, first + i], updates[o, k, first + i]))
    return body.kernels


scatter_nd = define(
    "scatter_nd",
    "A copy of data in which data[indices[0, i...], indices[1, i...], ...] = updates[i...]. Of "
    "several updates of one place the last stays; its gradient goes to all of them.",
    level=5,
    inputs={**DATA_INDICES, "updates": "the new values"},
    shape=_scatter_nd_shape,
    dtype=_scatter_nd_dtype,
)
scatter_nd.reference = _scatter_nd_reference
scatter_nd.kernels = _scatter_nd_kernels
scatter_nd.open_body = True
scatter_nd.complex_gradient = holomorphic
scatter_nd.gradient = lambda ctx, g: [
    F.scatter_nd(g, ctx.inputs[1], F.zeros_like(ctx.inputs[2])),
    None,
    F.gather_nd(g, ctx.inputs[1]),
]


@schema
class ScatterReduceAttrs:
    reduction: str = attr(choice("add", "mul", "max", "min"), "how an update and what is there become one")


_SCATTERED = {
    "add": (np.add, lambda x, y: x + y),
    "mul": (np.multiply, lambda x, y: x * y),
    "max": (np.maximum, te.max),
    "min": (np.minimum, te.min),
}


def _scatter_reduce_reference(params: ScatterReduceAttrs, x: Array, indices: Array, updates: Array) -> Array:
    out = np.array(x, order="C")
    rest, count = x.shape[len(indices) :], math.prod(indices.shape[1:])
    if updates.size:
        numbers = row_numbers(x.shape, indices).reshape(-1) if len(indices) else np.zeros(count, np.int64)
        _SCATTERED[params.reduction][0].at(out.reshape(-1, *rest), numbers, updates.reshape(-1, *rest))
    return out


scatter_nd_reduce = define(
    "scatter_nd_reduce",
    "A copy of data in which each updates[i...] is added to data[indices[0, i...], indices[1, i...], ...], or is "
    "multiplied with it, or replaces it where it is larger, or smaller; one after the other.",
    level=5,
    inputs={**DATA_INDICES, "updates": "what comes to the values that are there"},
    attrs=ScatterReduceAttrs,
    shape=_scatter_nd_shape,
    dtype=_scatter_nd_dtype,
)
scatter_nd_reduce.reference = _scatter_reduce_reference
scatter_nd_reduce.kernels = lambda params, inputs, outputs: _updated(
    "scatter_nd_reduce", inputs, outputs, _SCATTERED[params.reduction][1]
)

# Along one axis, each element by itself.


def _gather_elements_shape(params: GatherAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, indices = ins
    indices = unify(indices, outs[0])
    if data is not None and indices is not None:
        axis = normalize_axis(params.axis, len(data))
        unify(tuple(None for _ in data), indices)
        for at, (have, want) in enumerate(zip(data, indices)):
            if at != axis and isinstance(have, int) and isinstance(want, int) and want > have:
                raise ShapeError(
                    f"indices of shape {show(indices)} into shape {show(data)}",
                    why=f"only along axis {axis} may there be more of them",
                )
        _must_hold(data[axis], indices)
    return [None, indices], [indices]


def _gather_elements_places(params: GatherAttrs, x: Array, indices: Array) -> tuple[Array, ...]:
    axis = normalize_axis(params.axis, x.ndim)
    places: list[Any] = list(np.indices(indices.shape, sparse=True)) if indices.ndim else []
    places[axis] = _clip(indices, x.shape[axis])
    return tuple(places)


def _gather_elements_reference(params: GatherAttrs, x: Array, indices: Array) -> Array:
    _gather_elements_shape(params, [x.shape, indices.shape], [None])
    if not indices.size:
        return np.zeros(indices.shape, x.dtype)
    return x[_gather_elements_places(params, x, indices)]


def _gather_elements_compute(params: GatherAttrs, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    axis = normalize_axis(params.axis, x.rank)

    def value(*i: te.Expr) -> te.Expr:
        place = _within(indices[i], x.shape[axis])
        return x[(*i[:axis], place, *i[axis + 1 :])]

    return te.compute(indices.shape, value)


gather_elements = _gathering(
    "gather_elements",
    "out[i, j, k] = data[i, indices[i, j, k], k], for axis 1.",
    level=5,
    attrs=GatherAttrs,
    shape=_gather_elements_shape,
    reference=_gather_elements_reference,
    compute=_gather_elements_compute,
    native_from=512,
)
gather_elements.complex_gradient = holomorphic
gather_elements.gradient = lambda ctx, g: [F._gather_elements_grad(g, *ctx.inputs, axis=ctx.params.axis), None]


def _gather_elements_grad_reference(params: GatherAttrs, g: Array, x: Array, indices: Array) -> Array:
    grad = np.zeros(x.shape, wide_dtype(g.dtype))
    if g.size:
        np.add.at(grad, _gather_elements_places(params, x, indices), g)
    return grad.astype(g.dtype)


def _gather_elements_grad_kernels(params: GatherAttrs, inputs: Any, outputs: Any) -> list[Written]:
    ((where, dtype), _, _), ((shape, _),) = inputs, outputs
    axis = normalize_axis(params.axis, len(shape))
    wide = wide_dtype(dtype)
    body = Body("gather_elements_grad", inputs, outputs)
    total = 3 if wide == dtype else body.temporary(shape, wide)
    others = changed(shape, axis, 1)
    views = {0: where, 2: where, total: shape, 3: shape}
    kernel = body.kernel(views, 2 * math.prod(shape))
    with kernel as (b, g, indices, *sums), b.parallel("p", math.prod(others)) as p:
        at = [b.let(f"i{d}", place) for d, place in enumerate(unravelled(p, others))]
        column = lambda k: changed(at, axis, k)
        with b.loop("k", shape[axis]) as k:
            b.store(sums[0], column(k), 0)
        inside = [i < n for d, (i, n) in enumerate(zip(at, where)) if d != axis]
        with b.when(te.all_of([te.const(True, BOOL), *inside])), b.loop("k", where[axis]) as k:
            row = _row_within(b, indices[column(k)], shape[axis])
            b.store(sums[0], column(row), sums[0][column(row)] + te.cast(g[column(k)], wide))
        if total != 3:
            with b.loop("k", shape[axis]) as k:
                b.store(sums[1], column(k), te.cast(sums[0][column(k)], dtype))
    return body.kernels


gather_elements_grad = _scattering(
    "_gather_elements_grad",
    "The gradient of gather_elements.",
    _gather_elements_shape,
    attrs=GatherAttrs,
    reference=_gather_elements_grad_reference,
    kernels=_gather_elements_grad_kernels,
    native_from=512,
)
gather_elements_grad.complex_gradient = holomorphic
gather_elements_grad.gradient = lambda ctx, g: [F.gather_elements(g, ctx.inputs[2], axis=ctx.params.axis), None, None]

# One of two.


def _where_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    condition, x, y = ins
    shape = unify(unify(x, y), outs[0])
    if shape is not None and condition is not None:
        if len(condition) == 1 and len(shape) > 1:
            unify(condition, shape[:1])
        else:
            condition = shape = unify(condition, shape)
    return [condition, shape, shape], [shape]


def _where_dtype(params: Params, ins: Dtypes, outs: Dtypes) -> Inferred:
    dtype = unify_dtype(unify_dtype(ins[1], ins[2]), outs[0])
    return [None, dtype, dtype], [dtype]


def _where_reference(condition: Array, x: Array, y: Array) -> Array:
    _where_shape(None, [condition.shape, x.shape, y.shape], [None])
    rows = condition.shape + (1,) * (x.ndim - condition.ndim)
    return np.where(condition.reshape(rows) != 0, x, y)


def _where_compute(condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    def value(*i: te.Expr) -> te.Expr:
        c = condition[i[: condition.rank]]
        return te.select(c if c.dtype == BOOL else c.not_equal(0), x[i], y[i])

    return te.compute(x.shape, value)


where = define(
    "where",
    "x where the condition is not 0, else y. A condition of one dimension chooses whole slices along the first axis.",
    level=4,
    inputs={"condition": "which", "x": "where it holds", "y": "where it does not"},
    pattern=INJECTIVE,
    shape=_where_shape,
    dtype=_where_dtype,
)
where.reference = _where_reference
where.compute = _where_compute
where.complex_gradient = holomorphic
where.gradient = lambda ctx, g: [
    None,
    F.where(ctx.inputs[0], g, F.zeros_like(g)),
    F.where(ctx.inputs[0], F.zeros_like(g), g),
]
