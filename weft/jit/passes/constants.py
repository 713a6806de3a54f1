"""Constants: one node for each, and nodes that compute from constants alone replaced by what they give."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from ...base.errors import Error
from ...eager.tensor.tensor import Tensor
from ..constants import constant_of, make_constant
from ..graph import Graph
from ..nodes import Block, Node, Value, inside
from ..types import OptionalType, TensorType, Type
from .aliases import Aliases, has_memory
from .common_subexpressions import key_of
from .dead_code import eliminate_dead_code
from .effects import is_pure
from .evaluation import evaluated
from .order import ends, in_order, take_out_block

# What has no inputs that say all of it: nobody's value, and objects whose attributes change.
_NO_CONSTANTS = frozenset(("prim::Uninitialized", "prim::GetAttr", "prim::CreateObject"))


def pool_constants(graph: Graph) -> None:
    """Has one node for each constant, before all others."""
    aliases = Aliases(graph)
    known: dict[Hashable, Node] = {}
    for node in list(inside(graph.block())):
        if node.kind() != "prim::Constant" or aliases.is_written(node.output()):
            continue
        same = known.setdefault(key_of(node), node)
        if same is not node and aliases.may_stand_for(node.output(), same.output()):
            node.replaceAllUsesWith(same)
            node.destroy()
        else:
            node.moveAfter(graph.param_node())


def propagate_constants(graph: Graph) -> bool:
    """Computes what follows from constants alone, takes the branch that a constant chooses, and leaves out loops that
    do not run. Whether something was found.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph():
    ...   %a : int = prim::Constant[value=2]()
    ...   %b : int = aten::add(%a, %a)
    ...   return (%b)''')
    >>> propagate_constants(graph)
    True
    >>> [node.output().toIValue() for node in graph.nodes()]
    [4]
    """
    return _Propagation(graph, Aliases(graph)).run()


def propagate_constants_without_memory(graph: Graph) -> bool:
    """The same, of values that nobody can write to."""
    return _Propagation(graph, None).run()


class _Propagation:
    def __init__(self, graph: Graph, aliases: Aliases | None) -> None:
        self.graph, self.aliases = graph, aliases
        self.constants: dict[Value, Any] = {}
        self.changed = False

    def run(self) -> bool:
        for step in in_order(self.graph.block()):
            if isinstance(step, Block):
                if ends(step):
                    self._left(step.owningNode())  # type: ignore[arg-type]
            elif step.kind() == "prim::Constant":
                self.constants[step.output()] = constant_of(step)
            elif step.kind() == "prim::If":
                self._branch(step)
            elif step.kind() == "prim::Loop":
                self._loop(step)
            else:
                self._compute(step)
        if self.changed:
            eliminate_dead_code(self.graph)
        return self.changed

    def _compute(self, node: Node) -> None:
        if not node._outputs or any(value not in self.constants for value in node._inputs) or not self._may_move(node):
            return
        results = evaluated(node, [self.constants[value] for value in node._inputs])
        if results is None:
            return
        for value, result in zip(node._outputs, results):
            made = constant_like(self.graph, result, value.type())
            if made is not None and self._is_allowed(value):
                made.insertBefore(node)
                self.constants[made.output()] = result
                value.replaceAllUsesWith(made.output())
                self.changed = True
        if not node.hasUses():
            node.destroy()

    def _may_move(self, node: Node) -> bool:
        if not is_pure(node) or node.kind() in _NO_CONSTANTS:
            return False
        if self.aliases is None:
            return not any(has_memory(value.type()) for value in (*node._inputs, *node._outputs))
        return not self.aliases.touches_written(node)

    def _is_allowed(self, value: Value) -> bool:
        return self.aliases is not None or not has_memory(value.type())

    def _branch(self, node: Node) -> None:
        """if True: a else: b -> a"""
        condition = self.constants.get(node.input())
        if condition is None:
            return
        block = node._blocks[0 if condition else 1]
        take_out_block(block, node)
        for value, chosen in zip(node._outputs, list(block.outputs())):
            value.replaceAllUsesWith(chosen)
        node.destroy()
        self.changed = True

    def _loop(self, node: Node) -> None:
        """A loop that runs no turn gives what it was given; so does one whose turns leave that as it is."""
        turns, condition = (self.constants.get(value) for value in node._inputs[:2])
        if (turns is not None and turns < 1) or condition is False:
            for value, given in zip(node._outputs, node._inputs[2:]):
                value.replaceAllUsesWith(given)
            node.destroy()
            self.changed = True
            return
        body = node._blocks[0]
        for given, entry, result, value in _carried(node, body):
            if result is entry or result is given:
                entry.replaceAllUsesWith(given)
                value.replaceAllUsesWith(given)
                self.changed = True

    def _left(self, node: Node) -> None:
        """What both branches give alike is given by neither."""
        if node.kind() != "prim::If":
            return
        for place, value in enumerate(node._outputs):
            one, two = (block._return._inputs[place] for block in node._blocks)
            same = one is two
            if not same and one in self.constants and two in self.constants and not has_memory(one.type()):
                same = key_of(one.node()) == key_of(two.node())
            if not same:
                continue
            if one.node() in (inner for block in node._blocks for inner in block.nodes()):
                one.node().moveBefore(node)
            value.replaceAllUsesWith(one)
            self.changed = True


def _carried(node: Node, body: Block) -> Iterator[tuple[Value, Value, Value, Value]]:
    """What a loop carries: the value before it, in it, after a turn, and after it."""
    return zip(node._inputs[2:], body._param._outputs[1:], body._return._inputs[1:], node._outputs)


def constant_like(graph: Graph, result: Any, kind: Type) -> Node | None:
    """A constant of a type, in no block yet; None where no constant can be that."""
    if isinstance(result, Tensor) and result.requires_grad:
        return None
    node = graph.create("prim::Constant")
    try:
        make_constant(node, result)
    except Error:
        node.destroy()
        return None
    if not isinstance(kind, TensorType):
        node.output().setType(kind.getElementType() if isinstance(kind, OptionalType) and result is not None else kind)
    return node
