"""What names stand for in the sources of an archive: operators, classes and functions of the archive, its constants,
and a few words of the language. There are no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...eager.tensor.tensor import Tensor
from ..frontend.builder import Builder
from ..frontend.forks import Fork
from ..frontend.python_values import FORMS, Constant
from ..frontend.sugar import Arguments, Builtin, Cast, Class, Form, Function, Keywords, Simple, Sugar
from ..functions import Function as Compiled
from ..nodes import Value
from ..operators import operators_of
from ..types import BoolType, ComplexType, FloatType, IntType, StringType, TensorType, Type

if TYPE_CHECKING:
    from .program import Program

_FORMS = [*FORMS.values(), "unchecked_cast", "uninitialized"]
_WORDS: dict[str, Callable[[], Sugar]] = {
    "int": lambda: Cast("aten::Int", IntType.get(), 0),
    "float": lambda: Cast("aten::Float", FloatType.get(), 0.0),
    "bool": lambda: Cast("aten::Bool", BoolType.get(), False),
    "complex": lambda: Cast("aten::Complex", ComplexType.get(), 0j),
    "str": lambda: Cast("aten::str", StringType.get(), ""),
    "inf": lambda: Constant(float("inf")),
    "nan": lambda: Constant(float("nan")),
    "infj": lambda: Constant(complex(0, float("inf"))),
    "nanj": lambda: Constant(complex(0, float("nan"))),
    "torch": lambda: Operators("aten"),
    "ops": lambda: Spaces(),
    "fork": lambda: Fork(),
}


def resolver(program: Program) -> Callable[[str], Sugar | None]:
    """What a name stands for; None if it is not known."""

    def find(name: str) -> Sugar | None:
        if name in _WORDS:
            return _WORDS[name]()
        if name in _FORMS:
            return Form(name)
        try:
            return named(program, program.resolve(name))
        except KeyError:
            return None

    return find


def named(program: Program, value: Any) -> Sugar:
    """Something of an archive in an expression."""
    if isinstance(value, Type):
        return Class(value)
    return Function(value) if isinstance(value, Compiled) else Names(program, value)


class Operators(Sugar):
    """`torch`, and what comes after `ops`: operators by name."""

    kind = "module"

    def __init__(self, space: str) -> None:
        self._space = space

    def attribute(self, builder: Builder, name: str) -> Sugar:
        kind = f"{self._space}::{name}"
        if kind == "prim::RaiseException":
            return Raise()
        if not operators_of(kind):
            raise builder.error(f"Unknown builtin op: {kind}")
        return Builtin(kind)


class Spaces(Sugar):
    """`ops`: namespaces of operators."""

    kind = "module"

    def attribute(self, builder: Builder, name: str) -> Sugar:
        return Operators(name)


class Raise(Sugar):
    """`ops.prim.RaiseException(message, class)`."""

    kind = "builtin"

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        values = [each.value(builder) for each in args]
        if not 1 <= len(values) <= 2 or kwargs:
            raise builder.error("RaiseException takes a message and the name of a class")
        values += [builder.constant(None)] * (2 - len(values))
        builder.nodes("prim::RaiseException", values, [])
        return Simple(builder.constant(None))


class Names(Sugar):
    """A part of a dotted name of the archive, or `CONSTANTS`."""

    kind = "module"

    def __init__(self, program: Program, names: Any) -> None:
        self._program, self._names = program, names

    def attribute(self, builder: Builder, name: str) -> Sugar:
        try:
            found = getattr(self._names, name)
        except AttributeError as error:
            raise builder.error(str(error) or f"the archive has no {name!r}") from None
        if isinstance(found, Tensor) or not isinstance(found, Type | Compiled | type(self._names)):
            return Simple(constant(builder, found, TensorType.get() if isinstance(found, Tensor) else None))
        return named(self._program, found)


def constant(builder: Builder, value: Any, kind: Type | None = None) -> Value:
    """A constant of the archive: no plain value of Python, perhaps."""
    if kind is None:
        return builder.constant(value)
    made = builder.nodes("prim::Constant", [], [kind])
    made._set("t" if isinstance(value, Tensor) else "ival", "value", value)
    return made.output()
