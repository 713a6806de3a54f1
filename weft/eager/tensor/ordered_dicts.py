"""Ordered dictionaries of tensors and of modules, as PyTorch's `cpp` namespace has them, and the
module that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

from ...base.errors import InvalidType, NotFound, OutOfRange
from .tensor import Tensor

Value = TypeVar("Value")


class OrderedNames(Generic[Value]):
    """Values in order, reached by name or by number."""

    __module__ = "weft.cpp"

    kind: ClassVar[type]  # of the values

    def __init__(self, items: Any = ()) -> None:
        try:
            self._items: dict[str, Value] = dict(items)
        except (TypeError, ValueError):
            raise InvalidType(f"{type(self).__name__} takes pairs of a name and a value, not {items!r:.60}") from None
        for name, value in self._items.items():
            check_named(self.kind, name, value)

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
        if isinstance(key, bool) or not isinstance(key, int):
            raise InvalidType(f"values are reached by name or number, not by {key!r:.60}")
        if not -len(self) <= key < len(self):
            raise OutOfRange(f"number {key} of {len(self)} values")
        return self.values()[key]

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(self._items)}])"


def check_named(kind: type, name: Any, value: Any) -> None:
    """Refuses what is no text, or no value of that class."""
    if not isinstance(name, str):
        raise InvalidType(f"a {kind.__name__} is named by text, not by {name!r:.60}")
    if not isinstance(value, kind):
        raise InvalidType(f"{name!r} must be a {kind.__name__}, not {type(value).__name__}")


class OrderedTensorDict(OrderedNames[Tensor]):
    """Tensors in order, by name or number."""

    __module__ = "weft.cpp"
    kind = Tensor


class Module:
    """A tree of named parameters, buffers and modules."""

    __module__ = "weft.cpp.nn"

    def __init__(self) -> None:
        self.parameters_: dict[str, Tensor] = {}
        self.buffers_: dict[str, Tensor] = {}
        self.modules_: dict[str, Module] = {}
        self.training = True

    def register_parameter(self, name: str, tensor: Tensor) -> Tensor:
        check_named(Tensor, name, tensor)
        self.parameters_[name] = tensor
        return tensor

    def register_buffer(self, name: str, tensor: Tensor) -> Tensor:
        check_named(Tensor, name, tensor)
        self.buffers_[name] = tensor
        return tensor

    def register_module(self, name: str, module: Module) -> Module:
        check_named(Module, name, module)
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
        return OrderedTensorDict((path + name, t) for path, m in self._walk() for name, t in m.parameters_.items())

    def named_buffers(self) -> OrderedTensorDict:
        return OrderedTensorDict((path + name, t) for path, m in self._walk() for name, t in m.buffers_.items())

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
    kind = Module
