"""`script`: functions of Python as programs; and units of programs that are given as text."""

from __future__ import annotations

import ast
import builtins
import enum
import functools
import inspect
import textwrap
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from ...base.errors import InvalidType, NoAttribute
from ...eager.functions.all import FUNCTIONS
from ...nn.modules.module import Module
from ..classes import EnumType
from ..functions import Function as Compiled
from ..types import Type
from .annotations import Annotations
from .class_types import class_type
from .functions import Origin, SourceFunction
from .language import IGNORED, MODIFIER, UNUSED, overloads_of
from .library import RENAMED
from .library import SOURCE as LIBRARY
from .modules import scripted_module
from .place import Source, UnsupportedNodeError, source_of
from .python_values import Ignored, Namespace, is_function, plain_sugar
from .sugar import Builtin, Class, EnumMember, Function, Operators, Overloaded, Sugar

_COMPILED: weakref.WeakKeyDictionary[Any, SourceFunction] = weakref.WeakKeyDictionary()


def names_of(function: Any) -> Callable[[str], Any]:
    """What names stand for where a function is written: what it closes over, then the names of its module, then
    Python's own. KeyError for others."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))

    def resolve(name: str) -> Any:
        if name in cells:
            try:
                return cells[name].cell_contents
            except ValueError:
                raise KeyError(name) from None
        if name in function.__globals__:
            return function.__globals__[name]
        return vars(builtins)[name]

    return resolve


def sugar_of(value: Any) -> Sugar | None:
    """What a value of Python stands for in a program; None if programs have nothing like it."""
    if is_function(value) and value.__module__.startswith("weft."):
        value = _public(value)
        if value in _library():
            return _library()[value]
    found = plain_sugar(value)
    if found is not None:
        return found
    if isinstance(value, types.ModuleType):
        return Namespace(value, sugar_of)
    if is_function(value):
        modifier = getattr(value, MODIFIER, None)
        if modifier == UNUSED:
            return Ignored(value, None)
        if modifier == IGNORED:
            return Ignored(value, _origin(value).schema(value.__name__))
        declared = overloads_of(value)
        if declared:
            return Overloaded([Function(each) for each in _overloaded(value, declared)])
        return Function(function_of(value))
    if isinstance(value, type):
        kind = class_of(value)
        return None if kind is None else Class(kind)
    if isinstance(value, enum.Enum):
        return _member(value)
    return None


def _member(value: enum.Enum) -> Sugar | None:
    kind = class_of(type(value))
    return EnumMember(kind, value) if isinstance(kind, EnumType) else None


def _public(function: Any) -> Any:
    """The function of weft's that users know, where its modules have the one that does the work."""
    alike = [FUNCTIONS[space].get(function.__name__) for space in ("weft.nn.functional", "weft")]
    known = [each for each in alike if each is not None and inspect.unwrap(each) is inspect.unwrap(function)]
    return known[0] if known and function not in known else function


@functools.cache
def library() -> dict[str, SourceFunction]:
    """Functions of `weft.nn.functional` that are programs here, by name."""
    unit = CompilationUnit(None, {"torch": Operators("aten"), "Optional": Optional})
    unit._add(LIBRARY)
    return {each.name: each for each in unit.get_functions() if each.name in FUNCTIONS["weft.nn.functional"]}


@functools.cache
def _library() -> dict[Any, Sugar]:
    """Functions of weft that are programs here, or operators of another name."""
    functional = FUNCTIONS["weft.nn.functional"]
    found: dict[Any, Sugar] = {functional[name]: Builtin(operator) for name, operator in RENAMED.items()}
    return found | {functional[name]: Function(program) for name, program in library().items()}


def class_of(value: type) -> Type | None:
    """The type of a class of Python that programs know."""
    return class_type(value, qualified_name(value), _origin)


def sugar_resolver(resolve: Callable[[str], Any]) -> Callable[[str], Sugar | None]:
    """What names stand for in a program, by what they stand for in Python."""

    def find(name: str) -> Sugar | None:
        try:
            value = resolve(name)
        except KeyError:
            return None
        found = sugar_of(value)
        return Namespace(value, sugar_of) if found is None else found

    return find


def function_of(function: Any) -> SourceFunction:
    """The program of a function of Python; the same each time."""
    known = _COMPILED.get(function)
    if known is None:
        known = _COMPILED[function] = SourceFunction(qualified_name(function), _origin(function))
    return known


def _overloaded(function: Any, declared: Sequence[Any]) -> list[SourceFunction]:
    """A program for each declaration of a function."""
    found = []
    for number, declaration in enumerate(declared):
        known = _COMPILED.get(declaration)
        if known is None:
            origin = _origin(function).declared_as(_origin(declaration))
            known = _COMPILED[declaration] = SourceFunction(f"{qualified_name(function)}__{number}", origin)
        found.append(known)
    return found


def _origin(function: Any) -> Origin:
    source = source_of(function)
    node = source.parsed().body[0]
    if not isinstance(node, ast.FunctionDef):
        what = "async function definitions" if isinstance(node, ast.AsyncFunctionDef) else type(node).__name__
        raise source.place(node, 3).error(f"{what} aren't supported", UnsupportedNodeError)
    resolve = names_of(function)
    defaults = {
        name: each.default
        for name, each in inspect.signature(function).parameters.items()
        if each.default is not inspect.Parameter.empty
    }
    return Origin(node, source, Annotations(source, resolve, class_of), sugar_resolver(resolve), defaults)


def emit_function(
    node: ast.FunctionDef,
    source: Source,
    resolve: Callable[[str], Any],
    qualified_name: str,
    self_type: Type | None = None,
) -> SourceFunction:
    """A function of a definition, wherever that comes from. `resolve` gives what names stand for there (KeyError if
    nothing): values of Python, types and functions of programs, or what the compiler itself has. It is compiled when
    its graph is asked for."""
    annotations = Annotations(source, resolve, class_of)
    return SourceFunction(qualified_name, Origin(node, source, annotations, sugar_resolver(resolve), {}, self_type))


def qualified_name(subject: Any) -> str:
    module = getattr(subject, "__module__", None) or "__main__"
    return f"__torch__.{module}.{subject.__qualname__}".replace("<locals>.", "").replace("__main__.", "")


def script(subject: Any, *ignored: Any, **options: Any) -> Any:
    """A function of Python as a program: its source is compiled, with types.

    >>> import weft
    >>> scripted = script(_twice)
    >>> scripted(weft.tensor([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """
    if isinstance(subject, Compiled):
        return subject
    if isinstance(subject, Module):
        return scripted_module(subject, _origin, sugar_resolver, class_of)
    if isinstance(subject, type):
        if class_of(subject) is None:
            raise InvalidType(f"{subject!r:.80} is no class that programs know", hint="a class with a source")
        return subject
    if not is_function(subject):
        raise InvalidType(
            f"script takes a function, a class or a module, not {subject!r:.80}", hint="one with a source"
        )
    found = function_of(subject)
    found.graph  # noqa: B018
    return found


def _twice(x):  # type: ignore[no-untyped-def]
    return x * 2


class CompilationUnit:
    """Programs that are given as text.

    >>> unit = CompilationUnit("def f(x: int) -> int:\\n    return x * 2 + 1\\n")
    >>> unit.f(20)
    41
    """

    def __init__(self, source: str | None = None, names: Mapping[str, Any] | None = None) -> None:
        self._functions: dict[str, SourceFunction] = {}
        self._names = dict(names or {})
        if source is not None:
            self.define(source)

    def define(self, text: str) -> None:
        """Adds the functions of a text."""
        self._add(textwrap.dedent(text))
        for function in self._functions.values():
            function.graph  # noqa: B018

    def _add(self, text: str) -> None:
        source = Source(text, "<string>")
        for node in source.parsed().body:
            if not isinstance(node, ast.FunctionDef):
                raise source.place(node, 1).error(f"expected a function, not {type(node).__name__}")
            self._functions[node.name] = emit_function(node, source, self._resolve, f"__torch__.{node.name}")

    def _resolve(self, name: str) -> Any:
        if name in self._functions:
            return self._functions[name]
        return self._names[name] if name in self._names else vars(builtins)[name]

    def find_function(self, name: str) -> SourceFunction | None:
        return self._functions.get(name)

    def get_functions(self) -> list[SourceFunction]:
        return list(self._functions.values())

    def __getattr__(self, name: str) -> SourceFunction:
        if name.startswith("_") or name not in self._functions:
            raise NoAttribute(
                f"the unit has no function {name!r}", why=f"it has {', '.join(self._functions) or 'none'}"
            )
        return self._functions[name]
