"""What a trace has while it is under way: the graph so far, and the scope that new nodes belong to."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Any

from ...base.errors import InvalidType, RunError
from ..graph import Graph

_PACKAGE = __name__.partition(".")[0]


class TracerWarning(Warning):
    """A trace may not hold for other inputs."""


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

    recorder: Any = None  # what takes calls down, while a function is traced

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


class _Current(threading.local):
    state: TracingState | None = None


_current = _Current()


def get_tracing_state() -> TracingState | None:
    """The trace that is under way in this thread."""
    return _current.state


def set_tracing_state(state: TracingState | None) -> None:
    """Has another trace, or none, be under way in this thread."""
    _current.state = state


def is_tracing() -> bool:
    """Whether a function is being traced.

    >>> is_tracing()
    False
    """
    return _current.state is not None


_ASKED = {
    "bool": "Converting a tensor to a Python boolean",
    "int": "Converting a tensor to a Python integer",
    "index": "Converting a tensor to a Python index",
    "float": "Converting a tensor to a Python float",
    "item": "Converting a tensor to a Python number",
    "complex": "Converting a tensor to a Python number",
    "tolist": "Converting a tensor to a Python list",
    "numpy": "Converting a tensor to a NumPy array",
    "len": "Using len to get tensor shape",
    "iter": "Iterating over a tensor",
}
_VALUES = (
    "might cause the trace to be incorrect. We can't record the data flow of Python values, so this value will be "
    "treated as a constant in the future. This means that the trace might not generalize to other inputs!"
)
_OTHERS = {
    "len": "might cause the trace to be incorrect. Recommended usage would be tensor.shape[0]. Passing a tensor of "
    "different shape might lead to errors or silently give incorrect results.",
    "iter": "might cause the trace to be incorrect. Passing a tensor of different shape won't change the number of "
    "iterations executed (and might lead to errors or silently give incorrect results).",
}


_BETWEEN = (f"{_PACKAGE}.eager.tensor.tensor", f"{_PACKAGE}.eager.functions.around", f"{_PACKAGE}.jit.tracing")


def warn_of_value(what: str) -> None:
    """Warns where the user's code asks for a value. What weft asks for itself is not worth a warning."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_BETWEEN):
        frame, depth = frame.f_back, depth + 1
    if str(frame.f_globals.get("__name__", "")).partition(".")[0] != _PACKAGE:
        warnings.warn(f"{_ASKED[what]} {_OTHERS.get(what, _VALUES)}", TracerWarning, stacklevel=depth)
