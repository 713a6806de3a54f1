"""Writes and sums in place at positions that integers name, and where elements hold, natively."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from math import prod

import numpy as np

from ...base.cpu_facts import COSTS
from ...base.dtype import FLOAT32, FLOAT64, INT64, DType
from ...lower.cpu.nests.indexed import ROW_BLOCK, elements_kernel, nonzero_kernel
from ...runtime.cpu.open_program import Call
from .calls import Array, Declined, attempted, not_empty
from .copy import dense
from .kernels import kernel
from .strides import has_steps, steps_of

MOVED = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}
SUMMED = (FLOAT32, FLOAT64, INT64)
NANOSECONDS = COSTS.indexed
PLANS = 1024


def _elements(x: Array, axis: int, indices: Array, y: Array, adds: bool) -> None:
    """Puts y into x, or adds it there."""
    not_empty([indices])
    if not has_steps(x) or not has_steps(y):
        raise Declined("strides")
    indices = indices.astype(np.int64, copy=False)
    dtype = x.dtype if adds else MOVED[x.itemsize]
    steps = tuple([tuple(steps_of(array)) for array in (x, y, indices)])
    _elements_call(dtype, adds, axis, indices.shape, x.shape[axis], steps).run([x, indices, y])


@lru_cache(PLANS)
def _elements_call(
    dtype: DType, adds: bool, axis: int, shape: tuple[int, ...], extent: int, steps: tuple[tuple[int, ...], ...]
) -> Call:
    """For indices of a shape, into x of an extent along the axis, by the steps of x, y and indices."""
    own, y_steps, index_steps = steps
    rank, step, x_steps = len(shape), own[axis], [0 if place == axis else n for place, n in enumerate(own)]
    in_rows = (rank, axis, index_steps[-1], own[-1]) == (3, 1, 0, 1) and y_steps[-1] in (0, 1)
    rows = prod(shape[:-1])
    outer = rows if axis == rank - 1 else prod(shape[:axis])
    blocks = -(-shape[-1] // ROW_BLOCK) if in_rows else 1
    scalars = [outer * blocks, blocks, rows // outer]
    scalars += [*chain(*zip(shape, x_steps, y_steps, index_steps)), extent, step]
    program = kernel(elements_kernel, dtype, rank, adds, y_steps[-1] if in_rows else None)
    return program.given(scalars, outer * blocks, prod(shape) * NANOSECONDS)


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
    call = kernel(nonzero_kernel, rank).given([step, plane, limit, *held.shape], 1, limit * NANOSECONDS)
    call.run([held, places])
    return places
