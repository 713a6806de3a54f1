"""Which overload of an operator a call means, and how the arguments of the call become those of the schema.

A call is known by the types of its arguments, as a compiler has them, or by their values. Overloads are tried in order,
first as they are, then with implicit conversions: a tensor of one element where a number is expected, a bool where an
int is, a text where a device is. One number stands for a list of fixed length, and numbers in a row for a last list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..base.errors import RunError
from .calls.numbered import in_programs
from .constants import type_of
from .operators import Operator, find, operators_of
from .schema import Argument, FunctionSchema
from .types import (
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
    StringType,
    TensorType,
    TupleType,
    Type,
    VarType,
)


class Conversion(NamedTuple):
    """What is done to an argument of a call before it is one of the schema.

    | kind | what |
    |---|---|
    | `operator` | the operator `name` is applied to it: `aten::IntImplicit`, `aten::Float`, `aten::device`, ... |
    | `repeat` | a list of it, `times` times |
    | `collect` | a list of it and the `times - 1` arguments after it, each by the conversion in `parts` |
    | `list` | the tuple as a list, each element by the conversion in `parts` |
    """

    kind: str
    name: str = ""
    times: int = 0
    parts: tuple[Conversion | None, ...] = ()


class Bound(NamedTuple):
    """Where the value of an argument comes from: a positional argument, by its place, a keyword, or the default."""

    argument: Argument
    source: int | str | None
    conversion: Conversion | None = None


class Match(NamedTuple):
    """An overload that takes a call. `rest` are the places of arguments beyond those that a schema names (`...`)."""

    operator: Operator
    arguments: list[Bound]
    rest: list[int]
    returns: list[Type]


class Mismatch(Exception):
    """Why an overload does not take a call."""


def match(name: str, args: Sequence[Type], kwargs: Mapping[str, Type] | None = None) -> Match:
    """The overload that takes arguments of some types.

    >>> found = match("aten::sum", [TensorType.get(), IntType.get()])
    >>> found.operator.schema.overload_name, found.arguments[1].conversion.kind
    ('dim_IntList', 'repeat')
    """
    known = operators_of(name)
    if not known:
        raise RunError(f"Unknown builtin op: {name}.", why="no operator has that name")
    reasons: list[str] = []
    for conversions in (False, True):
        reasons = []
        for operator in known:
            try:
                return matched(operator, args, kwargs or {}, conversions)
            except Mismatch as reason:
                reasons.append(f"  \n  {operator.schema}:\n  {reason}")
    if len(known) == 1:
        raise RunError(f"\n{known[0].schema}:\n{reasons[0].rpartition('  ')[2]}")
    raise RunError("Arguments for call are not valid.\nThe following variants are available:\n" + "\n".join(reasons))


def matched(operator: Operator, args: Sequence[Type], kwargs: Mapping[str, Type], conversions: bool = True) -> Match:
    """How one overload takes a call; Mismatch if it does not."""
    schema, variables = operator.schema, dict[str, Type]()
    bound: list[Bound] = []
    used, left = 0, dict(kwargs)
    for place, argument in enumerate(schema.arguments):
        if not argument.kwarg_only and used < len(args):
            listed = _collected(schema, place, args[used:], variables) if conversions else None
            if listed is not None:
                bound.append(Bound(argument, used, listed))
                used = len(args)
                continue
            bound.append(Bound(argument, used, _fitted(argument, args[used], variables, conversions)))
            used += 1
            if argument.name in left:
                raise Mismatch(f"Argument '{argument.name}' specified twice in schema, submit a bug report!")
        elif argument.name in left:
            kind = left.pop(argument.name)
            bound.append(Bound(argument, argument.name, _fitted(argument, kind, variables, conversions)))
        elif argument.has_default_value():
            bound.append(Bound(argument, None))
        else:
            raise Mismatch(f"Argument {argument.name} not provided.")
    if used < len(args) and not schema.is_vararg:
        raise Mismatch(f"Expected at most {used} arguments but found {len(args)} positional arguments.")
    if left:
        raise Mismatch(f"Keyword argument {next(iter(left))} unknown.")
    returns = [_filled(result.type, variables) for result in schema.returns]
    return Match(operator, bound, list(range(used, len(args))), returns)


def takes(schema: FunctionSchema, args: Sequence[Type], kwargs: Mapping[str, Type]) -> bool:
    """Whether a schema takes arguments of some types as they are."""
    try:
        matched(Operator(schema, lambda *values: None), args, kwargs, False)
    except Mismatch:
        return False
    return True


def fits(schema: FunctionSchema, kinds: Sequence[Type]) -> bool:
    """Whether a schema has an argument for each of some types."""
    arguments = schema.arguments
    if len(kinds) != len(arguments) and not (schema.is_vararg and len(kinds) > len(arguments)):
        return False
    variables: dict[str, Type] = {}
    for argument, kind in zip(arguments, kinds):
        if _unify(argument.type, kind, variables) or not kind.isSubtypeOf(_filled(argument.type, variables)):
            return False
    return True


_found: dict[tuple[str, ...], Operator | None] = {}  # by the kind of a node and the types of its inputs


def find_operator(name: str, kinds: Sequence[Type]) -> Operator | None:
    """The operator of a node that reads values of some types; None if there is none."""
    key = (name, *["Tensor" if isinstance(kind, TensorType) else kind.str() for kind in kinds])
    if key not in _found:
        _found[key] = next((operator for operator in operators_of(name) if fits(operator.schema, kinds)), None)
    return _found[key]


def operator_for(name: str, kinds: Sequence[Type]) -> Operator:
    """The same, which has to be there."""
    found = find_operator(name, kinds)
    if found is not None:
        return found
    what = f"{name} has no overload for ({', '.join([kind.str() for kind in kinds])})"
    known = operators_of(name)
    if not known:
        raise RunError(what, why="no operator has that name")
    raise RunError(
        what,
        why="it has " + "; ".join([str(operator.schema) for operator in known]),
        hint="a node has a value for each argument of a schema",
    )


def _fitted(argument: Argument, actual: Type, variables: dict[str, Type], conversions: bool) -> Conversion | None:
    """The conversion that makes a value of a type an argument, if it needs one."""
    wanted = argument.type
    if _stands_for_list(actual, argument):
        return Conversion("repeat", times=argument.N or 0)
    conversion, after = _conversion(actual, wanted, conversions)
    why = _unify(wanted, after, variables)
    expected = _filled(wanted, variables)
    if why or not after.isSubtypeOf(expected):
        message = (
            f"Expected a value of type '{_spelled(expected)}' for argument '{argument.name}' but instead found type "
            f"'{_spelled(actual)}'."
        )
        raise Mismatch(f"{message}\n  {why}" if why else message)
    return conversion


def _spelled(kind: Type) -> str:
    return "number" if isinstance(kind, NumberType) else kind.annotation_str


def _stands_for_list(actual: Type, argument: Argument) -> bool:
    """Whether one number is taken for a list of fixed length."""
    wanted = _unwrapped(argument.type)
    return (
        argument.N is not None
        and isinstance(wanted, ListType)
        and isinstance(actual, (IntType, FloatType))
        and actual == wanted.getElementType()
    )


def _unwrapped(kind: Type) -> Type:
    return kind.getElementType() if isinstance(kind, OptionalType) else kind


def _conversion(actual: Type, wanted: Type, conversions: bool) -> tuple[Conversion | None, Type]:
    """What is applied to a value, and the type that it has then."""
    if isinstance(wanted, OptionalType) and not isinstance(actual, (NoneType, OptionalType)):
        wanted = wanted.getElementType()
    if isinstance(actual, TupleType) and isinstance(wanted, ListType):
        element = wanted.getElementType()
        parts = [_conversion(part, element, conversions) for part in actual.parts]
        if all(after.isSubtypeOf(element) or isinstance(element, VarType) for _, after in parts):
            kinds = {after for _, after in parts}
            listed = kinds.pop() if isinstance(element, VarType) and len(kinds) == 1 else element
            return Conversion("list", parts=tuple([part for part, _ in parts])), ListType(listed)
    if conversions:
        name = _implicit(actual, wanted)
        if name is not None:
            return Conversion("operator", name), IntType.get() if name == "aten::Int" else wanted
    return None, actual


_OF_TENSORS = {IntType: "IntImplicit", FloatType: "FloatImplicit", ComplexType: "ComplexImplicit"}
_OF_TENSORS[NumberType] = "ScalarImplicit"
_OF_NUMBERS = {IntType: "Int", FloatType: "Float", ComplexType: "Complex"}


def _implicit(actual: Type, wanted: Type) -> str | None:
    """The operator that makes one type of another without being asked."""
    names: Mapping[type[Type], str] = {}
    if isinstance(actual, TensorType):
        names = _OF_TENSORS
    elif isinstance(actual, NumberType):
        names = _OF_NUMBERS
    elif isinstance(actual, BoolType):
        names = _OF_NUMBERS | {NumberType: "Int"}
    elif isinstance(actual, StringType):
        names = {DeviceObjType: "device"}
    name = names.get(type(wanted))
    return None if name is None else f"aten::{name}"


def _collected(
    schema: FunctionSchema, place: int, rest: Sequence[Type], variables: dict[str, Type]
) -> Conversion | None:
    """Arguments in a row as one list: `x.view(2, 3)`."""
    argument, wanted = schema.arguments[place], _unwrapped(schema.arguments[place].type)
    last = place + 1 == len(schema.arguments) or schema.arguments[place + 1].kwarg_only
    if not (last and isinstance(wanted, ListType)) or schema.is_vararg or isinstance(wanted.getElementType(), VarType):
        return None
    if argument.N is not None and len(rest) == 1:
        return None
    if isinstance(rest[0], (ListType, TupleType, NoneType, OptionalType)):
        return None
    element = wanted.getElementType()
    parts = [_conversion(kind, element, True) for kind in rest]
    if not all(after.isSubtypeOf(element) for _, after in parts):
        return None
    return Conversion("collect", times=len(rest), parts=tuple([part for part, _ in parts]))


def _unify(wanted: Type, actual: Type, variables: dict[str, Type]) -> str:
    """Gives type variables their types; why it cannot, if so."""
    stack = [(wanted, actual)]
    while stack:
        formal, kind = stack.pop()
        if isinstance(formal, VarType):
            known = variables.setdefault(formal.name, kind)
            if kind.isSubtypeOf(known):
                continue
            if not known.isSubtypeOf(kind):
                return f"Could not match type {kind} to {formal.name}: it is {known} already"
            variables[formal.name] = kind
        elif isinstance(formal, OptionalType):
            if not isinstance(kind, NoneType):
                stack.append((formal.getElementType(), _unwrapped(kind)))
        elif isinstance(formal, (ListType, FutureType, DictType, TupleType)):
            if type(kind) is not type(formal) or len(kind.containedTypes()) != len(formal.containedTypes()):
                return "" if not has_variables(formal) else f"Cannot match {formal} to {kind}"
            stack += zip(formal.containedTypes(), kind.containedTypes())
    return ""


def has_variables(kind: Type) -> bool:
    """Whether a schema leaves a type open, or a part of it."""
    return isinstance(kind, VarType) or any(map(has_variables, kind.containedTypes()))


def _filled(kind: Type, variables: Mapping[str, Type]) -> Type:
    """A type with the types of its variables."""
    if isinstance(kind, VarType):
        return variables.get(kind.name, kind)
    if not has_variables(kind):
        return kind
    parts = [_filled(part, variables) for part in kind.containedTypes()]
    return TupleType(parts) if isinstance(kind, TupleType) else type(kind)(*parts)


# Values


def bind(name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> tuple[Operator, list[Any]]:
    """The overload that takes some values, and the value of each of its arguments.

    >>> operator, values = bind("aten::add", [1, 2.5])
    >>> operator.schema.overload_name, operator.call(*values)
    ('int_float', 3.5)
    """
    args = [in_programs(value) for value in args]
    named = {key: in_programs(value) for key, value in (kwargs or {}).items()}
    found = match(name, [type_of(value) for value in args], {key: type_of(value) for key, value in named.items()})
    values = []
    for argument, source, conversion in found.arguments:
        if source is None:
            values.append(argument.default_value)
        elif isinstance(source, str):
            values.append(convert(conversion, [named[source]]))
        else:
            values.append(convert(conversion, args[source:]))
    return found.operator, values + [args[place] for place in found.rest]


def convert(conversion: Conversion | None, values: Sequence[Any]) -> Any:
    """The first of some values as a schema takes it."""
    if conversion is None:
        return values[0]
    if conversion.kind == "repeat":
        return [values[0]] * conversion.times
    if conversion.kind == "operator":
        return bind_converter(conversion.name, values[0])
    items = values[0] if conversion.kind == "list" else values[: conversion.times]
    return [convert(part, [item]) for part, item in zip(conversion.parts, items)]


def bind_converter(name: str, value: Any) -> Any:
    """What an operator of one argument makes of a value."""
    return find(name).call(value)
