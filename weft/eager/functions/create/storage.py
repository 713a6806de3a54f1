"""Rows: the storage of a tensor, and tensors over other storages."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.errors import InvalidType, RunError, Unsupported
from ...tensor.inplace import check_writable
from ...tensor.storage import UntypedStorage
from ...tensor.tensor import Tensor
from ...tensor.typed_storage import STORAGE_OF, is_storage
from ...tensor.types import dtype
from ..table import row
from .create import kind_of, made


@row(space=None, name="storage")
def typed_storage(input: Tensor) -> Any:
    """The storage, as elements of the tensor's dtype"""
    return _storage_class(input.dtype)(wrap_storage=input.untyped_storage())


@row(space=None)
def storage_type(input: Tensor) -> Any:
    """The class of the tensor's storage"""
    return _storage_class(input.dtype)


def _storage_class(kind: dtype) -> Any:
    if kind not in STORAGE_OF:
        raise Unsupported(f"there is no storage of {kind.name}", hint="use untyped_storage()")
    return STORAGE_OF[kind]


@row(space=None)
def set_(input: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Looks at another storage, or at that of another tensor; the storage grows if it must"""
    check_writable(input)
    if isinstance(source, Tensor):
        return _set_to_tensor(input, source)
    kind = input.dtype
    untyped = UntypedStorage() if source is None else _untyped(source, kind)
    if size is None:
        size = (untyped.nbytes() // kind.itemsize - storage_offset,)
    sizes = _extents("size", size)
    strides = _row_major(sizes) if stride is None else _extents("stride", stride)
    if len(sizes) != len(strides):
        raise RunError(f"unequal size length ({len(sizes)}) and stride length ({len(strides)})")
    if storage_offset < 0:
        raise RunError(f"Tensor: invalid storage offset {storage_offset}")
    return _looking_at(input, untyped, sizes, strides, storage_offset)


def _set_to_tensor(input: Tensor, source: Tensor) -> Tensor:
    if source.dtype is not input.dtype:
        raise RunError(f"Could not set tensor of type {source.dtype.name} to a tensor of type {input.dtype.name}")
    return _looking_at(input, source.untyped_storage(), source._shape, source.stride(), source.storage_offset())


def _untyped(source: Any, kind: dtype) -> UntypedStorage:
    if not is_storage(source):
        raise InvalidType(f"set_() takes a storage or a tensor, not {type(source).__name__}")
    if not isinstance(source, UntypedStorage) and source.dtype is not kind:
        raise RunError(f"Expected a Storage of {kind.name}, but got {source.type()}")
    untyped: UntypedStorage = source.untyped()
    return untyped


def _extents(what: str, values: Any) -> tuple[int, ...]:
    extents = tuple(int(value) for value in values)
    if any(extent < 0 for extent in extents):
        raise RunError(f"set_(): negative {what} in {list(extents)}")
    return extents


def _row_major(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _looking_at(
    input: Tensor, untyped: UntypedStorage, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> Tensor:
    width, last = input.itemsize, offset + sum((size - 1) * step for size, step in zip(sizes, strides))
    if 0 not in sizes and untyped.nbytes() < (last + 1) * width:
        untyped.resize_((last + 1) * width)
    input._look_at(untyped, sizes, offset * width, tuple(step * width for step in strides))
    input._root = input._base = None
    input._storage, input._start = untyped, offset * width
    untyped._adopt(input)
    input._counter[0] += 1
    return input


@row(method=False)
def from_file(filename: Any, shared: bool | None = None, size: int = 0, *, dtype: Any = None, **options: Any) -> Tensor:
    """A tensor over the bytes of a file; with `shared`, writes go into it"""
    if size < 0:
        raise RunError(f"unable to map {size} elements of a file")
    kind = kind_of(dtype)
    try:
        storage = UntypedStorage.from_file(filename, bool(shared), size * kind.itemsize)
    except OSError as error:
        raise RunError(f"unable to open file <{filename}>", why=error.strerror) from None
    tensor = made(np.empty(0, kind), options)
    return _looking_at(tensor, storage, (size,), (1,), 0)


@row(space=None)
def share_memory_(input: Tensor) -> Tensor:
    """Moves the storage into memory that a forked process shares"""
    input.untyped_storage().share_memory_()
    return input


@row(space=None)
def is_shared(input: Tensor) -> bool:
    """Whether a forked process shares the storage"""
    return input.untyped_storage().is_shared()


@row(space=None)
def is_pinned(input: Tensor, device: Any = None) -> bool:
    """Whether the storage is in memory for transfers to a device, of which there is none"""
    return False


@row(space=None)
def pin_memory(input: Tensor, device: Any = None) -> Tensor:
    """A copy in memory for transfers to a device, of which there is none"""
    raise RunError("Cannot access accelerator device when none is available.")
