"""What NNVM reached by name and weft has in this room: functions on graphs, and GraphCompile."""

from __future__ import annotations

from importlib import import_module

from ..base.errors import InvalidType
from ..core.graph import Graph
from ..core.passes import register_pass
from ..runtime.functions import register_func

__all__ = ["graph_compile", "move_graph"]


def __dir__() -> list[str]:
    return list(__all__)


@register_func("nnvm.graph._move_graph")  # type: ignore[untyped-decorator]
def move_graph(graph: Graph, key: str) -> Graph | None:
    """Takes a graph out of a graph attribute; None if there is none."""
    value = graph.attrs.get(key)
    if value is None:
        return None
    if not isinstance(value, Graph):
        raise InvalidType(f"graph attribute {key!r} is a {type(value).__name__}, not a Graph")
    del graph.attrs[key]
    return value


@register_pass(
    "GraphCompile",
    requires=("shape", "dtype", "fused_entry", "group_root", "group_master"),
    provides=("shape", "dtype", "dltype", "storage_id", "module"),
)
def graph_compile(graph: Graph) -> Graph:
    """The compiled graph: a node for each group, and an attribute `module`, the library that runs.

    Reads `target`, by default "llvm". `weft.runtime.create(graph, graph.attr("module"))` runs it.
    """
    made: Graph = import_module(".graph_compile", __package__).compile_groups(graph)
    return made
