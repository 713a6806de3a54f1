"""A graph whose dimensions have names, as one of numbers that remember how they were computed from the sizes of a call:
code that is made from it serves other sizes, too."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ...base.errors import Error
from ...base.extents import computed
from ...base.plan import At
from ...base.shape import Dim
from ...base.sizes import SIZE
from ...core.graph import Graph
from ...core.ir import Fact, Node
from ...core.symbolic import bound_params, moved
from ...runtime.program import TensorSpec
from ...te.extents import Extent, NumberNeeded, Trace, greater, lesser

T = TypeVar("T")

_OPERATIONS = {"//": operator.floordiv, "min": lesser, "max": greater}


class OpenSizes:
    """What names stand for: arguments of kernels, which have certain values in this call. `stays_open`: what Trace
    says."""

    def __init__(self, values: Mapping[str, int], stays_open: bool = True) -> None:
        self.trace = Trace(stays_open)
        self.names = tuple(values)
        self._sizes = {name: self.trace.general(self.trace.extent(name, value)) for name, value in values.items()}
        self._known: dict[str, Any] = {}

    @property
    def arguments(self) -> tuple[At, ...]:
        """What kernels take."""
        return tuple(At(self.trace.row(SIZE, number), name) for number, name in enumerate(self.names))

    def places(self, specs: Iterable[TensorSpec]) -> tuple[tuple[int, int], ...]:
        """Which axis of which input each argument is."""
        found: dict[int, tuple[int, int]] = {}
        for number, spec in enumerate(specs):
            for axis, extent in enumerate(spec.shape):
                if isinstance(extent, Extent):
                    found.setdefault(extent.row, (number, axis))
        return tuple(found[place.row] for place in self.arguments)

    def dim_of(self, size: Any) -> int | str:
        """The dimension that a size stands for: a number, a name or an expression of some."""
        if not isinstance(size, Extent):
            return int(size)
        return next(dim for dim, known in self._known.items() if known.row == size.row)

    def value(self, dim: Dim) -> Any:
        """A dimension, or a number in an attribute."""
        if not isinstance(dim, str):
            return dim
        if dim not in self._known:
            self._known[dim] = computed(dim, self._sizes, _OPERATIONS)
        return self._known[dim]

    def fact(self, fact: Fact) -> Fact:
        assert fact.shape is not None
        shape: Any = tuple(self.trace.general(self.value(dim)) for dim in fact.shape)
        return fact._replace(shape=shape)

    def spec(self, name: str, fact: Fact) -> TensorSpec:
        """What an input is."""
        known = self.fact(fact)
        assert known.dtype is not None
        return TensorSpec(name, known.shape, known.dtype)  # type: ignore[arg-type]

    def with_facts(self, graph: Graph) -> Graph:
        """The graph in which facts are about these sizes."""
        made = graph.replace(facts={node: tuple(map(self.fact, facts)) for node, facts in graph.facts.items()})
        made._indexed = graph._indexed
        return made

    def with_params(self, graph: Graph) -> Graph:
        """The graph in which attributes hold these sizes. Their texts stay as they are."""
        made: dict[Node, Node] = {}
        for node in graph.indexed.nodes:
            inputs = [moved(entry, made) for entry in node.inputs]
            params = node.params if node.op is None else bound_params(node.params, self.value)
            if params is not node.params or inputs != node.inputs:
                deps = [made.get(dep, dep) for dep in node.control_deps]
                made[node] = Node(node.op, node.name, node.attrs, inputs, deps, node.subgraphs, params)
        if not made:
            return graph
        return graph.replace(
            outputs=[moved(entry, made) for entry in graph.outputs],
            facts={made.get(node, node): facts for node, facts in graph.facts.items()},
            sources={made.get(node, node): sources for node, sources in graph.sources.items()},
        )


def opened(values: Mapping[str, int], bound: set[str], make: Callable[[OpenSizes, dict[str, int]], T]) -> T | None:
    """What is made with as many names open as can be, the others bound to their numbers. Names whose numbers are needed
    are added to those that are `bound`. None where that is all of them, or where something is wrong, which code for
    these numbers alone will tell, if it is not about open sizes."""
    while len(bound) < len(values):
        numbers = {name: number for name, number in values.items() if name in bound}
        sizes = OpenSizes({name: number for name, number in values.items() if name not in bound})
        try:
            return make(sizes, numbers)
        except NumberNeeded as needed:
            bound.update(sizes.names[number] for number in needed.arguments)
        except Error:
            break
    return None
