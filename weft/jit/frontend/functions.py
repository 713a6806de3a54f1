"""Functions that are compiled from source: their signatures, their graphs, and the functions that they call.

A function that calls another needs the type of its result. If nobody wrote that down, the other is compiled first and
the caller is begun anew: calls in calls are a list, not calls of the compiler in itself."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..functions import Function
from ..graph import Graph
from ..nodes import Value
from ..passes.constants import pool_constants
from ..passes.dead_code import eliminate_dead_code
from ..schema import _MISSING, Argument, FunctionSchema
from ..types import NoneType, TensorType, Type
from .annotations import Annotations
from .calls import unify
from .language import IGNORED, MODIFIER, UNUSED, overloads_of
from .place import Place, ScriptError, Source
from .python_values import Ignored
from .statements import VALUE, End, Item, Statements, end_of
from .subset import check_function
from .sugar import Method, Overloaded, Simple, Sugar

_TYPE_COMMENT = re.compile(r"#\s*type:\s*(.*)$")


class Parameter(NamedTuple):
    """An argument of a function: whether its type was only inferred, and its default."""

    name: str
    type: Type
    inferred: bool
    default: Any = _MISSING
    keyword: bool = False
    length: int | None = None  # of a list for which one number may stand


class Needed(Exception):
    """A function has to be compiled before the one that calls it."""

    def __init__(self, function: SourceFunction, place: Place) -> None:
        self.function, self.place = function, place


class Origin(NamedTuple):
    """Where a function comes from: its definition, the source that it is in, and what names stand for there."""

    node: ast.FunctionDef
    source: Source
    annotations: Annotations
    resolve: Callable[[str], Sugar | None]
    defaults: Mapping[str, Any] = {}
    self_type: Type | None = None
    types: Mapping[str, Type] = {}  # of arguments that nobody annotated

    def declared_as(self, other: Origin) -> Origin:
        """The same definition with the types and defaults that another declares."""
        node = copy.copy(self.node)
        node.args, node.returns = other.node.args, other.node.returns
        return self._replace(node=node, annotations=other.annotations, defaults=other.defaults)

    def schema(self, name: str) -> FunctionSchema:
        """What the function takes and gives as it is written: tensors, where it says nothing."""
        parameters, result = _signature(self)
        return _schema(name, parameters, result or TensorType.get())


class SourceFunction(Function):
    """A function that is compiled when its graph is asked for."""

    def __init__(self, qualified_name: str, origin: Origin) -> None:
        check_function(origin.source, origin.node)
        self.qualified_name, self.origin = qualified_name, origin
        self.parameters, self.declared = _signature(origin)
        self._graph, self._code, self._compiling = None, None, False
        self._result = self.declared
        self._callees: list[tuple[SourceFunction, Place]] = []

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            _compile(self)
        assert self._graph is not None
        return self._graph

    @property
    def schema(self) -> FunctionSchema:  # type: ignore[override]
        if self._result is None:
            _compile(self)
        found = self.known_schema()
        assert found is not None
        return found

    def known_schema(self) -> FunctionSchema | None:
        """The schema, if the type of the result is known."""
        return None if self._result is None else _schema(self.name, self.parameters, self._result)

    def _emit(self) -> None:
        emitter = _Emitter(self)
        try:
            emitter.compile()
        except RecursionError:
            raise emitter.error("the program is nested too deeply") from None
        eliminate_dead_code(emitter.graph)
        pool_constants(emitter.graph)
        self._graph, self._result = emitter.graph, emitter.result
        self._callees = emitter.callees


def _schema(name: str, parameters: Sequence[Parameter], result: Type) -> FunctionSchema:
    arguments = [Argument(each.name, each.type, each.length, each.default, each.keyword) for each in parameters]
    return FunctionSchema(name, "", arguments, [Argument("", result)])


def _compile(root: SourceFunction) -> None:
    """Compiles a function, and all that it calls."""
    stack: list[tuple[SourceFunction, SourceFunction | None, Place | None]] = [(root, None, None)]
    try:
        while stack:
            function, _, _ = stack[-1]
            function._compiling = True
            if function._graph is None:
                try:
                    function._emit()
                except Needed as need:
                    if need.function._compiling:
                        raise need.place.error(
                            f"function '{need.function.name}' is called recursively. Recursive calls are not supported"
                        ) from None
                    stack.append((need.function, function, need.place))
                    continue
            function._compiling = False
            stack.pop()
            stack += [
                (callee, function, place)
                for callee, place in reversed(function._callees)
                if callee._graph is None and not callee._compiling
            ]
            function._callees = []
    except ScriptError as error:
        error.args = (_explained(str(error.args[0]), stack),)
        error.what = error.args[0]
        raise
    finally:
        for function, _, _ in stack:
            function._compiling = False


def _explained(text: str, stack: Sequence[tuple[SourceFunction, SourceFunction | None, Place | None]]) -> str:
    """A message with the calls that led to what it is about."""
    parts, current = [text], stack[-1]
    for entry in reversed(stack):
        function, caller, place = entry
        if function is current[0] and caller is not None and place is not None:
            parts.append(
                f"'{function.name}' is being compiled since it was called from '{caller.name}'\n{place.shown()}"
            )
            current = (caller, None, None)
    return "".join(parts)


class _Emitter(Statements):
    """Compiles one function."""

    def __init__(self, function: SourceFunction) -> None:
        origin = function.origin
        super().__init__(Graph(), origin.source, origin.annotations, origin.resolve)
        self.function, self.result = function, function.declared
        self.annotated = function.declared is not None
        self.callees: list[tuple[SourceFunction, Place]] = []

    def compile(self) -> None:
        function, node = self.function, self.function.origin.node
        self.place = self.source.place(node)
        for parameter in function.parameters:
            value = self.graph.addInput(parameter.name).setType(parameter.type)
            if parameter.inferred:
                self.inferred.add(value)
            self.env.set(parameter.name, Simple(value), 0, parameter.type)
        items: list[Item] = [(each, 0) for each in node.body]
        if end_of(node.body) is End.FALLS:
            items.append((ast.copy_location(ImplicitReturn(value=None), node), 0))
        self.run(items)
        known = self.env.get(VALUE)
        if known is None:  # nothing is returned: it always raises
            kind = self.result or NoneType.get()
            value = self.constant(None) if isinstance(kind, NoneType) else self.node("prim::Uninitialized", [], kind)
        else:
            value = known.sugar.value(self)
        self.result = value.type() if self.result is None or not self.annotated else self.result
        self.graph.registerOutput(value)

    def _statement(self, node: ast.stmt) -> End:
        if isinstance(node, ImplicitReturn):
            return self._return_nothing(node)
        return super()._statement(node)

    def _return_nothing(self, node: ast.Return) -> End:
        """What happens at the end of a function."""
        if self.annotated and self.result is not None and not NoneType.get().isSubtypeOf(self.result):
            raise self.error("Function was not annotated as having type None, but does not return along all paths")
        if self.result is not None and not self.annotated:
            self.result = unify(self.result, NoneType.get())
        return self._return(node)

    def python_method(self, owner: Value, kind: Type, name: str) -> Sugar | None:
        python: Any = kind
        function = python.python_method(name) if hasattr(kind, "python_method") else None
        modifier = getattr(function, MODIFIER, None)
        if function is None or modifier == UNUSED:
            return None if function is None else Ignored(function, None)
        if overloads_of(function):
            return Overloaded([Method(owner, each.name, function=each) for each in python.overloaded(name)])
        if modifier == IGNORED:
            return Ignored(function, python.origin_of(function)._replace(self_type=kind).schema(name), owner)
        return Method(owner, name, function=python.source_method(name))

    def schema_of(self, function: Function) -> FunctionSchema:
        if not isinstance(function, SourceFunction):
            return function.schema
        schema = function.known_schema()
        if function._compiling or schema is None:
            raise Needed(function, self.place)
        self.callees.append((function, self.place))
        return schema


class ImplicitReturn(ast.Return):
    """The end of a function."""


def _signature(origin: Origin) -> tuple[list[Parameter], Type | None]:
    """What a function takes, and what it is said to give."""
    node, source, annotations = origin.node, origin.source, origin.annotations
    arguments = [*node.args.posonlyargs, *node.args.args]
    kinds: list[Type | None] = [
        None if each.annotation is None else annotations.type(each.annotation) for each in arguments
    ]
    result = None if node.returns is None else annotations.type(node.returns)
    comment = type_comment(source, node)
    if comment is not None:
        types, commented = _commented(origin, comment)
        skipped = 1 if origin.self_type is not None else 0
        if len(types) != len(arguments) - skipped:
            raise source.place(node).error(
                f"Number of type annotations ({len(types)}) did not match the number of function parameters "
                f"({len(arguments) - skipped})"
            )
        kinds, result = [*kinds[:skipped], *types], commented
    parameters = []
    defaults = dict(zip([each.arg for each in reversed(arguments)], reversed(node.args.defaults)))
    for place, (each, kind) in enumerate(
        zip([*arguments, *node.args.kwonlyargs], [*kinds, *[None] * len(node.args.kwonlyargs)])
    ):
        keyword = place >= len(arguments)
        if keyword and each.annotation is not None:
            kind = annotations.type(each.annotation)
        if place == 0 and origin.self_type is not None:
            kind = origin.self_type
        default = origin.defaults.get(each.arg, _MISSING)
        if default is _MISSING and each.arg in defaults:
            default = _literal(source, defaults[each.arg])
        inferred = kind is None
        kind = kind or origin.types.get(each.arg) or TensorType.get()
        length = _broadcast_length(each.annotation)
        if length is not None and isinstance(default, (int, float)):
            default = [default] * length
        parameters.append(Parameter(each.arg, kind, inferred, default, keyword, length))
    return parameters, result


def _broadcast_length(node: ast.expr | None) -> int | None:
    """How long a list is for which a number may stand: `BroadcastingList2[int]`."""
    found = None if node is None else re.search(r"\bBroadcastingList(\d)\[", ast.unparse(node))
    return None if found is None else int(found.group(1))


def _literal(source: Source, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        raise source.place(node).error("Expected a literal as a default value of a parameter") from None


def type_comment(source: Source, node: ast.FunctionDef) -> str | None:
    """`(int, Tensor) -> Tensor`, where a comment behind the head of a function says so; or comments behind each of its
    arguments."""
    lines = source.text.splitlines()[node.lineno - 1 : node.body[0].lineno]
    found = [match.group(1).strip() for line in lines if (match := _TYPE_COMMENT.search(line))]
    found = [text for text in found if not text.startswith("ignore")]
    if not found:
        return None
    arrows = [text for text in found if "->" in text]
    if len(arrows) > 1:
        raise source.place(node).error("More than one type signature")
    if not arrows:
        return None
    parts = [text for text in found if text not in arrows]
    if parts and arrows[0].replace(" ", "").startswith("(...)"):
        return f"({', '.join([part.rstrip(',') for part in parts])}) {arrows[0][arrows[0].index('->') :]}"
    return arrows[0]


def _commented(origin: Origin, comment: str) -> tuple[list[Type], Type]:
    place = origin.source.place(origin.node)
    try:
        tree = ast.parse(comment, mode="func_type")
    except SyntaxError:
        raise place.error(f"the type comment {comment!r} is not understood") from None
    annotations = origin.annotations
    types = [annotations.of_text(ast.unparse(part), place) for part in tree.argtypes]
    return types, annotations.of_text(ast.unparse(tree.returns), place)
