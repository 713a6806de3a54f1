"""Graph functions reachable by name: what NNVM kept in its function registry."""

from __future__ import annotations

from ..base.errors import InvalidType
from ..core.graph import Graph
from ..runtime.functions import register_func


@register_func("nnvm.graph._move_graph", override=True)
def move_graph(graph: Graph, key: str) -> Graph | None:
    """Takes a graph out of a graph attribute; None if there is none."""
    value = graph.attrs.get(key)
    if value is None:
        return None
    if not isinstance(value, Graph):
        raise InvalidType(f"graph attribute {key!r} is a {type(value).__name__}, not a Graph")
    return graph.attrs.pop(key)
