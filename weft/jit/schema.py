"""Schemas of functions: their arguments and results by name and type, as text and as objects, and calls that are
checked against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import InvalidType, RunError
from ..eager.tensor.device import device as Device
from ..eager.tensor.tensor import Tensor
from .source import Words, number_of, quoted, shown, unquoted
from .type_text import Alias, read_spelled
from .types import (
    NUMBERED,
    AnyType,
    BoolType,
    ComplexType,
    DeviceObjType,
    DictType,
    FloatType,
    IntType,
    ListType,
    NoneType,
    NumberType,
    OptionalType,
    StringType,
    TensorType,
    TupleType,
    Type,
    UnionType,
)

_CONSTANTS = {"contiguous_format": 0, "strided": 0, "long": 4, "float": 6, "double": 7}
_MISSING = object()


class Repeated(list[Any]):
    """A list that is written as the one element that it has several times."""


@dataclass(frozen=True)
class AliasInfo:
    """What is said of the memory of an argument."""

    before_set: frozenset[str]
    after_set: frozenset[str]
    is_write: bool


class Argument:
    """An argument of a function, or a result."""

    def __init__(
        self,
        name: str,
        real_type: Type,
        N: int | None = None,
        default: Any = _MISSING,
        kwarg_only: bool = False,
        alias: Alias | None = None,
        spelling: str | None = None,
    ) -> None:
        self.name, self.real_type, self.N = name, real_type, N
        self._default, self.kwarg_only, self._alias = default, kwarg_only, alias
        self._spelling = real_type.str() if spelling is None else spelling

    @property
    def type(self) -> Type:
        """The type of its values in a program, where dtypes and the like are ints."""
        return _in_programs(self.real_type)

    def has_default_value(self) -> bool:
        return self._default is not _MISSING

    @property
    def default_value(self) -> Any:
        if self._default is _MISSING:
            return None
        return list(self._default) if isinstance(self._default, list) else self._default

    @property
    def alias_info(self) -> AliasInfo | None:
        alias = self._alias
        return None if alias is None else AliasInfo(frozenset(alias.before), frozenset(alias.after), alias.is_write)

    @property
    def is_write(self) -> bool:
        return self._alias is not None and self._alias.is_write

    @property
    def is_out(self) -> bool:
        return self.kwarg_only and self.is_write

    def __str__(self) -> str:
        text = f"{self._spelling} {self.name}" if self.name else self._spelling
        return text if self._default is _MISSING else f"{text}={self._shown_default()}"

    def _shown_default(self) -> str:
        value = self._default
        return _shown(value[0] if isinstance(value, Repeated) else value)

    def __repr__(self) -> str:
        return f"Argument({self})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Argument):
            return NotImplemented
        return self.kwarg_only == other.kwarg_only and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((self.kwarg_only, str(self)))


def _in_programs(kind: Type) -> Type:
    if isinstance(kind, NUMBERED):
        number: Type = IntType.get()
        return number
    if isinstance(kind, (OptionalType, ListType)):
        return type(kind)(_in_programs(kind.getElementType()))
    return kind


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, float):
        return shown(value)
    if isinstance(value, complex):
        return f"{shown(value.real)}+{shown(value.imag)}j"
    return str(value)


class FunctionSchema:
    """The name of a function, its arguments and its results.

    >>> schema = parse_schema("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
    >>> schema.name, schema.overload_name, [argument.name for argument in schema.arguments]
    ('aten::add', 'Tensor', ['self', 'other', 'alpha'])
    >>> schema.arguments[2].default_value
    1
    """

    def __init__(
        self,
        name: str,
        overload_name: str,
        arguments: Sequence[Argument],
        returns: Sequence[Argument],
        is_vararg: bool = False,
        is_varret: bool = False,
    ) -> None:
        self.name, self.overload_name = name, overload_name
        self.arguments, self.returns = list(arguments), list(returns)
        self.is_vararg, self.is_varret = is_vararg, is_varret
        optional = False
        for argument in self.arguments:
            if optional and not argument.kwarg_only and not argument.has_default_value():
                raise RunError(
                    f"Non-default positional argument follows default argument. Parameter {argument.name} in {self}"
                )
            optional = optional or argument.has_default_value()

    @property
    def is_mutable(self) -> bool:
        return any(argument.is_write for argument in self.arguments)

    def __str__(self) -> str:
        parts, keywords = [], False
        for argument in self.arguments:
            if argument.kwarg_only and not keywords:
                parts.append("*")
                keywords = True
            parts.append(str(argument))
        if self.is_vararg:
            parts.append("...")
        results = [str(result) for result in self.returns] + ["..."] * self.is_varret
        alone = len(results) == 1 and not results[0].startswith("(")
        name = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        return f"{name}({', '.join(parts)}) -> {results[0] if alone else '(' + ', '.join(results) + ')'}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, FunctionSchema) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> Any:
        return parse_schema, (str(self),)

    def is_backward_compatible_with(self, old: FunctionSchema) -> bool:
        """Whether every call that the old schema takes is one that this takes."""
        return self._unlike(old, forward=False) is None

    def check_forward_compatible_with(self, old: FunctionSchema) -> tuple[bool, str]:
        """Whether what is written for this schema is understood by the old one; if not, why."""
        reason = self._unlike(old, forward=True)
        return reason is None, reason or ""

    def _unlike(self, old: FunctionSchema, forward: bool) -> str | None:
        if (self.name, self.overload_name) != (old.name, old.overload_name):
            return f"the functions are {self.name} and {old.name}"
        if len(self.returns) != len(old.returns) or (self.is_vararg, self.is_varret) != (old.is_vararg, old.is_varret):
            return "the numbers of results differ"
        for new, before in zip(self.returns, old.returns):
            if not new.type.isSubtypeOf(before.type) or str(new._alias) != str(before._alias):
                return f"result {new} is not {before}"
        for keywords in (False, True):
            ours, theirs = ([a for a in s.arguments if a.kwarg_only is keywords] for s in (self, old))
            matched = {a.name: a for a in ours}
            for place, before in enumerate(theirs):
                found = matched.get(before.name) if keywords else ours[place] if place < len(ours) else None
                if found is None or found.name != before.name or not before.type.isSubtypeOf(found.type):
                    return f"{before.name!r} is not as it was"
                if before.has_default_value() and not found.has_default_value():
                    return f"{before.name!r} has no default any more"
            known = {a.name for a in theirs}
            for new in ours:
                if new.name not in known and not new.has_default_value():
                    return f"{new.name!r} is not forward compatible with the older version of the schema"
                if forward and new.name not in known and isinstance(new.default_value, list):
                    return f"{new.name!r} has a default that older programs cannot have written"
        return None

    # Calls

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The value of each argument of a call, checked."""
        positional = [argument for argument in self.arguments if not argument.kwarg_only]
        if len(args) > len(positional) and not self.is_vararg:
            raise RunError(
                f"{self.name}() expected at most {len(positional)} argument(s) but received {len(args)} argument(s). "
                f"Declaration: {self}"
            )
        values, left = [], dict(kwargs)
        for place, argument in enumerate(self.arguments):
            if place < len(args) and not argument.kwarg_only:
                if argument.name in left:
                    raise RunError(
                        f"{self.name}() got multiple values for argument {argument.name!r}", why=f"Declaration: {self}"
                    )
                value = args[place]
            elif argument.name in left:
                value = left.pop(argument.name)
            elif argument.has_default_value():
                value = argument.default_value
            else:
                raise RunError(f"{self.name}() is missing value for argument '{argument.name}'. Declaration: {self}")
            values.append(self._checked(argument, value))
        if left:
            raise RunError(f"Unknown keyword argument '{next(iter(left))}' for operator '{self.name}'. Schema: {self}")
        return values

    def _checked(self, argument: Argument, value: Any) -> Any:
        try:
            return converted(value, argument.type)
        except InvalidType:
            raise RunError(
                f"{self.name}() Expected a value of type '{argument.type}' for argument '{argument.name}' but instead "
                f"found type '{type(value).__name__}'.",
                why=f"Declaration: {self}",
            ) from None


_EXACT: dict[type[Type], type] = {
    TensorType: Tensor,
    BoolType: bool,
    StringType: str,
    NoneType: type(None),
    DeviceObjType: Device,
}


def converted(value: Any, kind: Type) -> Any:
    """A value as one of a type: an int is a float where one is expected, a tuple a list. InvalidType if it is none."""
    if isinstance(kind, AnyType) or kind.holds(value):
        return value
    if isinstance(kind, OptionalType):
        return None if value is None else converted(value, kind.getElementType())
    if isinstance(kind, UnionType):
        for choice in kind.choices():
            try:
                return converted(value, choice)
            except InvalidType:
                continue
    number = isinstance(value, (int, float, complex)) and not isinstance(value, bool)
    if isinstance(kind, IntType) and number and isinstance(value, int):
        return value
    if isinstance(kind, FloatType) and number and not isinstance(value, complex):
        return float(value)
    if isinstance(kind, ComplexType) and number:
        return complex(value)
    if isinstance(kind, NumberType) and (number or isinstance(value, bool)):
        return value
    if isinstance(value, _EXACT.get(type(kind), ())):
        return value
    if isinstance(kind, ListType) and isinstance(value, (list, tuple)):
        return [converted(item, kind.getElementType()) for item in value]
    if isinstance(kind, TupleType) and isinstance(value, tuple) and len(value) == len(kind.parts):
        return kind.made([converted(item, part) for item, part in zip(value, kind.parts)])
    if isinstance(kind, DictType) and isinstance(value, dict):
        key, item = kind.parts
        return {converted(k, key): converted(v, item) for k, v in value.items()}
    raise InvalidType(f"{value!r:.60} is not a value of type {kind}")


def parse_schema(text: str) -> FunctionSchema:
    """A schema of its text."""
    words = Words(text)
    name = words.expect("ident").text
    while words.accept("::"):
        name += f"::{words.expect('ident').text}"
    overload = words.expect("ident").text if words.accept(".") else ""
    if not words.is_next("("):
        raise words.unexpected("eof" if words.is_next("ident") else "(")
    words.take()
    arguments, vararg = _arguments(words)
    words.expect("->")
    returns, varret = _results(words)
    words.expect("eof")
    return FunctionSchema(name, overload, arguments, returns, vararg, varret)


def _arguments(words: Words) -> tuple[list[Argument], bool]:
    found: list[Argument] = []
    keywords = vararg = False
    for _ in words.separated(")"):
        if words.accept("*"):
            keywords = True
        elif words.accept("..."):
            vararg = True
        else:
            found.append(_argument(words, keywords))
    return found, vararg


def _argument(words: Words, keyword_only: bool) -> Argument:
    spelled = read_spelled(words)
    name = words.expect("ident").text
    default: Any = _MISSING
    if words.accept("="):
        start = words.token.start
        default = _default(words, spelled.type, spelled.length)
        if isinstance(default, list) and words.text[start] != "[":
            default = Repeated(default)
    return Argument(name, spelled.type, spelled.length, default, keyword_only, spelled.alias, spelled.text)


def _default(words: Words, kind: Type, length: int | None) -> Any:
    """A default value, as the type says it is written."""
    if isinstance(kind, OptionalType):
        if words.token.text == "None":
            words.take()
            return None
        kind = kind.getElementType()
    if isinstance(kind, ListType):
        if words.accept("["):
            return [_default(words, kind.getElementType(), None) for _ in words.separated("]")]
        value = _default(words, kind.getElementType(), None)
        return [value] * (length or 1)
    token = words.token
    if token.kind == "string":
        return unquoted(words.take().text)
    if token.kind == "ident":
        known = {"None": None, "True": True, "False": False, **_CONSTANTS}
        if token.text in known and (token.text not in _CONSTANTS or isinstance(kind, NUMBERED)):
            words.take()
            return known[token.text]
        if token.text in ("inf", "nan"):
            return float(words.take().text)
        raise words.error("invalid numeric default value")
    value = number_of(words)
    return float(value) if isinstance(kind, FloatType) and not isinstance(value, complex) else value


def _results(words: Words) -> tuple[list[Argument], bool]:
    if words.accept("..."):
        return [], True
    if not words.accept("("):
        return [_result(words)], False
    found, varret = [], False
    for _ in words.separated(")"):
        if words.accept("..."):
            varret = True
        else:
            found.append(_result(words))
    return found, varret


def _result(words: Words) -> Argument:
    if not words.is_next("ident", "("):
        raise words.unexpected("ident")
    spelled = read_spelled(words)
    name = words.take().text if words.is_next("ident") else ""
    return Argument(name, spelled.type, spelled.length, alias=spelled.alias, spelling=spelled.text)
