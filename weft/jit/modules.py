"""Modules of a program: values of a class, with the face of `nn.Module`. What they compute are graphs."""

from __future__ import annotations

import copy as copying
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from ..base.errors import InvalidType, NoAttribute
from ..core.symbol import Symbol
from ..eager.tensor.parameter import Parameter
from ..nn.modules.module import Module
from .archive.write import save, saved
from .classes import BUFFER, PARAMETER, ScriptClass
from .compile.plan import Array
from .functions import Function, ScriptMethod
from .graph import Graph
from .graphs.model import model_of

_IN_OBJECT = frozenset(["training", "_is_full_backward_hook"])  # attributes that `nn.Module` itself has


def innermost_first(module: Module) -> list[Module]:
    """A module and those in it, each once; a module comes after those that it holds."""
    found: dict[int, Module] = {}
    stack = [module]
    while stack:
        current = stack[-1]
        waiting = [each for each in current._modules.values() if each is not None and id(each) not in found]
        if waiting:
            stack += waiting
            continue
        found.setdefault(id(stack.pop()), current)
    return list(found.values())


class ScriptModule(Module):
    """A module whose parameters, buffers, attributes, submodules and methods its class tells.

    `code` is its forward as source, `graph` as a graph; `save` writes all of it to a file that `weft.jit.load` and
    PyTorch's `torch.jit.load` read.
    """

    _own_names: ClassVar[tuple[str, ...]] = ("_parameters", "_buffers", "_modules", "_attributes")
    _type: ScriptClass
    _attributes: dict[str, Any]

    def __init__(self, kind: ScriptClass) -> None:
        super().__init__()
        self.__dict__.update(_type=kind, _attributes={})

    # Slots: the attributes that the class has

    def get_attribute(self, name: str) -> Any:
        """An attribute as graphs read it."""
        own = self.__dict__
        if name in _IN_OBJECT:
            return own[name]
        for kind in self._own_names:
            if name in own[kind]:
                return own[kind][name]
        constants = self._type.constants
        if name in constants:
            return constants[name].value
        raise NoAttribute(f"a {self._type} has no attribute {name!r}")

    def set_attribute(self, name: str, value: Any) -> None:
        """Sets an attribute as graphs do: its value has the type already."""
        own, slot = self.__dict__, self._type.attributes[name]
        if name in _IN_OBJECT:
            own[name] = value
        elif isinstance(value, Module):
            own["_modules"][name] = value
        elif slot.kind == PARAMETER:
            own["_parameters"][name] = _as_parameter(value)
        else:
            own["_buffers" if slot.kind == BUFFER else "_attributes"][name] = value

    def find_method(self, name: str) -> Function | None:
        return self._type.find_method(name)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "_type" not in own:
            raise NoAttribute(f"{type(self).__name__!r} object has no attribute {name!r}")
        function = own["_type"].find_method(name)
        return self.get_attribute(name) if function is None else ScriptMethod(self, function)

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self._type
        if name not in kind.attributes:
            if name in kind.methods or name in kind.constants:
                raise NoAttribute(f"{name!r} of {kind} cannot be set", why="it is part of the class")
            super().__setattr__(name, value)
            return
        self.set_attribute(name, kind.fitted(name, value))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._type.methods})

    # What it computes

    @property
    def forward(self) -> Any:
        return self._get_method("forward")

    @property
    def code(self) -> str:
        """Its forward as source."""
        text: str = self.forward.code
        return text

    @property
    def graph(self) -> Graph:
        graph: Graph = self.forward.graph
        return graph

    @property
    def inlined_graph(self) -> Graph:
        """The graph of its forward, with the graphs of what it calls in place of the calls."""
        graph: Graph = self.forward.inlined_graph
        return graph

    @property
    def original_name(self) -> str:
        return self._type.name()

    def _get_method(self, name: str) -> ScriptMethod:
        function = self._type.find_method(name)
        if function is None:
            known = ", ".join(self._type.methods) or "none"
            raise NoAttribute(f"Method '{name}' is not defined.", where=str(self._type), why=f"it has {known}")
        return ScriptMethod(self, function)

    def _has_method(self, name: str) -> bool:
        return name in self._type.methods

    def _method_names(self) -> list[str]:
        return self._type.method_names()

    def get_debug_state(self) -> Any:
        return self.forward.get_debug_state()

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        graph: Graph = self.forward.graph_for(*args, **kwargs)
        return graph

    def model(self, example_inputs: Any, names: Sequence[str] = ()) -> tuple[Symbol, dict[str, Array]]:
        """Its forward as a graph of the core for inputs like these, and the parameters that it reads, by their names:
        what `weft.compile` and exporters take. Branches and loops that values decide are nodes with subgraphs."""
        return model_of(self, example_inputs, names, self)

    def save(self, f: Any, _extra_files: Mapping[str, str] | None = None) -> None:
        """Writes it to a path or a file, with texts by name beside it."""
        save(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: Mapping[str, str] | None = None) -> bytes:
        """What `save` writes, as bytes."""
        return saved(self, _extra_files)

    # Its parts

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"

    def copy(self) -> Self:
        """A module of the same class with the same tensors; its submodules are copied."""
        return self._copied(lambda value: value)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = self._copied(lambda value: copying.deepcopy(value, memo))
        memo[id(self)] = made
        return made

    def _copied(self, value_of: Callable[[Any], Any]) -> Self:
        made: dict[int, Any] = {}
        waiting: list[Any] = [self]
        while waiting:
            module = waiting.pop()
            if id(module) in made:
                continue
            made[id(module)] = type(self)(module._type) if isinstance(module, ScriptModule) else value_of(module)
            waiting += module._modules.values()
        for module in self.modules():
            if isinstance(module, ScriptModule):
                target = made[id(module)].__dict__
                target |= {name: module.__dict__[name] for name in _IN_OBJECT}
                for kind in ("_parameters", "_buffers", "_attributes"):
                    target[kind] |= {name: value_of(value) for name, value in module.__dict__[kind].items()}
                target["_modules"] |= {name: made[id(inner)] for name, inner in module._modules.items()}
        whole: Self = made[id(self)]
        return whole

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InvalidType(f"a {type(self).__name__} cannot be pickled", hint="weft.jit.save writes it to a file")


def _as_parameter(value: Any) -> Any:
    if value is None or isinstance(value, Parameter):
        return value
    return Parameter(value, value.requires_grad)
