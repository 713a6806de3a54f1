"""Programs of recorded graphs, one for many sizes where that can be: the first size has a program of its own; with the
second, sizes that differ get names, and one program in these names serves the sizes that come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import Error
from ...base.kept import Kept
from ...base.shape import show_dims
from ...base.target import Target
from ...compiler.constants import SharedConstants
from ...compiler.control_flow import compile_parts
from ...compiler.model_source import ModelSource
from ...compiler.open.part import OpenPrograms
from ...compiler.prepare import typed_graph
from ...core.graph import Graph
from ...core.ir import NodeEntry
from ...runtime.executor import Executor
from ...runtime.loading import load_or_keep
from ...runtime.program import Program
from .naming import NamedGraph, Naming, Recorded, Unnamed, difference
from .program import OPT_LEVEL, executor_of

Array = np.ndarray[Any, Any]
KEPT_FORMS = 64  # graphs that differ by more than sizes
KEPT_ALONE = 8  # sizes of a graph whose own programs are kept, so that they stay theirs
MOST_SAMPLES = 5  # recordings that names are found from, one more each time that a new one does not fit
MOST_FAILURES = 3  # to find names, before a graph has a program for each size


class Made(NamedTuple):
    """A program, the inputs that it takes in order, and constants behind them that are other ones at each size."""

    executor: Executor
    inputs: Sequence[str]
    constants: Sequence[Array]


class OpenGraph:
    """A graph in names with its programs."""

    def __init__(self, named: NamedGraph, count: Callable[[], None]) -> None:
        self.named, self._count = named, count
        constants, shapes, dtypes = named.constants, named.shapes, named.dtypes
        graph = typed_graph(Graph(named.outputs), constants, shapes, dtypes)
        _check_open(graph, named)
        source = ModelSource(graph.symbol, constants, shapes, dtypes, Target.create("cpu"), None, OPT_LEVEL)
        self.programs = OpenPrograms(graph, source, SharedConstants(constants), list(shapes))

    def made(self, recorded: Recorded) -> Made | None:
        """The program for the sizes of a recording; None where it is not this graph, or has no open program."""
        shapes = self.named.at(recorded)
        executor = None if shapes is None else self.programs.executor(shapes, self._loaded)
        if executor is None:
            return None
        names = [recorded.nodes[place].name for place in self.named.inputs]
        inputs = [name for name in names if name in recorded.inputs]
        return Made(executor, inputs, [recorded.constants[name] for name in names[len(inputs) :]])

    def _loaded(self, make: Callable[[], Program]) -> Executor:
        program = make()
        self._count()
        compile_parts(program)
        return load_or_keep(program, None)

    def __str__(self) -> str:
        bound = self.programs.bound_names
        names = [name for name in self.named.names if name not in bound]
        shapes = [shape for shape in self.named.shapes.values() if any(isinstance(dim, str) for dim in shape)]
        said = f"open in {', '.join(names)}" if names else "no size is open"
        said += f", one for each {', '.join(sorted(bound))}" if bound else ""
        return f"{said}: {', '.join(dict.fromkeys(f'[{show_dims(shape)}]' for shape in shapes))}"


def _check_open(graph: Graph, named: NamedGraph) -> None:
    """Raises where operators take a size that is to be open for a number."""
    variables = {node.name: node for node in (graph.indexed.nodes[number] for number in graph.indexed.variables)}
    for name, shape in named.shapes.items():
        said = graph.fact(NodeEntry(variables[name])).shape
        if said != shape:
            raise Unnamed(f"sizes [{show_dims(shape)}] are taken for [{show_dims(said)}]")


class _Form:
    """Recordings that differ in sizes, extents and constants alone."""

    def __init__(self, count: Callable[[], None]) -> None:
        self.samples: list[Recorded] = []
        self.alone: Kept[tuple[Recorded, Executor]] = Kept(KEPT_ALONE)
        self.open: list[OpenGraph] = []
        self.sizes = self.failures = 0
        self.why: str | None = None
        self._count = count

    def known(self, recorded: Recorded) -> Made | None:
        """A program that is there already: the one that these sizes have had, or one in names."""
        for sample, executor in self.alone.values():
            if sample.is_same(recorded):
                return Made(executor, _in_order(sample, recorded), ())
        for graph in self.open:
            made = graph.made(recorded)
            if made is not None:
                return made
        return None

    def named(self, recorded: Recorded, opened: Collection[int] = ()) -> Made | None:
        """A program in names that follow from the recordings so far and this one."""
        if not recorded.is_closed:
            self.why = "it has control flow"
            return None
        if self.failures >= MOST_FAILURES or len(self.samples) >= MOST_SAMPLES or _is_empty(recorded):
            return None
        if not opened and all(sample.has_sizes_of(recorded) for sample in self.samples):
            return None
        samples = [*self.samples, recorded]
        try:
            graph = OpenGraph(Naming(samples, opened).graph(), self._count)
        except (Unnamed, Error) as why:
            self._failed(str(why))
            return None
        made = graph.made(recorded)
        if made is None:
            self._failed("its code needs the numbers")
            return None
        self.samples, self.why = samples, None
        self.open.append(graph)
        return made

    def _failed(self, why: str) -> None:
        self.failures, self.why = self.failures + 1, why

    def keep(self, recorded: Recorded, executor: Executor) -> None:
        """Has sizes stay with the program that was made for them alone."""
        self.sizes += 1
        self.alone.find(self.sizes, lambda: (recorded, executor))
        if not self.open and not _is_empty(recorded):
            self.samples = [recorded]

    def notes(self) -> list[str]:
        notes = [str(graph) for graph in self.open]
        return notes if self.why is None else [*notes, f"a program for each size: {self.why}"]


class Programs:
    """All programs of a function. `dynamic` and `precision` are as in `weft.compile`."""

    def __init__(self, dynamic: bool | None = None, precision: str = "fp32") -> None:
        self.dynamic, self.precision = dynamic, precision
        self.count = 0  # of programs that were made
        self._forms: Kept[_Form] = Kept(KEPT_FORMS)

    def made(self, recorded: Recorded, index: int | None = None) -> Made:
        """Code for a graph as it was recorded, for the processor or for the GPU of a number, where each size has a
        program of its own."""
        if self.dynamic is False:
            return self._alone(recorded, index)
        form = self._forms.find((recorded.form, index), lambda: self._new(recorded))
        found = form.known(recorded)
        if index is not None:
            if found is None:
                found = self._alone(recorded, index)
                form.keep(recorded, found.executor)
                form.why = "it is for a GPU" if form.sizes > 1 else None
            return found
        if found is None and form.samples:
            found = form.named(recorded)
        elif found is None and self.dynamic:
            found = self._opened(form, recorded)
        if found is None:
            found = self._alone(recorded, None)
            form.keep(recorded, found.executor)
        return found

    def notes(self) -> list[str]:
        """Which programs serve many sizes, and why others do not."""
        return [note for form in self._forms.values() for note in form.notes()]

    def _new(self, recorded: Recorded) -> _Form:
        """A form, which knows what another that does the same operators at other sizes has otherwise."""
        made = _Form(self._counted)
        others = [sample for form in self._forms.values() for sample in form.samples[:1]]
        found = [difference(other, recorded) for other in others if not other.has_sizes_of(recorded)]
        made.why = next((why for why in found if why is not None), None)
        return made

    def _opened(self, form: _Form, recorded: Recorded) -> Made | None:
        """A program that is open in all sizes that may be, as far as one recording tells."""
        shapes = [shape for name, (shape, _) in recorded.inputs.items() if name not in recorded.fixed]
        opened: list[int] = []
        for extent in dict.fromkeys(extent for shape in shapes for extent in shape if extent > 1):
            try:
                OpenGraph(Naming([recorded], [*opened, extent]).graph(), self._counted)
            except (Unnamed, Error):
                continue
            opened.append(extent)
        return form.named(recorded, opened) if opened else None

    def _alone(self, recorded: Recorded, index: int | None) -> Made:
        self._counted()
        executor = executor_of(recorded.outputs, recorded.inputs, recorded.constants, index, self.precision)
        return Made(executor, list(recorded.inputs), ())

    def _counted(self) -> None:
        self.count += 1


def _in_order(sample: Recorded, recorded: Recorded) -> list[str]:
    """The inputs of a recording in the order of those of another."""
    places = {node.name: place for place, node in enumerate(sample.nodes) if node.op is None}
    return [recorded.nodes[places[name]].name for name in sample.inputs]


def _is_empty(recorded: Recorded) -> bool:
    return any(0 in shape for shape, _ in recorded.inputs.values())
