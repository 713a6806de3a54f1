"""Modules and parameters in order, or by name."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Self, overload

from ...base.errors import InvalidType, InvalidValue, NotFound, OutOfRange, RunError
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from .module import Module

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class Container(Module):
    """A module of named modules, under its oldest name; a Module does all of it."""

    def __init__(self, **kwargs: Module) -> None:
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


class _ModulesInOrder(Module):
    """Modules that are reached by number; their names are numbers unless the user gave others."""

    def _name_at(self, index: Any) -> str:
        names = list(self._modules)
        number = operator.index(index)
        if not -len(names) <= number < len(names):
            raise OutOfRange(f"index {number} is out of range")
        return names[number]

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return self._of(list(self._modules.items())[idx])
        return self._modules[self._name_at(idx)]

    def _of(self, items: list[tuple[str, Module | None]]) -> Self:
        """A container of the same kind with some of the modules."""
        raise NotImplementedError

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._name_at(idx), module)

    def __delitem__(self, idx: int | slice) -> None:
        names = list(self._modules)[idx] if isinstance(idx, slice) else [self._name_at(idx)]
        for name in names:
            delattr(self, name)
        self._renumber(self._modules.values())

    def _renumber(self, modules: Iterable[Module | None]) -> None:
        self._modules = {str(number): module for number, module in enumerate(list(modules))}

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self, module: Module) -> Self:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Adds modules at the end."""
        if not isinstance(modules, Iterable):
            name = type(self).__name__
            raise InvalidType(f"{name}.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def _insert(self, index: int, module: Module) -> None:
        modules = list(self._modules.values())
        modules.insert(index, module)
        self.add_module(str(len(self)), module)  # which checks it
        self._renumber(modules)

    def pop(self, key: int | slice) -> Any:
        """Removes a module and gives it."""
        found = self[key]
        del self[key]
        return found


class Sequential(_ModulesInOrder):
    """Modules that run one after another, each on what the one before it gave.

    >>> import weft
    >>> from weft import nn
    >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    >>> net
    Sequential(
      (0): Linear(in_features=3, out_features=2, bias=True)
      (1): ReLU()
    )
    >>> net(weft.ones(5, 3)).shape, len(net), net[1:]
    (weft.Size([5, 2]), 2, Sequential(
      (1): ReLU()
    ))
    """

    @overload
    def __init__(self, *args: Module) -> None: ...
    @overload
    def __init__(self, arg: OrderedDict[str, Module], /) -> None: ...
    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = len(args) == 1 and isinstance(args[0], OrderedDict)
        for name, module in args[0].items() if named else zip(map(str, range(len(args))), args):
            self.add_module(name, module)

    def _of(self, items: list[tuple[str, Module | None]]) -> Self:
        return type(self)(OrderedDict(items))  # type: ignore[arg-type]

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input

    def insert(self, index: int, module: Module) -> Self:
        """Puts a module before the one at an index."""
        if not isinstance(module, Module):
            raise InvalidType(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise OutOfRange(f"Index out of range: {index}")
        self._insert(index, module)
        return self

    def __add__(self, other: Any) -> Sequential:
        return Sequential(*self, *self._sequential(other))

    def __iadd__(self, other: Any) -> Self:
        return self.extend(self._sequential(other))

    def _sequential(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise InvalidValue(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return other

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*list(self) * self._times(other))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Self:
        return self.extend(list(self) * (self._times(other) - 1))

    def _times(self, other: Any) -> int:
        if not isinstance(other, int):
            raise InvalidType(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise InvalidValue(f"Non-positive multiplication factor {other} for {type(self)}")
        return other


class ModuleList(_ModulesInOrder):
    """A list of modules, which belong to the module it is an attribute of.

    >>> from weft import nn
    >>> nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    ModuleList(
      (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)
    )
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _of(self, items: list[tuple[str, Module | None]]) -> Self:
        return type(self)([module for _, module in items])  # type: ignore[misc]

    def insert(self, index: int, module: Module) -> None:
        """Puts a module before the one at an index, as with a list."""
        self._insert(index, module)

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(self).extend(other)

    def _texts_joined(self, children: list[tuple[str, str]]) -> str:
        """Neighbours with the same text are told once."""
        if not children:
            return f"{self._get_name()}()"
        texts, first = [], 0
        for text, same in groupby(children, key=operator.itemgetter(1)):
            count = len(list(same))
            number = str(first) if count == 1 else f"{first}-{first + count - 1}"
            texts.append((number, text if count == 1 else f"{count} x {text}"))
            first += count
        return super()._texts_joined(texts)


class ModuleDict(Module):
    """Modules by name, which belong to the module it is an attribute of.

    >>> from weft import nn
    >>> choices = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
    >>> list(choices), choices["tanh"]
    (['relu', 'tanh'], Tanh())
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Removes a module and gives it."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds modules, in the place of those that have the same names."""
        for name, module in _pairs(modules, "ModuleDict"):
            self[name] = module


def _pairs(values: Any, who: str) -> list[tuple[Any, Any]]:
    """Pairs of a name and a value, from a mapping or an iterable of pairs."""
    if isinstance(values, (Mapping, ModuleDict, ParameterDict)):
        return list(values.items())
    if not isinstance(values, Iterable):
        raise InvalidType(
            f"{who}.update should be called with an iterable of key/value pairs, but got {type(values).__name__}"
        )
    pairs = []
    for number, pair in enumerate(values):
        if not isinstance(pair, Iterable):
            raise InvalidType(f"{who} update sequence element #{number} should be Iterable; is {type(pair).__name__}")
        pair = tuple(pair)
        if len(pair) != 2:
            raise InvalidValue(f"{who} update sequence element #{number} has length {len(pair)}; 2 is required")
        pairs.append(pair)
    return pairs


def _as_parameter(value: Any) -> Any:
    """A tensor as a parameter; anything else as it is."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


class _ParametersByName(Module):
    """Parameters, and values of any kind beside them, as attributes."""

    def _named_values(self) -> Iterable[tuple[str, Any]]:
        raise NotImplementedError

    def _kind_of(self, value: Tensor) -> str:
        return str(value.dtype)

    def extra_repr(self) -> str:
        return "\n".join(f"  ({name}): {self._described(value)}" for name, value in self._named_values())

    def _described(self, value: Any) -> str:
        if not isinstance(value, Tensor):
            return f"Object of type: {type(value).__name__}"
        what = "Parameter" if isinstance(value, Parameter) else "Tensor"
        return f"{what} containing: [{self._kind_of(value)} of size {'x'.join(map(str, value.shape))}]"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RunError(f"{type(self).__name__} should not be called.")


class ParameterList(_ParametersByName):
    """A list of parameters, which belong to the module it is an attribute of; tensors become parameters.

    >>> import weft
    >>> from weft import nn
    >>> nn.ParameterList([weft.ones(2, 3), 0.5])
    ParameterList(
        (0): Parameter containing: [weft.float32 of size 2x3]
        (1): Object of type: float
    )
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _name_at(self, index: Any) -> str:
        number = operator.index(index)
        if not -len(self) <= number < len(self):
            raise OutOfRange(f"index {number} is out of range")
        return str(number % len(self))

    @overload
    def __getitem__(self, idx: int) -> Any: ...
    @overload
    def __getitem__(self, idx: slice) -> Self: ...
    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)([self[number] for number in range(len(self))[idx]])
        return getattr(self, self._name_at(idx))

    def __setitem__(self, idx: int, param: Any) -> None:
        setattr(self, self._name_at(idx), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[number] for number in range(len(self))])

    def append(self, value: Any) -> Self:
        """Adds a value at the end."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Adds values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            what = type(values).__name__
            raise InvalidType(f"ParameterList.extend should be called with an iterable, but got {what}")
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, parameters: Iterable[Any]) -> Self:
        return self.extend(parameters)

    def _named_values(self) -> Iterable[tuple[str, Any]]:
        return [(str(number), value) for number, value in enumerate(self)]


class ParameterDict(_ParametersByName):
    """Parameters by name, which belong to the module it is an attribute of; tensors become parameters.

    >>> import weft
    >>> from weft import nn
    >>> parts = nn.ParameterDict({"scale": weft.ones(2)})
    >>> parts["shift"] = weft.zeros(2)
    >>> [name for name, _ in parts.named_parameters()]
    ['scale', 'shift']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _attribute(self, key: Any) -> str:
        if not isinstance(key, str):
            raise InvalidType(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}')."
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._known(key))

    def _known(self, key: str) -> str:
        if self._attribute(key) not in self._keys:
            raise _NoParameter(f"{type(self).__name__!r} object has no attribute {key!r}")
        return key

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[self._attribute(key)] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        delattr(self, self._known(key))
        del self._keys[key]

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """Another dictionary of the same values."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a name, which is set first if there is none."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Removes all values."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Removes a value and gives it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Removes the last value and gives it with its name."""
        if not self._keys:
            raise NotFound("popitem(): dictionary is empty")
        key = next(reversed(self))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a name, or a default."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary with these names and one value."""
        return ParameterDict(OrderedDict.fromkeys(keys, default))

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and values."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        """The values."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Adds values, in the place of those that have the same names; those of a plain dictionary by name."""
        in_order = not isinstance(parameters, Mapping) or isinstance(parameters, OrderedDict)
        pairs = _pairs(parameters, "ParameterDict")
        for key, value in pairs if in_order else sorted(pairs):
            self[key] = value

    def __or__(self, other: Any) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def _named_values(self) -> Iterable[tuple[str, Any]]:
        return self.items()

    def _kind_of(self, value: Tensor) -> str:
        kind: str = value.type()
        return kind


class _NoParameter(NotFound, AttributeError):
    """A name that a dictionary of parameters does not have."""
