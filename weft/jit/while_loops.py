"""Loops that both a number of turns and a condition end, as loops that a condition ends: source has no others."""

from __future__ import annotations

from .constants import constant_of
from .graph import Graph
from .nodes import Node, Value
from .types import BoolType, IntType

LONGEST = 2**63 - 1  # the number of turns of a loop that only its condition ends


def is_true(value: Value) -> bool:
    """Whether a value is the constant True."""
    return value.node().kind() == "prim::Constant" and constant_of(value.node()) is True


def is_counted(loop: Node) -> bool:
    """`for`: the condition is always true."""
    (body,) = loop.blocks()
    return is_true(loop.inputsAt(1)) and is_true(body.returnNode().inputsAt(0))


def is_while(loop: Node) -> bool:
    """`while`: turns are not counted, and nobody reads their number."""
    limit, (body,) = loop.inputsAt(0).node(), loop.blocks()
    counted = limit.kind() != "prim::Constant" or constant_of(limit) != LONGEST
    return not counted and not next(body.inputs()).uses()


def with_source(graph: Graph) -> Graph:
    """A graph whose loops source can say: the same graph, if they are such loops already.

    >>> from .parse import parse_ir
    >>> graph = parse_ir('''
    ... graph(%most : int, %going : bool):
    ...   %last : int = prim::Loop(%most, %going, %most)
    ...     block0(%turn : int, %before : int):
    ...       -> (%going, %turn)
    ...   return (%last)
    ... ''')
    >>> [node.kind() for node in with_source(graph).nodes()]
    ['prim::Constant', 'aten::lt', 'aten::__and__', 'prim::Constant', 'prim::Loop']
    """

    def has_both(loop: Node) -> bool:
        return not is_counted(loop) and not is_while(loop)

    if not any(map(has_both, graph.findAllNodes("prim::Loop"))):
        return graph
    made = graph.copy()
    for loop in made.findAllNodes("prim::Loop"):
        if has_both(loop):
            _count_by_itself(made, loop)
    return made


def _count_by_itself(graph: Graph, loop: Node) -> None:
    """turn = 0; while condition and turn < limit: ...; turn = turn + 1"""
    limit, condition = loop.inputsAt(0), loop.inputsAt(1)
    (body,) = loop.blocks()
    with graph.insert_point_guard(loop):
        first = graph.insertConstant(0)
        loop.replaceInput(1, _both(graph, _less(graph, first, limit), condition))
        loop.replaceInput(0, graph.insertConstant(LONGEST))
    loop.addInput(first)
    loop.addOutput().setType(IntType.get())
    turn = body.addInputToBlock().setType(IntType.get())
    next(body.inputs()).replaceAllUsesWith(turn)
    with graph.insert_point_guard(body):
        following = graph.insert("aten::add", [turn, 1]).setType(IntType.get())
        goes_on = body.returnNode().inputsAt(0)
        body.returnNode().replaceInput(0, _both(graph, _less(graph, following, limit), goes_on))
    body.registerOutput(following)


def _less(graph: Graph, one: Value, other: Value) -> Value:
    return graph.insert("aten::lt", [one, other]).setType(BoolType.get())


def _both(graph: Graph, one: Value, other: Value) -> Value:
    return graph.insert("aten::__and__", [one, other]).setType(BoolType.get())
