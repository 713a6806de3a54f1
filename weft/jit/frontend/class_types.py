"""Classes of Python as types of programs: named tuples, enums, and classes whose methods are compiled."""

from __future__ import annotations

import enum
import inspect
import typing
import weakref
from collections.abc import Callable
from typing import Any

from ...base.errors import InvalidType
from ...eager.tensor.tensor import Tensor
from ...nn.modules.module import Module
from ..classes import EnumType, InterfaceType, NamedTupleType, ScriptClass
from ..constants import type_of
from ..schema import Argument, FunctionSchema
from ..types import NoneType, TensorType, Type
from .annotations import UnknownType, type_of_python
from .functions import Origin, SourceFunction
from .language import IGNORED, MODIFIER, UNUSED, is_interface, overloads_of
from .python_values import is_function

_KNOWN: weakref.WeakKeyDictionary[type, Type] = weakref.WeakKeyDictionary()


class PythonClass(ScriptClass):
    """A class of Python: a method is compiled when something calls it. `origin_of` is how the compiler reads functions
    of Python. What `__init__` assigns are the attributes."""

    python: type
    origin_of: Callable[[Any], Origin]
    defines = True  # whether `__init__` may still add attributes

    def isSubtypeOf(self, other: Type) -> bool:
        if isinstance(other, InterfaceType):  # its methods are compiled, then
            return all(self._answers(schema) for schema in other.schemas.values())
        return super().isSubtypeOf(other)

    def _answers(self, wanted: FunctionSchema) -> bool:
        """Whether it has a method that can be called so."""
        method = self.methods.get(wanted.name) or self.source_method(wanted.name)
        if method is None:
            return False
        known = method.known_schema() if isinstance(method, SourceFunction) else method.schema
        given = (method.schema if known is None else known).arguments
        pairs = list(zip(given[1:], wanted.arguments[1:]))
        return len(given) == len(wanted.arguments) and all(one.type == other.type for one, other in pairs)

    def python_method(self, name: str) -> Any:
        """A method as Python has it; None if there is none."""
        function = inspect.getattr_static(self.python, name, None)
        return function if is_function(function) else None

    def source_method(self, name: str) -> SourceFunction | None:
        """A method, compiled when it is called; None if there is none."""
        function = self.python_method(name)
        if function is None or getattr(function, MODIFIER, None) in (IGNORED, UNUSED):
            return None
        origin = self._origin(name, function)._replace(self_type=self)
        found = self.methods[name] = SourceFunction(f"{self.qualified_name()}.{name}", origin)
        return found

    def overloaded(self, name: str) -> list[SourceFunction]:
        """A method for each of the declarations that one has."""
        function = self.python_method(name)
        if function is None:
            return []
        origin, found = self._origin(name, function)._replace(self_type=self), []
        for number, declared in enumerate(overloads_of(function)):
            called = f"{name}__{number}"
            if called not in self.methods:
                one = origin.declared_as(self.origin_of(declared))
                self.methods[called] = SourceFunction(f"{self.qualified_name()}.{called}", one)
            found.append(self.methods[called])
        return found  # type: ignore[return-value]

    def _origin(self, name: str, function: Any) -> Origin:
        return self.origin_of(function)


def class_type(value: type, qualified_name: str, origin_of: Callable[[Any], Origin]) -> Type | None:
    """The type of a class of Python; the same each time. None if it is none that programs know."""
    found = _KNOWN.get(value)
    if found is None:
        found = _made(value, qualified_name, origin_of)
        if found is not None:
            _KNOWN[value] = found
    return found


def _made(value: type, name: str, origin_of: Callable[[Any], Origin]) -> Type | None:
    if issubclass(value, tuple) and hasattr(value, "_fields"):
        return _named_tuple(value, name, origin_of)
    if issubclass(value, enum.Enum):
        members = {each.name: each.value for each in value}
        kinds = {type_of(each) for each in members.values()}
        if len(kinds) != 1:
            raise InvalidType(f"the values of {value.__name__} are of {len(kinds)} types", hint="give them one type")
        made = EnumType(name, kinds.pop(), members)
        made.python = value
        return made
    if is_interface(value):
        return _interface(value, name, origin_of)
    if issubclass(value, (Tensor, BaseException)) or value.__module__.partition(".")[0] in (
        "builtins",
        "weft",
        "typing",
    ):
        return None
    if value.__bases__ != (object,):
        raise InvalidType(
            f"Torchscript does not support class inheritance: {value.__name__} inherits from "
            f"{', '.join([base.__name__ for base in value.__bases__])}",
            hint="write the methods into the class",
        )
    kind = PythonClass(name)
    kind.python, kind.origin_of = value, origin_of
    _KNOWN[value] = kind  # before its methods, which may name it
    initial = kind.source_method("__init__")
    if initial is not None:
        try:
            initial.graph  # noqa: B018
        except BaseException:
            del _KNOWN[value]
            raise
    kind.defines = False
    return kind


def _interface(value: type, name: str, origin_of: Callable[[Any], Origin]) -> Type:
    made = InterfaceType(name, issubclass(value, Module))
    _KNOWN[value] = made  # before its methods, which may name it
    for method, function in vars(value).items():
        if is_function(function):
            schema = origin_of(function)._replace(self_type=made).schema(method)
            if not schema.returns:
                nothing: Type = NoneType.get()
                schema.returns.append(Argument("", nothing))
            made.schemas[method] = schema
    return made


def _named_tuple(value: Any, name: str, origin_of: Callable[[Any], Origin]) -> Type:
    hints = typing.get_type_hints(value)

    def inner(part: type) -> Type | None:
        return class_type(part, f"{name.rpartition('.')[0]}.{part.__name__}", origin_of)

    parts: list[Type] = []
    for field in value._fields:
        try:
            parts.append(type_of_python(hints[field], inner) if field in hints else TensorType.get())
        except UnknownType:
            raise InvalidType(
                f"{value.__name__}.{field} is of a type that programs do not have: {hints[field]}"
            ) from None
    defaults = [value._field_defaults[field] for field in value._fields if field in value._field_defaults]
    made = NamedTupleType(name, value._fields, parts, defaults)
    made.python = value
    return made
