"""Control flow as host steps: loops and branches run here, on compiled subgraphs. What a subgraph
computes from inputs that stay the same (packed weights) is computed once for all its turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ..base.addresses import address_of
from ..base.dtype import as_dtype
from ..base.errors import Error
from ..base.plan import HostStep
from ..base.target import Target
from ..core.graph import Graph
from ..core.json_load import graph_from_json
from ..core.op import Op
from ..ops.control_flow import holds, input_name
from ..passes.fold_constants import constant_part
from ..runtime.executor import Executor
from ..runtime.functions import register_func
from ..runtime.loading import load_executor
from ..runtime.program import Array, Program
from .assemble import assemble, fused_groups
from .host import HOST_CONTROL
from .prepare import prepare_typed, typed_graph

OPT_LEVEL = 3
MAX_PARTS = 256  # compiled subgraphs that are kept

Specs = tuple[tuple[tuple[int, ...], str], ...]  # shapes and dtypes of all inputs


class CompiledSubgraph:
    """A subgraph compiled for inputs of known shapes, of which those from `fixed` on stay the same
    from turn to turn."""

    def __init__(self, text: str, specs: Specs, fixed: int, target: str) -> None:
        graph = graph_from_json(text)
        names = {graph.indexed.nodes[number].name for number in graph.indexed.variables}
        given = {input_name(i): spec for i, spec in enumerate(specs) if input_name(i) in names}
        shapes = {name: shape for name, (shape, _) in given.items()}
        dtypes = {name: as_dtype(dtype) for name, (_, dtype) in given.items()}
        chosen = Target.create(target)
        made = prepare_typed(typed_graph(graph, {}, shapes, dtypes), {}, OPT_LEVEL, chosen)
        main, once = constant_part(made.graph, [input_name(i) for i in range(fixed, len(specs))])
        self._main = _executor(main, made.constants, chosen)
        self._once = None if once is None else _executor(once, made.constants, chosen)
        self._once_names = [] if once is None else list(once.attr("output_names"))
        self.outputs = self._main.program.outputs

    def started(self, inputs: Sequence[Array]) -> Callable[[Sequence[int], Sequence[int]], None]:
        """run(inputs, outputs) for one turn, by addresses; inputs that stay the same may be left out. The arrays given
        here live as long as the function."""
        known = {input_name(i): array for i, array in enumerate(inputs)}
        if self._once is not None:
            specs = self._once.program.inputs
            made = self._once.run_arrays({spec.name: known[spec.name] for spec in specs})
            known.update(zip(self._once_names, made))
        names = [spec.name for spec in self._main.program.inputs]
        places = {input_name(i): i for i in range(len(inputs))}
        read = [(places.get(name, len(inputs)), address_of(known[name])) for name in names]

        return partial(self._turn, read, known)

    def _turn(
        self, read: Sequence[tuple[int, int]], kept: Mapping[str, Array], now: Sequence[int], outputs: Sequence[int]
    ) -> None:
        """`read` are the inputs: the place among those of a turn, or, behind them, the address. Arrays that are kept
        have some of these."""
        count = len(now)
        self._main.run_at([now[place] if place < count else fixed for place, fixed in read], outputs)

    def buffers(self, first: int = 0) -> list[Array]:
        """Memory for the outputs from a position on."""
        return [np.empty(spec.shape, spec.dtype) for spec in self.outputs[first:]]


def _executor(graph: Graph, constants: Mapping[str, Array], target: Target) -> Executor:
    names = {graph.indexed.nodes[number].name for number in graph.indexed.variables}
    own = {name: value for name, value in constants.items() if name in names}
    return load_executor(assemble(graph, fused_groups(graph, target), own, target))


_subgraph = lru_cache(maxsize=MAX_PARTS)(CompiledSubgraph)


def _parts(attrs: Mapping[str, Any]) -> list[CompiledSubgraph]:
    """The subgraphs of a host step, compiled when they are first seen."""
    params = Op.get(attrs["op"]).parse(attrs["attrs"])
    tensors = [attrs["tensors"][index] for index in attrs["inputs"]]
    specs = [(tuple(shape), dtype) for shape, dtype in tensors]
    data = getattr(params, "num_data", 0)
    items = [(shape[1:], dtype) for shape, dtype in specs[:data]]
    fixed = data + getattr(params, "num_states", 0)
    inner = (*items, *specs[data:])
    return [_subgraph(text, inner, fixed, attrs["target"]) for text in attrs["subgraphs"]]


def compile_parts(program: Program) -> None:
    """Compiles the subgraphs of a program's host steps now."""
    for step in program.plan.steps:
        if isinstance(step, HostStep) and step.function == HOST_CONTROL:
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
    data = params.num_data
    steps = len(inputs[0])
    turns = _Turns(parts[0], outs, params.num_outputs, inputs[data : data + params.num_states])
    run = parts[0].started([*(array[0, ...] for array in inputs[:data]), *inputs[data:]]) if steps else None
    items = [_Items(array) for array in inputs[:data]]
    for count in range(steps):
        step = steps - 1 - count if params.reverse else count
        now = [*(item[step] for item in items), *turns.states]
        assert run is not None
        run(now, turns.targets(step, count))
    turns.finish()


def _while_loop(params: Any, parts: list[CompiledSubgraph], inputs: list[Array], outs: Outputs) -> None:
    test, body = parts
    turns = _Turns(body, outs, params.num_outputs, inputs[: params.num_states])
    ask, run = test.started(inputs), body.started(inputs)
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
    chosen.started(inputs)([*map(address_of, inputs)], [*map(address_of, targets)])


_RUNNERS = {"scan": _scan, "while_loop": _while_loop, "cond": _cond}
