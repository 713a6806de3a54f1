"""Running sums, products and recurrences of large eager tensors by open kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ... import te
from ...base.cpu_facts import COSTS
from ...base.dtype import FLOAT32, FLOAT64, DType
from ...base.shape import normalize_axis
from ...compiler.open.kernels import open_kernel
from ...core.op import Op
from ...lower.cpu.open.scan import BLOCK, Scan, State, column_scan_kernel, row_scan_kernel, state_dtype
from ...ops.reduce.reductions import reduced_axes
from .calls import Array, Declined, native, not_empty
from .reduce_plans import joined_axes
from .thresholds import FROM

ELEMENT, CALLED = COSTS.scanned, COSTS.scanned_by_functions


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
        sums = high + te.log1p(te.exp(low - te.select(far, te.const(0, high.dtype), high)))
        return (te.select(far, high, sums),)

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


def _alike(arrays: Sequence[Array]) -> None:
    """Arrays of integers or floats, of one shape and dtype, that are not empty."""
    dtype = arrays[0].dtype
    if not dtype.isnative or not (dtype.kind in "iu" or dtype in (FLOAT32, FLOAT64)):
        raise Declined("dtype")
    if any([array.shape != arrays[0].shape or array.dtype != dtype for array in arrays]):
        raise Declined("shapes")
    not_empty(arrays)


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
    out = np.empty(shape, result)
    turns, work = sizes[0] * -(-inner // BLOCK), out.size * cost
    kernel.run([*map(np.ascontiguousarray, arrays), out], sizes[:2] if inner == 1 else sizes, turns, work)
    return out


def _register(name: str, scan: Callable[[Any], Scan], cost: float = ELEMENT) -> None:
    @native(name, from_=FROM.scans, takes=_alike, fitting=False)
    def run(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
        x = arrays[0]
        return scanned(scan(params), arrays, normalize_axis(params.axis, x.ndim), x.dtype, cost)


_register("cumsum", _sum)
_register("cumprod", _prod)
_register("_recurrence", _recurrence)
_register("logcumsumexp", _log_sum, CALLED)


def _before(reverse: bool, times: bool) -> Scan:
    """The product of all elements before each one, times another."""
    written: Any = lambda before, after, x, *other: before[0] * other[0] if times else before[0]
    name = "times those after" if times else "product of those before"
    return Scan(name, lambda x, *other: (x,), lambda a, b: (a[0] * b[0],), (1,), written, True, reverse)


@native("_prod_others", from_=FROM.scans, takes=_alike, fitting=False)
def run_prod_others(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """The product of those before, times that of those after."""
    (x,) = arrays
    if not x.flags.c_contiguous:
        raise Declined("not contiguous")
    extents, along = joined_axes(x.shape, reduced_axes(params, x.ndim))
    if len(along) != 1:
        raise Declined("attributes")
    flat = x.reshape(extents)
    before = scanned(_before(False, False), [flat], along[0], state_dtype(x.dtype), ELEMENT)
    return scanned(_before(True, True), [flat, before], along[0], x.dtype, ELEMENT).reshape(x.shape)
