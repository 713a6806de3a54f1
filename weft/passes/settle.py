"""SettleInitialisers: operators without inputs that take their shape from the graph get it as an
attribute, so that each node says on its own what it makes."""

from __future__ import annotations

from ..base.dtype import dtype_name
from ..base.shape import is_static
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite

INITIALISERS = ("zeros", "ones", "full")


@register_pass("SettleInitialisers")
def settle_initialisers(graph: Graph) -> Graph:
    """zeros() that inference found to be of shape s becomes zeros(shape=s); so ones and full."""
    return rewrite(graph.replace(attrs={}), _settle)


def _settle(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | None:
    if node.op_name not in INITIALISERS or node.params.shape is not None:
        return None
    fact = walker.fact(NodeEntry(node))
    if not is_static(fact.shape) or fact.dtype is None:
        return None
    attrs = {**node.attrs, "shape": fact.shape, "dtype": dtype_name(fact.dtype)}
    return walker.make(node.op_name, [], attrs, name=node.name)
