"""Rows: the same elements in another shape, or with their axes in another order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.errors import InvalidType, RunError
from ...autograd.node_names import entitle
from ...tensor.memory import array_of, memory_of
from ...tensor.size import Size
from ...tensor.tensor import Tensor, as_view, axis_of, bind
from ...tensor.types import dtype
from ...tensor.viewing import in_order, permuted, reshaped, stretched
from ..around import LAYERS, layered
from ..operands import sizes_of
from ..table import row


def _inferred(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    """Sizes with -1 replaced by what is left."""
    known = 1
    unknown = None
    for axis, size in enumerate(sizes):
        if size == -1:
            if unknown is not None:
                raise RunError("only one dimension can be inferred")
            unknown = axis
        elif size < 0:
            raise RunError(f"invalid shape dimension {size}")
        else:
            known *= size
    if unknown is None:
        if known != count:
            raise RunError(f"shape '{list(sizes)}' is invalid for input of size {count}")
        return tuple(sizes)
    if not known:
        raise RunError(
            f"cannot reshape tensor of {count} elements into shape {list(sizes)} because the "
            "unspecified dimension size -1 can be any value and is ambiguous"
        )
    if count % known:
        raise RunError(f"shape '{list(sizes)}' is invalid for input of size {count}")
    return (*sizes[:unknown], count // known, *sizes[unknown + 1 :])


@row(space=None)
def view(input: Tensor, size: Any, *more: Any) -> Tensor:
    """The same memory in another shape, or as elements of another dtype

    >>> import weft
    >>> x = weft.zeros(4)
    >>> x.view(2, 2)[0, 1] = 1
    >>> x
    tensor([0., 1., 0., 0.])
    >>> weft.tensor([1.0]).view(weft.int32)
    tensor([1065353216], dtype=weft.int32)
    """
    if isinstance(size, dtype):
        return _view_dtype(input, size)
    array = memory_of(input)
    sizes = _inferred(sizes_of((size, *more)), array.size)
    try:
        return reshaped(input, array.reshape(sizes, copy=False))
    except ValueError:
        raise RunError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        ) from None


def _view_dtype(input: Tensor, kind: dtype) -> Tensor:
    array, want = array_of(input), kind.numpy
    have = array.itemsize
    if have != want.itemsize:
        ratio = max(have, want.itemsize) // min(have, want.itemsize)
        if not array.ndim:
            raise RunError(
                f"self.dim() cannot be 0 to view {input.dtype.title} as {kind.title} (different element sizes)"
            )
        if array.size and array.strides[-1] != have:
            raise RunError(
                f"self.stride(-1) must be 1 to view {input.dtype.title} as {kind.title} (different element sizes)"
            )
        if want.itemsize > have and array.shape[-1] % ratio:
            raise RunError(
                f"self.size(-1) must be divisible by {ratio} to view {input.dtype.title} as "
                f"{kind.title} (different element sizes)"
            )
    return as_view(array.view(want), input)


@row
def reshape(input: Tensor, shape: Any, *more: Any) -> Tensor:
    """The same elements in another shape; a view where that is possible

    >>> import weft
    >>> weft.reshape(weft.arange(6), (2, 3))
    tensor([[0, 1, 2],
            [3, 4, 5]])
    >>> weft.arange(6).reshape(3, -1).shape
    weft.Size([3, 2])
    """
    array = memory_of(input)
    sizes = _inferred(sizes_of((shape, *more)), array.size)
    try:
        return reshaped(input, array.reshape(sizes, copy=False))
    except ValueError:
        copied = in_order(input)
        return reshaped(copied, memory_of(copied).reshape(sizes))


@row(space=None)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """input.view(other.size())"""
    return view(input, other._shape)


@row(space=None)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """input.reshape(other.size())"""
    return reshape(input, other._shape)


@row
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merges the axes from one to another

    >>> import weft
    >>> weft.flatten(weft.tensor([[1, 2], [3, 4]]))
    tensor([1, 2, 3, 4])
    >>> weft.zeros(2, 3, 4, 5).flatten(start_dim=1).shape
    weft.Size([2, 60])
    """
    shape = input._shape
    start, end = axis_of(start_dim, len(shape)), axis_of(end_dim, len(shape))
    if start > end:
        raise RunError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return reshape(input, 1)
    if start == end:
        return input
    return reshape(input, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@row
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """Splits an axis into several"""
    shape = input._shape
    axis = axis_of(dim, len(shape))
    if not isinstance(sizes, (tuple, list)):
        raise InvalidType(f"unflatten(): argument 'sizes' must be tuple of ints, not {type(sizes).__name__}")
    if not sizes:
        raise RunError("unflatten: sizes must be non-empty")
    known = math.prod(size for size in sizes if size != -1)
    fits = known == shape[axis] if -1 not in sizes else known and shape[axis] % known == 0
    if not fits:
        raise RunError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} "
            f"({shape[axis]}) in the input tensor"
        )
    whole = [shape[axis] // known if size == -1 else size for size in sizes]
    return view(input, (*shape[:axis], *whole, *shape[axis + 1 :]))


@row
def ravel(input: Tensor) -> Tensor:
    """All elements along one axis"""
    return reshape(input, -1)


@row
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Drops axes of size 1: all, or those given

    >>> import weft
    >>> weft.zeros(1, 2, 1, 3).squeeze().shape
    weft.Size([2, 3])
    >>> weft.zeros(1, 2, 1, 3).squeeze(0).shape
    weft.Size([2, 1, 3])
    """
    array = memory_of(input)
    if dim is None:
        axes = set(range(array.ndim))
    else:
        given = dim if isinstance(dim, (tuple, list)) else (dim,)
        axes = {axis_of(int(axis), array.ndim) for axis in given}
        if len(axes) != len(given):
            raise RunError("a dim appears multiple times in the list of dims")
    kept = tuple([axis for axis in axes if axis < array.ndim and array.shape[axis] == 1])
    return reshaped(input, array.squeeze(kept))


@row
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A new axis of size 1

    >>> import weft
    >>> weft.unsqueeze(weft.tensor([1, 2]), 1)
    tensor([[1],
            [2]])
    >>> weft.zeros(2, 3).unsqueeze(0).shape
    weft.Size([1, 2, 3])
    """
    array = memory_of(input)
    axis = axis_of(dim, array.ndim + 1)
    if array.flags.c_contiguous:
        return reshaped(input, array.reshape((*array.shape[:axis], 1, *array.shape[axis:])))
    return reshaped(input, array[(slice(None),) * axis + (None, ...)])


@row(aliases=["swapaxes", "swapdims"])
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Swaps two axes

    >>> import weft
    >>> weft.transpose(weft.tensor([[1, 2, 3], [4, 5, 6]]), 0, 1)
    tensor([[1, 4],
            [2, 5],
            [3, 6]])
    """
    rank = input.ndim
    first, second = axis_of(dim0, rank), axis_of(dim1, rank)
    axes = list(range(rank))
    if rank:
        axes[first], axes[second] = second, first
    return permuted(input, axes)


@row
def t(input: Tensor) -> Tensor:
    """A matrix transposed; a vector as it is

    >>> import weft
    >>> weft.t(weft.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    rank = input.ndim
    if rank > 2:
        raise RunError(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
    return permuted(input, tuple(range(rank))[::-1])


@row
def permute(input: Tensor, dims: Any = (), *more: Any) -> Tensor:
    """Axes in another order

    >>> import weft
    >>> weft.zeros(2, 3, 4).permute(2, 0, 1).shape
    weft.Size([4, 2, 3])
    """
    rank = input.ndim
    given = sizes_of((dims, *more))
    if len(given) != rank:
        raise RunError(
            "permute: number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {rank} is not equal "
            f"to len(dims) = {len(given)}"
        )
    axes = [axis_of(dim, rank) for dim in given]
    if len(set(axes)) != rank:
        raise RunError("permute(): duplicate dims are not allowed.")
    return permuted(input, axes)


def _unique_axes(name: str, dims: Any, rank: int, which: str) -> list[int]:
    axes = [axis_of(dim, rank) for dim in (dims if isinstance(dims, (tuple, list)) else (dims,))]
    if len(set(axes)) != len(axes):
        raise RunError(f"{name}: repeated dim in `{which}` ({list(np.atleast_1d(dims))})")
    return axes


@row(aliases=["moveaxis"])
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Moves axes to other places; the others keep their order

    >>> import weft
    >>> weft.movedim(weft.zeros(2, 3, 4), 0, -1).shape
    weft.Size([3, 4, 2])
    """
    rank = input.ndim
    count = [len(d) if isinstance(d, (tuple, list)) else 1 for d in (source, destination)]
    if count[0] != count[1]:
        raise RunError(
            "movedim: Invalid source or destination dims: source and destination must have the same number of elements"
        )
    come = _unique_axes("movedim", source, rank, "source")
    go = _unique_axes("movedim", destination, rank, "destination")
    if not rank:
        return permuted(input, ())
    axes = [axis for axis in range(rank) if axis not in come]
    for place, axis in sorted(zip(go, come)):
        axes.insert(place, axis)
    return permuted(input, axes)


@row(space=None)
def expand(input: Tensor, size: Any = (), *more: Any, implicit: bool = False) -> Tensor:
    """Axes of size 1 repeated without copying; -1 keeps a size

    >>> import weft
    >>> weft.tensor([[1], [2]]).expand(2, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]])
    >>> weft.zeros(3).expand(2, -1).shape
    weft.Size([2, 3])
    """
    given, shape = sizes_of((size, *more)), input._shape
    lead = len(given) - len(shape)
    if lead < 0:
        raise RunError(
            f"expand({input.dtype.title}{{{list(shape)}}}, size={list(given)}): the number of "
            f"sizes provided ({len(given)}) must be greater or equal to the number of dimensions "
            f"in the tensor ({len(shape)})"
        )
    made = list(given)
    for axis, want in enumerate(given):
        have = shape[axis - lead] if axis >= lead else 1
        if want == -1 and axis >= lead:
            made[axis] = have
        elif want < 0:
            raise RunError(
                f"The expanded size of the tensor ({want}) isn't allowed in a leading, non-existing dimension {axis}"
            )
        elif have not in (1, want):
            raise RunError(
                f"The expanded size of the tensor ({want}) must match the existing size ({have}) "
                f"at non-singleton dimension {axis}.  Target sizes: {list(given)}.  Tensor sizes: "
                f"{list(shape)}"
            )
    return stretched(input, tuple(made))


@row(space=None)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """input.expand(other.size())"""
    return expand(input, other._shape)


@row
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """input.expand(size)

    >>> import weft
    >>> weft.broadcast_to(weft.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return expand(input, size)


@row(method=False)
def broadcast_shapes(*shapes: Any) -> Size:
    """What shapes broadcast to"""
    given = [shape if isinstance(shape, (tuple, list)) else (shape,) for shape in shapes]
    try:
        return Size(np.broadcast_shapes(*map(tuple, given)))
    except ValueError:
        raise RunError(
            "Shape mismatch: objects cannot be broadcast to a single shape",
            why=", ".join(str(list(shape)) for shape in given),
        ) from None


@row(method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors expanded to the shape they broadcast to"""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    shape = broadcast_shapes(*(tensor._shape for tensor in tensors))
    return tuple(expand(tensor, shape) for tensor in tensors)


def _at_least(rank: int, tensors: Sequence[Any], place: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        return tuple(_at_least(rank, (tensor,), place) for tensor in tensors[0])
    if len(tensors) != 1:
        return tuple(_at_least(rank, (tensor,), place) for tensor in tensors)
    (tensor,) = tensors
    shape = tensor._shape
    return tensor if len(shape) >= rank else reshape(tensor, place(shape))


@row(method=False)
def atleast_1d(*tensors: Any) -> Any:
    """A scalar as a vector of one element"""
    return _at_least(1, tensors, lambda shape: (1,))


@row(method=False)
def atleast_2d(*tensors: Any) -> Any:
    """A vector as a matrix of one row"""
    return _at_least(2, tensors, lambda shape: (1, *(shape or (1,))))


@row(method=False)
def atleast_3d(*tensors: Any) -> Any:
    """A vector as (1, n, 1), a matrix as (m, n, 1)"""
    return _at_least(3, tensors, lambda shape: (*((1,) if len(shape) < 2 else ()), *(shape or (1,)), 1))


def _reversed(self: Tensor) -> Tensor:
    made: Tensor = (_SEEN_REVERSED if LAYERS else _with_reversed_axes)(self)
    entitle(made, "PermuteBackward0", self)
    return made


def _with_reversed_axes(self: Tensor) -> Tensor:
    return permuted(self, tuple(range(self.ndim))[::-1])


_SEEN_REVERSED = layered("weft.numpy_T", _with_reversed_axes)


def _turned(self: Tensor) -> Tensor:
    if self.ndim == 1:
        raise RunError("tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return self.transpose(-2, -1) if self.ndim else self


bind(T=property(_reversed), mT=property(_turned))
