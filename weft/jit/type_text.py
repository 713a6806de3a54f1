"""Types read from text: as the IR and schemas spell them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..eager.tensor.device import device as Device
from .source import Words
from .types import (
    SCALARS,
    AnyClassType,
    AnyEnumType,
    AnyType,
    AwaitType,
    BoolType,
    ClassType,
    ComplexType,
    DeviceObjType,
    DictType,
    FloatType,
    FunctionType,
    FutureType,
    IntType,
    LayoutType,
    ListType,
    MemoryFormatType,
    NoneType,
    NumberType,
    OptionalType,
    PyObjectType,
    QSchemeType,
    RRefType,
    ScalarTypeType,
    StorageType,
    StreamObjType,
    StringType,
    SymIntType,
    TensorType,
    TupleType,
    Type,
    UnionType,
    VarType,
    _GeneratorType,
)

_PLAIN = {
    "int": IntType,
    "SymInt": SymIntType,
    "float": FloatType,
    "complex": ComplexType,
    "bool": BoolType,
    "SymBool": BoolType,
    "str": StringType,
    "string": StringType,
    "Scalar": NumberType,
    "number": NumberType,
    "Device": DeviceObjType,
    "Generator": _GeneratorType,
    "Stream": StreamObjType,
    "PyObject": PyObjectType,
    "Any": AnyType,
    "AnyClassType": AnyClassType,
    "AnyEnumType": AnyEnumType,
    "QScheme": QSchemeType,
    "Storage": StorageType,
    "None": NoneType,
    "NoneType": NoneType,
    "Tensor": TensorType,
    "ScalarType": ScalarTypeType,
    "Layout": LayoutType,
    "MemoryFormat": MemoryFormatType,
}
UNKNOWN = "unknown type specifier"


class Alias(NamedTuple):
    """What a schema says of the memory of a value: which it may share, and whether it is written to."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    is_write: bool

    def __str__(self) -> str:
        written = "!" if self.is_write else ""
        turned = f" -> {'|'.join(self.after)}" if self.after != self.before else ""
        return f"({'|'.join(self.before)}{written}{turned})"


class Spelled(NamedTuple):
    """A type as a schema has it: how it is written there, how long a list is, and what is said of memory."""

    type: Type
    text: str
    length: int | None
    alias: Alias | None


_CONTAINERS: dict[str, tuple[int | None, Callable[..., Type]]] = {
    "Dict": (2, DictType),
    "Future": (1, FutureType),
    "Await": (1, AwaitType),
    "RRef": (1, RRefType),
    "Optional": (1, OptionalType),
    "List": (1, ListType),
    "Union": (None, lambda *parts: UnionType(parts)),
    "Tuple": (None, lambda *parts: TupleType(parts)),
}


def type_of_text(text: str) -> Type:
    """A type of its spelling in the IR.

    >>> type_of_text("Dict(str, Tensor?[])")
    Dict[str, List[Optional[Tensor]]]
    """
    words = Words(text)
    found = read_type(words)
    words.expect("eof")
    return found


def read_type(words: Words) -> Type:
    """A type of the IR: a parenthesis after the name of a kind of tensors tells what is known of them."""
    return _read(words, in_schema=False).type


def read_spelled(words: Words) -> Spelled:
    """A type of a schema: a parenthesis after a type tells what memory its values share."""
    return _read(words, in_schema=True)


def _read(words: Words, in_schema: bool) -> Spelled:
    with words.nested():
        kind, text = _base(words, in_schema)
    alias, length = None, None
    while True:
        if words.accept("["):
            length = None if words.is_next("]") else int(words.expect("number").text)
            words.expect("]")
            kind, text = ListType(kind), f"{text}[{'' if length is None else length}]"
            if alias is not None:  # of what is in the list
                alias = Alias((), (), alias.is_write)
        elif words.accept("?"):
            kind, text = OptionalType(kind), f"{text}?"
        elif in_schema and words.is_next("("):
            alias = _alias(words)
            text += str(alias)
        else:
            return Spelled(kind, text, length, alias)


def _base(words: Words, in_schema: bool) -> tuple[Type, str]:
    if words.accept("("):
        elements = [_read(words, in_schema) for _ in words.separated(")")]
        return TupleType([element.type for element in elements]), f"({', '.join([each.text for each in elements])})"
    token = words.expect("ident")
    name = token.text
    if name in _CONTAINERS and words.is_next("(", "["):
        end = ")" if words.take().kind == "(" else "]"
        parts = [_read(words, in_schema) for _ in words.separated(end)]
        count, container = _CONTAINERS[name]
        if count not in (None, len(parts)):
            raise words.error(f"{name} of {len(parts)} types", token.start, len(name))
        made = container(*[part.type for part in parts])
        return made, f"{name}({', '.join([part.text for part in parts])})"
    if name == "Function":
        return FunctionType(None), name
    scalar = name.removesuffix("Tensor")
    if not in_schema and words.is_next("(") and (name == "Tensor" or scalar in SCALARS):
        words.take()
        return _tensor(words, scalar or None), name
    if name in _PLAIN:
        return _PLAIN[name].get(), name
    if scalar in SCALARS and name != scalar:
        return TensorType(scalar), name
    if words.is_next("."):
        while words.accept("."):
            name += f".{words.expect('ident').text}"
        return ClassType(name), name
    if name[0].islower():
        return VarType(name), name
    raise words.error(UNKNOWN, token.start, len(name))


def _tensor(words: Words, scalar: str | None) -> TensorType:
    """What is known of a tensor, up to the parenthesis that closes it."""
    extents: list[int | None] = []
    named: dict[str, object] = {}
    for _ in words.separated(")"):
        token = words.token
        if token.kind == "number":
            extents.append(int(words.take().text))
        elif words.accept("*"):
            extents.append(None)
        else:
            name = words.expect("ident").text
            words.expect("=")
            if name == "strides":
                words.expect("[")
                named["steps"] = tuple([_stride(words) for _ in words.separated("]")])
            elif name == "requires_grad":
                named["needs_grad"] = words.expect("number").text != "0"
            elif name == "device":
                place = words.expect("ident").text
                if words.accept(":"):
                    place += f":{words.expect('number').text}"
                named["place"] = Device(place)
            else:
                raise words.error(f"a type of tensors has no {name}", token.start, len(name))
    known = tuple(extents) if extents or not named else None
    return TensorType(scalar, known, **named)  # type: ignore[arg-type]


def _stride(words: Words) -> int | None:
    return None if words.accept("*") else int(words.expect("number").text)


def _alias(words: Words) -> Alias:
    """`(a! -> b|c)` after a type."""
    words.expect("(")
    before = _sets(words)
    write = words.accept("!")
    after = _sets(words) if words.accept("->") else before
    words.expect(")")
    return Alias(before, after, write)


def _sets(words: Words) -> tuple[str, ...]:
    names = ["*"] if words.accept("*") else [words.expect("ident").text]
    while words.accept("|"):
        names.append("*" if words.accept("*") else words.expect("ident").text)
    return tuple(sorted(names))
