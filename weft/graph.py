"""Graphs: create one from a symbol, load one from JSON or text, apply passes, register new ones."""

from . import ops as _ops  # noqa: F401  registers the operators
from . import passes as _passes  # noqa: F401  registers the passes
from .base.errors import InvalidType
from .compiler import graph_functions as _functions  # noqa: F401  registers them by name
from .core.graph import Graph, GraphIndex
from .core.indexed import IndexedGraph
from .core.ir import Node, NodeEntry
from .core.json_load import graph_from_json as load_json
from .core.parse import parse_graph as parse
from .core.passes import get_pass, list_passes, register_pass
from .core.symbol import Symbol

__all__ = [
    "Graph",
    "GraphIndex",
    "IndexedGraph",
    "Node",
    "NodeEntry",
    "create",
    "get_pass",
    "list_passes",
    "load_json",
    "parse",
    "register_pass",
]


def __dir__() -> list[str]:
    return list(__all__)


def create(symbol: Symbol) -> Graph:
    """The graph that a symbol's outputs reach.

    >>> import weft
    >>> create(weft.symbol.relu(weft.symbol.Variable("x"))).index.num_nodes
    2
    """
    if not isinstance(symbol, Symbol):
        raise InvalidType(f"graph.create takes a Symbol, not {type(symbol).__name__}")
    return Graph(symbol.outputs)
