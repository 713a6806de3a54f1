"""What a trace has while it is under way: the graph so far, and the scope that new nodes belong to."""

from __future__ import annotations

from ...base.errors import InvalidType, RunError
from ..graph import Graph


class TracingState:
    """A graph that is being made. Nodes that are created in it get the scope that is open.

    >>> state = TracingState()
    >>> state.push_scope("encoder")
    >>> state.push_scope("layer")
    >>> state.current_scope()
    'encoder/layer'
    >>> state.graph().create("aten::relu").scopeName()
    'encoder/layer'
    >>> state.pop_scope()
    >>> state.current_scope()
    'encoder'
    """

    def __init__(self, graph: Graph | None = None) -> None:
        self._scopes: list[str] = []
        self.set_graph(Graph() if graph is None else graph)

    def graph(self) -> Graph:
        return self._graph

    def set_graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise InvalidType(f"a trace has a graph, not {type(graph).__name__}")
        self._graph = graph
        self._enter()

    def push_scope(self, name: str) -> None:
        self._scopes.append(name)
        self._enter()

    def pop_scope(self) -> None:
        if not self._scopes:
            raise RunError("no scope is open", hint="push_scope(name) opens one")
        self._scopes.pop()
        self._enter()

    def current_scope(self) -> str:
        return "/".join(self._scopes)

    def _enter(self) -> None:
        self._graph._scope = self.current_scope()

    def __str__(self) -> str:
        return str(self._graph)

    __repr__ = __str__
