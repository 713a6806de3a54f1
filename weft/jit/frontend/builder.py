"""Nodes of a program that is being compiled: made at the place in the source that is being read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...base.errors import RunError
from ..calls.numbered import in_programs
from ..functions import Function
from ..graph import Graph
from ..nodes import Block, Node, Value
from ..schema import FunctionSchema
from ..types import ListType, OptionalType, TensorType, TupleType, Type
from .place import Place


class Builder:
    """A graph that grows. `place` is where the source is being read."""

    def __init__(self, graph: Graph, place: Place) -> None:
        self.graph, self.place = graph, place
        self.inferred: set[Value] = set()  # values that are tensors because nobody said otherwise
        self.numbered: set[Value] = set()  # constants that are ints because dtypes, layouts and formats are
        self._empty_lists: set[Value] = set()

    def error(self, what: str) -> RunError:
        return self.place.error(what)

    @contextmanager
    def at(self, place: Place) -> Iterator[None]:
        """Nodes are those of another place, for the time of a block."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Nodes are put at the end of a block."""
        with self.graph.insert_point_guard(block):
            yield

    def nodes(self, kind: str, inputs: Sequence[Value], types: Sequence[Type]) -> Node:
        """A node with several results, or none."""
        node = self.graph.create(kind, list(inputs), len(types))
        node._source = self.place
        for value, type_ in zip(node.outputs(), types):
            value.setType(type_)
        return self.graph.insertNode(node)

    def node(self, kind: str, inputs: Sequence[Value], type_: Type) -> Value:
        return self.nodes(kind, inputs, [type_]).output()

    def constant(self, value: Any, type_: Type | None = None) -> Value:
        """A value of Python, of a type if that is said."""
        if isinstance(value, (list, tuple)) and isinstance(type_, (ListType, OptionalType)):
            kind = type_ if isinstance(type_, ListType) else type_.getElementType()
            element = kind.containedTypes()[0]
            return self.list_of(element, [self.constant(item, element) for item in value])
        if isinstance(value, tuple):
            return self.tuple_of([self.constant(item) for item in value])
        number = in_programs(value)
        made = self.graph.insertConstant(number)
        if number is not value:
            self.numbered.add(made)
        if isinstance(made.type(), TensorType):
            made.setType(TensorType.get())
        made.node()._source = self.place
        return made

    def list_of(self, element: Type, values: Sequence[Value]) -> Value:
        return self.node("prim::ListConstruct", values, ListType(element))

    def tuple_of(self, values: Sequence[Value]) -> Value:
        return self.node("prim::TupleConstruct", values, TupleType([value.type() for value in values]))

    def empty_list(self) -> Value:
        made = self.list_of(TensorType.get(), [])
        self._empty_lists.add(made)
        return made

    def is_empty_list(self, value: Value) -> bool:
        """Whether a value is a list without elements that nobody gave a type."""
        return value in self._empty_lists

    def unpacked(self, value: Value) -> list[Value]:
        """The elements of a tuple."""
        node = value.node()
        if node.kind() == "prim::TupleConstruct":
            return list(node.inputs())
        return list(self.nodes("prim::TupleUnpack", [value], value.type().containedTypes()).outputs())

    def schema_of(self, function: Function) -> FunctionSchema:
        """The schema of a function that is called."""
        return function.schema

    def python_method(self, owner: Value, kind: Type, name: str) -> Any:
        """What a method of a class of Python stands for that was not compiled yet; None if there is none."""
        return None

    def shown_type(self, value: Value) -> str:
        return f"{value.type()} (inferred)" if value in self.inferred else repr(value.type())
