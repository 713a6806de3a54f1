"""Programs of a graph whose dimensions have names: one serves all sizes that answer its guards alike.

Every name is left open first. Where code needs the number itself, the name is bound to it, and the graph is prepared
again with that number: its programs then serve that number only, and are as open as can be in the other names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from math import prod
from typing import NamedTuple, TypeVar

from ...base import config
from ...base.errors import Error, Unsupported
from ...base.extents import names_of, substitute
from ...base.forks import ForkLock, renewed_lock
from ...base.memory import require
from ...base.plan import KernelStep, known
from ...base.shape import Dim, Shape, StaticShape
from ...core.graph import Graph
from ...core.infer import infer
from ...core.ir import Node, NodeEntry
from ...core.symbolic import bound_symbol, names_in
from ...passes.fuse import fusible_groups
from ...runtime.executor import Executor
from ...runtime.program import Program
from ...te.extents import NumberNeeded
from ..assemble import assemble, fused_groups, lowered
from ..constants import SharedConstants
from ..model_source import ModelSource
from ..mutation import written_variables
from ..prepare import prepare_typed, typed_graph
from ..stages import reached
from .binding import OpenSizes
from .cost import kernel_cycles
from .shapes import ShapeChecks

MAX_PROGRAMS = 16

T = TypeVar("T")
Loaded = Callable[[Callable[[], Program]], Executor]
Progress = Callable[[int, int], None]


class _Made(NamedTuple):
    """A program, for these numbers of the names that are bound."""

    bound: tuple[tuple[str, int], ...]
    executor: Executor
    names: tuple[str, ...]  # those that are open, in the order of its sizes


class OpenPrograms:
    """What serves many sizes, made when sizes are seen that nothing there serves."""

    def __init__(self, graph: Graph, source: ModelSource, shared: SharedConstants, inputs: Sequence[str]) -> None:
        self._graph, self._source, self._shared = graph, source, shared
        self._made: list[_Made] = []
        self._turn: ForkLock = renewed_lock()
        self._plain: Graph | None = None  # with names for all sizes
        self._checks: ShapeChecks | None = None
        self._bound: set[str] = set()
        self._names: list[str] = []
        self._shapes: dict[str, tuple[Dim, ...]] = {}
        variables = [graph.indexed.nodes[number] for number in graph.indexed.variables]
        facts = {node.name: graph.fact(NodeEntry(node)) for node in variables}
        shapes = {name: fact.shape for name, fact in facts.items()}
        self._dtypes = {name: fact.dtype for name, fact in facts.items() if fact.dtype is not None}
        if any(shapes[name] is None for name in inputs) or written_variables(graph):
            return
        self._shapes = {name: _named(name, shapes[name]) for name in inputs}
        dims = [dim for shape in self._shapes.values() for dim in shape]
        names = names_in(graph.indexed.nodes).union(*map(names_of, dims))
        if names <= set(dims):
            self._names = sorted(names)

    @property
    def latest(self) -> Program | None:
        """The program that was made last."""
        return self._made[-1].executor.program if self._made else None

    @property
    def bound_names(self) -> frozenset[str]:
        """Names whose numbers code was found to need: each number has programs of its own."""
        return frozenset(self._bound)

    def copy(self) -> OpenPrograms:
        """Another that shares the code there is."""
        made = OpenPrograms.__new__(OpenPrograms)
        made.__dict__.update(self.__dict__, _made=list(self._made), _bound=set(self._bound), _turn=renewed_lock())
        return made

    def executor(self, shapes: Mapping[str, StaticShape], loaded: Loaded) -> Executor | None:
        """What runs on inputs of these shapes; None where code has to be made for them alone. `loaded` makes a program
        and gets it ready."""
        values = self._values(shapes) if self._names else None
        if values is None or not self._keeps_its_shapes(values):
            return None
        found = self._serving(values)
        if found is None:
            with self._turn:  # one thread makes what others may have waited for
                found = self._serving(values) or self._compiled(values, loaded)
        return found

    def _serving(self, values: Mapping[str, int]) -> Executor | None:
        """What there is for these sizes."""
        for made in self._made:
            if all(values[name] == number for name, number in made.bound):
                found = made.executor.bound([values[name] for name in made.names])
                if found is not None:
                    _check_bounds(found.program)
                    return found
        return None

    def _values(self, shapes: Mapping[str, StaticShape]) -> dict[str, int] | None:
        """What the names stand for; None where something is empty, which has code of its own."""
        values = {}
        for name, dims in self._shapes.items():
            values.update({dim: extent for dim, extent in zip(dims, shapes[name]) if dim in self._names})
        return None if 0 in values.values() else values

    def _keeps_its_shapes(self, values: Mapping[str, int]) -> bool:
        """Whether shapes that follow from names say what inference says of these numbers: node by node, or where that
        does not tell, of the whole graph."""
        try:
            self._plain = self._plain or self._typed({})
            self._checks = checks = self._checks or ShapeChecks(self._plain)
            if checks.is_complete and checks.holds(values):
                return True
            plain = self._typed(values)
        except Error:
            return False
        pairs = zip(self._plain.indexed.nodes, plain.indexed.nodes, strict=True)
        number = cache(lambda dim: substitute(dim, values))
        return all(
            named.shape is not None and tuple(map(number, named.shape)) == fact.shape
            for node, other in pairs
            for named, fact in zip(self._plain.node_facts(node), plain.node_facts(other))
        )

    def _typed(self, bound: Mapping[str, int]) -> Graph:
        """The graph with numbers for some of the names."""
        shapes = {name: tuple(substitute(dim, bound) for dim in dims) for name, dims in self._shapes.items()}
        symbol = bound_symbol(self._graph.symbol, bound) if bound else self._graph.symbol
        return typed_graph(symbol, self._source.params, shapes, self._dtypes)

    def _compiled(self, values: Mapping[str, int], loaded: Loaded) -> Executor | None:
        while len(self._bound) < len(self._names):
            bound = {name: values[name] for name in self._names if name in self._bound}
            sizes = OpenSizes({name: values[name] for name in self._names if name not in self._bound})
            try:
                decided = self._decided(bound)
                if decided:
                    self._bound |= decided
                    continue
                executor = loaded(partial(self._program, sizes, bound))
            except NumberNeeded as needed:
                self._bound.update(sizes.names[number] for number in needed.arguments)
                continue
            except Error:  # which code for these shapes alone will tell, if it is not about open sizes
                break
            made = _Made(tuple(bound.items()), executor, sizes.names)
            self._made = [*self._made, made][-MAX_PROGRAMS:]
            return self._serving(values)
        self._names = []
        return None

    def _decided(self, bound: Mapping[str, int]) -> set[str]:
        """Open names that inference takes for numbers, as it follows from the other operands or from what is bound."""
        graph = self._typed(bound)
        facts = [graph.fact(NodeEntry(node)) for node in _variables(graph, self._shapes)]
        return set(self._names) - bound.keys() - {dim for fact in facts for dim in fact.shape or ()}

    def program_alone(self, shapes: Mapping[str, StaticShape], progress: Progress) -> Program:
        """The program for inputs of these shapes and no others."""
        values = self._values(shapes)
        assert values is not None
        return self._made_by(assemble, OpenSizes({}), values, progress)

    def gain(self, shapes: Mapping[str, StaticShape], progress: Progress) -> float:
        """How many times as fast the program for these shapes alone should be, by what both do in their loops."""
        values = self._values(shapes)
        if not self._names or values is None or not self._keeps_its_shapes(values):
            return 1.0  # there is no open program for them
        bound = {name: values[name] for name in self._names if name in self._bound}
        sizes = OpenSizes({name: values[name] for name in self._names if name not in bound})
        kernels = self._made_by(lowered, sizes, bound, progress)
        numbers = dict(zip(sizes.trace.arguments, (values[name] for name in sizes.names)))
        cycles = sum(kernel_cycles(kernel, numbers) for kernel in kernels)
        alone = self._made_by(lowered, OpenSizes({}), values, progress)
        return cycles / sum(kernel_cycles(kernel, {}) for kernel in alone) if alone else 1.0

    def _program(self, sizes: OpenSizes, bound: Mapping[str, int]) -> Program:
        return self._made_by(assemble, sizes, bound, None)

    def _made_by(
        self, make: Callable[..., T], sizes: OpenSizes, bound: Mapping[str, int], progress: Progress | None
    ) -> T:
        """What is made of the groups of the graph in which some names are bound, and others are open sizes."""
        source, graph = self._source, self._typed(bound)
        reached("types", infer, graph)
        inputs = [sizes.spec(node.name, graph.fact(NodeEntry(node))) for node in _variables(graph, self._shapes)]
        prepared = prepare_typed(
            graph, source.params, source.opt_level, source.target, shared=self._shared, bound=False
        )
        graph = sizes.with_params(prepared.graph)
        groups = fused_groups(graph, source.target, source.opt_level >= 1)
        reached("groups", fusible_groups, groups)
        args = groups, prepared.constants, source.target, progress, inputs
        return make(sizes.with_facts(graph), *args, sizes if sizes.names else None)


def _check_bounds(program: Program) -> None:
    """Refuses sizes whose runs could not have their outputs and the values between, or could not be waited for."""
    between = known(program.plan.arena_bytes)
    made = sum(prod(spec.extents) * spec.dtype.itemsize for spec in program.outputs)
    require(between + made, f"a run, {between} bytes of it for values between inputs and outputs,")
    limit = config.get("kernel_seconds")
    longest = max((step.nanoseconds for step in program.plan.steps if isinstance(step, KernelStep)), default=0.0) / 1e9
    if longest > limit:
        raise Unsupported(
            f"a kernel would run for {longest:.2g} seconds or longer",
            why=f"more than {limit} seconds are taken for a mistake in the shapes",
            hint="take smaller extents, or raise WEFT_KERNEL_SECONDS",
        )


def _named(name: str, shape: Shape) -> tuple[Dim, ...]:
    """The shape of an input with names for dimensions that have none."""
    assert shape is not None
    return tuple(f"{name}:{axis}" if dim is None else dim for axis, dim in enumerate(shape))


def _variables(graph: Graph, names: Iterable[str]) -> list[Node]:
    variables = {node.name: node for node in (graph.indexed.nodes[number] for number in graph.indexed.variables)}
    return [variables[name] for name in names]
