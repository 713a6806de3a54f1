"""Large reductions of eager tensors by open kernels.

An array comes to (kept, reduced) or (kept, reduced, kept): axes as they lie in memory, neighbours
of one kind joined. Long reductions with few results are cut into chunks of a fixed size, and numpy
combines what they give: results are the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .. import te
from ..base.dtype import BOOL, FLOAT32, FLOAT64, is_float
from ..core.op import Op
from ..ops.expand import collapse_axes
from ..ops.reduce import AxesAttrs, ReduceAttrs, reduced_axes, reduced_shape
from .native_generic import run_computed, run_generic

Array = np.ndarray[Any, Any]
Combine = Callable[[Array, Any], Any]

CHUNK, CHUNK_ROWS = 1 << 14, 512  # elements side by side, and below one another
FEW_ROWS = 16  # that are worth chunks each
SMALL, PARTIAL = 1 << 12, 1 << 16  # elements and partial results that are little for numpy
# From how many neighbours on numpy's own way to find the largest is as fast.
NUMPY_ROW = 128
NUMPY_COLUMNS = 256

DTYPES = frozenset(map(np.dtype, ("float32", "float64", "int32", "int64", "bool")))


class Kind(NamedTuple):
    """A reduction: its operator, and how numpy does it."""

    op: Op
    combine: Combine
    extreme: bool = False


def _sum(parts: Array, axis: Any) -> Any:
    if parts.dtype == BOOL:
        return parts.any(axis)
    return parts.sum(axis, dtype=FLOAT64 if is_float(parts.dtype) else parts.dtype)


def _prod(parts: Array, axis: Any) -> Any:
    return parts.all(axis) if parts.dtype == BOOL else parts.prod(axis, dtype=parts.dtype)


SUM = Kind(Op.get("sum"), _sum)
PROD = Kind(Op.get("prod"), _prod)
MAX = Kind(Op.get("max"), lambda parts, axis: parts.max(axis), extreme=True)
MIN = Kind(Op.get("min"), lambda parts, axis: parts.min(axis), extreme=True)


class Form(NamedTuple):
    """How an array is reduced: its axes as they lie in memory (None: in order), what is left of
    them when neighbours of one kind are joined, which of those are reduced; then the shape of what
    is kept, and how its axes come back in order."""

    order: tuple[int, ...] | None
    extents: tuple[int, ...]
    reduced: tuple[bool, ...]
    kept: tuple[int, ...]
    back: tuple[int, ...] | None

    def of(self, x: Array) -> Array:
        """The array in this form."""
        if self.order is not None:
            x = np.ascontiguousarray(x.transpose(self.order))
        return x.reshape(self.extents)


@lru_cache(maxsize=4096)
def form_of(shape: tuple[int, ...], strides: tuple[int, ...] | None, axes: Sequence[int]) -> Form:
    """The form of an array; one in order of memory is given without strides."""
    order = list(range(len(shape)))
    if strides is not None:
        order.sort(key=lambda axis: -abs(strides[axis]))
    extents: list[int] = []
    kinds: list[bool] = []
    for axis in order:
        extent, kind = shape[axis], axis in axes
        if kinds and kinds[-1] == kind and extent > 1:
            extents[-1] *= extent
        elif extent > 1:
            extents.append(extent)
            kinds.append(kind)
    kept = [axis for axis in order if axis not in axes]
    back = None if kept == sorted(kept) else tuple(int(place) for place in np.argsort(kept))
    return Form(
        tuple(order) if strides is not None else None,
        tuple(extents),
        tuple(kinds),
        tuple([shape[axis] for axis in kept]),
        back,
    )


def _form(x: Array, axes: Sequence[int]) -> Form:
    return form_of(x.shape, None if x.flags.c_contiguous else x.strides, tuple(axes))


def reduced(kind: Kind, x: Array, axes: Sequence[int]) -> Array:
    """x without some axes, in its dtype or a wider one."""
    form = _form(x, axes)
    y, kinds = form.of(x), form.reduced
    while True in kinds:
        if y.size < PARTIAL and len(kinds) < len(form.reduced):
            y = kind.combine(y, tuple([axis for axis, goes in enumerate(kinds) if goes]))
            break
        last = len(kinds) - 1 - kinds[::-1].index(True)
        if last == len(kinds) - 1:
            y = _along_rows(kind, y.reshape(-1, y.shape[-1])).reshape(y.shape[:-1])
            kinds = kinds[:-1]
        else:
            lead, (extent, inner) = prod(y.shape[:last]), y.shape[last:]
            made = _along_columns(kind, y.reshape(lead, extent, inner))
            y = made.reshape(*y.shape[: max(last - 1, 0)], -1)
            kinds = (*kinds[: max(last - 1, 0)], False)
    y = np.asarray(y).reshape(form.kept)
    return y if form.back is None else y.transpose(form.back)


def _along_rows(kind: Kind, rows: Array) -> Array:
    """(kept, reduced)"""
    count, length = rows.shape
    if _is_numpys(kind, rows, length >= NUMPY_ROW) or rows.dtype == BOOL:
        return np.asarray(kind.combine(rows, 1))
    if length < 2 * CHUNK:
        return _native(kind, rows)
    if count < FEW_ROWS:
        return np.asarray([_in_chunks(kind, row.reshape(-1, 1), CHUNK)[0] for row in rows])
    parts = _even_part(length, CHUNK)
    made = _native(kind, rows.reshape(-1, parts)).reshape(count, -1)
    return np.asarray(kind.combine(made, 1))


def _along_columns(kind: Kind, blocks: Array) -> Array:
    """(kept, reduced, kept)"""
    lead, extent, inner = blocks.shape
    if _is_numpys(kind, blocks, inner >= NUMPY_COLUMNS):
        return np.asarray(kind.combine(blocks, 1))
    if extent < 2 * CHUNK_ROWS:
        return _native(kind, blocks)
    if lead == 1:
        return _in_chunks(kind, blocks[0], CHUNK_ROWS)
    rows = _even_part(extent, CHUNK_ROWS)
    made = _native(kind, blocks.reshape(-1, rows, inner)).reshape(lead, -1, inner)
    return np.asarray(kind.combine(made, 1))


def _is_numpys(kind: Kind, x: Array, long: bool) -> bool:
    """Whether numpy is as fast."""
    return x.size < SMALL or (kind.extreme and long)


def _even_part(extent: int, wanted: int) -> int:
    """A divisor of an extent that is about as large as wanted, or all of it."""
    sizes = range(wanted, wanted // 4, -1)
    return next((size for size in sizes if extent % size == 0), extent)


def _in_chunks(kind: Kind, block: Array, rows: int) -> Array:
    """(reduced, kept), so many rows at a time."""
    extent, inner = block.shape
    whole = extent // rows * rows
    parts = block[:whole].reshape(-1, rows, inner) if inner > 1 else block[:whole].reshape(-1, rows)
    made = _native(kind, parts).reshape(-1, inner)
    if whole < extent:
        rest = np.asarray(kind.combine(block[whole:], 0))
        made = np.concatenate([made, rest.reshape(1, inner)])
    return np.asarray(kind.combine(made, 0))


def _native(kind: Kind, x: Array) -> Array:
    """Along the second axis; sums of float32 in float64."""
    if kind is SUM and x.dtype == FLOAT32:
        return run_computed("sum in float64", "sum", _wide_sum, [x])[0]
    return run_generic(kind.op, _ALONG, [x])[0]


def _wide_sum(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(x.shape[1])
    value = lambda row, *rest: te.sum(te.cast(x[(row, k.var, *rest)], FLOAT64), k)
    return te.compute((x.shape[0], *x.shape[2:]), value)


_ALONG = ReduceAttrs(axis=(1,))


# Operators


def _serves(x: Array) -> bool:
    return x.size > 0 and x.dtype in DTYPES


@lru_cache(maxsize=4096)
def _result(params: ReduceAttrs, shape: tuple[int, ...]) -> tuple[tuple[int, ...], Any]:
    """The axes that are reduced, and the shape that is left."""
    return tuple(reduced_axes(params, len(shape))), reduced_shape(params, shape)


def _is_wide_product(kind: Kind, x: Array) -> bool:
    """Products of floats go through float64, so that they overflow only where the result does."""
    return kind is PROD and is_float(x.dtype)


def _reduction(kind: Kind) -> Callable[..., Array | None]:
    def run(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
        (x,) = arrays
        if not _serves(x) or _is_wide_product(kind, x):
            return None
        axes, shape = _result(params, x.shape)
        return reduced(kind, x, axes).reshape(shape).astype(x.dtype, copy=False)

    return run


def run_mean(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """The mean: a sum, divided."""
    (x,) = arrays
    if not x.size or x.dtype not in (FLOAT32, FLOAT64):
        return None
    axes, shape = _result(params, x.shape)
    made = reduced(SUM, x, axes) / prod([x.shape[axis] for axis in axes])
    return np.asarray(made).reshape(shape).astype(x.dtype, copy=False)


def run_collapse_sum(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """The sum along what broadcast."""
    x, like = arrays
    if not _serves(x) or x.dtype == BOOL:
        return None
    axes = collapse_axes(x.shape, like.shape)
    return reduced(SUM, x, axes).reshape(like.shape).astype(x.dtype, copy=False)


def run_position(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """argmax and argmin where neighbours in memory are not compared: else numpy is faster."""
    (x,) = arrays
    if not _serves(x) or x.dtype == BOOL or not x.flags.c_contiguous:
        return None
    axes, shape = _result(params, x.shape)
    form = _form(x, axes)
    if form.reduced not in ((True, False), (False, True, False)):
        return None
    attrs = ReduceAttrs(axis=(len(form.reduced) - 2,), dtype=params.dtype)
    return run_generic(op, attrs, [form.of(x)])[0].reshape(shape)


def run_mask(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """Where the largest or smallest stand."""
    (x,) = arrays
    if not _serves(x) or x.dtype == BOOL or not x.flags.c_contiguous:
        return None
    form = _form(x, reduced_axes(params, x.ndim))
    axes = tuple([axis for axis, kind in enumerate(form.reduced) if kind])
    if not axes:
        return None
    return run_generic(op, AxesAttrs(axis=axes), [form.of(x)])[0].reshape(x.shape)


CALLS = {
    "sum": (1 << 14, _reduction(SUM)),
    "mean": (1 << 14, run_mean),
    "prod": (1 << 14, _reduction(PROD)),
    "max": (1 << 15, _reduction(MAX)),
    "min": (1 << 15, _reduction(MIN)),
    "collapse_sum": (1 << 14, run_collapse_sum),
    "argmax": (1 << 14, run_position),
    "argmin": (1 << 14, run_position),
    "_max_mask": (1 << 15, run_mask),
    "_min_mask": (1 << 15, run_mask),
}
