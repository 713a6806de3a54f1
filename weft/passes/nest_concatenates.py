"""NestConcatenates: where a concatenation begins with all the parts of another one, it is made from
that one. In memory the shorter is then the beginning of the longer."""

from __future__ import annotations

from typing import Any

from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite


class _Prefixes:
    """Lists of parts as a tree: every list is a way down from its axis, one step for each part."""

    def __init__(self) -> None:
        self._next: dict[tuple[Any, NodeEntry], int] = {}
        self._ends: dict[Any, NodeEntry] = {}  # what was made from the parts on the way there

    def longest(self, axis: int, parts: list[NodeEntry], whole: NodeEntry) -> tuple[int, Any]:
        """(count, entry) for the most parts at the beginning that something was made from; the
        whole list is remembered as `whole`."""
        found: tuple[int, Any] = (0, None)
        at: Any = ("axis", axis)
        for count, part in enumerate(parts):
            if at in self._ends:
                found = (count, self._ends[at])
            at = self._next.setdefault((at, part), len(self._next))
        self._ends.setdefault(at, whole)
        return found


@register_pass("NestConcatenates")
def nest_concatenates(graph: Graph) -> Graph:
    """concatenate(a, b, c) is concatenate(concatenate(a, b), c) where concatenate(a, b) is there.

    Looks only at concatenations that come before, and takes the longest.
    """
    prefixes = _Prefixes()

    def nest(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        if node.op_name != "concatenate" or node.control_deps:
            return None
        made = walker.copy(node, inputs, ())
        count, start = prefixes.longest(node.params.axis, inputs, NodeEntry(made))
        if count:
            made.inputs = [start, *inputs[count:]]
        return [NodeEntry(made)]

    return rewrite(graph, nest)
