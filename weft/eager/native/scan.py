"""Running sums, products and recurrences of large eager tensors by open kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import FLOAT32, FLOAT64, DType
from ...base.shape import normalize_axis
from ...compiler.open.kernels import open_kernel
from ...core.op import Op
from ...lower.cpu.open.scan import BLOCK, Scan, State, column_scan_kernel, row_scan_kernel, state_dtype
from ...ops.reduce.reductions import reduced_axes
from .reduce_plans import joined_axes

Array = np.ndarray[Any, Any]

ELEMENT, CALLED = 0.4, 5.0  # nanoseconds of an element, and of one that takes functions


def _picked(params: Any) -> Callable[..., te.Expr]:
    """The element itself counts, or not."""
    if params.exclusive:
        return lambda before, after, x: before[0]
    return lambda before, after, x: after[0]


def _sum(params: Any) -> Scan:
    return Scan(
        "cumsum", lambda x: (x,), lambda a, b: (a[0] + b[0],), (0,), _picked(params), params.exclusive, params.reverse
    )


def _prod(params: Any) -> Scan:
    return Scan("cumprod", lambda x: (x,), lambda a, b: (a[0] * b[0],), (1,), _picked(params), params.exclusive)


def _log_sum(params: Any) -> Scan:
    def join(a: State, b: State) -> State:
        high, low = te.max(a[0], b[0]), te.min(a[0], b[0])
        far = te.isinf(high)
        made = high + te.log1p(te.exp(low - te.select(far, te.const(0, high.dtype), high)))
        return (te.select(far, high, made),)

    return Scan("logcumsumexp", lambda x: (x,), join, (-np.inf,), lambda old, new, x: new[0])


def _recurrence(params: Any) -> Scan:
    """States are maps s -> a s + b. Backwards, what is kept is a times the sum, as the element
    before takes it."""

    def join(first: State, then: State) -> State:
        return first[0] * then[0], then[0] * first[1] + then[1]

    if params.reverse:
        lift: Any = lambda a, b: (a, a * b)
        written: Any = lambda before, after, a, b: before[1] + b
    else:
        lift = lambda a, b: (a, b)
        written = lambda before, after, a, b: after[1]
    return Scan("recurrence", lift, join, (1, 0), written, params.reverse, params.reverse)


def _serves(x: Array) -> bool:
    kind = x.dtype
    return x.size > 0 and kind.isnative and (kind.kind in "iu" or kind in (FLOAT32, FLOAT64))


def scanned(scan: Scan, arrays: Sequence[Array], axis: int, result: DType, cost: float) -> Array:
    """What a scan of arrays of one shape, not empty, writes."""
    shape = arrays[0].shape
    length, inner = shape[axis], prod(shape[axis + 1 :])
    sizes = (prod(shape[:axis]), length, inner)
    dtypes = (*[array.dtype for array in arrays], result)
    write = row_scan_kernel if inner == 1 else column_scan_kernel
    kernel = open_kernel(
        ("scan", scan.name, scan.needs_before, scan.reverse, dtypes, inner == 1),
        lambda target: write(scan, dtypes, target),
    )
    made = np.empty(shape, result)
    given = [np.ascontiguousarray(array) for array in arrays]
    turns, work = sizes[0] * -(-inner // BLOCK), made.size * cost
    kernel.run([*given, made], sizes[:2] if inner == 1 else sizes, turns, work)
    return made


def _native(make: Callable[[Any], Scan], cost: float = ELEMENT) -> Callable[..., Array | None]:
    def run(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
        x = arrays[0]
        if not _serves(x) or any([a.shape != x.shape or a.dtype != x.dtype for a in arrays]):
            return None
        return scanned(make(params), arrays, normalize_axis(params.axis, x.ndim), x.dtype, cost)

    return run


def _before(reverse: bool, times: bool) -> Scan:
    """The product of all elements before each one, times another."""
    written: Any = lambda before, after, x, *other: before[0] * other[0] if times else before[0]
    name = "times those after" if times else "product of those before"
    return Scan(name, lambda x, *other: (x,), lambda a, b: (a[0] * b[0],), (1,), written, True, reverse)


def run_prod_others(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """The product of those before, times that of those after."""
    (x,) = arrays
    if not _serves(x) or not x.flags.c_contiguous:
        return None
    extents, along = joined_axes(x.shape, reduced_axes(params, x.ndim))
    if len(along) != 1:
        return None
    flat = x.reshape(extents)
    before = scanned(_before(False, False), [flat], along[0], state_dtype(x.dtype), ELEMENT)
    made = scanned(_before(True, True), [flat, before], along[0], x.dtype, ELEMENT)
    return made.reshape(x.shape)


CALLS = {
    "cumsum": (1 << 10, _native(_sum)),
    "cumprod": (1 << 10, _native(_prod)),
    "_prod_others": (1 << 10, run_prod_others),
    "_recurrence": (1 << 10, _native(_recurrence)),
    "logcumsumexp": (1 << 10, _native(_log_sum, CALLED)),
}
