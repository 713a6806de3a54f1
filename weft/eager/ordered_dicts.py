"""Ordered dictionaries of tensors and of modules, as PyTorch's `cpp` namespace has them, and the
module that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from ..base.errors import NotFound, OutOfRange
from .tensor import Tensor

Value = TypeVar("Value")


class OrderedNames(Generic[Value]):
    """Values in order, reached by name or by number."""

    __module__ = "weft.cpp"

    def __init__(self, items: Any = ()) -> None:
        self._items: dict[str, Value] = dict(items)

    def items(self) -> list[tuple[str, Value]]:
        return list(self._items.items())

    def keys(self) -> list[str]:
        return list(self._items)

    def values(self) -> list[Value]:
        return list(self._items.values())

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        return iter(self.items())

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __getitem__(self, key: str | int) -> Value:
        if isinstance(key, str):
            if key not in self._items:
                raise NotFound(f"Argument {key!r} is not defined")
            return self._items[key]
        if not -len(self) <= key < len(self):
            raise OutOfRange(f"number {key} of {len(self)} values")
        return self.values()[key]


class OrderedTensorDict(OrderedNames[Tensor]):
    """Tensors in order, by name or number."""

    __module__ = "weft.cpp"


class Module:
    """A tree of named parameters, buffers and modules."""

    __module__ = "weft.cpp.nn"

    def __init__(self) -> None:
        self.parameters_: dict[str, Tensor] = {}
        self.buffers_: dict[str, Tensor] = {}
        self.modules_: dict[str, Module] = {}
        self.training = True

    def register_parameter(self, name: str, tensor: Tensor) -> Tensor:
        self.parameters_[name] = tensor
        return tensor

    def register_buffer(self, name: str, tensor: Tensor) -> Tensor:
        self.buffers_[name] = tensor
        return tensor

    def register_module(self, name: str, module: Module) -> Module:
        self.modules_[name] = module
        return module

    def _walk(self) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with their paths."""
        left = [("", self)]
        while left:
            path, module = left.pop()
            yield path, module
            below = [(f"{path}{name}.", child) for name, child in module.modules_.items()]
            left += reversed(below)

    def named_parameters(self) -> OrderedTensorDict:
        return OrderedTensorDict(
            (path + name, t) for path, m in self._walk() for name, t in m.parameters_.items()
        )

    def named_buffers(self) -> OrderedTensorDict:
        return OrderedTensorDict(
            (path + name, t) for path, m in self._walk() for name, t in m.buffers_.items()
        )

    def named_modules(self) -> OrderedModuleDict:
        return OrderedModuleDict((path.removesuffix("."), m) for path, m in self._walk())

    def named_children(self) -> OrderedModuleDict:
        return OrderedModuleDict(self.modules_)

    def parameters(self) -> list[Tensor]:
        return self.named_parameters().values()

    def train(self, on: bool = True) -> None:
        for _, module in self._walk():
            module.training = on

    def eval(self) -> None:
        self.train(False)

    def zero_grad(self) -> None:
        for tensor in self.parameters():
            tensor.grad = None


class OrderedModuleDict(OrderedNames[Module]):
    """Modules in order, by name or number."""

    __module__ = "weft.cpp"


cpp = SimpleNamespace(
    OrderedTensorDict=OrderedTensorDict,
    OrderedModuleDict=OrderedModuleDict,
    nn=SimpleNamespace(Module=Module),
)
