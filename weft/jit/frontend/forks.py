"""`fork` in source: what is called becomes a graph of its own, which takes what it reads of the program around it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ..graph import Graph
from ..nodes import Block, Value
from ..types import FutureType
from .builder import Builder
from .sugar import Arguments, Keywords, Simple, Sugar


class Fork(Sugar):
    """`fork(function, *args)`."""

    kind = "builtin"

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        if not args:
            raise builder.error("fork takes a function and its arguments")
        callee, *rest = args
        given = [Simple(each.value(builder)) for each in rest]
        named = {name: Simple(each.value(builder)) for name, each in kwargs.items()}
        return Simple(_forked(builder, lambda: callee.call(builder, given, named).value(builder)))


class Closure(Sugar):
    """A function without arguments inside of another, as archives have them for forks."""

    kind = "function"

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node

    def call(self, builder: Any, args: Arguments, kwargs: Keywords) -> Sugar:
        return Simple(builder.value_of_body(self.node))


def _forked(builder: Builder, emit: Callable[[], Value]) -> Value:
    graph = builder.graph
    holder = graph.insertNode(graph.create("prim::Closure", (), 0))
    block = holder.addBlock()
    with builder.inside(block):
        result = emit()
    block.registerOutput(result)
    subgraph, taken = lifted(block)
    holder.destroy()
    node = builder.nodes("prim::fork", taken, [FutureType(result.type())])
    node._set("g", "Subgraph", subgraph)
    return node.output()


def lifted(block: Block) -> tuple[Graph, list[Value]]:
    """A block as a graph, and the values from outside that it takes; constants come with it."""
    made, known, taken = Graph(), dict[Value, Value](), list[Value]()

    def value_of(value: Value) -> Value:
        if value not in known:
            if value.node().kind() == "prim::Constant":
                known[value] = made.prependNode(made.createClone(value.node(), value_of)).output()
            else:
                known[value] = made.addInput().copyMetadata(value)
                taken.append(value)
        return known[value]

    for node in block.nodes():
        known |= zip(node.outputs(), made.appendNode(made.createClone(node, value_of)).outputs())
    for value in block.outputs():
        made.registerOutput(value_of(value))
    return made, taken
