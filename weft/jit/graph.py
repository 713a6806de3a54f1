"""The ordered form of a program. `lint` checks what only the whole of it can tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..base.errors import OutOfRange, RunError
from .constants import make_constant
from .lint import lint
from .nodes import Block, Node, Value, same_graph
from .printing import graph_text
from .types import TupleType

Text = str  # where `str` is a method


class Graph:
    """A program: a block, and what belongs to all of it.

    >>> graph = Graph()
    >>> x, y = graph.addInput("x"), graph.addInput("y")
    >>> node = graph.appendNode(graph.create("aten::mul", [x, y]))
    >>> graph.registerOutput(node.output())
    0
    >>> print(graph)
    graph(%x : Tensor,
          %y : Tensor):
      %2 : Tensor = aten::mul(%x, %y)
      return (%2)
    <BLANKLINE>
    """

    def __init__(self) -> None:
        self._uniques, self._scope = 0, ""
        self._names: dict[Text, Value] = {}
        self._suffixes: dict[Text, int] = {}
        self._created: dict[Node, None] = {}  # that are not destroyed
        self._block = Block._made(self, None)
        self._point: Node = self._block._return

    def _next_unique(self) -> int:
        self._uniques += 1
        return self._uniques - 1

    def _free_name(self, name: Text) -> Text:
        """A name like it that no value has: with another number after a point."""
        base = re.sub(r"\.\d+$", "", name)
        while True:
            self._suffixes[base] = self._suffixes.get(base, 0) + 1
            name = f"{base}.{self._suffixes[base]}"
            if name not in self._names:
                return name

    def __str__(self) -> Text:
        return graph_text(self)

    __repr__ = __str__

    def str(self, print_source_ranges: bool = True) -> Text:
        return graph_text(self, print_source_ranges)

    # Values and nodes

    def block(self) -> Block:
        return self._block

    def param_node(self) -> Node:
        return self._block._param

    def return_node(self) -> Node:
        return self._block._return

    def inputs(self) -> Iterator[Value]:
        return self._block.inputs()

    def outputs(self) -> Iterator[Value]:
        return self._block.outputs()

    def nodes(self) -> Iterator[Node]:
        return self._block.nodes()

    def addInput(self, name: Text = "") -> Value:
        value = self._block.addInputToBlock()
        return value.setDebugName(name) if name else value

    def eraseInput(self, offset: int) -> None:
        self.param_node().eraseOutput(offset)

    def registerOutput(self, value: Value) -> int:
        return self._block.registerOutput(value)

    def eraseOutput(self, offset: int) -> None:
        self.return_node().removeInput(offset)

    def permuteInputs(self, order: Sequence[int]) -> None:
        """Has its inputs in another order."""
        values = self.param_node()._outputs
        if sorted(order) != list(range(len(values))):
            raise OutOfRange(f"{list(order)} is no order of {len(values)} inputs")
        self.param_node()._outputs = [values[place] for place in order]
        for place, value in enumerate(self.param_node()._outputs):
            value._offset = place

    def create(self, kind: Text, inputs: Any = (), num_outputs: int = 1) -> Node:
        """A node that is in no block yet."""
        if isinstance(inputs, int):
            inputs, num_outputs = (), inputs
        node = Node._made(self, kind)
        for value in inputs:
            node.addInput(value)
        for _ in range(num_outputs):
            node.addOutput()
        self._created[node] = None
        return node

    def createFusionGroup(self) -> Node:
        return self.create("prim::FusionGroup", (), 0).g_("Subgraph", Graph())  # type: ignore[no-any-return, attr-defined]

    def createClone(self, node: Node, value_map: Callable[[Value], Value]) -> Node:
        """A node like one of this or another graph, which reads what a function gives for what that reads; its blocks
        come with it."""
        return _cloned(self, node, value_map)

    def appendNode(self, node: Node) -> Node:
        return node.insertBefore(self.return_node())

    def prependNode(self, node: Node) -> Node:
        return node.insertAfter(self.param_node())

    def insertNode(self, node: Node) -> Node:
        """Puts a node where nodes are inserted: at the end, unless it was set otherwise."""
        return node.insertBefore(self._point)

    def insertPoint(self) -> Node:
        return self._point

    def setInsertPoint(self, place: Node | Block) -> None:
        """Nodes are inserted before a node, or at the end of a block."""
        node: Node = place._return if isinstance(place, Block) else place
        same_graph(node._in_place(), self.return_node())
        self._point = node

    @contextmanager
    def insert_point_guard(self, place: Node | Block) -> Iterator[None]:
        """Nodes are inserted at a place, for the time of a block."""
        before = self._point
        self.setInsertPoint(place)
        try:
            yield
        finally:
            self._point = before

    def insert(self, kind: Text, values: Sequence[Any]) -> Value:
        """A node with values and constants as inputs, put where nodes are inserted; gives its output."""
        inputs = [value if isinstance(value, Value) else self.insertConstant(value) for value in values]
        return self.insertNode(self.create(kind, inputs)).output()

    def insertConstant(self, value: Any) -> Value:
        node = self.create("prim::Constant")
        make_constant(node, value)
        return self.insertNode(node).output()

    def insertGraph(self, other: Graph, inputs: Sequence[Value]) -> list[Value]:
        """Puts the nodes of another graph where nodes are inserted; gives its outputs."""
        theirs = list(other.inputs())
        if len(theirs) != len(inputs):
            raise RunError(f"the graph takes {len(theirs)} inputs, not {len(inputs)}")
        known = dict(zip(theirs, inputs))
        for node in other.nodes():
            made = self.insertNode(self.createClone(node, known.__getitem__))
            known |= zip(node._outputs, made._outputs)
        return [known[value] for value in other.outputs()]

    def makeMultiOutputIntoTuple(self) -> None:
        """Has one output: the tuple of what it had, if that was not one value."""
        values = list(self.outputs())
        if len(values) == 1:
            return
        node = self.appendNode(self.create("prim::TupleConstruct", values))
        node.output().setType(TupleType([value.type() for value in values]))
        self.return_node().removeAllInputs()
        self.registerOutput(node.output())

    def findNode(self, kind: Text, recurse: bool = True) -> Node | None:
        return self._block.findNode(kind, recurse)

    def findAllNodes(self, kind: Text, recurse: bool = True) -> list[Node]:
        return self._block.findAllNodes(kind, recurse)

    def copy(self) -> Graph:
        made = Graph()
        _copy_block(self._block, made._block, {})
        return made

    def lint(self) -> None:
        """Raises what is wrong with it: a value that is read where it is not defined yet, a node that is in no
        block."""
        lint(self)


def _cloned(graph: Graph, node: Node, value_of: Callable[[Value], Value]) -> Node:
    made = graph.create(node._kind, [value_of(value) for value in node._inputs], len(node._outputs))
    made._attributes = _attributes_of(node)
    made.copyMetadata(node)
    for ours, theirs in zip(made._outputs, node._outputs):
        ours.copyMetadata(theirs)
    for block in node._blocks:
        _copy_block(block, made.addBlock(), _Mapped(value_of))
    return made


def _attributes_of(node: Node) -> dict[Text, tuple[Text, Any]]:
    """The attributes of a node for another: graphs among them are copied, too."""
    found = dict(node._attributes)
    for name, (kind, value) in node._attributes.items():
        if kind == "g":
            found[name] = (kind, value.copy())
        elif kind == "gs":
            found[name] = (kind, [each.copy() for each in value])
    return found


class _Mapped(dict[Value, Value]):
    """Values by those they stand for; of what is not known, a function tells."""

    def __init__(self, value_of: Callable[[Value], Value]) -> None:
        self._value_of = value_of

    def __missing__(self, value: Value) -> Value:
        return self._value_of(value)


def _copy_block(source: Block, target: Block, known: dict[Value, Value]) -> None:
    """Copies what is in a block to an empty one."""
    stack = [(source, target)]
    open_blocks: list[tuple[Iterator[Node], Block, Block]] = []
    while stack or open_blocks:
        if stack:
            theirs, ours = stack.pop()
            for value in theirs._param._outputs:
                known[value] = ours.addInputToBlock().copyMetadata(value)
            open_blocks.append((theirs.nodes(), theirs, ours))
        nodes, theirs, ours = open_blocks[-1]
        node = next(nodes, None)
        if node is None:
            for value in theirs._return._inputs:
                ours.registerOutput(known[value])
            open_blocks.pop()
            continue
        made = ours._graph.create(node._kind, [known[value] for value in node._inputs], len(node._outputs))
        made._attributes = _attributes_of(node)
        made.copyMetadata(node)
        for one, two in zip(made._outputs, node._outputs):
            one.copyMetadata(two)
        known |= zip(node._outputs, made._outputs)
        made.insertBefore(ours._return)
        # The blocks of a node read nothing that comes after it, and nobody outside reads what is in them.
        stack += [(block, made.addBlock()) for block in node._blocks][::-1]
