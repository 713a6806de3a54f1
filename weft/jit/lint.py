"""What only a whole graph can tell of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..base.errors import RunError

if TYPE_CHECKING:
    from .graph import Graph
    from .nodes import Block, Node, Value


class _Scope:
    """A block that is being looked at: the nodes to come, and the values that it has defined."""

    def __init__(self, block: Block) -> None:
        self.block, self.nodes = block, block.nodes()
        self.defined: list[Value] = list(block.inputs())
        self.node: Node | None = None  # whose blocks are looked at
        self.blocks: Iterator[Block] = iter(())


def lint(graph: Graph) -> None:
    """Raises what is wrong with a graph: a node that is in no block, a value that is read where it is not defined yet
    or not seen, a use that its value does not know of."""
    loose = [node for node in graph._created if node.owningBlock() is None]
    if loose:
        raise RunError(f"{loose[0].kind()} was created and is in no block", hint="insert or destroy it")
    scopes = [_Scope(graph.block())]
    seen: set[Value] = set(scopes[0].defined)
    while scopes:
        scope = scopes[-1]
        inner = next(scope.blocks, None)
        if inner is not None:
            scopes.append(_Scope(inner))
            seen.update(scopes[-1].defined)
            continue
        if scope.node is not None:  # what it gives is seen after it, and not in its blocks
            scope.defined += scope.node.outputs()
            seen.update(scope.node.outputs())
        scope.node = next(scope.nodes, None)
        if scope.node is None:
            _check(scope.block.returnNode(), seen)
            seen.difference_update(scope.defined)
            scopes.pop()
        else:
            _check(scope.node, seen)
            scope.blocks = scope.node.blocks()


def _check(node: Node, seen: set[Value]) -> None:
    for offset, value in enumerate(node.inputs()):
        if value not in seen:
            raise RunError(f"{value.debugName()} not in scope", where=f"input {offset} of {node.kind()}")
        if (id(node), offset) not in value._uses:
            raise RunError(f"%{value.debugName()} does not know of {node.kind()} that reads it")
