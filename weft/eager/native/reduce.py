"""Reductions of large eager tensors by open kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL, FLOAT32, FLOAT64, INT64, DType
from ...base.kept import Kept
from ...base.quiet import quietly
from ...core.op import Op
from ...lower.cpu.open.reduction import Reduction
from ...ops.reduce.reductions import AxesAttrs, ReduceAttrs, reduced_axes, reduced_shape
from ...ops.shape.expand import collapse_axes, repeated_axes
from .calls import Array, Declined, floats, native
from .generic import run_generic
from .reduce_plans import COMBINE, KEPT, ReductionPlan, joined_axes, make_plan
from .thresholds import FROM

SUM, PROD, MAX, MIN = (Reduction(name, name) for name in ("sum", "prod", "max", "min"))
DISTANCES = Reduction("distances", "sum", lambda x, m: (x - m, (x - m) * (x - m)), 2)
SQUARES = Reduction("squares", "sum", lambda x: (x * x,))
POWERS = Reduction("powers", "sum", lambda x, top: (te.exp(x - top),), calls=1)
OF_BOOLS = {SUM: MAX, PROD: MIN}  # whether one is true, whether all are


_plans: Kept[ReductionPlan] = Kept(KEPT)


def reduced(
    kind: Reduction,
    x: Array,
    axes: tuple[int, ...],
    result: DType | None = None,
    shape: tuple[int, ...] | None = None,
    mean: bool = False,
) -> Array:
    """x, which is not empty, without some axes or in a shape, in a dtype or a wide one."""
    if x.dtype == BOOL:
        kind, x = OF_BOOLS.get(kind, kind), x.view(np.uint8)
        return reduced(kind, x, axes, x.dtype, shape).view(BOOL)
    if 0 in x.strides and kind is not PROD and _again(x):
        return _of_repeated(kind, x, axes, result, shape, mean)
    key = (kind.name, x.dtype, x.shape, x.strides, axes, result, shape, mean)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans.find(key, lambda: make_plan(kind, [x], axes, result, shape, mean))
    return plan.run((x,))[0]


def _again(x: Array) -> list[int]:
    """The axes that repeat one element."""
    both = enumerate(zip(x.shape, x.strides))
    return [axis for axis, (extent, stride) in both if extent > 1 and not stride]


def _of_repeated(
    kind: Reduction, x: Array, axes: tuple[int, ...], result: DType | None, shape: tuple[int, ...] | None, mean: bool
) -> Array:
    """The same where axes repeat one element: it is read once, and counts as often."""
    again = _again(x)
    once = x[tuple([slice(0, 1 if axis in again else None) for axis in range(x.ndim)])]
    total = reduced(kind, np.ascontiguousarray(once), axes, mean=mean)
    if kind is SUM and not mean:
        total = total * prod([x.shape[axis] for axis in axes if axis in again])
    kept = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    whole: Array = quietly(np.broadcast_to(total, kept).astype, total.dtype if result is None else result)
    return whole if shape is None else whole.reshape(shape)


def integer_sum(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum of integers or bools along axes in int64, without those."""
    if x.size < FROM.reductions:
        return np.asarray(x.sum(axes, dtype=INT64))
    return reduced(SUM, x.view(np.uint8) if x.dtype == BOOL else x, axes, INT64)


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


def _reduction(name: str, kind: Reduction, mean: bool = False) -> None:
    """Registers a reduction from one element on: small ones are numpy's, without the reference's checks."""

    @native(name, from_=1, fitting=False)
    def run(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
        (x,) = arrays
        _check(x, "biu")
        if mean and x.dtype.kind != "f":
            raise Declined("dtype")
        axes, shape = _result_of(params, x)
        if x.size < FROM.reductions:
            small: Array = quietly(_by_numpy, kind, x, axes, shape, mean)
            return small
        return reduced(kind, x, axes, x.dtype, shape, mean)


for _name, _kind in (("sum", SUM), ("prod", PROD), ("max", MAX), ("min", MIN)):
    _reduction(_name, _kind)
_reduction("mean", SUM, mean=True)


def _by_numpy(kind: Reduction, x: Array, axes: tuple[int, ...], shape: tuple[int, ...], mean: bool) -> Array:
    wide = FLOAT64 if x.dtype.kind == "f" and (kind is SUM or kind is PROD) else x.dtype
    total = COMBINE[kind.combiner](x, axes, wide)
    if mean:
        total = total / prod([x.shape[axis] for axis in axes])
    result = np.asarray(total, x.dtype)
    return result if result.shape == shape else result.reshape(shape)


@native("collapse_sum", from_=FROM.totals, fitting=False)
def run_collapse_sum(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """The sum along what broadcast."""
    x, like = arrays
    _check(x)
    axes = _repeated(like.shape, x.shape)
    if axes is None:
        raise Declined("shapes")
    return reduced(SUM, x, axes, x.dtype, like.shape)


@native("_expand_like_grad", from_=FROM.totals, fitting=False)
def run_expand_like_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """The sum along what was repeated."""
    g, x = arrays
    _check(g)
    return reduced(SUM, g, tuple(repeated_axes(params, g.shape, x.shape)), g.dtype, x.shape)


@lru_cache(maxsize=4096)
def _repeated(shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes along which a shape is repeated to be a whole; None where it does not fit."""
    inner = whole[len(whole) - len(shape) :]
    if len(shape) > len(whole) or any([n not in (1, m) for n, m in zip(shape, inner)]):
        return None
    return tuple(collapse_axes(whole, shape))


def _totals(kind: Reduction, arrays: Sequence[Array], axes: tuple[int, ...]) -> list[Array]:
    """Each term, in the wide dtype."""
    key = (kind.name, axes, *[(a.dtype, a.shape, a.strides) for a in arrays])
    return _plans.find(key, lambda: make_plan(kind, arrays, axes)).run(arrays)


def _beside(x: Array, total: Array, axes: tuple[int, ...]) -> Array:
    """A result of a reduction, repeated along the axes it went."""
    kept = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
    return np.broadcast_to(total.reshape(kept), x.shape)


@native("_variance", from_=FROM.totals, takes=floats, fitting=False)
def run_variance(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    """Squared distances from the mean as the data's dtype has it; the sum of distances tells how
    far that is from the mean itself."""
    (x,) = arrays
    axes, shape = _result_of(params, x)
    count = prod([x.shape[axis] for axis in axes])
    near = reduced(SUM, x, axes, x.dtype, mean=True)
    total, squares = _totals(DISTANCES, [x, _beside(x, near, axes)], axes)
    with np.errstate(all="ignore"):
        squares -= total * total / count
        variance = np.divide(squares, max(count - params.correction, 0), out=squares)
        mean = near + total / count
    return [moment.reshape(shape).astype(x.dtype, copy=False) for moment in (variance, mean)]


@native("_norm", from_=FROM.totals, takes=floats, fitting=False)
def run_norm(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    (x,) = arrays
    axes, shape = _result_of(params, x)
    (squares,) = _totals(SQUARES, [x], axes)
    norms: Array = quietly(np.sqrt(squares).reshape(shape).astype, x.dtype)
    return norms


@native("logsumexp", from_=FROM.totals, takes=floats, fitting=False)
def run_log_sum(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    (x,) = arrays
    axes, shape = _result_of(params, x)
    top = np.asarray(reduced(MAX, x, axes))
    top = np.where(np.isinf(top), top.dtype.type(0), top)
    (powers,) = _totals(POWERS, [x, _beside(x, top, axes)], axes)
    with np.errstate(all="ignore"):
        logarithms: Array = np.log(powers) + top
    return logarithms.reshape(shape).astype(x.dtype, copy=False)


def _joined_data(x: Array, axes: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
    """The data with neighbours that are reduced, or kept, joined; and the axes that are reduced."""
    _check(x)
    if not x.flags.c_contiguous:
        raise Declined("not contiguous")
    extents, along = joined_axes(x.shape, axes)
    return x.reshape(extents), along


@native("argmax", "argmin", from_=FROM.positions, fitting=False)
def run_position(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """None where neighbours in memory are compared: numpy is faster."""
    (x,) = arrays
    axes, shape = _result_of(params, x)
    joined, along = _joined_data(x, axes)
    if len(along) != 1:
        raise Declined("attributes")
    if along[0] == joined.ndim - 1:
        return None
    return run_generic(op, ReduceAttrs(axis=along, dtype=params.dtype), [joined])[0].reshape(shape)


@native("_max_mask", "_min_mask", from_=FROM.masks, fitting=False)
def run_mask(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """Where the largest or smallest stand."""
    (x,) = arrays
    joined, along = _joined_data(x, tuple(reduced_axes(params, x.ndim)))
    return run_generic(op, AxesAttrs(axis=along), [joined])[0].reshape(x.shape)
