"""Reads, writes and sums at positions that integers name, and where elements hold, natively."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from ...base.cpu_facts import COSTS
from ...base.dtype import FLOAT32, FLOAT64, INT64
from ...base.shape import normalize_axis
from ...core.op import Op
from ...lower.cpu.nests.indexed import ROW_BLOCK, add_rows_kernel, elements_kernel, nonzero_kernel
from ...ops.shape.index import row_numbers
from .calls import Array, Declined, attempted, native, not_empty, numbers
from .copy import dense
from .generic import run_template
from .kernels import kernel
from .strides import has_steps, steps_of

MOVED = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}
SUMMED = (FLOAT32, FLOAT64, INT64)
SHORT_BYTES = 32  # of rows that are moved element by element
NANOSECONDS = COSTS.indexed


def _elements(x: Array, axis: int, indices: Array, y: Array, what: str) -> None:
    """Reads y from x, puts y into x, or adds it there."""
    if not has_steps(x) or not has_steps(y):
        raise Declined("strides")
    indices = indices.astype(np.int64, copy=False)
    x_steps, y_steps, steps = map(steps_of, (x, y, indices))
    step, x_steps[axis] = x_steps[axis], 0
    rows = prod(indices.shape[:-1])
    apart = what == "get" or axis == indices.ndim - 1
    turns = rows if apart else prod(indices.shape[:axis])
    scalars = [turns, rows // turns, *chain(*zip(indices.shape, x_steps, y_steps, steps)), x.shape[axis], step]
    dtype = x.dtype if what == "add" else MOVED[x.itemsize]
    moved = kernel(elements_kernel, dtype, indices.ndim, what)
    moved.run([x, indices, y], scalars, turns, indices.size * NANOSECONDS)


def _add_elements(x: Array, axis: int, indices: Array, y: Array) -> None:
    """x[i, indices[i, j, k], k] += y[i, j, k] along axis 1"""
    if x.dtype not in SUMMED:
        raise Declined("dtype")
    not_empty([indices])
    _elements(x, axis, indices, y, "add")


def _put_elements(x: Array, axis: int, indices: Array, y: Array) -> None:
    """The same with = in place of +=; of several elements for one place the last stays."""
    if x.itemsize not in MOVED:
        raise Declined("dtype")
    not_empty([indices])
    _elements(x, axis, indices, y, "put")


def _add_rows(x: Array, axis: int, indices: Array, y: Array) -> None:
    """x[:, indices] += y along axis 1"""
    if x.dtype not in SUMMED:
        raise Declined("dtype")
    if not x.flags.c_contiguous:
        raise Declined("not contiguous")
    not_empty([y])
    outer, inner, count = prod(x.shape[:axis]), prod(x.shape[axis + 1 :]), indices.size
    if inner == 1:
        places = np.broadcast_to(indices.reshape(1, count), (outer, count))
        _elements(x.reshape(outer, -1), 1, places, y.reshape(outer, count), "add")
        return
    blocks = _rows(y, (outer, count, inner))
    strides = steps_of(blocks)
    scalars = [outer, count, inner, x.shape[axis], strides[0], strides[1]]
    arrays = [x, dense(indices.astype(np.int64, copy=False)), blocks]
    work = count * NANOSECONDS + y.size * 0.2
    kernel(add_rows_kernel, x.dtype, strides[2] == 1).run(arrays, scalars, outer * -(-inner // ROW_BLOCK), work)


add_elements = attempted("add_elements", _add_elements)
put_elements = attempted("put_elements", _put_elements)
add_rows = attempted("add_rows", _add_rows)


def _rows(y: Array, shape: tuple[int, int, int]) -> Array:
    """y seen as outer blocks of rows; copied if its memory does not show it so."""
    if not any(y.strides):  # one element for all
        return np.broadcast_to(y[(0,) * y.ndim], shape)
    return dense(y).reshape(shape)


@native("take", takes=not_empty)
def run_take(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """Slices of an axis; None where they are long, and the data is in order."""
    x, indices = arrays
    if params.axis is None:
        raise Declined("attributes")
    if x.itemsize not in MOVED:
        raise Declined("dtype")
    axis = normalize_axis(params.axis, x.ndim)
    inner = prod(x.shape[axis + 1 :])
    if x.flags.c_contiguous and inner * x.itemsize > SHORT_BYTES:
        return None
    taken = np.empty((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    flat = taken.reshape(*x.shape[:axis], -1, *x.shape[axis + 1 :])
    places = indices.reshape([-1 if at == axis else 1 for at in range(x.ndim)])
    _elements(x, axis, np.broadcast_to(places, flat.shape), flat, "get")
    return taken


@native("gather_elements", takes=not_empty)
def run_gather_elements(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    x, indices = arrays
    if x.itemsize not in MOVED or indices.dtype.kind not in "iu":
        raise Declined("dtype")
    gathered = np.empty(indices.shape, x.dtype)
    _elements(x, normalize_axis(params.axis, x.ndim), indices, gathered, "get")
    return gathered


@native("_gather_elements_grad", takes=numbers)
def run_gather_elements_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
    g, x, indices = arrays
    if g.dtype not in SUMMED:  # what is added in a wider dtype
        return run_template(op, params, arrays)
    total = np.zeros(x.shape, g.dtype)
    _add_elements(total, normalize_axis(params.axis, x.ndim), indices, g)
    return total


@native("_take_grad", takes=numbers)
def run_take_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
    g, x, indices = arrays
    if g.dtype not in SUMMED:
        return run_template(op, params, arrays)
    total = np.zeros(x.shape, g.dtype)
    flat, axis = (total.reshape(-1), 0) if params.axis is None else (total, normalize_axis(params.axis, x.ndim))
    _add_rows(flat, axis, indices, g)
    return total


@native("_gather_nd_grad", takes=not_empty)
def run_gather_nd_grad(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    g, x, indices = arrays
    total = np.zeros(x.shape, g.dtype)
    _add_rows(total.reshape(-1, *x.shape[len(indices) :]), 0, row_numbers(x.shape, indices), g)
    return total


def nonzero(array: Array, apart: bool = False) -> Array:
    """Where elements are not zero: an index in each row; or each axis in one."""
    mask = array if array.dtype == bool else array != 0
    count, rank = int(np.count_nonzero(mask)), mask.ndim
    places = np.empty((rank, count) if apart else (count, rank), np.int64)
    if not places.size:
        return places
    held = dense(mask)
    limit = held.size - int(held.reshape(-1)[::-1].argmax())
    step, plane = (1, count) if apart else (rank, 1)
    kernel(nonzero_kernel, rank).run([held, places], [step, plane, limit, *held.shape], 1, limit * NANOSECONDS)
    return places
