"""Graphs read from text, which is never evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.errors import InvalidType
from ..eager.tensor.tensor import Tensor, wrap
from .graph import Graph
from .matching import has_variables
from .nodes import Block, Node, Value
from .source import Words, number_of, unquoted
from .type_text import read_type
from .types import TensorType, Type, dtype_of


def parse_ir(text: str, parse_tensor_constants: bool = False) -> Graph:
    """The graph that a text describes, as `print(graph)` writes it. Tensors in it are written as <Tensor>: they are
    taken, as zeros of the type of the value, where that is asked for.

    >>> graph = parse_ir('''
    ... graph(%x : Tensor, %n : int):
    ...   %y : Tensor = aten::add(%x, %x, %n)
    ...   return (%y)
    ... ''')
    >>> [node.kind() for node in graph.nodes()]
    ['aten::add']
    """
    if not isinstance(text, str):
        raise InvalidType(f"parse_ir takes a str, not {text!r:.60}")
    return _Reader(text, parse_tensor_constants).graph()


class _Reader:
    def __init__(self, text: str, tensors: bool) -> None:
        self.words, self.tensors = Words(text, lines=True), tensors
        self.made = Graph()
        self.scopes: list[dict[str, Value]] = [{}]

    def graph(self) -> Graph:
        words = self.words
        words.skip_lines()
        words.expect("ident")
        words.expect("(")
        self.parameters(self.made.block())
        words.expect(":")
        words.expect("newline")
        words.skip_lines()
        words.expect("indent")
        self.statements(self.made.block(), "return")
        words.skip_lines()
        words.accept("dedent")
        words.skip_lines()
        words.expect("eof")
        return self.made

    def parameters(self, block: Block) -> None:
        for _ in self.words.separated(")"):
            self.define(block.addInputToBlock())

    def define(self, value: Value) -> bool:
        """Reads `%name : type` for a value; whether a type is there."""
        name = self.name()
        if not name.isdecimal():
            value.setDebugName(name)
        self.scopes[-1][name] = value
        if not self.words.accept(":"):
            return False
        value.setType(read_type(self.words))
        return True

    def name(self) -> str:
        """`%name`, `%name.1` or `%1`."""
        words = self.words
        words.expect("%")
        if words.is_next("number"):
            token = words.take()
            if token.text.isdecimal():
                return token.text
            raise words.error("a name is a word, or a number without a point", token.start, len(token.text))
        name = words.expect("ident").text
        while words.is_next(".", "number") and words.token.text[0] == ".":
            name += words.take().text
            if name.endswith("."):
                name += words.take().text
        return name

    def value(self) -> Value:
        name = self.name()
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise self.words.error(f"Cannot find a variable with name '{name}'")

    def values(self) -> list[Value]:
        self.words.expect("(")
        return [self.value() for _ in self.words.separated(")")]

    def statements(self, block: Block, end: str) -> None:
        """The nodes of a block, up to what it gives, and that."""
        words = self.words
        while True:
            words.skip_lines()
            if words.token.text == end:
                words.take()
                break
            self.statement(block)
        for value in self.values():
            block.registerOutput(value)
        if not words.is_next("eof", "dedent"):
            words.expect("newline")

    def statement(self, block: Block) -> None:
        words, outputs = self.words, list[tuple[str, Type | None]]()
        while words.is_next("%"):
            name = self.name()
            outputs.append((name, read_type(words) if words.accept(":") else None))
            if not words.accept(","):
                break
        if outputs or words.is_next("="):
            words.expect("=")
        start = words.token
        kind = words.expect("ident").text
        if not words.is_next("::"):
            raise words.unexpected(":")
        while words.accept("::"):
            kind += f"::{words.expect('ident').text}"
        node = self.made.create(kind, (), len(outputs))
        if words.accept("["):
            for _ in words.separated("]"):
                self.attribute(node, next((type_ for _, type_ in outputs), None))
        for value in self.values():
            node.addInput(value)
        node.insertBefore(block.returnNode())
        expected = self.results(node)
        for place, ((name, type_), value) in enumerate(zip(outputs, node.outputs())):
            if not name.isdecimal():
                value.setDebugName(name)
            known = expected[place] if place < len(expected) else None
            if type_ is not None and known is not None and not type_.isSubtypeOf(known):
                what = f"Annotated type {type_!r} does not match schema type {known!r} for operator {node.schema()}"
                raise words.error(what, start.start, len(start.text))
            if type_ is not None or known is not None:
                value.setType(type_ or known)  # type: ignore[arg-type]
        if words.is_next("newline") and words.peek().kind == "indent":
            words.take()
            self.blocks(node)
        elif not words.is_next("eof", "dedent"):
            words.expect("newline")
        self.scopes[-1] |= {name: value for (name, _), value in zip(outputs, node.outputs())}

    @staticmethod
    def results(node: Node) -> list[Type | None]:
        """The types that the schema of a node gives its results; None of those that it leaves open."""
        operator = node._operator()
        kinds = [] if operator is None else [result.type for result in operator.schema.returns]
        return [None if has_variables(kind) else kind for kind in kinds]

    def blocks(self, node: Node) -> None:
        words = self.words
        words.expect("indent")
        while not words.accept("dedent"):
            with words.nested():
                words.expect("ident")
                words.expect("(")
                block = node.addBlock()
                self.scopes.append({})
                self.parameters(block)
                words.expect(":")
                words.expect("newline")
                words.skip_lines()
                words.expect("indent")
                self.statements(block, "->")
                words.skip_lines()
                words.expect("dedent")
                self.scopes.pop()

    # Attributes

    def attribute(self, node: Node, expected: Type | None) -> None:
        words = self.words
        name = words.expect("ident").text
        words.expect("=")
        if not words.accept("["):
            kind, value = self.literal(expected)
            node._set(kind, name, value)
            return
        start = words.token
        found = [self.literal(expected) for _ in words.separated("]")]
        kinds = {kind for kind, _ in found}
        if kinds == {"i", "f"}:
            kinds, found = {"f"}, [("f", float(value)) for _, value in found]
        if len(kinds) > 1:
            raise words.error("elements of a list are of one kind", start.start, len(start.text))
        node._set(f"{kinds.pop() if kinds else 'i'}s", name, [value for _, value in found])

    def literal(self, expected: Type | None) -> tuple[str, Any]:
        """A value, with its kind."""
        words = self.words
        if words.is_next("string"):
            return "s", unquoted(words.take().text)
        if words.is_next("number", "-"):
            value = number_of(words)
            if isinstance(value, complex):
                return "c", value
            return ("f" if isinstance(value, float) else "i"), value
        if words.is_next("<"):
            if not self.tensors:
                raise words.error("Tensor constant encountered but `parse_tensor_constants` set to false")
            words.take()
            words.expect_ident("Tensor")
            words.expect(">")
            return "t", _placeholder(expected)
        if words.accept("{"):  # a tensor of one element
            value = number_of(words)
            words.expect("}")
            return "t", _placeholder(expected, value)
        if words.is_next("ident", "("):
            return "ty", read_type(words)
        raise words.error("Could not parse literal")


def _placeholder(kind: Type | None, value: complex = 0) -> Tensor:
    """A tensor of a type, as far as that is known, of one value everywhere."""
    sizes = (kind.sizes() or []) if isinstance(kind, TensorType) else []
    scalar = kind.scalar if isinstance(kind, TensorType) else None
    if scalar is None:
        scalar = {int: "Long", complex: "ComplexFloat"}.get(type(value), "Float")
    return wrap(np.full(sizes, value, dtype_of(scalar).numpy))
