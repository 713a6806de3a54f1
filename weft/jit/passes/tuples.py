"""Tuples taken apart: their parts go where the tuple went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.errors import RunError
from ..constants import constant_of, make_constant
from ..graph import Graph
from ..nodes import Block, Node, Value
from ..types import TupleType, Type
from .dead_code import eliminate_dead_code
from .order import ends, in_order


def lower_simple_tuples(graph: Graph) -> None:
    """Reads the parts of a tuple from where it was put together.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor, %y : Tensor):
    ...   %t : (Tensor, Tensor) = prim::TupleConstruct(%x, %y)
    ...   %a : Tensor, %b : Tensor = prim::TupleUnpack(%t)
    ...   return (%b)''')
    >>> lower_simple_tuples(graph)
    >>> [value.debugName() for value in graph.outputs()]
    ['y']
    """
    for step in in_order(graph.block()):
        if isinstance(step, Block) or step.kind() not in _READERS:
            continue
        made = step._inputs[0].node()
        parts = _read(step, made._inputs) if made.kind() == "prim::TupleConstruct" else None
        if parts is None:
            continue
        if step.kind() == "prim::TupleSlice":
            again = graph.create("prim::TupleConstruct", parts).insertBefore(step)
            parts = [again.output().setType(step.output().type())]
        for value, part in zip(step._outputs, parts):
            value.replaceAllUsesWith(part)
    eliminate_dead_code(graph)


_READERS = ("prim::TupleUnpack", "prim::TupleIndex", "prim::TupleSlice")


def _read(node: Node, parts: Sequence[Any]) -> list[Any] | None:
    """The parts that a node takes out of a tuple; None if it is not known which."""
    if node.kind() == "prim::TupleUnpack":
        return list(parts)
    if node.kind() == "prim::TupleSlice":
        return list(parts[node._get("i", "beg") : node._get("i", "end")])
    place = node._inputs[1].toIValue()
    if not isinstance(place, int) or not -len(parts) <= place < len(parts):
        return None
    return [parts[place]]


def lower_all_tuples(graph: Graph) -> None:
    """Leaves no tuple: inputs and outputs of the graph, of branches and of loops are their parts instead.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%t : (Tensor, int)):
    ...   return (%t)''')
    >>> lower_all_tuples(graph)
    >>> [value.type().str() for value in graph.outputs()]
    ['Tensor', 'int']
    """
    _Lowering(graph).run()
    eliminate_dead_code(graph)


class _Lowering:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.leaves: dict[Value, list[Value]] = {}  # of tuples, with those in them taken apart too
        self.widened: list[Node] = []  # whose outputs have tuples among them that go

    def run(self) -> None:
        self.widen_outputs(self.graph.param_node())
        for step in in_order(self.graph.block()):
            if isinstance(step, Node):
                self.lower(step)
            else:
                self.widen_inputs(step.returnNode())
                if ends(step):
                    self.widen_outputs(step.owningNode())  # type: ignore[arg-type]
        self.widen_inputs(self.graph.return_node())
        for node in self.widened:
            gone = [value for value in node._outputs if value in self.leaves]
            node._outputs = [value for value in node._outputs if value not in self.leaves]
            for value in gone:
                value.setDebugName("")
            for place, value in enumerate(node._outputs):
                value._offset = place

    def lower(self, node: Node) -> None:
        kind = node.kind()
        if kind == "prim::Constant" and isinstance(node.output().type(), TupleType):
            self.leaves[node.output()] = self.constants(node)
        elif kind == "prim::TupleConstruct":
            self.leaves[node.output()] = [leaf for value in node._inputs for leaf in self.leaves_of(value)]
        elif kind in _READERS:
            self.take_out(node)
        elif kind in ("prim::If", "prim::Loop"):
            self.widen_inputs(node)
            for block in node._blocks:
                self.widen_outputs(block.paramNode())
        else:
            self.refuse(node, [*node._inputs, *node._outputs])
            node._set_inputs([leaf for value in node._inputs for leaf in self.leaves_of(value)])

    def refuse(self, node: Node, values: Sequence[Value]) -> None:
        for value in values:
            if isinstance(value.type(), TupleType):
                raise RunError(
                    f"tuple appears in op that does not forward tuples, unsupported kind: {node.kind()}",
                    why=f"%{value.debugName()} is {value.type().str()}",
                    hint="inline calls first, and take tuples apart before they go into lists",
                )

    def leaves_of(self, value: Value) -> list[Value]:
        return self.leaves.get(value, [value])

    def constants(self, node: Node) -> list[Value]:
        found, waiting = [], [constant_of(node)]
        while waiting:
            item = waiting.pop()
            if isinstance(item, tuple):
                waiting += reversed(item)
                continue
            made = self.graph.create("prim::Constant").insertBefore(node)
            make_constant(made, item)
            found.append(made.output())
        return found

    def take_out(self, node: Node) -> None:
        kind = node._inputs[0].type()
        leaves = iter(self.leaves_of(node._inputs[0]))
        parts = [[next(leaves) for _ in range(len(_flat(part)))] for part in kind.containedTypes()]
        found = _read(node, parts)
        if found is None:
            raise RunError("tuple index with a place that is not known", where=str(node).strip())
        if node.kind() == "prim::TupleSlice":
            self.leaves[node.output()] = [leaf for part in found for leaf in part]
            return
        for value, part in zip(node._outputs, found):
            if isinstance(value.type(), TupleType):
                self.leaves[value] = part
            else:
                value.replaceAllUsesWith(part[0])

    def widen_inputs(self, node: Node) -> None:
        if any(value in self.leaves for value in node._inputs):
            node._set_inputs([leaf for value in node._inputs for leaf in self.leaves_of(value)])

    def widen_outputs(self, node: Node) -> None:
        if not any(isinstance(value.type(), TupleType) for value in node._outputs):
            return
        self.widened.append(node)
        given = []
        for value in list(node._outputs):
            given.append(value)
            if isinstance(value.type(), TupleType):
                self.leaves[value] = [node.addOutput().setType(kind) for kind in _flat(value.type())]
                given += self.leaves[value]
        node._outputs = given


def _flat(kind: Type) -> list[Type]:
    """The types of the leaves of a value."""
    found, waiting = [], [kind]
    while waiting:
        part = waiting.pop()
        if isinstance(part, TupleType):
            waiting += reversed(part.elements())
        else:
            found.append(part)
    return found
