"""Rows: parts of a tensor as views, and copies in which such a part is replaced."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....base.errors import RunError
from ....core.op import Op
from ....ops.shape.index import TakeAttrs
from ....ops.shape.join import ConcatenateAttrs
from ...autograd.modes import modes
from ...dispatch import apply
from ...tensor.memory import Array, array_of, memory_of, positions_by, seen_as
from ...tensor.tensor import MULTIPLE, DimensionError, Tensor, as_view, axis_of, element_strides, root_of, wrap
from ...tensor.viewing import pieces_of, place_of, positions_of, record_taken, reshaped, seen_by, slice_of
from ..operands import check_count, sizes_of
from ..table import named, row
from .shape import reshape

_SCATTER, _TAKE_GRAD, _COPY, _CONCATENATE = (
    Op.get(name) for name in ("scatter_nd", "_take_grad", "copy", "concatenate")
)


def _must_have_axes(name: str, input: Tensor) -> None:
    if not input.ndim:
        raise RunError(f"{name}() cannot be applied to a 0-dim tensor.")


@row
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` neighbours along an axis

    >>> import weft
    >>> weft.narrow(weft.arange(6), 0, 2, 3)
    tensor([2, 3, 4])
    """
    _must_have_axes("narrow", input)
    if length < 0:
        raise RunError("narrow(): length must be non-negative.")
    axis = axis_of(dim, input.ndim)
    if isinstance(start, Tensor) and (start.ndim or start._dtype.kind not in "iu"):
        raise RunError("start must be an 0-dim integral Tensor.")
    size, first = input._shape[axis], int(start)
    if not -size <= first <= size:
        raise DimensionError(f"start out of range (expected to be in range of [{-size}, {size}], but got {first})")
    first = first + size if first < 0 else first
    if first + length > size:
        raise RunError(f"start ({first}) + length ({length}) exceeds dimension size ({size}).")
    return slice_of(input, axis, first, length)


@row
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`narrow` in memory of its own"""
    if dim >= input.ndim:
        raise RunError(f"Expected dim < {input.ndim} to be true, but got {dim}")
    return apply(_COPY, None, [narrow(input, dim, start, length)])[0]


@row
def select(input: Tensor, dim: int, index: Any) -> Tensor:
    """What is at one index of an axis

    >>> import weft
    >>> weft.select(weft.tensor([[1, 2], [3, 4]]), 1, 0)
    tensor([1, 3])
    """
    if not input.ndim:
        raise DimensionError("select() cannot be applied to a 0-dim tensor.")
    axis = axis_of(dim, input.ndim)
    return place_of(input, axis, index_of(input, axis, int(index)))


def index_of(input: Tensor, axis: int, index: int) -> int:
    """An index along an axis, counted from the front."""
    size = input._shape[axis]
    if not -size <= index < size:
        raise DimensionError(f"index {index} is out of bounds for dimension {axis} with size {size}")
    return index + size if index < 0 else index


@row
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """What is at each index of an axis

    >>> import weft
    >>> weft.unbind(weft.tensor([[1, 2], [3, 4]]))
    (tensor([1, 2]), tensor([3, 4]))
    """
    if not input.ndim:
        raise DimensionError("Dimension specified as 0 but tensor has no dimensions")
    axis = axis_of(dim, input.ndim)
    size = input._shape[axis]
    if not (modes.grad and input._requires_grad):
        return _together([place_of(input, axis, i) for i in range(size)])
    pieces = pieces_of(input, axis, [1] * size)
    first: Any = (*(slice(None),) * axis, 0, ...)
    return _together([reshaped(piece, memory_of(piece)[first]) for piece in pieces])


def _together(views: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views that one call gave; autograd does not follow changes of one of them."""
    for view in views:
        view._creation = MULTIPLE
    return tuple(views)


def _pieces(input: Tensor, axis: int, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    made, start = [], 0
    for size in sizes:
        made.append(slice_of(input, axis, start, size))
        start += size
    return tuple(made)


@row
def split(input: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of one size along an axis, the last one smaller; or of the sizes given

    >>> import weft
    >>> weft.split(weft.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    >>> weft.split(weft.arange(5), [1, 4])
    (tensor([0]), tensor([1, 2, 3, 4]))
    """
    if isinstance(split_size_or_sections, (tuple, list)):
        return split_with_sizes(input, split_size_or_sections, dim)
    step = int(split_size_or_sections)
    if not input.ndim:
        raise RunError("split expects at least a 1-dimensional tensor")
    axis = axis_of(dim, input.ndim)
    size = input._shape[axis]
    if step < 0:
        raise RunError(f"split expects split_size be non-negative, but got split_size={step}")
    if not step:
        if size:
            raise RunError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
        return (slice_of(input, axis, 0, 0),)
    count = max(-(-size // step), 1)
    sizes = [min(step, size - i * step) for i in range(count)]
    return _together(pieces_of(input, axis, sizes))


@row
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of given sizes along an axis, which they must fill"""
    if not input.ndim:
        raise RunError("split expects at least a 1-dimensional tensor")
    axis = axis_of(dim, input.ndim)
    size, sizes = input._shape[axis], [int(n) for n in split_sizes]
    if any(n < 0 for n in sizes):
        raise RunError(
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={sizes}"
        )
    if sum(sizes) != size:
        raise RunError(
            f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size "
            f"at dimension {axis}), but got split_sizes={sizes}"
        )
    return _together(pieces_of(input, axis, sizes))


@row
def unsafe_split(input: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`split`"""
    return split(input, split_size, dim)


@row(aliases=["unsafe_chunk"])
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most so many pieces along an axis, all but the last of one size

    >>> import weft
    >>> weft.chunk(weft.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    if not input.ndim:
        raise RunError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RunError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    axis = axis_of(dim, input.ndim)
    size = input._shape[axis]
    step = -(-size // chunks)
    if not step:
        return _pieces(input, axis, [0] * chunks)
    return split(input, step, axis)


@row
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """As many pieces as asked for, or those between given indices"""
    _must_be_split(input, indices_or_sections)
    axis = axis_of(dim, input.ndim)
    size = input._shape[axis]
    places = _listed(indices_or_sections)
    if not isinstance(places, list):
        if places <= 0:
            raise RunError(f"number of sections must be larger than 0, got {places}")
        check_count("tensor_split", "a number of sections", places)
        more = size % places
        return _pieces(input, axis, [size // places + (i < more) for i in range(places)])
    bounds = [slice(place).indices(size)[1] for place in places]
    ends = zip([0, *bounds], [*bounds, size])
    return tuple(slice_of(input, axis, a, max(b - a, 0)) for a, b in ends)


def _must_be_split(input: Tensor, places: Any) -> None:
    if not input.ndim:
        raise RunError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    if isinstance(places, Tensor) and (places.ndim > 1 or places._dtype != np.int64):
        raise RunError(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
            f"one-dimensional int64 tensor, but got a tensor with {places.ndim} dims"
        )


def _listed(places: Any) -> Any:
    if isinstance(places, Tensor):
        return array_of(places).tolist()
    if isinstance(places, (tuple, list)):
        return [operator.index(place) for place in places]
    return operator.index(places)


def _split_axis(name: str, rank: int, axis: Callable[[int], int]) -> Callable[..., Any]:
    def split_along(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        ndim = input.ndim
        if ndim < rank:
            raise RunError(
                f"{name} requires a tensor with at least {rank} dimension"
                f"{'s' if rank > 1 else ''}, but got a tensor with {ndim} dimensions!"
            )
        at, places = axis(ndim), _listed(indices_or_sections)
        size = input._shape[at]
        if not isinstance(places, list) and (places <= 0 or size % places):
            raise RunError(
                f"{name} attempted to split along dimension {at}, but the size of the "
                f"dimension {size} is not divisible by the split_size {places}!"
            )
        return tensor_split(input, places, at)

    return named(split_along, name, f"`tensor_split` along axis {axis(3)}")


hsplit = row(_split_axis("hsplit", 1, lambda rank: 0 if rank == 1 else 1))
vsplit = row(_split_axis("vsplit", 2, lambda rank: 0))
dsplit = row(_split_axis("dsplit", 3, lambda rank: 2))

# Parts that are not slices.


def _diagonal_axes(rank: int, dim1: int, dim2: int) -> tuple[int, int]:
    first, second = axis_of(dim1, rank), axis_of(dim2, rank)
    if first == second:
        raise RunError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return first, second


def _diagonal(array: Array, offset: int, first: int, second: int) -> Array:
    """numpy's, which may be written to."""
    made = np.diagonal(array, offset, first, second)
    if not made.size:
        return made
    step = -offset * array.strides[first] if offset < 0 else offset * array.strides[second]
    start = step // array.itemsize
    flat = np.lib.stride_tricks.as_strided(array, (start + 1,), (array.itemsize,))[start:]
    return np.lib.stride_tricks.as_strided(flat, made.shape, made.strides)


@row
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A diagonal of two axes, as the last axis of a view

    >>> import weft
    >>> weft.diagonal(weft.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    first, second = _diagonal_axes(input.ndim, dim1, dim2)
    return seen_by(input, lambda x: _diagonal(x, offset, first, second))


@row(name="diagonal", space="weft.linalg", method=False)
def _matrix_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices in the last two axes"""
    return diagonal(A, offset, dim1, dim2)


@row(space=None)
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along an axis, as a new last axis of a view"""
    rank = input.ndim
    axis = axis_of(dimension, rank)
    extent = input._shape[axis] if rank else 1
    if size < 0:
        raise RunError(f"size is {size} but must be >= 0")
    if size > extent:
        raise RunError(f"maximum size for tensor at dimension {axis} is {extent} but size is {size}")
    if step <= 0:
        raise RunError(f"step is {step} but must be > 0")
    return seen_by(input, lambda x: _windows(x, axis, extent, size, step))


def _windows(x: Array, axis: int, extent: int, size: int, step: int) -> Array:
    if not x.ndim:
        return np.lib.stride_tricks.as_strided(x, (size,), (x.itemsize,))
    count = (extent - size) // step + 1
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :], size)
    stride = x.strides[axis]
    strides = (*x.strides[:axis], stride * step, *x.strides[axis + 1 :], stride)
    return np.lib.stride_tricks.as_strided(x, shape, strides)


@row
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """The memory behind a tensor with any sizes and strides, inside its storage"""
    sizes, strides = sizes_of((size,)), sizes_of((stride,))
    if len(sizes) != len(strides):
        raise RunError("mismatch in length of strides and shape")
    if any(n < 0 for n in (*sizes, *strides)):
        raise RunError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(strides)}")
    offset = input.storage_offset() if storage_offset is None else storage_offset
    memory = _memory(root_of(input))
    last = offset + sum((n - 1) * s for n, s in zip(sizes, strides))
    if 0 not in sizes and (offset < 0 or last >= memory.size):
        raise RunError(
            f"setStorage: sizes {list(sizes)}, strides {list(strides)}, storage offset {offset}, "
            f"and itemsize {input.itemsize} requiring a storage size of "
            f"{(last + 1) * input.itemsize} are out of bounds for storage of size {memory.nbytes}"
        )
    return _strided(input, memory, sizes, strides, offset)


def _memory(root: Tensor) -> Array:
    """All elements of a storage, as a vector."""
    held = root.untyped_storage()
    kind = root._dtype
    whole: Array = held._bytes[: held.nbytes() // kind.itemsize * kind.itemsize].view(kind)
    return whole


def _strided(input: Tensor, memory: Array, sizes: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
    def view(flat: Array) -> Array:
        start = flat[offset:] if 0 not in sizes else flat[:0]
        steps = [stride * flat.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(start, sizes, steps)

    made = as_view(seen_as(memory, view), input)
    if modes.grad and input._requires_grad:
        numbers = np.full(memory.size, -1, np.int64)
        steps = [stride * numbers.itemsize for stride in element_strides(memory_of(input))]
        first = numbers[input.storage_offset() :]
        own = np.lib.stride_tricks.as_strided(first, input._shape, steps)
        own[...] = positions_of(input._shape)
        record_taken(_and_a_zero(input), view(numbers), made)  # -1 is that zero
    return made


def _and_a_zero(input: Tensor) -> Tensor:
    zero = wrap(np.zeros(1, input._dtype))
    return apply(_CONCATENATE, ConcatenateAttrs(axis=0), [reshape(input, -1), zero])[0]


# Copies in which a part is replaced.


def _replaced(input: Tensor, src: Tensor, view: Callable[[Array], Array], name: str) -> Tensor:
    places = view(positions_of(input._shape))
    if src._shape != places.shape:
        raise RunError(
            f"expected src to have a size equal to the {name} of self. src size = "
            f"{list(src.shape)}, {name} size = {list(places.shape)}"
        )
    return put_at(input, places, src)


def put_at(input: Tensor, places: Array, values: Tensor) -> Tensor:
    """A copy with values at the elements of given numbers; of several, the last stays."""
    flat = [reshape(input, -1), wrap(places.reshape(1, -1)), reshape(values, -1)]
    return reshape(apply(_SCATTER, None, flat)[0], input._shape)


def zeros_but(shape: Sequence[int], places: Array, values: Tensor) -> Tensor:
    """Zeros, with values added to the elements of given numbers."""
    like = wrap(np.broadcast_to(np.zeros((), values._dtype), shape))
    return apply(_TAKE_GRAD, TakeAttrs(axis=None), [values, like, wrap(places)])[0]


@row
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with another value at an index of an axis"""
    axis = axis_of(dim, input.ndim)
    at = index_of(input, axis, index)
    return _replaced(input, src, lambda x: x[(slice(None),) * axis + (at,)], "slice")


@row
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """A copy with other values in a slice of an axis"""
    axis = axis_of(dim, input.ndim)
    index = (slice(None),) * axis + (slice(start, end, step),)
    return _replaced(input, src, lambda x: x[index], "slice")


@row
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy with another diagonal"""
    first, second = _diagonal_axes(input.ndim, dim1, dim2)
    return _replaced(input, src, lambda x: np.diagonal(x, offset, first, second), "diagonal")


@row
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A copy with other values where `as_strided` looks"""
    flat = wrap(positions_of(input._shape))
    places = array_of(as_strided(flat, size, stride, storage_offset or 0))
    return _replaced(input, src, lambda x: places, "slice")


@row
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last axis on a diagonal"""
    if not input.ndim:
        raise DimensionError("Dimension out of range (expected to be in range of [-1, 0], but got -2)")
    first, second = _diagonal_axes(input.ndim + 1, dim1, dim2)
    side = input._shape[-1] + abs(offset)
    shape = list(input._shape[:-1])
    for axis in sorted((first, second)):
        shape.insert(axis, side)
    places = positions_by(lambda x: np.diagonal(x, offset, first, second), shape)
    return zeros_but(shape, places, input)


@row
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or a matrix with that diagonal

    >>> import weft
    >>> weft.diag(weft.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    >>> weft.diag(weft.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    rank = input.ndim
    if rank == 1:
        return diag_embed(input, diagonal)
    if rank != 2:
        raise RunError(f"diag(): Supports 1D or 2D tensors. Got {rank}D")
    return apply(_COPY, None, [_of_matrix(input, diagonal)])[0]


def _of_matrix(input: Tensor, offset: int) -> Tensor:
    return diagonal(input, offset)


@row
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements on a diagonal"""
    return diag_embed(reshape(input, -1), offset)
