"""Writes and sums in place at positions that integers name, and where elements hold, natively."""

from __future__ import annotations

from itertools import chain
from math import prod

import numpy as np

from ...base.cpu_facts import COSTS
from ...base.dtype import FLOAT32, FLOAT64, INT64
from ...lower.cpu.nests.indexed import ROW_BLOCK, elements_kernel, nonzero_kernel
from .calls import Array, Declined, attempted, not_empty
from .copy import dense
from .kernels import kernel
from .strides import has_steps, steps_of

MOVED = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}
SUMMED = (FLOAT32, FLOAT64, INT64)
NANOSECONDS = COSTS.indexed


def _elements(x: Array, axis: int, indices: Array, y: Array, adds: bool) -> None:
    """Puts y into x, or adds it there."""
    not_empty([indices])
    if not has_steps(x) or not has_steps(y):
        raise Declined("strides")
    indices = indices.astype(np.int64, copy=False)
    x_steps, y_steps, steps = map(steps_of, (x, y, indices))
    in_rows = (x.ndim, axis, steps[-1], x_steps[-1]) == (3, 1, 0, 1) and y_steps[-1] in (0, 1)
    step, x_steps[axis] = x_steps[axis], 0
    rows = prod(indices.shape[:-1])
    outer = rows if axis == indices.ndim - 1 else prod(indices.shape[:axis])
    blocks = -(-indices.shape[-1] // ROW_BLOCK) if in_rows else 1
    scalars = [outer * blocks, blocks, rows // outer]
    scalars += [*chain(*zip(indices.shape, x_steps, y_steps, steps)), x.shape[axis], step]
    dtype = x.dtype if adds else MOVED[x.itemsize]
    moved = kernel(elements_kernel, dtype, indices.ndim, adds, y_steps[-1] if in_rows else None)
    moved.run([x, indices, y], scalars, outer * blocks, indices.size * NANOSECONDS)


def _add_elements(x: Array, axis: int, indices: Array, y: Array) -> None:
    """x[i, indices[i, j, k], k] += y[i, j, k] along axis 1"""
    if x.dtype not in SUMMED:
        raise Declined("dtype")
    _elements(x, axis, indices, y, True)


def _put_elements(x: Array, axis: int, indices: Array, y: Array) -> None:
    """The same with = in place of +=; of several elements for one place the last stays."""
    if x.itemsize not in MOVED:
        raise Declined("dtype")
    _elements(x, axis, indices, y, False)


def _add_rows(x: Array, axis: int, indices: Array, y: Array) -> None:
    """x[:, indices] += y along axis 1"""
    if not x.flags.c_contiguous:
        raise Declined("not contiguous")
    inner = [n for n in (prod(x.shape[axis + 1 :]),) if n != 1]
    shape = (prod(x.shape[:axis]), indices.size, *inner)
    same = not any(y.strides) and y.size  # one element for all
    blocks = np.broadcast_to(y[(0,) * y.ndim], shape) if same else dense(y).reshape(shape)
    numbers = indices.astype(np.int64, copy=False).reshape(-1, *[1 for _ in inner])
    places = np.broadcast_to(numbers, shape)
    _add_elements(x.reshape(shape[0], x.shape[axis], *inner), 1, places, blocks)


add_elements = attempted("add_elements", _add_elements)
put_elements = attempted("put_elements", _put_elements)
add_rows = attempted("add_rows", _add_rows)


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
