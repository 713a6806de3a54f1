"""CommonSubexpr: nodes that compute the same value become one. Dead nodes go as well, since a graph
is what its outputs reach."""

from __future__ import annotations

from collections.abc import Hashable

from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.op import Op
from ..core.passes import register_pass
from ..core.schema import Params, is_hidden
from ..core.walk import Walker, rewrite
from ._moves import Moves


@register_pass("CommonSubexpr")
def common_subexpr(graph: Graph) -> Graph:
    """One node for all pure nodes of one operator with equal attributes and inputs."""
    first: dict[Hashable, Node] = {}
    attributes = _Attributes()
    moves = Moves()

    def merge(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        if not _mergeable(node):
            return moves.keep(walker, node, inputs)
        assert node.op is not None
        facts = () if inputs else graph.node_facts(node)
        hidden = tuple(item for item in node.attrs.items() if is_hidden(item[0]))
        key = (node.op, attributes.of(node.op, node.params), tuple(inputs), hidden, facts)
        if key in first:
            return moves.put(node, moves.entries(first[key]))
        first[key] = node
        return moves.keep(walker, node, inputs)

    return rewrite(graph.replace(attrs={}), merge)


def _mergeable(node: Node) -> bool:
    if node.op is None or node.subgraphs or node.control_deps:
        return False
    return node.op.effect_of(node.params) == "pure" and not node.op.mutates_of(node.params)


class _Attributes:
    """Canonical attributes as something hashable, made once for each params object."""

    def __init__(self) -> None:
        self._known: dict[tuple[Op, int], tuple[Params, Hashable]] = {}

    def of(self, op: Op, params: Params) -> Hashable:
        found = self._known.get((op, id(params)))
        if found is None:
            # The text tells 0.0 from -0.0, which compare equal as numbers.
            found = (params, tuple(sorted(op.attributes(params).items())))
            self._known[op, id(params)] = found
        return found[1]
