"""Results of branches and loops in the order in which they are first read, so that a program that is written down and
read again is the same program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key

from .graph import Graph
from .nodes import Node, Use, Value


def order_outputs(graph: Graph) -> None:
    """Sorts the results of `prim::If` and `prim::Loop`; those that nobody reads come last.

    >>> from .parse import parse_ir
    >>> graph = parse_ir('''
    ... graph(%c : bool, %x : int, %y : int):
    ...   %a : int, %b : int = prim::If(%c)
    ...     block0():
    ...       -> (%x, %y)
    ...     block1():
    ...       -> (%y, %x)
    ...   %d : int = aten::sub(%b, %a)
    ...   return (%d)
    ... ''')
    >>> order_outputs(graph)
    >>> [value.debugName() for value in graph.findNode("prim::If").outputs()]
    ['b', 'a']
    """
    blocks = [graph.block()]
    while blocks:
        block = blocks.pop()
        for node in block.nodes():  # the outer ones first: what is inside may be read by their order
            if node.kind() in ("prim::If", "prim::Loop") and node.outputsSize() > 1:
                _sort(node)
            blocks += node.blocks()


def _sort(node: Node) -> None:
    firsts = [_first_use(value) for value in node.outputs()]

    def compare(one: int, two: int) -> int:
        a, b = firsts[one], firsts[two]
        if a is None or b is None:
            return (a is None) - (b is None) or one - two
        return 1 if a.isAfter(b) else -1

    order = sorted(range(len(firsts)), key=cmp_to_key(compare))
    if order == list(range(len(firsts))):
        return
    _permute(node._outputs, order, 0)
    carried = 1 if node.kind() == "prim::Loop" else 0
    for block in node.blocks():
        given = list(block.returnNode().inputs())
        block.returnNode()._set_inputs([*given[:carried], *[given[carried + place] for place in order]])
        if carried:
            _permute(block.paramNode()._outputs, order, carried)
    if carried:
        given = list(node.inputs())
        node._set_inputs([*given[:2], *[given[2 + place] for place in order]])


def _permute(values: list[Value], order: Sequence[int], start: int) -> None:
    """Puts values, from one of them on, into an order."""
    values[start:] = [values[start + place] for place in order]
    for place, value in enumerate(values):
        value._offset = place


def _first_use(value: Value) -> Use | None:
    first: Use | None = None
    for use in value.uses():
        if first is None or first.isAfter(use):
            first = use
    return first
