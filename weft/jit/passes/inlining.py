"""Calls replaced by what is called: functions and methods that are programs, forks that are waited for."""

from __future__ import annotations

from typing import Any

from ...base.errors import RunError
from ..graph import Graph
from ..nodes import Node, inside
from .order import in_order

MOST_CALLS = 10_000  # in one graph: more of them are functions that call themselves


def inline(graph: Graph) -> None:
    """Puts the nodes of what `prim::CallFunction` and `prim::CallMethod` call in the place of the call, and so on for
    the calls in it."""
    count = 0
    for step in in_order(graph.block()):
        callee = callee_of(step) if isinstance(step, Node) else None
        if callee is None or not isinstance(step, Node):
            continue
        count += 1
        if count > MOST_CALLS:
            raise RunError(
                f"{step.kind()} is not inlined",
                why=f"{MOST_CALLS} calls were, and there are more: a function calls itself",
                hint="graphs with calls run as they are",
            )
        _put_in_place(graph, step, callee, step._inputs[1:] if step.kind() == "prim::CallFunction" else step._inputs)


def callee_of(node: Node) -> Graph | None:
    """The graph that a node calls; None if it calls nothing that has one."""
    called: Any = None
    if node.kind() == "prim::CallFunction":
        called = getattr(node._inputs[0].type(), "function", None)
    elif node.kind() == "prim::CallMethod":
        find = getattr(node._inputs[0].type(), "find_method", None)
        called = find(node._get("s", "name")) if find is not None else None
    found = getattr(called, "graph", None)
    return found if isinstance(found, Graph) else None


def _put_in_place(graph: Graph, node: Node, callee: Graph, inputs: Any) -> None:
    """Puts the nodes of another graph where a node is, which goes; a tuple is given for several results."""
    with graph.insert_point_guard(node):
        results = graph.insertGraph(callee, list(inputs))
        if len(results) != node.outputsSize():
            raise RunError(f"{node.kind()} gives {node.outputsSize()} values, and what it calls {len(results)}")
    for value, result in zip(node._outputs, results):
        if value._name is not None and result._name is None and result.node().kind() != "prim::Param":
            name = value._name
            value.setDebugName("")
            result.setDebugName(name)
        value.replaceAllUsesWith(result)
    node.destroy()


def inline_fork_wait(graph: Graph) -> None:
    """Runs what `prim::fork` would run elsewhere where the fork is; what waits for it gets the result at once. A fork
    of whose future others know stays."""
    for node in list(inside(graph.block())):
        if node.kind() != "prim::fork" or any(use.user.kind() != "aten::wait" for use in node.output().uses()):
            continue
        with graph.insert_point_guard(node):
            results = graph.insertGraph(node._get("g", "Subgraph"), node._inputs)
        if len(results) != 1:
            raise RunError(f"a fork gives one value, not {len(results)}")
        for use in node.output().uses():
            use.user.output().replaceAllUsesWith(results[0])
            use.user.destroy()
        node.destroy()
