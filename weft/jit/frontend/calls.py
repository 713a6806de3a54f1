"""Calls of operators and of functions with schemas: nodes for what arguments are converted to, and for the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from ..matching import Conversion, Match, Mismatch, _conversion, has_variables, matched
from ..nodes import Value
from ..operators import Operator, operators_of
from ..schema import FunctionSchema, parse_schema
from ..types import ListType, NoneType, OptionalType, TensorType, TupleType, Type, UnionType
from .builder import Builder
from .place import Place


class _Inferred(TensorType):
    """Stands for a tensor of which nobody said that it is one, in messages."""

    annotation = "Tensor (inferred)"


class _EmptyList(ListType):
    """The type of a list without elements: that of any list."""

    def isSubtypeOf(self, other: Type) -> bool:
        return isinstance(other, ListType) or super().isSubtypeOf(other)


_INFERRED, _EMPTY = object.__new__(_Inferred), _EmptyList(TensorType.get())


def _type(builder: Builder, value: Value) -> Type:
    return _EMPTY if builder.is_empty_list(value) else value.type()


# Operators whose first argument is a number and whose second is a tensor, by what they are of tensors first.
_NUMBER_FIRST: dict[str, Callable[[Builder, Value, Value], Value]] = {
    "add": lambda b, number, tensor: call_operator(b, "aten::add", [tensor, number]),
    "mul": lambda b, number, tensor: call_operator(b, "aten::mul", [tensor, number]),
    "sub": lambda b, number, tensor: call_operator(b, "aten::add", [call_operator(b, "aten::neg", [tensor]), number]),
    "div": lambda b, number, tensor: call_operator(
        b, "aten::mul", [call_operator(b, "aten::reciprocal", [tensor]), number]
    ),
    "eq": lambda b, number, tensor: call_operator(b, "aten::eq", [tensor, number]),
    "ne": lambda b, number, tensor: call_operator(b, "aten::ne", [tensor, number]),
    "lt": lambda b, number, tensor: call_operator(b, "aten::gt", [tensor, number]),
    "gt": lambda b, number, tensor: call_operator(b, "aten::lt", [tensor, number]),
    "le": lambda b, number, tensor: call_operator(b, "aten::ge", [tensor, number]),
    "ge": lambda b, number, tensor: call_operator(b, "aten::le", [tensor, number]),
}


def call_operator(
    builder: Builder,
    name: str,
    args: Sequence[Value],
    kwargs: Mapping[str, Value] | None = None,
    place: Place | None = None,
) -> Value:
    """The result of an operator: a tuple if it has several, None if it has none."""
    found, number_first = _overload(builder, name, args, kwargs or {}, place or builder.place)
    inputs = _inputs(builder, found, args, kwargs or {})
    if number_first is not None:
        return number_first(builder, inputs[0], inputs[1])
    node = builder.nodes(name, inputs, found.returns)
    if len(found.returns) == 1:
        return node.output()
    return builder.tuple_of(list(node.outputs())) if found.returns else builder.constant(None)


_Special = Callable[[Builder, Value, Value], Value]


@cache
def _candidates(name: str) -> list[tuple[Operator, _Special | None]]:
    found: list[tuple[Operator, _Special | None]] = [(operator, None) for operator in operators_of(name)]
    bare = name.removeprefix("aten::")
    if bare in _NUMBER_FIRST:
        found += [
            (Operator(parse_schema(f"{bare}({kind} a, Tensor b) -> Tensor"), _NUMBER_FIRST[bare]), _NUMBER_FIRST[bare])
            for kind in ("float", "int", "complex")
        ]
    return found


def _overload(
    builder: Builder, name: str, args: Sequence[Value], kwargs: Mapping[str, Value], place: Place
) -> tuple[Match, _Special | None]:
    """The first overload that takes the arguments as they are; else the first that takes them converted."""
    candidates = _candidates(name)
    if not candidates:
        raise place.error(f"Unknown builtin op: {name}")
    types, named = [_type(builder, value) for value in args], {key: _type(builder, kwargs[key]) for key in kwargs}
    # A number is a size of a view, though it might be that of a dtype as well.
    sizes = name == "aten::view" and len(args) > 1 and args[1] not in builder.numbered
    for conversions in (True,) if sizes else (False, True):
        for operator, special in candidates:
            try:
                return matched(operator, types, named, conversions), special
            except Mismatch:
                continue
    raise refused(builder, [operator.schema for operator, _ in candidates], args, kwargs, place)


def refused(
    builder: Builder,
    schemas: Sequence[FunctionSchema],
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    place: Place,
) -> Exception:
    """The error of a call that no schema takes, with the reason of each."""

    def shown(value: Value) -> Type:
        return _INFERRED if value in builder.inferred else _type(builder, value)

    types, named = [shown(value) for value in args], {key: shown(value) for key, value in kwargs.items()}
    reasons = []
    for schema in schemas:
        try:
            matched(Operator(schema, print), types, named, True)
        except Mismatch as reason:
            reasons.append(str(reason))
    if len(schemas) == 1:
        return place.error(f"\n{schemas[0]}:\n{reasons[0]}\n\nThe original call is")
    variants = "".join(["  \n  {}:\n  {}\n".format(s, r.replace("\n", "\n  ")) for s, r in zip(schemas, reasons)])
    return place.error(
        f"Arguments for call are not valid.\nThe following variants are available:\n{variants}\nThe original call is"
    )


def call_inputs(
    builder: Builder, schema: FunctionSchema, args: Sequence[Value], kwargs: Mapping[str, Value], place: Place
) -> list[Value]:
    """The inputs of a call of a function with one schema."""
    types, named = [_type(builder, value) for value in args], {key: _type(builder, kwargs[key]) for key in kwargs}
    try:
        found = matched(Operator(schema, print), types, named, True)
    except Mismatch:
        raise refused(builder, [schema], args, kwargs, place) from None
    return _inputs(builder, found, args, kwargs)


def _inputs(builder: Builder, found: Match, args: Sequence[Value], kwargs: Mapping[str, Value]) -> list[Value]:
    inputs = []
    for argument, source, conversion in found.arguments:
        if source is None:
            inputs.append(builder.constant(argument.default_value, argument.type))
            continue
        values = [kwargs[source]] if isinstance(source, str) else args[source:]
        inputs.append(_applied(builder, conversion, values, argument.type))
    return inputs + [args[place] for place in found.rest]


def _applied(builder: Builder, conversion: Conversion | None, values: Sequence[Value], kind: Type) -> Value:
    """A value, converted."""
    if isinstance(kind, OptionalType):
        kind = kind.getElementType()
    if conversion is None:
        typed = builder.is_empty_list(values[0]) and isinstance(kind, ListType) and not has_variables(kind)
        return builder.list_of(kind.containedTypes()[0], []) if typed else values[0]
    if conversion.kind == "operator":
        return call_operator(builder, conversion.name, [values[0]])
    assert isinstance(kind, ListType)
    element = kind.getElementType()
    if conversion.kind == "repeat":
        return builder.list_of(element, [values[0]] * conversion.times)
    items = builder.unpacked(values[0]) if conversion.kind == "list" else values[: conversion.times]
    parts = [_applied(builder, part, [item], element) for part, item in zip(conversion.parts, items)]
    return builder.list_of(parts[0].type() if parts else element, parts)


def as_type(builder: Builder, value: Value, kind: Type) -> Value:
    """A value as one of a type where there is an implicit conversion; else as it is."""
    if builder.is_empty_list(value) and isinstance(kind, ListType):
        return builder.list_of(kind.getElementType(), [])
    if value.type().isSubtypeOf(kind):
        return value
    found = value.type()
    if isinstance(found, TupleType) and isinstance(kind, TupleType) and len(found.parts) == len(kind.parts):
        parts = [as_type(builder, part, wanted) for part, wanted in zip(builder.unpacked(value), kind.parts)]
        return builder.tuple_of(parts)
    conversion, after = _conversion(found, kind, True)
    return _applied(builder, conversion, [value], kind) if after.isSubtypeOf(kind) else value


def unify(one: Type, two: Type, union: bool = False) -> Type | None:
    """The type that values of two types have: one of them, if it takes both; an optional, if one is None."""
    if isinstance(one, TensorType) and isinstance(two, TensorType):
        return one if one == two else TensorType.get()
    if one.isSubtypeOf(two):
        return two
    if two.isSubtypeOf(one):
        return one
    made: Type
    if isinstance(one, NoneType) or isinstance(two, NoneType):
        made = OptionalType(two if isinstance(one, NoneType) else one)
        return made
    if isinstance(one, OptionalType) or isinstance(two, OptionalType):
        inner = unify(_present(one), _present(two))
        return None if inner is None else OptionalType(inner)
    if isinstance(one, TupleType) and isinstance(two, TupleType) and len(one.parts) == len(two.parts):
        parts = [unify(a, b) for a, b in zip(one.parts, two.parts)]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            return TupleType(known)
    if union:
        made = UnionType([one, two])
        return made
    return None


def _present(kind: Type) -> Type:
    return kind.getElementType() if isinstance(kind, OptionalType) else kind
