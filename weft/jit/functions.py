"""Functions of a program: a graph with a schema. A graph is made when somebody first asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.errors import RunError
from .graph import Graph
from .schema import FunctionSchema


class Function:
    """A function by its qualified name. A method has the object that it belongs to as its first argument.

    >>> from .parse import parse_ir
    >>> from .schema import parse_schema
    >>> graph = parse_ir("graph(%x : int):\\n  return (%x)")
    >>> same = Function("__torch__.same", parse_schema("same(int x) -> int"), lambda: graph)
    >>> same.name, str(same.schema), same.graph is graph
    ('same', 'same(int x) -> int', True)
    """

    def __init__(self, qualified_name: str, schema: FunctionSchema, compile: Callable[[], Graph]) -> None:
        self.qualified_name, self.schema = qualified_name, schema
        self._compile, self._graph, self._compiling = compile, None, False

    _graph: Graph | None

    @property
    def name(self) -> str:
        return self.qualified_name.rpartition(".")[2]

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            if self._compiling:
                raise RunError(f"{self.qualified_name} calls itself", why="a program has no recursion")
            self._compiling = True
            try:
                self._graph = self._compile()
            finally:
                self._compiling = False
        return self._graph

    def bound_to(self, owner: Any) -> Any:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<function {self.qualified_name}>"
