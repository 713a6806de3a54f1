"""Rows: tensors put together, repeated, and in another order along their axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.errors import InvalidType, InvalidValue, RunError
from ....core.op import Op
from ....ops.linalg.lapack import TriangleAttrs
from ....ops.shape.index import TakeAttrs
from ....ops.shape.join import ConcatenateAttrs, StackAttrs
from ....ops.shape.repeat import TileAttrs
from ....ops.shape.transform import FlipAttrs
from ...dispatch import apply
from ...tensor.memory import Array, array_of
from ...tensor.promotion import result_dtype
from ...tensor.tensor import Tensor, axis_of, wrap
from ...tensor.viewing import pieces_of, positions_of
from ..operands import sizes_of
from ..table import row
from .parts import zeros_but
from .shape import atleast_1d, atleast_2d, atleast_3d, expand, reshape, transpose

_CONCATENATE, _TILE, _FLIP, _TAKE, _COPY, _TRIANGLE, _STACK = (
    Op.get(name) for name in ("concatenate", "tile", "flip", "take", "copy", "triangle", "stack")
)


def listed(name: str, tensors: Any) -> list[Tensor]:
    """A sequence of tensors, or an error that says what is wrong with it."""
    if not isinstance(tensors, (tuple, list)):
        raise InvalidType(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}"
        )
    for number, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise InvalidType(f"expected Tensor as element {number} in argument 0, but got {type(tensor).__name__}")
    return list(tensors)


def _in_one_dtype(tensors: Sequence[Tensor]) -> list[Tensor]:
    kind = tensors[0]._dtype
    if any(tensor._dtype != kind for tensor in tensors):
        kind = result_dtype(tensors)
    return [tensor._cast(kind) for tensor in tensors]


@row(method=False, out="apart", aliases=["concat", "concatenate"])
def cat(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors one after another along an axis

    >>> import weft
    >>> weft.cat([weft.tensor([1, 2]), weft.tensor([3])])
    tensor([1, 2, 3])
    >>> weft.cat([weft.ones(2, 3), weft.zeros(2, 1)], dim=1).shape
    weft.Size([2, 4])
    """
    given = listed("cat", tensors)
    if not given:
        raise InvalidValue("cat(): expected a non-empty list of Tensors")
    for number, tensor in enumerate(given):
        if not tensor.ndim:
            raise RunError(f"zero-dimensional tensor (at position {number}) cannot be concatenated")
    parts = _in_one_dtype(given)
    kept = [part for part in parts if part._shape != (0,)]  # of any rank, by old habit
    if not kept:
        axis_of(dim, 1)
        return apply(_COPY, None, [parts[0]])[0]
    axis = axis_of(dim, kept[0].ndim)
    _must_fit(kept, axis)
    return apply(_CONCATENATE, ConcatenateAttrs(axis=axis), kept)[0]


def _must_fit(parts: Sequence[Tensor], axis: int) -> None:
    first = parts[0]._shape
    for number, part in enumerate(parts[1:], 1):
        shape = part._shape
        if len(shape) != len(first):
            raise RunError(f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)}")
        for at, (want, have) in enumerate(zip(first, shape)):
            if at != axis and want != have:
                raise RunError(
                    f"Sizes of tensors must match except in dimension {axis}. Expected size {want} "
                    f"but got size {have} for tensor number {number} in the list."
                )


@row(method=False, out=True)
def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one size along a new axis

    >>> import weft
    >>> weft.stack([weft.tensor([1, 2]), weft.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    >>> weft.stack([weft.tensor([1, 2]), weft.tensor([3, 4])], dim=1)
    tensor([[1, 3],
            [2, 4]])
    """
    given = listed("stack", tensors)
    if not given:
        raise RunError("stack expects a non-empty TensorList")
    shape = given[0]._shape
    axis = axis_of(dim, len(shape) + 1)
    for number, tensor in enumerate(given):
        if tensor._shape != shape:
            raise RunError(
                f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 "
                f"and {list(tensor.shape)} at entry {number}"
            )
    return apply(_STACK, StackAttrs(axis=axis), _in_one_dtype(given))[0]


def _all_at_least(name: str, tensors: Any, grow: Any) -> list[Tensor]:
    given = listed(name, tensors)
    if not given:
        raise RunError(f"{name} expects a non-empty TensorList")
    return [grow(tensor) for tensor in given]


@row(method=False, out=True)
def hstack(tensors: Any) -> Tensor:
    """Tensors side by side: along the second axis, vectors along their only one

    >>> import weft
    >>> weft.hstack([weft.tensor([1, 2]), weft.tensor([3])])
    tensor([1, 2, 3])
    """
    given = _all_at_least("hstack", tensors, atleast_1d)
    return cat(given, 0 if given[0].ndim == 1 else 1)


@row(method=False, out=True, aliases=["row_stack"])
def vstack(tensors: Any) -> Tensor:
    """Tensors below each other; vectors are rows

    >>> import weft
    >>> weft.vstack([weft.tensor([1, 2]), weft.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return cat(_all_at_least("vstack", tensors, atleast_2d), 0)


@row(method=False, out=True)
def dstack(tensors: Any) -> Tensor:
    """Tensors behind each other, along a third axis"""
    return cat(_all_at_least("dstack", tensors, atleast_3d), 2)


@row(method=False, out=True)
def column_stack(tensors: Any) -> Tensor:
    """Tensors side by side; vectors are columns"""
    columns = lambda x: reshape(x, -1, 1) if x.ndim <= 1 else x
    return cat(_all_at_least("column_stack", tensors, columns), 1)


@row(space=None)
def repeat(input: Tensor, repeats: Any, *more: Any) -> Tensor:
    """Copies side by side, so often along each axis; new axes come first

    >>> import weft
    >>> weft.tensor([1, 2]).repeat(3)
    tensor([1, 2, 1, 2, 1, 2])
    >>> weft.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    times = sizes_of((repeats, *more))
    if len(times) < input.ndim:
        raise RunError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if any(n < 0 for n in times):
        raise RunError(f"Trying to create tensor with negative dimension: {list(times)}")
    return apply(_TILE, TileAttrs(reps=times), [input])[0]


@row
def tile(input: Tensor, dims: Any, *more: Any) -> Tensor:
    """Copies side by side, aligned at the last axis

    >>> import weft
    >>> weft.tile(weft.tensor([1, 2]), (3,))
    tensor([1, 2, 1, 2, 1, 2])
    >>> weft.tile(weft.zeros(2, 3, 4), (2,)).shape
    weft.Size([2, 3, 8])
    """
    times = sizes_of((dims, *more))
    return repeat(input, (1,) * (input.ndim - len(times)) + times)


@row
def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element, or slice of an axis, several times in a row

    >>> import weft
    >>> weft.repeat_interleave(weft.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    >>> weft.repeat_interleave(weft.tensor([1, 2]), weft.tensor([1, 3]))
    tensor([1, 2, 2, 2])
    """
    if repeats is None:
        return wrap(np.repeat(np.arange(input.numel()), array_of(input)))
    source, axis = (reshape(input, -1), 0) if dim is None else (input, dim)
    axis = axis_of(axis, source.ndim)
    counts = array_of(repeats) if isinstance(repeats, Tensor) else np.asarray(repeats)
    size = source._shape[axis] if source.ndim else 1
    _must_count(counts, size)
    chosen = np.repeat(np.arange(size), counts)
    if output_size is not None and output_size != chosen.size:
        raise RunError(f"repeat_interleave: Invalid output_size, expected {chosen.size} but got {output_size}")
    return taken(source if source.ndim else reshape(source, 1), axis, chosen)


def _must_count(counts: Array, size: int) -> None:
    if counts.ndim > 1:
        raise RunError("repeats must be 0-dim or 1-dim tensor")
    if counts.dtype.kind not in "iu":
        raise RunError("repeats has to be Long or Int tensor")
    if counts.ndim and counts.size not in (1, size):
        raise RunError("repeats must have the same size as input along dim")
    if counts.size and counts.min() < 0:
        raise RunError("repeats can not be negative")


def taken(input: Tensor, axis: int, indices: Array) -> Tensor:
    """Slices along an axis at indices that are known to be inside."""
    return apply(_TAKE, TakeAttrs(axis=axis), [input, wrap(indices)])[0]


@row
def flip(input: Tensor, dims: Any, *more: Any) -> Tensor:
    """Axes backwards

    >>> import weft
    >>> weft.flip(weft.tensor([[1, 2], [3, 4]]), [1])
    tensor([[2, 1],
            [4, 3]])
    """
    rank = input.ndim
    axes = [axis_of(dim, rank) for dim in sizes_of((dims, *more))]
    for axis in axes:
        if axes.count(axis) > 1:
            raise RunError(f"dim {axis} appears multiple times in the list of dims")
    made = input
    for axis in axes if rank else ():
        made = apply(_FLIP, FlipAttrs(axis=axis), [made])[0]
    return made if made is not input else apply(_COPY, None, [input])[0]


@row
def fliplr(input: Tensor) -> Tensor:
    """The second axis backwards"""
    if input.ndim < 2:
        raise RunError("Input must be >= 2-d.")
    return flip(input, 1)


@row
def flipud(input: Tensor) -> Tensor:
    """The first axis backwards"""
    if input.ndim < 1:
        raise RunError("Input must be >= 1-d.")
    return flip(input, 0)


@row
def roll(input: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Elements moved along axes; those that fall off come in at the other end

    >>> import weft
    >>> weft.roll(weft.arange(5), 2)
    tensor([3, 4, 0, 1, 2])
    >>> weft.roll(weft.tensor([[1, 2], [3, 4]]), 1, dims=0)
    tensor([[3, 4],
            [1, 2]])
    """
    moves = sizes_of((shifts,))
    axes = sizes_of((dims,))
    if not moves:
        raise RunError("`shifts` required")
    if not axes and len(moves) == 1:
        return reshape(roll(reshape(input, -1), moves, (0,)), input._shape)
    if len(moves) != len(axes):
        raise RunError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}")
    made = input
    for move, dim in zip(moves, axes):
        axis = axis_of(dim, input.ndim)
        size = made._shape[axis]
        back = move % size if size else 0
        if back:
            made = cat(pieces_of(made, axis, [size - back, back])[::-1], axis)
    return apply(_COPY, None, [input])[0] if made is input else made


@row
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Turned by 90 degrees k times in the plane of two axes, from the first towards the second"""
    rank = input.ndim
    if len(dims) != 2:
        raise RunError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if rank < 2:
        raise RunError(f"expected total dims >= 2, but got total dims = {rank}")
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == rank:
        raise RunError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    first, second = (axis_of(dim, rank) for dim in dims)
    turns = k % 4
    if turns == 2:
        return flip(input, first, second)
    if turns == 1:
        return transpose(flip(input, second), first, second)
    if turns == 3:
        return flip(transpose(input, first, second), second)
    return apply(_COPY, None, [input])[0]


def _triangle(input: Tensor, diagonal: int, lower: bool, name: str) -> Tensor:
    if input.ndim < 2:
        raise RunError(f"{name}: input tensor must have at least 2 dimensions")
    return apply(_TRIANGLE, TriangleAttrs(lower=lower, diagonal=diagonal), [input])[0]


@row(inplace=True, out=True)
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Matrices with zeros above a diagonal

    >>> import weft
    >>> weft.tril(weft.tensor([[1, 2], [3, 4]]))
    tensor([[1, 0],
            [3, 4]])
    >>> weft.tril(weft.ones(2, 3), diagonal=1)
    tensor([[1., 1., 0.],
            [1., 1., 1.]])
    """
    return _triangle(input, diagonal, True, "tril")


@row(inplace=True, out=True)
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Matrices with zeros below a diagonal

    >>> import weft
    >>> weft.triu(weft.tensor([[1, 2], [3, 4]]))
    tensor([[1, 2],
            [0, 4]])
    >>> weft.triu(weft.ones(2, 3), diagonal=1)
    tensor([[0., 1., 1.],
            [0., 0., 1.]])
    """
    return _triangle(input, diagonal, False, "triu")


@row(method=False)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Vectors expanded to the grid that they span

    >>> import weft
    >>> rows, columns = weft.meshgrid(weft.tensor([1, 2]), weft.tensor([3, 4, 5]), indexing="ij")
    >>> rows
    tensor([[1, 1, 1],
            [2, 2, 2]])
    >>> columns
    tensor([[3, 4, 5],
            [3, 4, 5]])
    """
    given = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
    vectors = listed("meshgrid", given)
    if not vectors:
        raise RunError("meshgrid expects a non-empty TensorList")
    for vector in vectors:
        if vector.ndim > 1:
            raise RunError(f"meshgrid: Expected 0D or 1D tensor in the tensor list but got: {list(vector.shape)}")
        if vector._dtype != vectors[0]._dtype:
            raise RunError("meshgrid expects all tensors to have the same dtype")
    if indexing not in ("ij", "xy"):
        raise RunError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    swapped = indexing == "xy" and len(vectors) >= 2
    order = [vectors[1], vectors[0], *vectors[2:]] if swapped else vectors
    shape = [vector.numel() for vector in order]
    grids = [
        expand(reshape(vector, [-1 if at == axis else 1 for at in range(len(order))]), shape)
        for axis, vector in enumerate(order)
    ]
    if swapped:
        grids = [grids[1], grids[0], *grids[2:]]
    return tuple(grids)


@row(method=False)
def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of elements of vectors, a row each"""
    for tensor in tensors:
        if tensor.ndim != 1:
            raise RunError(f"Expect a 1D vector, but got shape {list(tensor.shape)}")
    columns: list[Tensor] = [reshape(grid, -1) for grid in meshgrid(*tensors)] if len(tensors) > 1 else list(tensors)
    return stack(columns, 1) if len(columns) > 1 else columns[0]


@row
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of r elements of a vector, a row each"""
    if input.ndim != 1:
        raise RunError("Expect a 1D vector, but got shape " + str(list(input.shape)))
    if r < 0:
        raise RunError(f"Expect a non-negative number, but got {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.numel()), r)) if r else []
    chosen = np.asarray(rows, np.int64).reshape(-1, r)
    return taken(input, 0, chosen) if r else wrap(np.empty((0,), input._dtype))


@row(method=False)
def block_diag(*tensors: Any) -> Tensor:
    """A matrix with the given ones on its diagonal"""
    given = list(tensors)
    for number, tensor in enumerate(given):
        if tensor.ndim > 2:
            raise RunError(
                f"block_diag: Input tensors must have 2 or fewer dimensions. Input {number} "
                f"has {tensor.ndim} dimensions"
            )
    blocks = _in_one_dtype([atleast_2d(tensor) for tensor in given])
    shape = tuple(sum(block._shape[axis] for block in blocks) for axis in (0, 1))
    places, row_start, column = positions_of(shape), 0, 0
    numbers = []
    for block in blocks:
        rows, columns = block._shape
        numbers.append(places[row_start : row_start + rows, column : column + columns].reshape(-1))
        row_start, column = row_start + rows, column + columns
    values = cat([reshape(block, -1) for block in blocks])
    return zeros_but(shape, np.concatenate(numbers), values)
