"""Annotations of Python, and comments with types, as types of a program."""

from __future__ import annotations

import ast
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from ...base.errors import RunError
from ...eager.tensor.device import device as Device
from ...eager.tensor.tensor import Tensor
from ...eager.tensor.types import dtype
from ..type_text import _PLAIN
from ..types import (
    AnyType,
    AwaitType,
    BoolType,
    ComplexType,
    DeviceObjType,
    DictType,
    FloatType,
    FutureType,
    IntType,
    ListType,
    NoneType,
    NumberType,
    OptionalType,
    RRefType,
    StringType,
    TensorType,
    TupleType,
    Type,
    UnionType,
)
from .place import Place, Source

Resolver = Callable[[str], Any]  # the value of a name where a program is written; KeyError if there is none

_OF_PYTHON: dict[Any, type[Type]] = {
    int: IntType,
    float: FloatType,
    bool: BoolType,
    complex: ComplexType,
    str: StringType,
    Tensor: TensorType,
    None: NoneType,
    type(None): NoneType,
    Any: AnyType,
    Device: DeviceObjType,
    dtype: IntType,
}
_NAMED = {name: kind for name, kind in _PLAIN.items() if name not in ("Layout", "MemoryFormat", "ScalarType")} | {
    "Device": DeviceObjType,
    "device": DeviceObjType,
    "number": NumberType,
    "dtype": IntType,
}
_GENERIC: dict[str, tuple[int | None, Callable[[Sequence[Type]], Type]]] = {  # how many parts, and what they make
    "List": (1, lambda parts: ListType(parts[0])),
    "Optional": (1, lambda parts: OptionalType(parts[0])),
    "Future": (1, lambda parts: FutureType(parts[0])),
    "Await": (1, lambda parts: AwaitType(parts[0])),
    "RRef": (1, lambda parts: RRefType(parts[0])),
    "Final": (1, lambda parts: parts[0]),
    "Dict": (2, lambda parts: DictType(parts[0], parts[1])),
    "Tuple": (None, TupleType),
    "Union": (None, UnionType),
}
_GENERIC |= {name.lower(): _GENERIC[name] for name in ("List", "Dict", "Tuple")}
_BROADCASTING = "BroadcastingList"
KEYS = (StringType, IntType, FloatType, ComplexType, TensorType, DeviceObjType, BoolType)


class UnknownType(Exception):
    """A value of Python that stands for no type of a program."""


def type_of_python(value: Any, of_class: Callable[[type], Type | None]) -> Type:
    """The type that a value of Python stands for, where it is an annotation; a function tells of classes that programs
    have."""
    try:
        plain = _OF_PYTHON.get(value)
    except TypeError:
        plain = None
    if plain is not None:
        found: Type = plain.get()
        return found
    if isinstance(value, Type):
        return value
    origin, arguments = typing.get_origin(value), typing.get_args(value)
    if origin is not None:
        name = {types.UnionType: "Union"}.get(origin) or getattr(origin, "__name__", None) or str(origin).split(".")[-1]
        if name in _GENERIC:
            count, make = _GENERIC[name]
            if arguments == ((),):
                arguments = ()
            parts = [type_of_python(part, of_class) for part in arguments]
            if count in (None, len(parts)):
                return make(parts)
    if isinstance(value, type):
        known = of_class(value)
        if known is not None:
            return known
    raise UnknownType


class Annotations:
    """The annotations of one source. `resolve` gives the values of names there, `of_class` the types of classes."""

    def __init__(self, source: Source, resolve: Resolver, of_class: Callable[[type], Type | None]) -> None:
        self._source, self._resolve, self._of_class = source, resolve, of_class

    def type(self, node: ast.expr) -> Type:
        """The type that an annotation says."""
        if isinstance(node, ast.Constant):
            if node.value is None:
                nothing: Type = NoneType.get()
                return nothing
            if isinstance(node.value, str):
                return self.of_text(node.value, self._source.place(node))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            made: Type = UnionType([self.type(node.left), self.type(node.right)])
            return made
        if isinstance(node, ast.Subscript):
            return self._generic(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._named(node)
        raise self._unknown(node)

    def of_text(self, text: str, place: Place) -> Type:
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            raise place.error(f"{text!r} is no type") from None
        inner = Source(text.strip(), self._source.file, place.line)
        return Annotations(inner, self._resolve, self._of_class).type(node)

    def _generic(self, node: ast.Subscript) -> Type:
        base = ast.unparse(node.value).split(".")[-1]
        elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if base == "Annotated":
            return self.type(elements[0])
        if base.startswith(_BROADCASTING):
            return ListType(self.type(elements[0]))
        if base not in _GENERIC:
            raise self._source.place(node).error(f"Unknown type constructor {base}")
        count, make = _GENERIC[base]
        parts = [self.type(element) for element in elements]
        if count is not None and len(parts) != count:
            raise self._source.place(node).error(
                f"{base} type must have exactly {count} element type{'s' if count > 1 else ''}"
            )
        if make is _GENERIC["Dict"][1] and not isinstance(parts[0], KEYS):
            raise self._source.place(node).error(
                f"Cannot create dict for key type '{parts[0]}', only int, float, complex, Tensor, device and string "
                "keys are supported"
            )
        return make(parts)

    def _named(self, node: ast.Name | ast.Attribute) -> Type:
        text = ast.unparse(node)
        first, *others = text.split(".")
        if text in _NAMED and text not in ("device", "dtype"):
            plain: Type = _NAMED[text].get()
            return plain
        try:
            return type_of_python(self._value(text, first, others), self._of_class)
        except (KeyError, AttributeError, UnknownType):
            if others and others[-1] in _NAMED:  # a type by its full name, in a program that has no such module
                return _NAMED[others[-1]].get()  # type: ignore[no-any-return]
            raise self._unknown(node) from None

    def _value(self, text: str, first: str, others: Sequence[str]) -> Any:
        """What a name stands for: by its full text, where programs have such names, or part by part."""
        try:
            return self._resolve(text)
        except KeyError:
            value = self._resolve(first)
        for name in others:
            value = getattr(value, name)
        return value

    def _unknown(self, node: ast.expr) -> RunError:
        return self._source.place(node).error(f"Unknown type name '{ast.unparse(node)}'")
