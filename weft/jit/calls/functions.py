"""What operators do with tensors: the function or method of weft that has the operator's name. A schema says how it is
called; `SPECIAL` has those whose arguments are in another order there, or that are no function of weft."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.tensor import Tensor
from ..schema import Argument, FunctionSchema
from ..types import IntType, LayoutType, ListType, MemoryFormatType, OptionalType, ScalarTypeType, TensorType, Type
from .numbered import FORMATS, LAYOUTS, OF_NUMBER, REDUCTIONS, in_programs

_NUMBERED: dict[type[Type], dict[int, Any]] = {
    ScalarTypeType: OF_NUMBER,
    LayoutType: LAYOUTS,
    MemoryFormatType: FORMATS,
}
_UNHEARD = frozenset(("cudnn_enabled", "cudnn_enable", "pin_memory"))  # what functions of weft need not be told
_SPACES = {"linalg_": "weft.linalg", "special_": "weft.special"}


def has_tensors(schema: FunctionSchema) -> bool:
    """Whether an operator takes tensors or gives them."""
    return any(_is_tensor(argument.real_type) for argument in (*schema.arguments, *schema.returns))


def _is_tensor(kind: Type) -> bool:
    while isinstance(kind, (OptionalType, ListType)):
        kind = kind.getElementType()
    return isinstance(kind, TensorType)


def function_of(schema: FunctionSchema) -> Callable[..., Any] | None:
    """What does the work of an operator on tensors, or makes them; None if nothing of weft has its name."""
    name = schema.name.partition("::")[2]
    target = _target(name)
    return None if target is None else _called_as(schema, target, name not in FUNCTIONS["weft"])


def _target(name: str) -> Callable[..., Any] | None:
    for prefix, space in _SPACES.items():
        if name.startswith(prefix):
            return FUNCTIONS[space].get(name.removeprefix(prefix))
    if name.startswith("fft_"):
        return FUNCTIONS["weft.fft"].get(name.removeprefix("fft_"))
    for space in ("weft", "weft.nn.functional"):
        if name in FUNCTIONS[space]:
            return FUNCTIONS[space][name]
    found = getattr(Tensor, name, None)
    return found if found is None or callable(found) else operator.attrgetter(name)


def _called_as(schema: FunctionSchema, target: Callable[..., Any], reductions: bool) -> Callable[..., Any]:
    """A function that takes the values of all arguments. Those that the target has elsewhere, or by name only, are
    given by name; defaults that it does not have are left out. `reductions`: it has them by name."""
    ordered, parameters = _parameters(target)
    places: list[tuple[Argument, Callable[[Any], Any], bool]] = []
    wanted: list[int] = []
    named = False
    for place, argument in enumerate(schema.arguments):
        if argument.is_out or (argument.name in _UNHEARD and argument.name not in parameters):
            continue
        elsewhere = argument.name in parameters and ordered[place : place + 1] != [argument.name]
        named = named or elsewhere
        places.append((argument, _reader(argument, reductions), argument.kwarg_only or named))
        wanted.append(place)
    outputs = [place for place, argument in enumerate(schema.arguments) if argument.is_out]
    result = _giver(schema)
    ordered_alone = not outputs and len(places) == len(schema.arguments) and not any(named for _, _, named in places)
    if ordered_alone and all(read is _as_it_is and _is_taken(argument, parameters) for argument, read, _ in places):
        return target if result is _as_it_is else lambda *values: result(target(*values))

    def call(*values: Any) -> Any:
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        given = 0
        for (argument, read, named), place in zip(places, wanted):
            value = values[place]
            usual = argument.has_default_value() and _equal(value, argument.default_value)
            if named:
                if not usual:
                    keywords[argument.name] = read(value)
            else:
                positional.append(read(value))
                given = given if usual and argument.name not in parameters else len(positional)
        if outputs:
            keywords["out"] = values[outputs[0]] if len(outputs) == 1 else tuple([values[place] for place in outputs])
        return result(target(*positional[:given], **keywords))

    return call


def _parameters(target: Callable[..., Any]) -> tuple[list[str], set[str]]:
    """The names of the parameters of a function: those that may be given in order, and all of them."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return [], set()
    ordered = [each.name for each in parameters if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    named = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    return ordered, {*ordered, *named}


def _as_it_is(value: Any) -> Any:
    return value


def _is_taken(argument: Argument, parameters: set[str]) -> bool:
    """Whether a function is given an argument even if it is the default."""
    return not argument.has_default_value() or argument.name in parameters


def _equal(one: Any, two: Any) -> bool:
    return type(one) is type(two) and not isinstance(one, Tensor) and bool(one == two)


def _reader(argument: Argument, reductions: bool) -> Callable[[Any], Any]:
    """How a value of a program is given to a function: a dtype is no int there, nor is the name of a reduction."""
    kind = argument.real_type
    if isinstance(kind, OptionalType):
        kind = kind.getElementType()
    table = _NUMBERED.get(type(kind))
    if reductions and argument.name == "reduction" and isinstance(kind, IntType):
        table = REDUCTIONS
    if argument.name == "stride" and argument.default_value == []:  # which stands for the size of the window
        return lambda value: value or None
    if table is None:
        return _as_it_is
    return lambda value: None if value is None else table[value]


def _giver(schema: FunctionSchema) -> Callable[[Any], Any]:
    """How what a function gives is had by a program: lists where tuples were, results by name as plain tuples."""
    if not schema.returns:
        return lambda value: None
    if len(schema.returns) > 1:
        return tuple
    kind = schema.returns[0].real_type
    if isinstance(kind, TensorType):
        return _as_it_is
    return list if isinstance(kind, ListType) else in_programs
