"""Frames of a trace: each call of a module has a graph of its own. A value that one graph makes and another reads goes
in as an argument, or out as a result, of the calls between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.errors import Unsupported
from ..graph import Graph
from ..nodes import Node, Value
from ..types import NoneType, TensorType, TupleType


class Frame:
    """A graph that is being made. `call` is the node of the graph outside that stands for it, `owner` the value of the
    module that it is a method of."""

    def __init__(
        self, graph: Graph, outside: Frame | None = None, call: Node | None = None, module: Any = None
    ) -> None:
        self.graph, self.outside, self.call, self.module = graph, outside, call, module
        self.owner: Value | None = None
        self.function: Any = None  # the method that has the graph
        self.attributes: dict[tuple[str, ...], Value] = {}
        self._taken: dict[Value, Value] = {}  # values of the graph outside, as this one has them
        self._given: dict[Value, Value] = {}  # values of this graph, as the one outside has them

    def path(self) -> list[Frame]:
        """The frames that it is in, and itself."""
        found: list[Frame] = []
        frame: Frame | None = self
        while frame is not None:
            found.append(frame)
            frame = frame.outside
        return found[::-1]

    def take(self, value: Value) -> Value:
        """A value of the graph outside, as an input of this one."""
        if value not in self._taken:
            assert self.call is not None
            self.call.addInput(value)
            self._taken[value] = self.graph.addInput().setType(value.type())
        return self._taken[value]

    def give(self, value: Value) -> Value:
        """A value of this graph, as a result of the call outside."""
        if value not in self._given:
            assert self.call is not None
            if self.call.kind() == "prim::fork":
                raise Unsupported("what a forked function computes is known to others by its future alone")
            self.graph.registerOutput(value)
            self._given[value] = self.call.addOutput().setType(value.type())
        return self._given[value]

    def finish(self) -> None:
        """Has the call give one value: the only result, or the tuple of them."""
        node, results = self.call, list(self._given.values())
        assert node is not None
        assert self.outside is not None
        if len(results) == 1:
            results[0].setType(_plain(results[0]))
            return
        if not results:
            nothing = self.graph.insertConstant(None)
            self.graph.registerOutput(nothing)
            node.addOutput().setType(NoneType.get())
            return
        self.graph.makeMultiOutputIntoTuple()
        whole = node.addOutput().setType(TupleType([_plain(value) for value in results]))
        parts = self.outside.graph.create("prim::TupleUnpack", [whole], len(results)).insertAfter(node)
        for one, other in zip(results, list(parts.outputs())):
            other.copyMetadata(one)
            one.replaceAllUsesWith(other)
        for _ in results:
            node.eraseOutput(0)


def _plain(value: Value) -> Any:
    kind = value.type()
    return TensorType.get() if isinstance(kind, TensorType) else kind


def reach(value: Value, home: Frame, here: Frame) -> Value:
    """A value that one frame made (its home), in another that is open."""
    around: Sequence[Frame] = here.path()
    while home not in around:
        value = home.give(value)
        assert home.outside is not None
        home = home.outside
    for frame in around[around.index(home) + 1 :]:
        value = frame.take(value)
    return value
