"""Batched memory: what a tensor looks at inside `vmap`. The tensor has the shape that one element of the batch has; the
memory holds a tensor of all of them, with the batch as its first axis."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...base.dtype import DType
from ...base.errors import RunError
from ..functions.shape.join import stack
from ..functions.shape.shape import reshape, view
from ..tensor.memory import Array, ForeignMemory, device_of, memory_of
from ..tensor.tensor import Tensor
from ..tensor.viewing import in_order, permuted, place_of, seen_by, stretched

if TYPE_CHECKING:
    from .level import Level


class ElementsAsked(RuntimeError):
    """Something reads the elements of a batched tensor, of which there are many for each place."""


ASKED = (
    "vmap: It looks like you're calling .item() on a Tensor, or attempting to use a Tensor in some data-dependent "
    "control flow (.tolist(), .numpy() and bool() are others that read elements). We don't support vmap over that: the "
    "tensor is batched, so there is no single answer; try to rewrite it with functions of tensors, as where()."
)


WRITTEN = (
    "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args "
    "that has more elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped "
    "over in a vmap. Please try to use out-of-place operators instead of inplace arithmetic."
)


class Batched(ForeignMemory):
    """Elements for a whole batch, seen as those of one of its elements."""

    __slots__ = ("dtype", "level", "shape", "value")

    def __init__(self, value: Tensor, level: Level) -> None:
        self.value, self.level = value, level
        self.shape: tuple[int, ...] = value._shape[1:]
        self.dtype: DType = value._dtype

    # What memory answers.

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def strides(self) -> tuple[int, ...]:
        steps: tuple[int, ...] = memory_of(self.value).strides[1:]
        return steps

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def device(self) -> Any:
        return device_of(memory_of(self.value))

    @property
    def flags(self) -> Any:
        contiguous = isinstance(memory_of(self.value), Batched) or self.value.is_contiguous()
        return SimpleNamespace(c_contiguous=contiguous, writeable=True)

    @property
    def base(self) -> Any:
        return self.value._base

    @property
    def layout(self) -> Array:
        """Where the elements of the first element of the batch lie."""
        array, memory = self.elements, self
        while isinstance(memory, Batched):
            array, memory = array[0, ...], memory_of(memory.value)
        return array

    @property
    def storage(self) -> Any:
        """What memory that may be shared has in common."""
        owner: Any = self.elements
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        return owner

    @property
    def elements(self) -> Array:
        """The array of all elements, under all batches."""
        memory: Any = memory_of(self.value)
        while isinstance(memory, Batched):
            memory = memory_of(memory.value)
        return memory  # type: ignore[no-any-return]

    # Views and copies, each by the same of the whole batch.

    def _by(self, make: Callable[[Tensor], Tensor]) -> Batched:
        with self.level.outside():
            return Batched(make(self.value), self.level)

    def __getitem__(self, index: Any) -> Batched:
        items = index if isinstance(index, tuple) else (index,)
        return self._by(lambda value: value[(slice(None), *items)])

    def transpose(self, axes: Any) -> Batched:
        return self._by(lambda value: permuted(value, (0, *[axis + 1 for axis in axes])))

    def reshape(self, shape: Any, copy: bool | None = None) -> Batched:
        sizes = (self.level.size, *shape)
        try:
            return self._by(lambda value: view(value, sizes))
        except RunError as error:
            if copy is False:
                raise ValueError(str(error)) from error
            return self._by(lambda value: reshape(value, sizes))

    def squeeze(self, axes: tuple[int, ...]) -> Batched:
        return self.reshape([extent for axis, extent in enumerate(self.shape) if axis not in axes], copy=False)

    def broadcast(self, shape: tuple[int, ...]) -> Batched:
        return self._by(lambda value: stretched(with_rank(value, len(shape)), (self.level.size, *shape)))

    def seen_by(self, view: Callable[[Array], Array]) -> Batched:
        def whole(array: Array) -> Array:
            one = view(array[0, ...])
            return np.lib.stride_tricks.as_strided(
                one, (len(array), *one.shape), (array.strides[0], *one.strides), writeable=one.flags.writeable
            )

        return self._by(lambda value: seen_by(value, whole))

    def detached(self) -> Batched:
        return self._by(lambda value: value.detach())

    def copy(self) -> Batched:
        return self._by(in_order)

    def each(self, make: Callable[[Tensor], Tensor]) -> Batched:
        """What a function gives for each element of the batch."""
        return self._by(lambda value: stack([make(place_of(value, 0, i)) for i in range(self.level.size)]))

    # Writing.

    def overwrite(self, target: Tensor, result: Tensor) -> None:
        level = self.level
        with level.outside():
            if memory_of(target) is self or level.holds(target):
                values = level.whole(result)
                kept: Any = memory_of(target)
                if kept.value is not values:
                    kept.value.copy_(values)
                return
        raise RunError(WRITTEN, hint="write to a tensor that was made from a batched one, or expand it before the call")

    # Reading elements is not possible.

    def __repr__(self) -> str:
        return f"BatchedTensor(bdim=0, value=\n{self.value!r}\n)"

    def refuse(self) -> NoReturn:
        raise ElementsAsked(ASKED)

    def __getattr__(self, name: str) -> Any:
        raise ElementsAsked(ASKED)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self.refuse()


def with_rank(value: Tensor, rank: int) -> Tensor:
    """A batch with so many axes after the first, new ones of size 1 before the others."""
    shape = value._shape
    missing = rank - len(shape) + 1
    return value if missing <= 0 else reshape(value, (shape[0], *(1,) * missing, *shape[1:]))


def merged(value: Tensor, axis: int) -> Tensor:
    """A batch whose first axis becomes the slower part of an axis after it."""
    if axis:
        order = [*range(1, axis + 1), 0, *range(axis + 1, value.ndim)]
        value = permuted(value, order)
    shape = value._shape
    return reshape(value, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def unmerged(value: Tensor, axis: int, size: int) -> Tensor:
    """The batch out of the slower part of an axis, as the first axis."""
    shape = value._shape
    parts = reshape(value, (*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :]))
    if not axis:
        return parts
    return permuted(parts, [axis, *range(axis), *range(axis + 1, parts.ndim)])
