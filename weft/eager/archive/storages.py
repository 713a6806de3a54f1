"""The storages that a pickle refers to: what an identity says, and where its memory is to live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import InvalidType, NoDevice, Unsupported
from .. import devices
from ..tensor.device import device, located
from ..tensor.storage import UntypedStorage
from ..tensor.typed_storage import STORAGE_NAMES, is_storage
from .errors import ArchiveError, UnsafeContent, shown

_MAX_BYTES = 2**62


class StorageId(NamedTuple):
    """How a pickle names a storage."""

    kind: Any  # the class of the storage
    key: str
    location: str
    numel: int

    @property
    def itemsize(self) -> int:
        return 1 if self.kind is UntypedStorage else int(self.kind.dtype.itemsize)


def parse_id(identity: Any, length: int) -> StorageId:
    """The identity of a storage, which is a tuple of that length."""
    if type(identity) is not tuple or not identity or not _is_text(identity[0], "storage"):
        raise UnsafeContent("a persistent id must be a tuple that starts with 'storage'")
    if len(identity) != length:
        raise ArchiveError(f"a storage is named by {len(identity)} values, not {length}")
    _, kind, key, location, numel = identity[:5]
    if kind is not UntypedStorage and not any(kind is known for known in STORAGE_NAMES.values()):
        raise ArchiveError(f"the class of a storage is {shown(kind)}")
    if type(key) is not str or type(location) is not str:
        raise ArchiveError("a storage has a key and a location, which are text")
    if type(numel) is not int or not 0 <= numel < _MAX_BYTES:
        raise ArchiveError(f"a storage of {shown(numel)} elements")
    return StorageId(kind, key, location, numel)


def _is_text(value: Any, text: str) -> bool:
    return type(value) is str and value == text


def faced(identity: StorageId, untyped: UntypedStorage) -> Any:
    """Bytes as the storage that an identity names."""
    if identity.kind is UntypedStorage:
        return untyped
    if isinstance(untyped._bytes, np.ndarray):
        make_booleans(untyped, identity)
    return identity.kind(wrap_storage=untyped)


def make_booleans(untyped: UntypedStorage, identity: StorageId) -> None:
    """Turns bytes other than 0 and 1, which are no booleans, into 1."""
    if identity.kind is UntypedStorage or identity.kind.dtype.name != "bool":
        return
    if untyped._bytes.size and untyped._bytes.max() > 1:
        untyped._bytes[...] = untyped._bytes != 0


def place(untyped: UntypedStorage, location: str, map_location: Any, is_filled: bool = True) -> UntypedStorage:
    """A storage where the caller of `load` wants it. One that is filled afterwards stays on the processor."""
    if callable(map_location) and not isinstance(map_location, (str, device, Mapping)):
        moved = map_location(untyped, location)
        if moved is not None:
            return _checked(moved)
    elif isinstance(map_location, Mapping):
        location = str(map_location.get(location, location))
    elif isinstance(map_location, (str, device)):
        location = str(map_location)
    elif map_location is not None:
        raise InvalidType(f"map_location is a {type(map_location).__name__}")
    if is_filled and location.split(":")[0] == "cuda":
        return _on_gpu(untyped, location)
    _need_cpu(location)
    return untyped


def _on_gpu(untyped: UntypedStorage, location: str) -> UntypedStorage:
    """A storage on a GPU, if there is one."""
    try:
        where = located(location)
    except NoDevice:
        _need_cpu(location)
        raise
    moved: UntypedStorage = UntypedStorage._over(devices.memory_at(where, untyped._bytes), resizable=True)
    return moved


def _checked(moved: Any) -> UntypedStorage:
    if not is_storage(moved):
        raise InvalidType(f"map_location gave a {type(moved).__name__}, not a storage")
    untyped: UntypedStorage = moved.untyped()
    return untyped


def _need_cpu(location: str) -> None:
    if location.split(":")[0] == "cpu":
        return
    if location.startswith("cuda"):
        raise ArchiveError(
            "Attempting to deserialize object on a CUDA device, but there is none here.",
            hint="load(..., map_location='cpu')",
        )
    raise Unsupported(f"a storage at location {location!r}", hint="load(..., map_location='cpu')")


def swap_bytes(untyped: UntypedStorage, identity: StorageId) -> None:
    """Reverses the bytes of every element, for files of the other byte order."""
    if identity.kind is UntypedStorage:
        raise Unsupported("an untyped storage in a file of the other byte order")
    width = identity.kind.dtype.to_real().itemsize
    flipped = untyped._bytes.reshape(-1, width)[:, ::-1].reshape(-1)
    untyped._bytes[...] = np.ascontiguousarray(flipped)
