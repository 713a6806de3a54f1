"""Constants of a function whose shapes follow the sizes of its inputs: in come the arrays that several traces made in
one place, out goes a graph that makes them at any size. Those are arrays of one value, as states that begin at 0,
ranges, as positions, and matrices of two values that meet along a diagonal, as causal masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.dtype import BOOL, INT32, INT64, dtype_name
from ...core.ir import Node, NodeEntry
from ...core.op import Op
from ...core.schema import text_of
from .open_numbers import Point, number_of

Array = np.ndarray[Any, Any]
Dims = tuple[int | str, ...]


def made(op_name: str, *inputs: NodeEntry, **attrs: Any) -> NodeEntry:
    """A node of an operator, by the texts of its attributes."""
    return NodeEntry(Node(Op.get(op_name), op_name, {key: text_of(value) for key, value in attrs.items()}, inputs))


def open_constant(arrays: Sequence[Array], points: Sequence[Point]) -> NodeEntry | None:
    """What the arrays are at these points, at any point; None where it is not known how they go on."""
    first = arrays[0]
    if len({(array.ndim, array.dtype) for array in arrays}) != 1 or any(not array.size for array in arrays):
        return None
    dims = [number_of([array.shape[axis] for array in arrays], points) for axis in range(first.ndim)]
    shape = tuple(dim for dim in dims if dim is not None)
    if len(shape) != first.ndim:
        return None
    same = [all((array == array.take([0], axis)).all() for array in arrays) for axis in range(first.ndim)]
    narrow = [array[tuple(slice(1) if every else slice(None) for every in same)] for array in arrays]
    kept = tuple(1 if every else dim for every, dim in zip(same, shape))
    found = _of_one_value(narrow, kept) or _range(narrow, kept) or _of_two_values(narrow, kept)
    return found if found is None or kept == shape else made("broadcast_to", found, shape=shape)


def _of_one_value(arrays: Sequence[Array], shape: Dims) -> NodeEntry | None:
    value = arrays[0].flat[0]
    if any(not np.array_equal(array, np.full_like(array, value), equal_nan=value != value) for array in arrays):
        return None
    return _filled(value, shape)


def _filled(value: Any, shape: Dims) -> NodeEntry:
    dtype = value.dtype
    if dtype == BOOL:
        whole = made("full", shape=shape, dtype=dtype_name(INT32), fill_value=int(value))
        return made("cast", whole, dtype=dtype_name(BOOL))
    return made("full", shape=shape, dtype=dtype_name(dtype), fill_value=value.item())


def _range(arrays: Sequence[Array], shape: Dims) -> NodeEntry | None:
    """start, start + step, ... in whole numbers, along the only axis that is not 1."""
    first = arrays[0].reshape(-1)
    wide = [dim for dim in shape if dim != 1]
    if len(wide) != 1 or first.size < 2 or first.dtype.kind not in "iuf":
        return None
    start, step = first[0].item(), first[1].item() - first[0].item()
    if not float(start).is_integer() or not float(step).is_integer():
        return None
    for array in arrays:
        line = array.reshape(-1)
        if not np.array_equal(line, (start + step * np.arange(line.size)).astype(line.dtype)):
            return None
    places = made("arange", start=0, stop=wide[0], step=1, dtype=dtype_name(INT64))
    numbers = made("__add_scalar__", made("__mul_scalar__", places, scalar=int(step)), scalar=int(start))
    return made("reshape", made("cast", numbers, dtype=dtype_name(first.dtype)), shape=shape)


def _of_two_values(arrays: Sequence[Array], shape: Dims) -> NodeEntry | None:
    """One value where column - row is at least a number, and another before."""
    if len(shape) < 2 or any(dim != 1 for dim in shape[:-2]):
        return None
    found = {_corners(array.reshape(array.shape[-2:])) for array in arrays}
    first = found.pop()
    if found or first is None:
        return None
    diagonal, above, below = first
    rows, columns = (made("arange", start=0, stop=dim, step=1, dtype=dtype_name(INT64)) for dim in shape[-2:])
    row = made("reshape", made("__add_scalar__", rows, scalar=diagonal), shape=(-1, 1))
    is_above = made("broadcast_greater_equal", made("reshape", columns, shape=(1, -1)), row)
    dtype = arrays[0].dtype
    chosen = INT32 if dtype == BOOL else dtype
    ends = [_filled(np.asarray(value, chosen)[()], (1,)) for value in (above, below)]
    matrix = made("reshape", made("broadcast_where", is_above, *ends), shape=shape)
    return matrix if chosen == dtype else made("cast", matrix, dtype=dtype_name(dtype))


def _corners(matrix: Array) -> tuple[int, Any, Any] | None:
    """The first diagonal above which a matrix has another value than below it, and both values."""
    above, below = matrix[0, -1], matrix[-1, 0]
    apart = np.arange(matrix.shape[1]) - np.arange(matrix.shape[0])[:, None]
    is_above = matrix == above
    if above == below or not is_above.any():
        return None
    diagonal = int(apart[is_above].min())
    fits = np.array_equal(matrix, np.where(apart >= diagonal, above, below))
    return (diagonal, above.item(), below.item()) if fits else None
