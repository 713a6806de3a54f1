"""Control flow as host steps: loops and branches run here, on compiled subgraphs. What a subgraph
computes from inputs that stay the same (packed weights) is computed once for all its turns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import as_dtype
from ..base.errors import Error
from ..base.extents import names_of, substitute
from ..base.forks import renewed_lock
from ..base.plan import HostStep
from ..base.target import Target
from ..core.graph import Graph
from ..core.ir import NodeEntry
from ..core.json_load import graph_from_json
from ..core.op import Op
from ..core.symbolic import bound_symbol, names_in
from ..ops.control_flow import holds, input_name
from ..passes.fold_constants import constant_part
from ..runtime.addresses import address_of
from ..runtime.executor import Executor, Move
from ..runtime.functions import register_func
from ..runtime.loading import load_executor
from ..runtime.program import Array, Program, TensorSpec
from .assemble import assemble, fused_groups
from .host import HOST_CONTROL
from .open.binding import OpenSizes, opened
from .open.shapes import ShapeChecks
from .prepare import prepare_typed, typed_graph

OPT_LEVEL = 3
MAX_PARTS = 256  # subgraphs whose code is kept
MAX_PROGRAMS = 16  # of one subgraph, which differ by what they ask about sizes
MAX_SIZES = 64  # of one subgraph that are ready to run
AT_ONCE = 256  # turns of one native call

Specs = tuple[tuple[tuple[int | str, ...], str], ...]  # shapes, in which dimensions may have names, and dtypes
Shapes = tuple[tuple[int, ...], ...]


class CompiledSubgraph(NamedTuple):
    """A subgraph ready to run on inputs of known shapes. What it computes from those that stay the same from turn to
    turn is computed `once`, and becomes inputs of the `main` program by name."""

    main: Executor
    once: Executor | None
    once_names: list[str]

    def started(self, inputs: Sequence[Array], moving: int) -> Callable[[Sequence[int], Sequence[int]], None]:
        """run(inputs, outputs) for one turn, by addresses, of the first inputs, so many of which move; the others stay
        the same. The arrays given here live as long as the function."""
        known, fixed, places = self._placed(inputs, moving)
        return partial(_turn, self.main.repeated(fixed), places, known)

    def _placed(self, inputs: Sequence[Array], moving: int) -> tuple[dict[str, Array], dict[int, int], list[int]]:
        """Arrays that stay by their names, the addresses of inputs that do, and which of those that move the program
        reads, in its order."""
        known = {input_name(i): array for i, array in enumerate(inputs)}
        if self.once is not None:
            specs = self.once.program.inputs
            made = self.once.run_arrays({spec.name: known[spec.name] for spec in specs})
            known.update(zip(self.once_names, made))
        names = [spec.name for spec in self.main.program.inputs]
        moves = {input_name(i): i for i in range(moving)}
        fixed = {number: address_of(known[name]) for number, name in enumerate(names) if name not in moves}
        return known, fixed, [moves[name] for name in names if name in moves]

    def turning(self, inputs: Sequence[Array], moves: Sequence[Move], made: Sequence[Move]) -> Callable[[int], None]:
        """run(turns) where addresses of the first inputs and of what is made follow from turn to turn."""
        known, fixed, places = self._placed(inputs, len(moves))
        run = self.main.turning(fixed, [*(moves[place] for place in places), *made])
        return partial(_turns, run, known)

    def buffers(self, first: int = 0) -> list[Array]:
        """Memory for the outputs from a position on."""
        return [np.empty(spec.extents, spec.dtype) for spec in self.main.program.outputs[first:]]


def _turn(
    run: Callable[[Sequence[int]], None],
    read: Sequence[int],
    kept: Mapping[str, Array],
    now: Sequence[int],
    outputs: Sequence[int],
) -> None:
    """`read` are the places of inputs among those that move. Arrays that are kept are read as well."""
    run([*(now[place] for place in read), *outputs])


def _turns(run: Callable[[int, Mapping[int, int]], int], kept: Mapping[str, Array], count: int) -> None:
    """Some at a time, so that an interrupt is seen now and then."""
    for first in range(0, count, AT_ONCE):
        run(min(count - first, AT_ONCE), {})


class _Made(NamedTuple):
    """Code for these numbers of the names that are bound, open in the other `names`."""

    bound: Mapping[str, int]
    code: CompiledSubgraph
    names: tuple[str, ...]

    def serving(self, values: Mapping[str, int]) -> CompiledSubgraph | None:
        if any(values[name] != number for name, number in self.bound.items()):
            return None
        if not self.names:
            return self.code
        sizes = [values[name] for name in self.names]
        main, once = self.code.main.bound(sizes), self.code.once and self.code.once.bound(sizes)
        if main is None or (once is None) != (self.code.once is None):
            return None
        return self.code._replace(main=main, once=once)


class Subgraph:
    """A subgraph with inputs of some shapes and dtypes, of which those from `fixed` on stay the same from turn to turn.
    Where dimensions have names, code is made when sizes are met that nothing there serves."""

    def __init__(self, text: str, specs: Specs, fixed: int, target: str) -> None:
        self._graph, self._fixed, self._target = graph_from_json(text), fixed, Target.create(target)
        read = {self._graph.indexed.nodes[number].name for number in self._graph.indexed.variables}
        given = {input_name(i): spec for i, spec in enumerate(specs) if input_name(i) in read}
        self._shapes = {name: shape for name, (shape, _) in given.items()}
        self._dtypes = {name: as_dtype(dtype) for name, (_, dtype) in given.items()}
        self._every = [input_name(i) for i in range(len(specs))]
        dims = [dim for shape in self._shapes.values() for dim in shape]
        self._names = sorted(names_in(self._graph.indexed.nodes).union(*map(names_of, dims)))
        self._is_open = bool(self._names) and set(self._names) <= set(dims)
        self._bound: set[str] = set()
        self._checks: ShapeChecks | None = None
        self._made: list[_Made] = []
        self._ready: OrderedDict[Shapes, CompiledSubgraph] = OrderedDict()
        self._turn = renewed_lock()

    def compiled(self, shapes: Shapes) -> CompiledSubgraph:
        """What runs on inputs of these shapes."""
        with self._turn:
            found = self._ready.pop(shapes, None) or self._serving(shapes)
            self._ready[shapes] = found
            if len(self._ready) > MAX_SIZES:
                self._ready.popitem(last=False)
            return found

    def _serving(self, shapes: Shapes) -> CompiledSubgraph:
        numbers = {name: shape for name, shape in zip(self._every, shapes) if name in self._shapes}
        pairs = [pair for name, dims in self._shapes.items() for pair in zip(dims, numbers[name])]
        values = {dim: number for dim, number in pairs if isinstance(dim, str)}
        if not self._is_open or 0 in values.values() or not self._keeps_its_shapes(values):
            return self._code(numbers, OpenSizes({}), values)
        for made in self._made:
            found = made.serving(values)
            if found is not None:
                return found
        make = lambda sizes, bound: _Made(bound, self._code(self._shapes, sizes, bound), sizes.names)
        new = opened({name: values[name] for name in self._names}, self._bound, make)
        found = None if new is None else new.serving(values)
        if new is None or found is None:
            self._is_open = False
            return self._code(numbers, OpenSizes({}), values)
        self._made = [*self._made, new][-MAX_PROGRAMS:]
        return found

    def _keeps_its_shapes(self, values: Mapping[str, int]) -> bool:
        try:
            self._checks = self._checks or ShapeChecks(self._typed(self._shapes, {}))
        except Error:
            return False
        return self._checks.holds(values, partial(self._typed, self._shapes))

    def _typed(self, shapes: Mapping[str, tuple[int | str, ...]], bound: Mapping[str, int]) -> Graph:
        """The graph with numbers for some of the names."""
        symbol = bound_symbol(self._graph.symbol, bound) if bound else self._graph.symbol
        known = {name: tuple(substitute(dim, bound) for dim in shape) for name, shape in shapes.items()}
        return typed_graph(symbol, {}, known, self._dtypes)

    def _code(
        self, shapes: Mapping[str, tuple[int | str, ...]], sizes: OpenSizes, bound: Mapping[str, int]
    ) -> CompiledSubgraph:
        """Code in which names are open sizes, or bound to numbers."""
        graph = self._typed(shapes, bound)
        variables = [graph.indexed.nodes[number] for number in graph.indexed.variables]
        inputs = [sizes.spec(node.name, graph.fact(NodeEntry(node))) for node in variables] if sizes.names else []
        made = prepare_typed(graph, {}, OPT_LEVEL, self._target, bound=not sizes.names)
        main, once = constant_part(made.graph, self._every[self._fixed :])
        return CompiledSubgraph(
            self._executor(main, made.constants, sizes, inputs),
            None if once is None else self._executor(once, made.constants, sizes, inputs),
            [] if once is None else list(once.attr("output_names")),
        )

    def _executor(
        self, graph: Graph, constants: Mapping[str, Array], sizes: OpenSizes, inputs: Sequence[TensorSpec]
    ) -> Executor:
        names = {graph.indexed.nodes[number].name for number in graph.indexed.variables}
        own = {name: value for name, value in constants.items() if name in names}
        graph = sizes.with_params(graph)
        groups, known = fused_groups(graph, self._target), sizes.with_facts(graph)
        program = assemble(known, groups, own, self._target, None, inputs, sizes if sizes.names else None)
        return load_executor(program)


_subgraph = lru_cache(maxsize=MAX_PARTS)(Subgraph)


def _parts(attrs: Mapping[str, Any]) -> list[CompiledSubgraph]:
    """The subgraphs of a host step for its sizes, compiled when nothing that was made serves them."""
    params = Op.get(attrs["op"]).parse(attrs["attrs"])
    data = getattr(params, "num_data", 0)
    fixed = data + getattr(params, "num_states", 0)
    inputs = [attrs["tensors"][index] for index in attrs["inputs"]]
    shapes = tuple(tuple(shape)[number < data :] for number, (shape, _) in enumerate(inputs))
    dims = [tuple(shape)[number < data :] for number, shape in enumerate(attrs["dims"])]
    specs = tuple((shape, dtype) for shape, (_, dtype) in zip(dims, inputs))
    return [_subgraph(text, specs, fixed, attrs["target"]).compiled(shapes) for text in attrs["subgraphs"]]


def compile_parts(program: Program) -> None:
    """Compiles the subgraphs of a program's host steps now, unless their sizes are open: then the first run does."""
    for step in program.plan.steps:
        if isinstance(step, HostStep) and step.function == HOST_CONTROL and not program.plan.is_open:
            _parts(step.attrs)


@register_func(HOST_CONTROL)  # type: ignore[untyped-decorator]
def run_control_flow(tensors: Sequence[Array], attrs: Mapping[str, Any]) -> None:
    """Computes the last tensors from the first ones."""
    op = Op.get(attrs["op"])
    inputs = [tensors[index] for index in attrs["inputs"]]
    given = tensors[len(tensors) - len(attrs["outputs"]) :]
    try:
        parts = _parts(attrs)
        _RUNNERS[op.name](op.parse(attrs["attrs"]), parts, inputs, dict(zip(attrs["outputs"], given)))
    except Error as error:
        error.at(f"node {attrs['node']!r}, operator {op.name}")
        raise


Outputs = dict[int, Array]  # those that are read, by number


class _Items:
    """The items of an array along its first axis, which lie one behind the other, by address."""

    def __init__(self, array: Array) -> None:
        self._first, self._step = address_of(array), array.strides[0]

    def __getitem__(self, turn: int) -> int:
        return self._first + turn * self._step


class _Turns:
    """The outputs of a loop's body: items of the whole outputs, and states, which are written in
    turns to one of two places."""

    def __init__(self, part: CompiledSubgraph, outs: Outputs, results: int, states: Sequence[Array]) -> None:
        spare = part.buffers()
        self.wholes = [outs.get(k) for k in range(results)]
        self._items = [None if whole is None else _Items(whole) for whole in self.wholes]
        self._spare = spare[:results]
        self._unread = [*map(address_of, self._spare)]
        self._places = (spare[results:], part.buffers(results))
        self._at = tuple([*map(address_of, place)] for place in self._places)
        self._last = states
        self.states = [*map(address_of, states)]
        self._outs = outs
        self._results = results

    def targets(self, turn: int, count: int) -> list[int]:
        """Where the outputs of a turn go, after so many others; its states are those of the next."""
        self._last, self.states = self._places[count % 2], self._at[count % 2]
        items = [at if whole is None else whole[turn] for whole, at in zip(self._items, self._unread)]
        return [*items, *self.states]

    def finish(self) -> None:
        for k, state in enumerate(self._last):
            if self._results + k in self._outs:
                self._outs[self._results + k][...] = state


def _scan(params: Any, parts: list[CompiledSubgraph], inputs: list[Array], outs: Outputs) -> None:
    data, results, (part, *_) = params.num_data, params.num_outputs, parts
    steps, before = len(inputs[0]), inputs[data : data + params.num_states]
    spare = part.buffers()
    first, second = spare[results:], part.buffers(results)
    for place, state in zip(second, before):
        place[...] = state
    if steps:
        items = [_moved(array, steps, params.reverse) for array in inputs[:data]]
        wholes = [outs.get(k) for k in range(results)]
        made = [
            Move(address_of(one)) if whole is None else _moved(whole, steps, params.reverse)
            for whole, one in zip(wholes, spare)
        ]
        ends = [(address_of(one), address_of(other)) for one, other in zip(first, second)]
        read = [Move(other, one - other, returns=True) for one, other in ends]
        written = [Move(one, other - one, returns=True) for one, other in ends]
        given = [*(array[0, ...] for array in inputs[:data]), *inputs[data:]]
        part.turning(given, [*items, *read], [*made, *written])(steps)
    for k, state in enumerate(first if steps % 2 else second):
        if results + k in outs:
            outs[results + k][...] = state


def _moved(array: Array, steps: int, is_reversed: bool) -> Move:
    """The items of an array along its first axis, from the first or from the last on."""
    step, start = array.strides[0], address_of(array)
    return Move(start + (steps - 1) * step, -step) if is_reversed else Move(start, step)


def _while_loop(params: Any, parts: list[CompiledSubgraph], inputs: list[Array], outs: Outputs) -> None:
    test, body = parts
    turns = _Turns(body, outs, params.num_outputs, inputs[: params.num_states])
    ask, run = test.started(inputs, params.num_states), body.started(inputs, params.num_states)
    answer = test.buffers()
    told = [*map(address_of, answer)]
    done = 0
    while done < params.max_iterations:
        ask(turns.states, told)
        if not holds(answer[0]):
            break
        now = turns.states
        run(now, turns.targets(done, done))
        done += 1
    for whole in turns.wholes:
        if whole is not None:
            whole[done:] = 0
    turns.finish()


def _cond(params: Any, parts: list[CompiledSubgraph], inputs: list[Array], outs: Outputs) -> None:
    chosen = parts[0] if holds(inputs[0]) else parts[1]
    spare = chosen.buffers()
    targets = [outs.get(k, spare[k]) for k in range(params.num_outputs)]
    chosen.started(inputs, len(inputs))([*map(address_of, inputs)], [*map(address_of, targets)])


_RUNNERS = {"scan": _scan, "while_loop": _while_loop, "cond": _cond}
