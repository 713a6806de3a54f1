"""Reductions of large eager tensors, by the operators' own bodies: axes are walked as they lie in memory, and
neighbours that are all reduced, or all kept, are one, so that few programs serve all shapes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import BOOL, FLOAT32, FLOAT64, INT32, INT64
from ...base.kept import Kept
from ...base.quiet import quietly
from ...core.op import Op
from ...ops.reduce.reductions import ReduceAttrs, over, reduced_axes, reduced_shape, shape_after
from ...ops.shape.expand import collapse_axes, repeated_axes
from .calls import Array, Declined, floats, native
from .copy import dense
from .generic import Call, computed_call, run_generic
from .pointwise import op_key
from .strides import Axis, is_dense_inside, joined, memory_order, steps_of
from .thresholds import FROM

KEPT = 4096  # plans
OF_BOOLS = {"sum": "max", "prod": "min"}  # whether one is true, whether all are
REPEATED = ("sum", "mean", "max", "min")  # of an element that is there several times follow from it
COMBINE: dict[str, Callable[..., Any]] = {
    "sum": np.add.reduce,
    "mean": np.add.reduce,
    "prod": np.multiply.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
}


class _Body(NamedTuple):
    """What is computed of a tensor and the axes along which it is reduced, and what tells it from others in all
    processes."""

    name: str
    key: Callable[[], Hashable]
    compute: Callable[[tuple[int, ...], te.Tensor], Any]


def _operator(op: Op, params: Any) -> _Body:
    """The operator's own body, on other axes."""

    def along(axes: tuple[int, ...]) -> Any:
        return replace(params, axis=axes, keepdims=False, exclude=False, scalar=False)

    return _Body(op.name, lambda: op_key(op, along(())), lambda axes, x: op.call_with(Op.compute[op], along(axes), x))


BODIES = {name: _operator(Op.get(name), ReduceAttrs()) for name in COMBINE}


class _Plan(NamedTuple):
    """A call on an array of a certain shape and strides: the order of its axes in memory, whether it is copied in that
    order, what runs it, and how the axes that are left come into order."""

    order: tuple[int, ...] | None
    copied: bool
    call: Call
    back: tuple[int, ...] | None
    shape: tuple[int, ...]

    def run(self, x: Array) -> list[Array]:
        if self.copied:
            x = dense(x if self.order is None else x.transpose(self.order))
        made = self.call.run([x, x])
        return made if self.back is None else [each.transpose(self.back).reshape(self.shape) for each in made]


_plans: Kept[_Plan] = Kept(KEPT)


def _run(body: _Body, attribute: Any, x: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> list[Array]:
    """What x, which is not empty, is reduced to along axes, in a shape. Bodies of one name differ by an attribute."""
    key = (body.name, attribute, x.dtype, x.shape, x.strides, axes, shape)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans.find(key, lambda: _planned(body, x, axes, shape))
    return plan.run(x)


def _planned(body: _Body, x: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> _Plan:
    order = memory_order(x)
    turned, reduced_places = x.transpose(order), [order.index(axis) for axis in axes]
    walked = joined(turned.shape, [steps_of(turned)], reduced_places)
    copied = not is_dense_inside(turned) or not _is_nested(walked)
    if copied:
        walked = joined(turned.shape, [_dense_steps(turned.shape)], reduced_places)
    if not any([axis.reduced for axis in walked]):
        walked.insert(0, Axis(1, (x.size,), True))
    along = tuple([number for number, axis in enumerate(walked) if axis.reduced])
    extents = tuple([axis.extent for axis in walked])
    rows = (extents[0], *[a.steps[0] // b.steps[0] for a, b in pairwise(walked)])  # as they lie apart in memory

    def within(memory: te.Tensor, like: te.Tensor) -> Any:
        return body.compute(along, te.compute(like.shape, lambda *i: memory[i]))

    call = computed_call((body.key(), along), body.name, within, [(rows, x.dtype), (extents, x.dtype)])
    kept = [axis for axis in order if axis not in axes]
    back = None if kept == sorted(kept) else tuple([int(place) for place in np.argsort(kept)])
    made = shape if back is None else tuple([x.shape[axis] for axis in kept])
    call = call._replace(outputs=[(made, dtype) for _, dtype in call.outputs], read=frozenset())
    return _Plan(None if order == tuple(range(x.ndim)) else order, copied, call, back, shape)


def _is_nested(walked: Sequence[Axis]) -> bool:
    """Whether elements lie as in some of the rows and columns of a dense array."""
    steps = [axis.steps[0] for axis in walked]
    return steps[-1:] == [1] and all([outer >= inner and outer % inner == 0 for outer, inner in pairwise(steps)])


def _dense_steps(shape: Sequence[int]) -> list[int]:
    return [prod(shape[place + 1 :]) for place in range(len(shape))]


def reduced(name: str, x: Array, axes: tuple[int, ...], shape: tuple[int, ...] | None = None) -> Array:
    """The sum, mean, product, maximum or minimum of x, which is not empty, without some axes or in a shape."""
    shape = shape_after(x.shape, axes, False, True) if shape is None else shape
    if x.dtype == BOOL:
        return reduced(OF_BOOLS.get(name, name), x.view(np.uint8), axes, shape).view(BOOL)
    if 0 in x.strides and name in REPEATED and _again(x):
        return _of_repeated(name, x, axes).reshape(shape)
    return _run(BODIES[name], None, x, axes, shape)[0]


def _again(x: Array) -> list[int]:
    """The axes that repeat one element."""
    both = enumerate(zip(x.shape, x.strides))
    return [axis for axis, (extent, stride) in both if extent > 1 and not stride]


def _of_repeated(name: str, x: Array, axes: tuple[int, ...]) -> Array:
    """The same where axes repeat one element: it is read once, and counts as often."""
    again = _again(x)
    once = x[tuple([slice(0, 1 if axis in again else None) for axis in range(x.ndim)])]
    total = reduced(name, np.ascontiguousarray(once), axes)
    if name == "sum":
        count = prod([x.shape[axis] for axis in axes if axis in again])
        total = quietly(np.multiply, total, np.asarray(count).astype(x.dtype))
    kept = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    return np.array(np.broadcast_to(total, kept))


def integer_sum(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum of integers or bools along axes in int64, without those."""
    if x.size < FROM.reductions:
        return np.asarray(x.sum(axes, dtype=INT64))
    x = x.view(np.uint8) if x.dtype == BOOL else x
    return _run(INTEGER_SUM, None, x, axes, shape_after(x.shape, axes, False, True))[0]


def _wide_sum(axes: tuple[int, ...], x: te.Tensor) -> te.Tensor:
    """Narrow integers are added up as int32 for a few terms."""
    ks, place = over(x, axes)
    least = INT32 if x.dtype.itemsize <= 2 else x.dtype

    def total(*i: te.Expr) -> te.Expr:
        return te.sum(te.cast(te.cast(x[place(i)], least), INT64), ks)

    return te.compute(shape_after(x.shape, axes, False, True), total)


INTEGER_SUM = _Body("integer_sum", lambda: "integer sum", _wide_sum)


# Operators


def _check(x: Array, kinds: str = "iu") -> None:
    """Declines what kernels do not add: half precision, complex numbers, other kinds, and nothing."""
    if not x.dtype.isnative or not (x.dtype.kind in kinds or x.dtype in (FLOAT32, FLOAT64)):
        raise Declined("dtype")
    if not x.size:
        raise Declined("empty")


@lru_cache(maxsize=4096)
def _result(
    axis: tuple[int, ...], keepdims: bool, exclude: bool, scalar: bool, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], Any]:
    """The axes that are reduced, and the shape that is left."""
    params = ReduceAttrs(axis=axis, keepdims=keepdims, exclude=exclude, scalar=scalar)
    return tuple(reduced_axes(params, len(shape))), reduced_shape(params, shape)


def _result_of(params: Any, x: Array) -> tuple[tuple[int, ...], Any]:
    return _result(params.axis, params.keepdims, params.exclude, params.scalar, x.shape)


def _reduction(name: str) -> None:
    """Registers a reduction from one element on: small ones are numpy's, without the reference's checks."""

    @native(name, fitting=False)
    def run(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
        (x,) = arrays
        _check(x, "" if name == "mean" else "biu")
        axes, shape = _result_of(params, x)
        if x.size < FROM.reductions:
            small: Array = quietly(_by_numpy, name, x, axes, shape)
            return small
        return reduced(name, x, axes, shape)


for _name in COMBINE:
    _reduction(_name)


def _by_numpy(name: str, x: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    wide = FLOAT64 if x.dtype.kind == "f" and name in ("sum", "mean", "prod") else x.dtype
    total = COMBINE[name](x, axes, wide)
    if name == "mean":
        total = total / prod([x.shape[axis] for axis in axes])
    result = np.asarray(total, x.dtype)
    return result if result.shape == shape else result.reshape(shape)


@native("collapse_sum", fitting=False)
def run_collapse_sum(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """The sum along what broadcast."""
    x, like = arrays
    _check(x)
    axes = _repeated(like.shape, x.shape)
    if axes is None:
        raise Declined("shapes")
    return reduced("sum", x, axes, like.shape)


@native("_expand_like_grad", fitting=False)
def run_expand_like_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """The sum along what was repeated."""
    g, x = arrays
    _check(g)
    return reduced("sum", g, tuple(repeated_axes(params, g.shape, x.shape)), x.shape)


@lru_cache(maxsize=4096)
def _repeated(shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes along which a shape is repeated to be a whole; None where it does not fit."""
    inner = whole[len(whole) - len(shape) :]
    if len(shape) > len(whole) or any([n not in (1, m) for n, m in zip(shape, inner)]):
        return None
    return tuple(collapse_axes(whole, shape))


@native("_variance", "_norm", "logsumexp", takes=floats, fitting=False)
def run_total(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    (x,) = arrays
    return _run(_operator(op, params), getattr(params, "correction", None), x, *_result_of(params, x))


@native("argmax", "argmin", fitting=False)
def run_position(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """None where neighbours in memory are compared: numpy is faster."""
    (x,) = arrays
    _check(x)
    axes, _ = _result_of(params, x)
    return None if prod(x.shape[max(axes, default=x.ndim) + 1 :]) == 1 else run_generic(op, params, arrays)[0]
