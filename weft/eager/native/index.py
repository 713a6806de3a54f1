"""Reads, writes and sums at positions that integers name, and where elements hold, natively."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...base.dtype import FLOAT32, FLOAT64, INT64
from ...base.shape import normalize_axis
from ...compiler.open.kernels import open_kernel
from ...core.op import Op
from ...lower.cpu.open.indexed import ROW_BLOCK, add_rows_kernel, elements_kernel, nonzero_kernel
from ...ops.shape.index import row_numbers
from .copy import dense
from .generic import run_written

Array = np.ndarray[Any, Any]

INDEXED_FROM = 1 << 9  # elements of indices or data
MOVED = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}
SUMMED = (FLOAT32, FLOAT64, INT64)
SHORT_BYTES = 32  # of rows that are moved element by element
NANOSECONDS = 1.0  # of an index


def _steps(array: Array) -> list[int]:
    return [stride // array.itemsize for stride in array.strides]


def _elements(x: Array, axis: int, indices: Array, y: Array, what: str) -> bool:
    """Reads y from x, puts y into x, or adds it there; whether that was possible."""
    if any([stride % array.itemsize for array in (x, y) for stride in array.strides]):
        return False
    indices = indices.astype(np.int64, copy=False)
    x_steps, y_steps, steps = (_steps(array) for array in (x, y, indices))
    step, x_steps[axis] = x_steps[axis], 0
    rows = prod(indices.shape[:-1])
    apart = what == "get" or axis == indices.ndim - 1
    turns = rows if apart else prod(indices.shape[:axis])
    scalars = [turns, rows // turns]
    for row in zip(indices.shape, x_steps, y_steps, steps):
        scalars += row
    dtype = x.dtype if what == "add" else MOVED[x.itemsize]
    rank = indices.ndim
    kernel = open_kernel(("elements", dtype, rank, what), lambda target: elements_kernel(dtype, rank, what, target))
    scalars += [x.shape[axis], step]
    kernel.run([x, indices, y], scalars, turns, indices.size * NANOSECONDS)
    return True


def add_elements(x: Array, axis: int, indices: Array, y: Array) -> bool:
    """x[i, indices[i, j, k], k] += y[i, j, k] along axis 1; False where that is not for native
    code, and nothing was done."""
    if x.dtype not in SUMMED or not indices.size:
        return False
    return _elements(x, axis, indices, y, "add")


def put_elements(x: Array, axis: int, indices: Array, y: Array) -> bool:
    """The same with = in place of +=; of several elements for one place the last stays."""
    if x.itemsize not in MOVED or not indices.size:
        return False
    return _elements(x, axis, indices, y, "put")


def add_rows(x: Array, axis: int, indices: Array, y: Array) -> bool:
    """x[:, indices] += y along axis 1; False as above."""
    if x.dtype not in SUMMED or not y.size or not x.flags.c_contiguous:
        return False
    outer, inner, count = prod(x.shape[:axis]), prod(x.shape[axis + 1 :]), indices.size
    if inner == 1:
        each, own = x.reshape(outer, -1), indices.reshape(1, count)
        given = np.broadcast_to(own, (outer, count))
        return _elements(each, 1, given, y.reshape(outer, count), "add")
    blocks = _rows(y, axis, indices.ndim, (outer, count, inner))
    strides = [stride // y.itemsize for stride in blocks.strides]
    whole = inner == 1 or strides[2] == 1
    kernel = open_kernel(("add rows", x.dtype, whole), lambda target: add_rows_kernel(x.dtype, whole, target))
    scalars = [outer, count, inner, x.shape[axis], strides[0], strides[1]]
    given = dense(indices.astype(np.int64, copy=False))
    work = count * NANOSECONDS + y.size * 0.2
    kernel.run([x, given, blocks], scalars, outer * -(-inner // ROW_BLOCK), work)
    return True


def _rows(y: Array, axis: int, rank: int, shape: tuple[int, int, int]) -> Array:
    """y seen as outer blocks of rows; copied if its memory does not show it so."""
    if not any(y.strides):  # one element for all
        return np.broadcast_to(y[(0,) * y.ndim], shape)
    if y.flags.c_contiguous:
        return y.reshape(shape)
    return dense(y).reshape(shape)


def run_take(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """Slices of an axis, where they are short, or the data is not in order."""
    x, indices = arrays
    if params.axis is None or not x.size or not indices.size or x.itemsize not in MOVED:
        return None
    axis = normalize_axis(params.axis, x.ndim)
    inner = prod(x.shape[axis + 1 :])
    if x.flags.c_contiguous and inner * x.itemsize > SHORT_BYTES:
        return None
    made = np.empty((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    flat = made.reshape(*x.shape[:axis], -1, *x.shape[axis + 1 :])
    places = indices.reshape([-1 if at == axis else 1 for at in range(x.ndim)])
    done = _elements(x, axis, np.broadcast_to(places, flat.shape), flat, "get")
    return made if done else None


def run_gather_elements(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    x, indices = arrays
    if x.itemsize not in MOVED or not x.size or not indices.size or indices.dtype.kind not in "iu":
        return None
    made = np.empty(indices.shape, x.dtype)
    return made if _elements(x, normalize_axis(params.axis, x.ndim), indices, made, "get") else None


def run_gather_elements_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
    g, x, indices = arrays
    made = np.zeros(x.shape, g.dtype)
    if add_elements(made, normalize_axis(params.axis, x.ndim), indices, g):
        return made
    return _by_loops(op, params, arrays)


def run_take_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
    g, x, indices = arrays
    made = np.zeros(x.shape, g.dtype)
    if params.axis is None:
        done = add_rows(made.reshape(-1), 0, indices, g)
    else:
        done = add_rows(made, normalize_axis(params.axis, x.ndim), indices, g)
    return made if done else _by_loops(op, params, arrays)


def run_gather_nd_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
    g, x, indices = arrays
    count = len(indices)
    if not count or not g.size or g.dtype not in SUMMED:
        return None
    made = np.zeros(x.shape, g.dtype)
    add_rows(made.reshape(-1, *x.shape[count:]), 0, row_numbers(x.shape, indices), g)
    return made


def _by_loops(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
    """Sums of dtypes that are added in a wider one."""
    if any([array.dtype.kind not in "fiub" or not array.size for array in arrays]):
        return None
    return run_written(op, params, arrays)


# The same of others, with what runs a call of them.
CALLS = {
    "take": (INDEXED_FROM, run_take),
    "gather_elements": (INDEXED_FROM, run_gather_elements),
    "_gather_elements_grad": (INDEXED_FROM, run_gather_elements_grad),
    "_take_grad": (INDEXED_FROM, run_take_grad),
    "_gather_nd_grad": (INDEXED_FROM, run_gather_nd_grad),
}


def nonzero(array: Array, apart: bool = False) -> Array:
    """Where elements are not zero: an index in each row; or each axis in one."""
    mask = array if array.dtype == bool else array != 0
    count, rank = int(np.count_nonzero(mask)), mask.ndim
    made = np.empty((rank, count) if apart else (count, rank), np.int64)
    if not made.size:
        return made
    held = dense(mask)
    limit = held.size - int(held.reshape(-1)[::-1].argmax())
    step, plane = (1, count) if apart else (rank, 1)
    kernel = open_kernel(("nonzero", rank), lambda target: nonzero_kernel(rank, target))
    kernel.run([held, made], [step, plane, limit, *held.shape], 1, limit * NANOSECONDS)
    return made
