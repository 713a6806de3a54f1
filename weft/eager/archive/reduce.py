"""Tensors and storages as a pickle names them, with PyTorch's names; the storages are collected."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ...base.errors import InvalidType, RunError
from ..tensor.memory import memory_of
from ..tensor.parameter import Parameter
from ..tensor.storage import UntypedStorage
from ..tensor.tensor import Tensor, element_strides, wrap
from ..tensor.typed_storage import STORAGE_OF, is_storage
from ..tensor.types import dtype, layout
from .pickle_write import Named, Persistent, Reduced


class StorageTable:
    """The storages of a pickle in the order in which it names them, each once."""

    def __init__(self, legacy: bool = False) -> None:
        self.storages: list[tuple[str, UntypedStorage, int]] = []  # key, bytes, size of an element
        self._keys: dict[int, tuple[str, str]] = {}
        self._trailer: tuple[None, ...] = (None,) if legacy else ()
        # PyTorch writes untyped storages to old files too, but only reads typed ones from them
        self._untyped_name = "torch.ByteStorage" if legacy else "torch.storage.UntypedStorage"

    def reduce(self, value: Any) -> Any:
        """An object as a call or an identity, or None if it is not one of ours."""
        if isinstance(value, Tensor):
            return self._tensor_or_parameter(value)
        if is_storage(value):
            kind = None if isinstance(value, UntypedStorage) else value.dtype
            return self._identity(value.untyped(), kind)
        if type(value) is layout:
            return Reduced("torch.serialization._get_layout", (f"torch.{value.name}",))
        return None

    def _tensor_or_parameter(self, value: Tensor) -> Reduced:
        if type(value) is Tensor:
            return self._tensor(value, value.requires_grad)
        if type(value) is Parameter:
            data = self._tensor(value, False)
            arguments: Any = (data, value.requires_grad, OrderedDict())
            return Reduced("torch._utils._rebuild_parameter", arguments)
        raise InvalidType(f"a tensor of class {type(value).__name__} cannot be saved")

    def _tensor(self, value: Tensor, requires_grad: bool) -> Reduced:
        tensor = value if _is_plain(value) else wrap(memory_of(value).copy())
        storage, kind = tensor.untyped_storage(), tensor.dtype
        size, stride = tuple(tensor.shape), element_strides(memory_of(tensor))
        place: Any = (tensor.storage_offset(), size, stride, requires_grad, OrderedDict())
        if kind in STORAGE_OF:
            arguments = (self._identity(storage, kind), *place)
            return Reduced("torch._utils._rebuild_tensor_v2", arguments)
        wide = (self._identity(storage, None), *place, kind)
        return Reduced("torch._utils._rebuild_tensor_v3", wide)

    def _identity(self, storage: UntypedStorage, kind: dtype | None) -> Persistent:
        name = self._untyped_name if kind is None else f"torch.{kind.title}Storage"
        width = 1 if kind is None else kind.itemsize
        if id(storage) not in self._keys:
            self._keys[id(storage)] = (str(len(self.storages)), name)
            self.storages.append((str(len(self.storages)), storage, width))
        key, seen = self._keys[id(storage)]
        if seen != name:
            raise RunError(
                "Cannot save multiple tensors or storages that view the same data as different types",
                hint="clone() one of them",
            )
        numel = storage.nbytes() // width
        return Persistent(("storage", Named(name), key, str(storage.device), numel, *self._trailer))


def _is_plain(tensor: Tensor) -> bool:
    """Whether PyTorch can have such a tensor: whole elements from the start, no steps back."""
    array = memory_of(tensor)
    storage = tensor.untyped_storage()
    start = (tensor._start or 0) if array.size else 0
    whole = storage.nbytes() % array.itemsize == 0 and start % array.itemsize == 0
    steps = all(step >= 0 and step % array.itemsize == 0 for step in array.strides)
    return whole and steps
