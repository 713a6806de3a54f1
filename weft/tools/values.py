"""Values of a model while somebody walks through it: those of the compiled program, read from its memory after each
group of operators, and those of references that compute along with it. What nobody will ask for again is freed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import is_float
from ..base.errors import Error, RunError, Unsupported
from ..base.extents import evaluate
from ..base.plan import At, BufferRef
from ..base.stages import Stage, watched
from ..compiler.assemble import Assembled, GroupSteps
from ..compiler.model import CompiledModel
from ..compiler.prepare import Folded
from ..core.fused import FusedGroup
from ..core.graph import Graph
from ..core.interpret import run_reference
from ..core.ir import Fact, Node, NodeEntry
from ..core.passes import get_pass
from ..core.schema import Params
from ..core.symbol import Symbol
from ..core.symbolic import bound_params, bound_symbol
from ..runtime.cpu.stepping import Stepper
from ..runtime.executor import Executor
from ..runtime.program import Array, KernelInfo, Program
from ..te.extents import Extent

Progress = Callable[[int, int], None]
MOST_AXES = 5  # of values whose axes are tried in other orders


# Open sizes


class CallSizes(NamedTuple):
    """What each name is, and each row of the program's table of sizes; nothing of either where nothing is open."""

    names: Mapping[str, int]
    rows: Sequence[int]

    def number(self, size: Any) -> int:
        """A dimension, an offset or a stride."""
        if isinstance(size, (At, Extent)):
            return self.rows[size.row]
        return evaluate(size, self.names) if isinstance(size, str) else int(size)

    def shape(self, fact: Fact) -> tuple[int, ...]:
        assert fact.shape is not None
        return tuple(self.number(dim) for dim in fact.shape if dim is not None)

    def place(self, ref: BufferRef) -> BufferRef:
        return BufferRef(ref.slot, self.number(ref.offset))

    def params(self, node: Node) -> Params:
        """The attributes of a node, as its operator's reference takes them."""
        if node.op is None or not self.names:
            return node.params
        return bound_params(node.op.parse(node.attrs), self.number)

    def subgraphs(self, node: Node) -> Sequence[Symbol]:
        return [bound_symbol(subgraph, self.names) for subgraph in node.subgraphs] if self.names else node.subgraphs


CLOSED = CallSizes({}, ())


def sizes_of_call(program: Program, arrays: Mapping[str, Array]) -> CallSizes:
    """What the sizes that a program leaves open are for these inputs."""
    if program.plan.sizes is None:
        return CLOSED
    shapes = [arrays[spec.name].shape for spec in program.inputs]
    rows = program.plan.sizes.numbers(program.sizes_of(shapes))
    assert rows is not None  # as it is about to run on them
    pairs = [pair for spec, shape in zip(program.inputs, shapes) for pair in zip(spec.shape, shape)]
    return CallSizes({dim.name: size for dim, size in pairs if isinstance(dim, At) and dim.name}, rows)


# How a model was compiled


class PassRun(NamedTuple):
    """A pass as it ran: the graphs before and after it, and the constants that were known then."""

    name: str
    before: Graph
    after: Graph
    constants: Mapping[str, Array]

    def __repr__(self) -> str:
        return f"PassRun({self.name})"


@dataclass(repr=False)
class Compilation:
    """A model as it was compiled: its graph before the passes, each pass, and the program with its places. Those may
    leave sizes open; the program that runs has the `sizes` of a call."""

    graph: Graph
    params: Mapping[str, Array]
    passes: list[PassRun] = field(default_factory=list)
    assembled: Assembled | None = None
    program: Program | None = None
    sizes: CallSizes = CLOSED

    def called(self, program: Program, arrays: Mapping[str, Array]) -> Compilation:
        """The same for a call on these arrays, which the program that is given serves."""
        assert self.program is not None
        return replace(self, program=program, sizes=sizes_of_call(self.program, arrays))

    def sources(self, node: Node) -> tuple[Node, ...]:
        """The nodes of the model that a node of the compiled graph came from."""
        assert self.assembled is not None
        return self.assembled.graph.sources.get(node, (node,))


Visit = Callable[[Compilation, Mapping[str, Array]], None]


def visit_programs(model: CompiledModel, feed: Mapping[str, Any], visit: Visit, progress: Progress | None) -> list[Any]:
    """Compiles a model and runs it. Before each of its programs runs for the first time, `visit` is given how it was
    compiled and the arrays that it is about to run on. Most models are one program; where values that a model computes
    or reads decide what comes next, parts of it, branches and bodies of loops have their own. Gives the outputs."""
    watch = _Watch()

    def look(executor: Executor, arrays: Mapping[str, Array]) -> None:
        found = watch.made.pop(id(executor.program.facts), None)
        if found is None:
            return  # it ran before
        if executor.program.written:
            raise Unsupported("this model cannot be walked through", why="it draws random numbers")
        watch.listens = False  # what is compiled meanwhile is another's
        visit(found.called(executor.program, arrays), arrays)
        watch.listens = True

    with watched(watch.look_at, details=True), model.watching(look):
        model.prepare_known(progress, feed)
        return model.run(feed)


class _Watch:
    """Hears how programs are compiled, one after the other."""

    def __init__(self) -> None:
        self.made: dict[int, Compilation] = {}  # by the identity of the facts that a program shares at all sizes
        self.listens = True
        self._now: Compilation | None = None
        self._assembled: list[tuple[Assembled, int]] = []  # with how many passes there were
        self._constants: dict[str, Array] = {}

    def look_at(self, stage: Stage) -> None:
        if not self.listens:
            return
        if stage.title == "types":
            self._now, self._constants, self._assembled = Compilation(stage.value, {}), {}, []
        elif self._now is not None:
            self._hear(self._now, stage)

    def _hear(self, now: Compilation, stage: Stage) -> None:
        if stage.title == "program":
            self._complete(now, stage.value)
        elif stage.title == "parameters":
            now.params, self._constants = stage.value, dict(stage.value)
        elif stage.title == "constants" and isinstance(stage.value, Folded):
            before = now.passes[-1].after if now.passes else now.graph
            known = {**self._constants, **stage.value.constants}
            now.passes.append(PassRun("PrecomputePrune", before, stage.value.graph, known))
            self._constants.update(stage.value.constants)
        elif stage.title == "pass" and get_pass(stage.value.name).changes_graph:
            name, before, after = stage.value
            now.passes.append(PassRun(name, before, after, dict(self._constants)))
        elif stage.title == "assembled":
            self._assembled.append((stage.value, len(now.passes)))

    def _complete(self, now: Compilation, program: Program) -> None:
        """What was assembled before computed constants, and what came after it are subgraphs."""
        shared = id(program.facts)
        now.assembled, passes = next(pair for pair in self._assembled if id(pair[0].program.facts) == shared)
        now.program, now.passes[passes:] = program, []
        self.made[shared], self._now, self._assembled = now, None, []


# The compiled program


class Walked(NamedTuple):
    """A group that has just run: the kernels it ran by, and what reads values that are in memory now."""

    number: int
    group: FusedGroup
    kernels: tuple[KernelInfo, ...]
    read: Callable[[NodeEntry], Array]


def walked(found: Compilation, inputs: Mapping[str, Array], threads: int | None = None) -> Iterator[Walked]:
    """Runs the program group by group, by its own kernels. Values are views of its memory: they hold until the next."""
    program, assembled, sizes = found.program, found.assembled, found.sizes
    assert program is not None and assembled is not None  # noqa: PT018
    arrays = [np.ascontiguousarray(inputs[spec.name], spec.dtype) for spec in program.inputs]
    stepper = Stepper(program, arrays, threads)
    infos = _kernels_of(program)

    def read(entry: NodeEntry) -> Array:
        place = entry._replace(version=0)
        fact, strides = assembled.graph.fact(entry), assembled.strides.get(place)
        steps = None if strides is None else [*map(sizes.number, strides)]
        return stepper.value(sizes.place(assembled.places[place]), sizes.shape(fact), fact.dtype, steps)

    done = 0
    for number, (group, steps) in enumerate(assembled.groups):
        for step in steps:
            stepper.run(step)
            done = step + 1
        yield Walked(number, group, _infos(infos, steps), read)
    for step in range(done, len(program.plan.steps)):  # copies of what is given out twice
        stepper.run(step)


def _kernels_of(program: Program) -> list[KernelInfo | None]:
    """What is known of the kernel of each step; None of steps in Python."""
    kernels = iter(program.kernels)
    return [next(kernels) if hasattr(step, "kernel") else None for step in program.plan.steps]


def _infos(infos: Sequence[KernelInfo | None], steps: range) -> tuple[KernelInfo, ...]:
    return tuple(info for step in steps if (info := infos[step]) is not None)


def group_steps(found: Compilation) -> tuple[GroupSteps, ...]:
    """The groups of the program, in order."""
    assert found.assembled is not None
    return found.assembled.groups


# References


class Reference:
    """A graph that is run by its operators' references, as far as values are asked for; in double precision if
    `double`. `wanted` counts who will ask for an entry; each of them says `release` when it is done."""

    def __init__(
        self,
        graph: Graph,
        values: Mapping[str, Array],
        wanted: Mapping[NodeEntry, int],
        sizes: CallSizes = CLOSED,
        double: bool = True,
    ) -> None:
        self._values, self._sizes = values, sizes
        self._double = double
        self._order = iter(graph.indexed.nodes)
        self._known: dict[NodeEntry, Array] = {}
        self._uses = Counter(entry for node in graph.indexed.nodes for entry in node.inputs)
        self._uses.update(wanted)
        self._bytes = self.largest = 0  # that are kept now, and that were kept at once

    def value(self, entry: NodeEntry) -> Array:
        """The value of an entry."""
        if entry.node.op is None:
            return self._variable(entry.node)
        while entry not in self._known:
            self._step(next(self._order))
        return self._known[entry]

    def release(self, entry: NodeEntry) -> None:
        """Says that one of those who wanted an entry is done with it."""
        self._uses[entry] -= 1
        if self._uses[entry] <= 0 and entry in self._known:
            self._bytes -= self._known.pop(entry).nbytes

    def _variable(self, node: Node) -> Array:
        if node.name not in self._values:
            raise RunError(f"no value for {node.name!r}", why="it is no input and no parameter")
        return self._wide(np.asarray(self._values[node.name]))

    def _wide(self, array: Array) -> Array:
        return array.astype(np.float64) if self._double and is_float(array.dtype) else array

    def _step(self, node: Node) -> None:
        if node.op is None:
            return
        results = reference_of(node, [self.value(entry) for entry in node.inputs], self._sizes)
        for index in range(node.num_outputs):
            entry = NodeEntry(node, index)
            if self._uses[entry] > 0:
                self._known[entry] = self._wide(results[index])
                self._bytes += self._known[entry].nbytes
        self.largest = max(self.largest, self._bytes)
        for entry in node.inputs:
            self.release(entry)


def reference_of(node: Node, args: Sequence[Array], sizes: CallSizes) -> list[Array]:
    """The outputs of a node by its operator's reference."""
    assert node.op is not None
    try:
        with np.errstate(all="ignore"):
            return run_reference(node.op, sizes.params(node), args, sizes.subgraphs(node))
    except Error as error:
        error.at(f"node {node.name!r}")
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        what = f"the reference of operator {node.op_name} failed"
        raise RunError(what, where=f"node {node.name!r}", why=why) from error


def group_reference(group: FusedGroup, read: Callable[[NodeEntry], Array], sizes: CallSizes) -> dict[NodeEntry, Array]:
    """What a group should have given for the values that it read, in double precision."""
    known: dict[NodeEntry, Array] = {}

    def value(entry: NodeEntry) -> Array:
        if entry in known:
            return known[entry]
        array = np.array(read(entry))
        return array.astype(np.float64) if is_float(array.dtype) else array

    for node in group.nodes:
        results = reference_of(node, [value(entry) for entry in node.inputs], sizes)
        known.update({NodeEntry(node, index): result for index, result in enumerate(results[: node.num_outputs])})
    return {entry: known[entry] for entry in group.outputs if entry in known}


class KeptValues:
    """Values by name in files of a folder, so that those of a whole model need no memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Path] = {}

    def keep(self, name: str, value: Array) -> None:
        path = self._folder / f"{len(self._files)}.npy"
        np.save(path, value)
        self._files[name] = path

    def value(self, name: str) -> Array | None:
        path = self._files.get(name)
        return None if path is None else np.load(path, allow_pickle=False)


# Layouts


def plain_forms(value: Array, shape: Sequence[Any]) -> list[Array]:
    """A value as it may have been before passes stored an axis in blocks, or axes in another order: the forms that have
    the given shape. Which one is meant, if any, only values tell.

    >>> [form.shape for form in plain_forms(np.zeros((1, 2, 3, 3, 4)), (1, 8, 3, 3))]
    [(1, 8, 3, 3)]
    """
    wanted = tuple(shape)
    if value.shape == wanted:
        return [value]
    if value.ndim == len(wanted) and value.ndim <= MOST_AXES:
        orders = permutations(range(value.ndim))
        return [value.transpose(order) for order in orders if tuple(value.shape[axis] for axis in order) == wanted]
    if value.ndim == len(wanted) + 1:
        joined = [np.moveaxis(value, -1, axis + 1) for axis in range(len(wanted))]  # the block beside its axis
        return [form.reshape(wanted) for axis, form in enumerate(joined) if _merged(form.shape, axis) == wanted]
    return []


def _merged(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """A shape with an axis and the one behind it as one."""
    return (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
