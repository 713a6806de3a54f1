"""Values of Python that a program names: modules, functions, types, constants. Nothing of them is called."""

from __future__ import annotations

import builtins
import cmath
import functools
import math
import types
import warnings
from collections.abc import Callable
from typing import Any

from ...eager.autograd.modes import enable_grad, no_grad
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.device import device as Device
from ...eager.tensor.types import dtype, layout, memory_format
from ..forks import fork, wait
from ..functions import Function as Compiled
from ..nodes import Value
from ..operators import operators_of
from ..schema import FunctionSchema
from ..types import BoolType, ComplexType, FloatType, IntType, StringType, TensorType, Type
from . import language
from .builder import Builder
from .calls import call_inputs
from .forks import Fork
from .near import nearest
from .sugar import (
    Arguments,
    Builtin,
    Cast,
    Class,
    Exceptions,
    Form,
    Function,
    GradMode,
    Keywords,
    Length,
    Minimum,
    Simple,
    Sugar,
    called,
)

_PREFIXES = {
    "weft": "aten::",
    "weft.nn.functional": "aten::",
    "weft.linalg": "aten::linalg_",
    "weft.special": "aten::special_",
    "weft.fft": "aten::fft_",
}
_CONSTANTS = (bool, int, float, complex, str, type(None), Device, dtype, layout, memory_format)
FORMS: dict[Any, str] = {
    **{
        getattr(builtins, name): name
        for name in "print range zip enumerate reversed isinstance hasattr getattr".split()
    },
    tuple: "tuple",
    list: "list",
    dict: "dict",
    language.annotate: "annotate",
    language.isinstance: "isinstance",
    language.is_scripting: "is_scripting",
    language.is_tracing: "is_tracing",
}
_BUILTINS: dict[Any, str] = {
    getattr(builtins, name): f"aten::{name}"
    for name in "sorted round hash divmod sum ord chr hex oct bin all any pow".split()
} | {abs: "prim::abs", id: "prim::id", warnings.warn: "aten::warn"}
_MATH = {
    function: f"aten::{name}"
    for module in (cmath, math)
    for name, function in vars(module).items()
    if callable(function) and not name.startswith("_")
}
_CASTS: dict[Any, Callable[[], Sugar]] = {
    int: lambda: Cast("aten::Int", IntType.get(), 0),
    float: lambda: Cast("aten::Float", FloatType.get(), 0.0),
    bool: lambda: Cast("aten::Bool", BoolType.get(), False),
    complex: lambda: Cast("aten::Complex", ComplexType.get(), 0j),
    str: lambda: Cast("aten::str", StringType.get(), ""),
    len: lambda: Length("aten::len"),
    min: lambda: Minimum("prim::min"),
    max: lambda: Minimum("prim::max"),
    Device: lambda: Builtin("aten::device"),
    fork: Fork,
    wait: lambda: Builtin("aten::wait"),
}


@functools.cache
def _operators() -> dict[Any, str]:
    """The operators of weft's own functions."""
    return {
        function: f"{prefix}{name}"
        for space, prefix in _PREFIXES.items()
        for name, function in FUNCTIONS[space].items()
    }


class Constant(Sugar):
    """A value of Python that a program has as a constant."""

    def __init__(self, value: Any) -> None:
        self._constant, self.kind = value, type(value).__name__

    def value(self, builder: Builder) -> Value:
        return builder.constant(self._constant)

    def attribute(self, builder: Builder, name: str) -> Sugar:
        return Simple(self.value(builder)).attribute(builder, name)

    def items(self, builder: Builder, count: int | None = None) -> list[Sugar]:
        return Simple(self.value(builder)).items(builder, count)

    def iteration(self, builder: Builder) -> Any:
        return Simple(self.value(builder)).iteration(builder)

    def subscript(self, builder: Builder, index: Value) -> Sugar:
        return Simple(self.value(builder)).subscript(builder, index)


class Namespace(Sugar):
    """A module of Python: what it has is looked up while a program is compiled."""

    kind = "module"

    def __init__(self, module: Any, sugar_of: Callable[[Any], Sugar | None]) -> None:
        self._module, self._sugar_of = module, sugar_of

    def attribute(self, builder: Builder, name: str) -> Sugar:
        missing = object()
        value = getattr(self._module, name, missing)
        if value is missing:
            raise builder.error(f"object has no attribute {name}." + nearest(name, dir(self._module)))
        found = self._sugar_of(value)
        return Opaque(value) if found is None else found


class Opaque(Sugar):
    """A value of Python that programs cannot have."""

    def __init__(self, value: Any) -> None:
        self.kind = f"python value of type '{type(value).__name__}'"

    def value(self, builder: Builder) -> Value:
        raise builder.error(
            f"{self.kind} cannot be used as a value. Perhaps it is a closed over global variable? If so, please "
            "consider passing it in as an argument or use a local varible instead."
        )


class Ignored(Sugar):
    """A function that stays one of Python; None stands for the schema of one that programs do not call."""

    kind = "python function"

    def __init__(self, function: Any, schema: FunctionSchema | None, owner: Value | None = None) -> None:
        self._function, self._schema, self._owner = function, schema, owner

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        if self._schema is None:
            text = builder.constant("This Python function is annotated to be ignored and cannot be run")
            builder.nodes("prim::RaiseException", [text, builder.constant("builtins.RuntimeError")], [])
            return Simple(builder.node("prim::Uninitialized", [], TensorType.get()))
        values = [] if self._owner is None else [self._owner]
        values += [each.value(builder) for each in args]
        named = {name: each.value(builder) for name, each in kwargs.items()}
        inputs = call_inputs(builder, self._schema, values, named, builder.place)
        return Simple(called(builder, self._function, self._schema.name, inputs, self._schema.returns[0].type))


def plain_sugar(value: Any) -> Sugar | None:
    """What a value of Python stands for in a program; None for functions and classes of the user's own, and for what
    programs do not have."""
    if isinstance(value, Sugar):
        return value
    if is_constant(value):
        return Constant(value)
    if isinstance(value, Compiled):
        return Function(value)
    if isinstance(value, type) and issubclass(value, BaseException):
        return Exceptions(f"{value.__module__}.{value.__qualname__}")
    if value is no_grad or value is enable_grad:
        return GradMode(value is enable_grad)
    if isinstance(value, Type):
        return Class(value)
    try:
        hash(value)
    except TypeError:
        return None
    if value in FORMS:
        return Form(FORMS[value])
    if value in _CASTS:
        return _CASTS[value]()
    for table in (_BUILTINS, _MATH, _operators()):
        if value in table and operators_of(table[value]):
            return Builtin(table[value])
    return None


def is_constant(value: Any) -> bool:
    """Whether a value is one that programs have as a constant: a number, a text, a dtype, a tuple of those."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if type(part) is tuple:
            waiting += part
        elif not isinstance(part, _CONSTANTS):
            return False
    return True


def is_function(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, types.MethodType))
