"""Executors of graphs, and of functions that are traced for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..graph import Graph
from ..run.executor import GraphExecutor as Executor
from .trace import create_graph_by_tracing


class GraphExecutor(Executor):
    """Runs a graph, or what a function does to example inputs.

    >>> import weft
    >>> executor = GraphExecutor(lambda x: x * 2 + 1, (weft.ones(2),))
    >>> executor(weft.tensor([1.0, 2.0]))
    tensor([3., 5.])
    """

    def __init__(
        self,
        graph: Graph | Callable[..., Any],
        inputs: Any = True,
        var_name_lookup_fn: Any = None,
        optimize: bool = True,
        _force_outplace: bool = False,
    ) -> None:
        if isinstance(graph, Graph) or not callable(graph):
            super().__init__(graph, optimize and bool(inputs))
        else:
            super().__init__(create_graph_by_tracing(graph, inputs)[0], optimize)
