"""Loops whose bodies are written out several times."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Graph
from ..nodes import Block, Node, Value, inside
from ..types import IntType
from .dead_code import eliminate_dead_code

FACTOR = 8  # turns that one turn of a loop becomes
MOST_NODES = 32  # in the body of a loop that is written out
MOST_TURNS = 64  # of a loop that is written out as a whole


def unroll_loops(graph: Graph) -> bool:
    """Writes out loops that count turns, and only turns: all of them, if they are few and their number is known;
    otherwise eight in one turn, with a loop for the rest after it. Whether there was one.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor):
    ...   %n : int = prim::Constant[value=2]()
    ...   %t : bool = prim::Constant[value=1]()
    ...   %y : Tensor = prim::Loop(%n, %t, %x)
    ...     block0(%i : int, %u : Tensor):
    ...       %v : Tensor = aten::relu(%u)
    ...       -> (%t, %v)
    ...   return (%y)''')
    >>> unroll_loops(graph)
    True
    >>> [node.kind() for node in graph.nodes()]
    ['aten::relu', 'aten::relu']
    """
    return _unroll(graph, counted_too=True)


def unroll_constant_loops(graph: Graph) -> bool:
    """Writes out loops whose number of turns is known, and small."""
    return _unroll(graph, counted_too=False)


def _unroll(graph: Graph, counted_too: bool) -> bool:
    changed = False
    for loop in reversed(graph.findAllNodes("prim::Loop")):  # inner ones first, so that bodies do not multiply
        body, turns = loop._blocks[0], loop._inputs[0].toIValue()
        if not _counts_only(loop) or not _is_small(body):
            continue
        if turns is not None and turns <= MOST_TURNS:
            _write_out(graph, loop, turns)
        elif counted_too:
            _by_factor(graph, loop)
        else:
            continue
        changed = True
    if changed:
        eliminate_dead_code(graph)
    return changed


def _counts_only(loop: Node) -> bool:
    """Whether a loop ends after a number of turns, whatever they compute."""
    return loop._inputs[1].toIValue() is True and loop._blocks[0]._return._inputs[0].toIValue() is True


def _is_small(body: Block) -> bool:
    return all(number < MOST_NODES for number, _ in enumerate(inside(body)))


def _turn(graph: Graph, body: Block, values: Sequence[Value]) -> list[Value]:
    """Writes what a body does where nodes are inserted; gives what it gives, without the condition."""
    known = dict(zip(body._param._outputs, values))

    def standing_for(value: Value) -> Value:
        return known.get(value, value)

    for node in body.nodes():
        made = graph.insertNode(graph.createClone(node, standing_for))
        known.update(zip(node._outputs, made._outputs))
    return [known.get(value, value) for value in body._return._inputs[1:]]


def _turns(graph: Graph, loop: Node, values: Sequence[Value], times: int) -> list[Value]:
    """Writes several turns of a loop one after the other, of values with the number of the turn first."""
    for _ in range(times):
        results = _turn(graph, loop._blocks[0], values)
        values = [graph.insert("aten::add", [values[0], graph.insertConstant(1)]).setType(IntType.get()), *results]
    return list(values)


def _write_out(graph: Graph, loop: Node, turns: int) -> None:
    with graph.insert_point_guard(loop):
        values = _turns(graph, loop, [graph.insertConstant(0), *loop._inputs[2:]], turns)
    for value, result in zip(loop._outputs, values[1:]):
        value.replaceAllUsesWith(result)
    loop.destroy()


def _by_factor(graph: Graph, loop: Node) -> None:
    """for i in range(n): f(i) -> for _ in range(n // 8): f(i); i += 1; f(i); ...; then for the n % 8 that are left"""
    most, condition = loop._inputs[:2]
    with graph.insert_point_guard(loop):
        values = [graph.insertConstant(0), *loop._inputs[2:]]
        whole = graph.insert("aten::__round_to_zero_floordiv", [most, FACTOR]).setType(IntType.get())
        done = graph.insert("aten::mul", [whole, FACTOR]).setType(IntType.get())
        rest = graph.insert("aten::sub", [most, done]).setType(IntType.get())
        for turns, times in ((whole, FACTOR), (rest, 1)):
            made = graph.insertNode(graph.create("prim::Loop", [turns, condition, *values], len(values)))
            made.copyMetadata(loop)
            _fill_body(graph, loop, made, times)
            values = list(made._outputs)
    for value, result in zip(loop._outputs, values[1:]):
        value.replaceAllUsesWith(result)
    loop.destroy()


def _fill_body(graph: Graph, loop: Node, made: Node, times: int) -> None:
    """Has a new loop, which carries the number of the turn too, do several turns of another in one."""
    inner = made.addBlock()
    inner.addInputToBlock().setType(IntType.get())
    for carried, like in zip(made._outputs, [loop._blocks[0]._param._outputs[0], *loop._outputs]):
        carried.setType(like.type())
        inner.addInputToBlock().setType(like.type())
    with graph.insert_point_guard(inner):
        values = _turns(graph, loop, inner._param._outputs[1:], times)
    for value in (loop._inputs[1], *values):
        inner.registerOutput(value)
