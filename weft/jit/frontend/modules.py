"""Modules of `weft.nn`, and of the user's own, as modules of programs: their attributes with types, their methods
compiled. A method is compiled when something calls it; `forward` and what is exported always are."""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import typing
from collections.abc import Callable, Sequence
from typing import Any

from ...base.errors import InvalidType, RunError
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.tensor import Tensor
from ...nn.modules.module import Module
from ..classes import BUFFER, PARAMETER
from ..constants import type_of
from ..functions import Function
from ..modules import ScriptModule, innermost_first
from ..types import BoolType, DictType, ListType, TensorType, Type
from .annotations import Annotations, UnknownType, type_of_python
from .class_types import PythonClass
from .functions import Origin
from .language import EXPORTED, MODIFIER, is_interface
from .module_sources import forward_source
from .place import Source
from .python_values import is_constant
from .sugar import Operators

_OWN = frozenset(Module().__dict__)  # what every module has
_numbers = itertools.count()  # of classes that have the name of another
_taken: set[str] = set()


class ModuleClass(PythonClass):
    """The class of a module of Python. `order` are the names of the modules in it that a loop goes over, if it is a
    container; `resolver_of` is how the compiler reads names of Python."""

    python: type[Module]
    order: list[str] | None = None
    keys: bool = False  # whether a loop goes over names
    others: dict[str, Any]  # attributes that programs have no types for
    fixed: dict[str, Any]  # constants of the class in Python
    resolver_of: Callable[[Any], Any]
    defines = False

    def _origin(self, name: str, function: Any) -> Origin:
        constants = {each: constant.value for each, constant in self.constants.items()}
        parameters = [each for each, slot in self.attributes.items() if slot.kind == PARAMETER]
        text = forward_source(self.python, constants, parameters) if name == "forward" else None
        return super()._origin(name, function) if text is None else self._generated(text)

    def _generated(self, text: str) -> Origin:
        source = Source(text, f"<{self.python.__name__}>")
        node = source.parsed().body[0]
        assert isinstance(node, ast.FunctionDef)
        names: dict[str, Any] = {
            "FUNCTION": getattr(self.python, "_function", None),
            "Optional": typing.Optional,
            "Tuple": tuple,
            "torch": Operators("aten"),
            **FUNCTIONS["weft.nn.functional"],
        }
        resolve = {**vars(builtins), **names}.__getitem__
        return Origin(node, source, Annotations(source, resolve, lambda kind: None), self.resolver_of(resolve))


def scripted_module(
    module: Module,
    origin_of: Callable[[Any], Origin],
    resolver_of: Callable[[Any], Any],
    class_of: Callable[[type], Type | None],
) -> ScriptModule:
    """A module of a program that has the parameters, buffers and modules of one of Python. Those in others are made
    first."""
    if isinstance(module, ScriptModule):
        return module
    made: dict[int, ScriptModule] = {}
    known: dict[Any, ModuleClass] = {}
    for current in innermost_first(module):
        made[id(current)] = (
            current
            if isinstance(current, ScriptModule)
            else _made(current, made, known, origin_of, resolver_of, class_of)
        )
    for each in made.values():
        _compile(each)
    return made[id(module)]


def _compile(module: ScriptModule) -> None:
    kind = module._type
    if not isinstance(kind, ModuleClass):
        return
    names = [name for name in dir(kind.python) if getattr(getattr(kind.python, name, None), MODIFIER, "") == EXPORTED]
    if kind.python.forward is not Module.forward:
        names.append("forward")
    for name in names:
        several: Sequence[Any] = kind.overloaded(name)
        for function in several or (kind.methods.get(name) or kind.source_method(name),):
            if function is not None:
                function.graph  # noqa: B018


def _made(
    module: Module,
    made: dict[int, ScriptModule],
    known: dict[Any, ModuleClass],
    origin_of: Callable[[Any], Origin],
    resolver_of: Callable[[Any], Any],
    class_of: Callable[[type], Type | None],
) -> ScriptModule:
    attributes, constants, others = _attributes(module)
    submodules = {name: made[id(each)] for name, each in module._modules.items() if each is not None}
    key = (
        type(module),
        tuple([(name, kind.str(), role) for name, (kind, role, _) in attributes.items()]),
        repr(constants),
        tuple([(name, each._type.str()) for name, each in submodules.items()]),
        tuple([(name, id(value)) for name, value in others.items()]),
    )
    kind = known.get(key)
    if kind is None:
        kind = known[key] = ModuleClass(free_name(type(module)), is_module=True)
        kind.python, kind.others, kind.origin_of, kind.resolver_of = type(module), others, origin_of, resolver_of
        kind.fixed = {name: value for name, value in inspect.getmembers_static(type(module)) if is_constant(value)}
        for name, (type_, role, _) in attributes.items():
            kind.add_attribute(name, type_, role)
        for name, value in constants.items():
            kind.add_constant(name, type_of(value), value)
        interfaces = _interfaces(type(module), class_of)
        for name, each in submodules.items():
            wanted = interfaces.get(name, each._type)
            if not each._type.isSubtypeOf(wanted):
                raise RunError(
                    f"Could not cast attribute '{name}' to type {wanted}: Object of type {each._type} is not "
                    f"compatible with interface {wanted}",
                    why=f"it has no method like {next(iter(getattr(wanted, 'schemas', {}).values()), None)}",
                )
            kind.add_attribute(name, wanted)
        for name in module._modules.keys() - submodules.keys():
            kind.add_constant(name, type_of(None), None)
        if hasattr(type(module), "__iter__") and hasattr(type(module), "__len__"):
            kind.order, kind.keys = list(submodules), hasattr(type(module), "keys")
    result = ScriptModule(kind)
    for name, (_, _, value) in attributes.items():
        result.set_attribute(name, value)
    for name, each in submodules.items():
        result.set_attribute(name, each)
    return result


def _interfaces(python: type, class_of: Callable[[type], Type | None]) -> dict[str, Type]:
    """The attributes of a class that are said to be interfaces."""
    found: dict[str, Type] = {}
    for name, hint in _hints(python).items():
        kind = class_of(hint) if is_interface(hint) else None
        if kind is not None:
            found[name] = kind
    return found


def free_name(python: type) -> str:
    """The qualified name of the class of a module; with a number, if another has it."""
    module = python.__module__.replace("__main__", "").strip(".")
    parts = [part for part in (module, python.__name__) if part]
    name = ".".join(["__torch__", *parts])
    if name in _taken:
        name = ".".join(["__torch__", *parts[:-1], f"___torch_mangle_{next(_numbers)}", parts[-1]])
    _taken.add(name)
    return name


def _attributes(module: Module) -> tuple[dict[str, tuple[Type, str, Any]], dict[str, Any], dict[str, Any]]:
    """What a module has: attributes (type, role, value), constants, and what programs have no types for."""
    found: dict[str, tuple[Type, str, Any]] = {"training": (BoolType.get(), "attribute", module.training)}
    constants: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for role, held in ((PARAMETER, module._parameters), (BUFFER, module._buffers)):
        for name, value in held.items():
            if value is None:
                constants[name] = None
            else:
                found[name] = (TensorType.get(), role, value)
    annotated = _annotated(type(module))
    listed = set(getattr(type(module), "__constants__", ()))
    own = type(module).__module__.startswith("weft.nn.")
    plain = {name: value for name, value in module.__dict__.items() if name not in _OWN}
    for name, value in plain.items():
        kind, is_final = annotated.get(name, (None, False))
        if is_final or ((name in listed or own) and is_constant(value)):
            constants[name] = value
            continue
        kind = kind or _inferred(value)
        if kind is None:
            others[name] = value
        else:
            found[name] = (kind, "attribute", value)
    return found, constants, others


def _hints(python: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(python)
    except Exception:
        return {}


def _annotated(python: type) -> dict[str, tuple[Type | None, bool]]:
    """The types that a class says its attributes have, and whether they are constants."""
    found: dict[str, tuple[Type | None, bool]] = {}
    for name, hint in _hints(python).items():
        if typing.get_origin(hint) is typing.Final or hint is typing.Final:
            found[name] = (None, True)
            continue
        try:
            found[name] = (type_of_python(hint, lambda kind: None), False)
        except UnknownType:
            continue
    return found


def _inferred(value: Any) -> Type | None:
    if isinstance(value, Tensor):
        kind: Type = TensorType.get()
        return kind
    if isinstance(value, (Function, Module)) or callable(value):
        return None
    if isinstance(value, dict) and value:
        kinds = {(_inferred(key), _inferred(item)) for key, item in value.items()}
        if len(kinds) == 1:
            key, item = kinds.pop()
            return DictType(key, item) if key is not None and item is not None else None
    if isinstance(value, list):
        kinds_of = {_inferred(item) for item in value}
        first = next(iter(kinds_of), None)
        return ListType(first) if len(kinds_of) == 1 and first is not None else None
    try:
        return type_of(value)
    except InvalidType:
        return None
