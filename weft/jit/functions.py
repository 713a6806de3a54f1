"""Functions of a program: a graph with a schema. A graph is made when somebody first asks for it, and plans to run it
when it is first called with arguments of a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base.errors import RunError
from ..core.symbol import Symbol
from ..eager.autograd.modes import modes
from ..nn.modules.module import Module
from .archive.write import save, saved
from .classes import ScriptClass, ScriptObject
from .compile.plan import Array
from .compile.tracing import OneGraph
from .graph import Graph
from .graphs.model import model_of
from .graphs.walk import recorded
from .passes.inlining import inline
from .python_source import function_source
from .run.code import Code
from .run.executor import GraphExecutor, GraphExecutorState
from .run.tracing_state import get_tracing_state
from .schema import Argument, FunctionSchema


class Function:
    """A function by its qualified name. A method has the object that it belongs to as its first argument.

    >>> from .parse import parse_ir
    >>> from .schema import parse_schema
    >>> graph = parse_ir('''
    ... graph(%x : int):
    ...   %y : int = aten::mul(%x, %x)
    ...   return (%y)
    ... ''')
    >>> square = Function("__torch__.square", parse_schema("square(int x) -> int"), lambda: graph)
    >>> square.name, square(3)
    ('square', 9)
    """

    def __init__(self, qualified_name: str, schema: FunctionSchema, compile: Callable[[], Graph]) -> None:
        self.qualified_name, self.schema = qualified_name, schema
        self._compile, self._compiling = compile, False
        self._graph: Graph | None = None
        self._code: Code | None = None

    _executor: GraphExecutor | None = None

    @property
    def name(self) -> str:
        return self.qualified_name.rpartition(".")[2]

    __name__ = name

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            if self._compiling:
                raise RunError(f"{self.qualified_name} needs itself before it is compiled")
            self._compiling = True
            try:
                self._graph = self._compile()
            finally:
                self._compiling = False
        return self._graph

    @property
    def inlined_graph(self) -> Graph:
        """The graph, with the graphs of what it calls in place of the calls."""
        graph = self.graph.copy()
        inline(graph)
        return graph

    @property
    def code(self) -> str:
        """As source."""
        return function_source(self)

    def executable(self) -> Code:
        """Its instructions, made once."""
        if self._code is None:
            self._code = Code(self.graph, self.qualified_name)
        return self._code

    def executor(self) -> GraphExecutor:
        """What runs it when it is called: a plan for each kind of arguments."""
        if self._executor is None:
            self._executor = GraphExecutor(self.graph, name=self.qualified_name)
        return self._executor

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values, state = self.schema.bound(args, kwargs), get_tracing_state()
        if isinstance(modes.trace, OneGraph):
            return recorded(self.graph, values, modes.trace)
        if state is not None and state.recorder is not None and state.recorder.is_open():
            return state.recorder.call(self, values, lambda: self.executor()(*values))
        return self.executor()(*values)

    def model(self, example_inputs: Any, names: Sequence[str] = ()) -> tuple[Symbol, dict[str, Array]]:
        """It as a graph of the core for inputs like these, and the parameters that it reads: what `weft.compile` and
        exporters take. Branches and loops that values decide are nodes with subgraphs. The inputs are called `names`.

        >>> import weft
        >>> @weft.jit.script
        ... def halved(x: weft.Tensor):
        ...     while x.sum() > 1:
        ...         x = x / 2
        ...     return x
        >>> symbol, params = halved.model(weft.ones(2), ["x"])
        >>> weft.compile((symbol, params), shape={"x": (2,)}).run({"x": weft.tensor([3.0, 1.0]).numpy()})
        [array([0.75, 0.25], dtype=float32)]
        """
        return model_of(self, example_inputs, names)

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph as it is run for such arguments."""
        return self.executor().graph_for(*self.schema.bound(args, kwargs))

    def get_debug_state(self) -> GraphExecutorState:
        """The plans that were made for calls by now."""
        return self.executor().get_debug_state()

    def as_module(self) -> ScriptObject:
        """A module without anything, whose forward is this function: what an archive of a function holds."""
        kind = ScriptClass("__torch__.PlaceholderModule", is_module=True)
        schema = FunctionSchema(
            "forward", "", [Argument("self", kind), *self.schema.arguments], list(self.schema.returns)
        )
        kind.add_method(Function(f"{kind.qualified_name()}.forward", schema, lambda: self._graph_with(kind)))
        return ScriptObject(kind)

    def _graph_with(self, owner: ScriptClass) -> Graph:
        made = Graph()
        made.addInput("self").setType(owner)
        inputs = [made.addInput().copyMetadata(value) for value in self.graph.inputs()]
        for value in made.insertGraph(self.graph, inputs):
            made.registerOutput(value)
        return made

    def save(self, f: Any, _extra_files: Mapping[str, str] | None = None) -> None:
        """Writes it to a path or a file, as a module whose forward it is."""
        save(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: Mapping[str, str] | None = None) -> bytes:
        """What `save` writes, as bytes."""
        return saved(self, _extra_files)

    def bound_to(self, owner: Any) -> ScriptMethod:
        return ScriptMethod(owner, self)

    def __repr__(self) -> str:
        return f"<function {self.qualified_name}>"


ScriptFunction = Function


class ScriptMethod:
    """A method of an object."""

    def __init__(self, owner: Any, function: Function) -> None:
        self.owner, self.function = owner, function

    @property
    def name(self) -> str:
        return self.function.name

    __name__ = name

    @property
    def graph(self) -> Graph:
        return self.function.graph

    @property
    def inlined_graph(self) -> Graph:
        return self.function.inlined_graph

    @property
    def schema(self) -> FunctionSchema:
        return self.function.schema

    @property
    def code(self) -> str:
        return self.function.code

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.owner, *args, **kwargs)

    def model(self, example_inputs: Any, names: Sequence[str] = ()) -> tuple[Symbol, dict[str, Array]]:
        """It as a graph of the core for inputs like these, and the parameters that it reads."""
        return model_of(self, example_inputs, names, self.owner if isinstance(self.owner, Module) else None)

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        return self.function.graph_for(self.owner, *args, **kwargs)

    def get_debug_state(self) -> GraphExecutorState:
        return self.function.get_debug_state()

    def __repr__(self) -> str:
        return f"<method {self.function.qualified_name}>"
