"""Reductions of large eager tensors by open kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from .generic import run_generic
from .reduce_plans import COMBINE, KEPT, Plan, joined_axes, make_plan

Array = np.ndarray[Any, Any]

SUM, PROD, MAX, MIN = (Reduction(name, name) for name in ("sum", "prod", "max", "min"))
DISTANCES = Reduction("distances", "sum", lambda x, m: (x - m, (x - m) * (x - m)), 2)
SQUARES = Reduction("squares", "sum", lambda x: (x * x,))
POWERS = Reduction("powers", "sum", lambda x, top: (te.exp(x - top),), calls=1)
SMALL = 1 << 9  # elements that are few for numpy
OF_BOOLS = {SUM: MAX, PROD: MIN}  # whether one is true, whether all are


_plans: Kept[Plan] = Kept(KEPT)


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
    made = reduced(kind, np.ascontiguousarray(once), axes, mean=mean)
    if kind is SUM and not mean:
        made = made * prod([x.shape[axis] for axis in axes if axis in again])
    kept = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    whole = quietly(np.broadcast_to(made, kept).astype, made.dtype if result is None else result)
    return whole if shape is None else whole.reshape(shape)  # type: ignore[no-any-return]


def integer_sum(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum of integers or bools along axes in int64, without those."""
    if x.size < SMALL:
        return np.asarray(x.sum(axes, dtype=INT64))
    return reduced(SUM, x.view(np.uint8) if x.dtype == BOOL else x, axes, INT64)


# Operators


def _serves(x: Array) -> bool:
    kind = x.dtype
    return x.size > 0 and kind.isnative and (kind.kind in "biu" or kind in (FLOAT32, FLOAT64))


@lru_cache(maxsize=4096)
def _result(
    axis: tuple[int, ...], keepdims: bool, exclude: bool, scalar: bool, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], Any]:
    """The axes that are reduced, and the shape that is left."""
    params = ReduceAttrs(axis=axis, keepdims=keepdims, exclude=exclude, scalar=scalar)
    return tuple(reduced_axes(params, len(shape))), reduced_shape(params, shape)


def _reduction(kind: Reduction, mean: bool = False) -> Callable[..., Array | None]:
    def run(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
        (x,) = arrays
        if not _serves(x) or (mean and x.dtype.kind != "f"):
            return None
        axes, shape = _result(params.axis, params.keepdims, params.exclude, params.scalar, x.shape)
        if x.size < SMALL:
            return quietly(_by_numpy, kind, x, axes, shape, mean)  # type: ignore[no-any-return]
        return reduced(kind, x, axes, x.dtype, shape, mean)

    return run


def _by_numpy(kind: Reduction, x: Array, axes: tuple[int, ...], shape: tuple[int, ...], mean: bool) -> Array:
    wide = FLOAT64 if x.dtype.kind == "f" and (kind is SUM or kind is PROD) else x.dtype
    made = COMBINE[kind.combiner](x, axes, wide)
    if mean:
        made = made / prod([x.shape[axis] for axis in axes])
    made = np.asarray(made, x.dtype)
    return made if made.shape == shape else made.reshape(shape)


def run_collapse_sum(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """The sum along what broadcast."""
    x, like = arrays
    axes = _repeated(like.shape, x.shape)
    if axes is None or not _serves(x) or x.dtype == BOOL:
        return None
    return reduced(SUM, x, axes, x.dtype, like.shape)


def run_expand_like_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """The sum along what was repeated."""
    g, x = arrays
    if not _serves(g) or g.dtype == BOOL:
        return None
    return reduced(SUM, g, tuple(repeated_axes(params, g.shape, x.shape)), g.dtype, x.shape)


@lru_cache(maxsize=4096)
def _repeated(shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes along which a shape is repeated to be a whole; None where it does not fit."""
    own = whole[len(whole) - len(shape) :]
    if len(shape) > len(whole) or any([n not in (1, m) for n, m in zip(shape, own)]):
        return None
    return tuple(collapse_axes(whole, shape))


def _totals(kind: Reduction, arrays: Sequence[Array], axes: tuple[int, ...]) -> list[Array]:
    """Each term, in the wide dtype."""
    key = (kind.name, axes, *[(a.dtype, a.shape, a.strides) for a in arrays])
    return _plans.find(key, lambda: make_plan(kind, arrays, axes)).run(arrays)


def _beside(x: Array, made: Array, axes: tuple[int, ...]) -> Array:
    """A result of a reduction, repeated along the axes it went."""
    kept = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
    return np.broadcast_to(made.reshape(kept), x.shape)


def _is_float(x: Array) -> bool:
    return x.size > 0 and x.dtype in (FLOAT32, FLOAT64)


def run_variance(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array] | None:
    """Squared distances from the mean as the data's dtype has it; the sum of distances tells how
    far that is from the mean itself."""
    (x,) = arrays
    if not _is_float(x):
        return None
    axes, shape = _result(params.axis, params.keepdims, params.exclude, params.scalar, x.shape)
    count = prod([x.shape[axis] for axis in axes])
    near = reduced(SUM, x, axes, x.dtype, mean=True)
    total, squares = _totals(DISTANCES, [x, _beside(x, near, axes)], axes)
    with np.errstate(all="ignore"):
        squares -= total * total / count
        variance = np.divide(squares, max(count - params.correction, 0), out=squares)
        mean = near + total / count
    return [made.reshape(shape).astype(x.dtype, copy=False) for made in (variance, mean)]


def run_norm(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    (x,) = arrays
    if not _is_float(x):
        return None
    axes, shape = _result(params.axis, params.keepdims, params.exclude, params.scalar, x.shape)
    (squares,) = _totals(SQUARES, [x], axes)
    return quietly(np.sqrt(squares).reshape(shape).astype, x.dtype)  # type: ignore[no-any-return]


def run_log_sum(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    (x,) = arrays
    if not _is_float(x):
        return None
    axes, shape = _result(params.axis, params.keepdims, params.exclude, params.scalar, x.shape)
    top = np.asarray(reduced(MAX, x, axes))
    top = np.where(np.isinf(top), top.dtype.type(0), top)
    (powers,) = _totals(POWERS, [x, _beside(x, top, axes)], axes)
    with np.errstate(all="ignore"):
        made = np.log(powers) + top
    return made.reshape(shape).astype(x.dtype, copy=False)


def run_position(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """argmax and argmin where neighbours in memory are not compared: else numpy is faster."""
    (x,) = arrays
    if not _serves(x) or x.dtype == BOOL or not x.flags.c_contiguous:
        return None
    axes, shape = _result(params.axis, params.keepdims, params.exclude, params.scalar, x.shape)
    extents, along = joined_axes(x.shape, axes)
    if len(along) != 1 or along[0] == len(extents) - 1:
        return None
    attrs = ReduceAttrs(axis=along, dtype=params.dtype)
    return run_generic(op, attrs, [x.reshape(extents)])[0].reshape(shape)


def run_mask(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """Where the largest or smallest stand."""
    (x,) = arrays
    if not _serves(x) or x.dtype == BOOL or not x.flags.c_contiguous:
        return None
    extents, along = joined_axes(x.shape, reduced_axes(params, x.ndim))
    return run_generic(op, AxesAttrs(axis=along), [x.reshape(extents)])[0].reshape(x.shape)


CALLS = {
    "sum": (1, _reduction(SUM)),
    "mean": (1, _reduction(SUM, True)),
    "prod": (1, _reduction(PROD)),
    "max": (1, _reduction(MAX)),
    "min": (1, _reduction(MIN)),
    "collapse_sum": (1 << 10, run_collapse_sum),
    "_expand_like_grad": (1 << 10, run_expand_like_grad),
    "_variance": (1 << 10, run_variance),
    "_norm": (1 << 10, run_norm),
    "logsumexp": (1 << 10, run_log_sum),
    "argmax": (1 << 14, run_position),
    "argmin": (1 << 14, run_position),
    "_max_mask": (1 << 15, run_mask),
    "_min_mask": (1 << 15, run_mask),
}
