"""Programs of a graph whose dimensions have names: one serves all sizes that answer its guards alike.

Every name is left open first. Where code needs the number itself, the name is bound to it, and the graph is prepared
again with that number: its programs then serve that number only, and are as open as can be in the other names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from ...core.ir import Fact, NodeEntry
from ...core.symbolic import bound_symbol, names_in
from ...passes.fuse import fusible_groups
from ...runtime.executor import Executor
from ...runtime.program import Program
from ..assemble import assemble, fused_groups, lowered
from ..constants import SharedConstants
from ..model_source import ModelSource
from ..mutation import written_variables
from ..prepare import prepare_typed, typed_graph
from ..stages import reached
from .binding import OpenSizes, opened
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

    def __init__(
        self,
        graph: Graph,
        source: ModelSource,
        shared: SharedConstants,
        inputs: Sequence[str],
        unread: Mapping[str, Fact] | None = None,
    ) -> None:
        """`unread` tells of inputs that the graph may not have: their values are part of it."""
        self._graph, self._source, self._shared = graph, source, shared
        self._made: list[_Made] = []
        self._turn: ForkLock = renewed_lock()
        self._checks: ShapeChecks | None = None
        self._bound: set[str] = set()
        self._names: list[str] = []
        self._shapes: dict[str, tuple[Dim, ...]] = {}
        variables = [graph.indexed.nodes[number] for number in graph.indexed.variables]
        facts = {**(unread or {}), **{node.name: graph.fact(NodeEntry(node)) for node in variables}}
        self._read = {node.name for node in variables}
        shapes = {name: fact.shape for name, fact in facts.items()}
        self._dtypes = {name: fact.dtype for name, fact in facts.items() if fact.dtype is not None}
        if any(shapes[name] is None or name not in self._dtypes for name in inputs) or written_variables(graph):
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
    def counts_images(self) -> bool:
        """Whether one size is open, and it is the first of every input."""
        firsts = {shape[0] if shape else None for shape in self._shapes.values()}
        rest = [dim for shape in self._shapes.values() for dim in shape[1:]]
        return len(self._names) == 1 and firsts == {*self._names} and all(type(dim) is int for dim in rest)

    @property
    def bound_names(self) -> frozenset[str]:
        """Names whose numbers code was found to need: each number has programs of its own."""
        return frozenset(self._bound)

    def copy(self) -> OpenPrograms:
        """Another that shares the code there is."""
        made = OpenPrograms.__new__(OpenPrograms)
        made.__dict__.update(self.__dict__, _made=list(self._made), _bound=set(self._bound), _turn=renewed_lock())
        return made

    def executor(
        self, shapes: Mapping[str, StaticShape], loaded: Loaded, progress: Progress | None = None
    ) -> Executor | None:
        """What runs on inputs of these shapes; None where code has to be made for them alone. `loaded` makes a program
        and gets it ready."""
        values = self._values(shapes) if self._names else None
        if values is None or not self._keeps_its_shapes(values):
            return None
        found = self._serving(values)
        if found is None:
            with self._turn:  # one thread makes what others may have waited for
                found = self._serving(values) or self._compiled(values, loaded, progress)
        return found

    def _serving(self, values: Mapping[str, int]) -> Executor | None:
        """What there is for these sizes."""
        for made in self._made:
            if all(values[name] == number for name, number in made.bound):
                found = made.executor.at([values[name] for name in made.names])
                if found is not None:
                    _check_bounds(found.program)
                    return found
        return None

    def _values(self, shapes: Mapping[str, StaticShape]) -> dict[str, int] | None:
        """What the names stand for; None where something is empty or not as it was said, which has code of its own."""
        if any(len(dims) != len(shapes[name]) for name, dims in self._shapes.items()):
            return None
        pairs = [pair for name, dims in self._shapes.items() for pair in zip(dims, shapes[name])]
        values = {dim: extent for dim, extent in pairs if isinstance(dim, str) and dim in self._names}
        as_said = all(substitute(dim, values) == extent for dim, extent in pairs)
        return values if as_said and 0 not in values.values() else None

    def _keeps_its_shapes(self, values: Mapping[str, int]) -> bool:
        """Whether shapes that follow from names say what inference says of these numbers."""
        try:
            self._checks = self._checks or ShapeChecks(self._typed({}))
        except Error:
            return False
        return self._checks.holds(values, self._typed)

    def _typed(self, bound: Mapping[str, int]) -> Graph:
        """The graph with numbers for some of the names."""
        shapes = {name: shape for name, shape in self._bound_shapes(bound).items() if name in self._read}
        dtypes = {name: dtype for name, dtype in self._dtypes.items() if name in self._read}
        symbol = bound_symbol(self._graph.symbol, bound) if bound else self._graph.symbol
        return typed_graph(symbol, self._source.params, shapes, dtypes)

    def _bound_shapes(self, bound: Mapping[str, int]) -> dict[str, tuple[Dim, ...]]:
        return {name: tuple(substitute(dim, bound) for dim in dims) for name, dims in self._shapes.items()}

    def _compiled(self, values: Mapping[str, int], loaded: Loaded, progress: Progress | None) -> Executor | None:
        make = partial(self._made_for, loaded, progress)
        made = opened({name: values[name] for name in self._names}, self._bound, make)
        if made is None:
            self._names = []
            return None
        self._made = [*self._made, made][-MAX_PROGRAMS:]
        return self._serving(values)

    def _made_for(self, loaded: Loaded, progress: Progress | None, sizes: OpenSizes, bound: dict[str, int]) -> _Made:
        """A program with some names bound to their numbers."""
        for name in self._decided(bound):
            int(sizes.value(name))  # which says that it is needed
        program = partial(self._made_by, assemble, sizes, bound, progress)
        return _Made(tuple(bound.items()), loaded(program), sizes.names)

    def _decided(self, bound: Mapping[str, int]) -> set[str]:
        """Open names that inference takes for numbers, as it follows from the other operands or from what is bound."""
        graph = self._typed(bound)
        variables = [graph.indexed.nodes[number] for number in graph.indexed.variables]
        known = {node.name: graph.fact(NodeEntry(node)).shape for node in variables}
        shapes = [known.get(name, shape) for name, shape in self._shapes.items()]
        return set(self._names) - bound.keys() - {dim for shape in shapes for dim in shape or ()}

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

    def _made_by(
        self, make: Callable[..., T], sizes: OpenSizes, bound: Mapping[str, int], progress: Progress | None
    ) -> T:
        """What is made of the groups of the graph in which some names are bound, and others are open sizes."""
        source, graph = self._source, self._typed(bound)
        reached("types", infer, graph)
        reached("parameters", infer, source.params, detail=True)
        shapes = self._bound_shapes(bound)
        inputs = [sizes.spec(name, Fact(shape, self._dtypes[name])) for name, shape in shapes.items()]
        prepared = prepare_typed(
            graph, source.params, source.opt_level, source.target, source.passes, self._shared, bound=False
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
