"""Parts and steps on the host in their order: values go in by name, and come out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.dtype import INT64
from ...base.errors import Error
from ...core.graph import Graph
from ...core.infer import infer
from ...core.ir import Fact, Node, NodeEntry
from ...frontend.deferred import (
    DEFERRED,
    HOST_STEP,
    IF_ELSE,
    LOOP,
    MOST_TURNS,
    evaluated,
    host_outputs,
    looped,
    never_ends,
    turn_shape,
)
from ...frontend.specialise import specialised
from ...ops.control_flow import by_input_name, holds, input_name
from ...runtime.program import Array
from ..constants import SharedConstants
from ..model_source import ModelSource
from ..prepare import as_arrays
from .cut import HostCall, PartPlan, cut, is_whole
from .delivery import Delivery
from .part import Part
from .ready import Look
from .turns import quick_turns

Values = dict[str, Any]  # arrays, arrays of text, sequences, and None for what is absent


class Schedule:
    """A model in its order of execution."""

    def __init__(self, graph: Graph, source: ModelSource, inputs: Sequence[str] = (), repeats: bool = False) -> None:
        self.look: Callable[[str, float], None] | None = None  # told of steps between parts, and their seconds
        self.whole: Part | None = None  # the one part that is all there is
        plan = cut(graph, source.params, repeats)
        self.outputs = plan.outputs
        shared = SharedConstants(source.params)
        self.parts = [
            None if part.symbol is None else _part(part, graph, source, inputs, shared) for part in plan.parts
        ]
        self._steps = [
            [_Step(call, source, repeats, [*map(graph.fact, call.node.inputs)]) for call in part.host]
            for part in plan.parts
        ]
        first = self.parts[0]
        if first is not None and len(self.parts) == 1 and not self._steps[0] and first.outputs == self.outputs:
            self.whole = first
            first.outputs = source.symbol.list_output_names()

    @property
    def host_steps(self) -> list[str]:
        """What runs between parts."""
        return [step.name for steps in self._steps for step in steps]

    def run(self, inputs: Mapping[str, Any], names: Mapping[str, int], delivery: Delivery | None = None) -> list[Any]:
        """The outputs for values of all inputs, and what the names of extents stand for."""
        if self.whole is not None:
            return self.whole.run(inputs, names)
        values: Values = dict(inputs)
        for number, (part, steps) in enumerate(zip(self.parts, self._steps), 1):
            if part is not None:
                is_last = number == len(self.parts) and not steps
                places = delivery.places(self.outputs, values, part.outputs) if delivery and is_last else None
                values.update(zip(part.outputs, part.run(values, names, places)))
            for step in steps:
                start = time.perf_counter()
                values.update(step.run(values, names))
                if self.look is not None:
                    self.look(step.name, time.perf_counter() - start)
        results = [values[name] for name in self.outputs]
        return results if delivery is None else delivery.delivered(results)

    def watch_parts(self, look: Look | None) -> None:
        """Has each part tell what it runs, and on what, those of branches and loops among them."""
        for part in self.compiled():
            part.look = look
        for step in (step for steps in self._steps for step in steps):
            step.watch_parts(look)

    def compiled(self) -> list[Part]:
        return [part for part in self.parts if part is not None]

    def close(self) -> None:
        for part in self.compiled():
            part.close()
        for step in (step for steps in self._steps for step in steps):
            step.close()

    def copy(self) -> Schedule:
        """Another that shares the code there is."""
        made = Schedule.__new__(Schedule)
        made.look = self.look
        made.outputs, made._steps = self.outputs, [[step.copy() for step in steps] for steps in self._steps]
        made.parts = [part and part.copy() for part in self.parts]
        made.whole = self.whole and made.parts[0]
        return made


def _part(plan: PartPlan, graph: Graph, source: ModelSource, inputs: Sequence[str], shared: SharedConstants) -> Part:
    assert plan.symbol is not None
    part = Graph(plan.symbol.outputs)
    variables = [part.indexed.nodes[number] for number in part.indexed.variables]
    facts = {node.name: graph.fact(NodeEntry(node)) for node in variables if node in graph.indexed.node_id}
    if is_whole(part):
        dtypes = {name: fact.dtype for name, fact in facts.items() if fact.dtype is not None}
        part = infer(part, {name: fact.shape for name, fact in facts.items()}, dtypes)
    return Part(part, source, plan.outputs, plan.deciding, inputs, shared, facts)


class _Step:
    """A node that runs on the host."""

    def __init__(self, call: HostCall, source: ModelSource, repeats: bool, facts: Sequence[Fact]) -> None:
        self._call, self._facts = call, facts  # what is known of its inputs
        self._repeats = repeats or call.node.op is LOOP
        self.name = call.node.op_name
        self._source = source
        self._bodies: dict[int, Schedule] = {}  # of the node's subgraphs, made when they are first run
        self._look: Look | None = None

    def watch_parts(self, look: Look | None) -> None:
        self._look = look
        for body in self._bodies.values():
            body.watch_parts(look)

    def run(self, values: Mapping[str, Any], names: Mapping[str, int]) -> Values:
        node, params = self._call.node, self._source.params
        inputs = [values[name] if name in values else params[name] for name in self._call.inputs]
        try:
            if node.op is HOST_STEP:
                outputs = host_outputs(node.params, inputs)
            elif node.op is DEFERRED:
                outputs = evaluated(node.params, *inputs)
            else:
                outputs = (self._branch if node.op is IF_ELSE else self._loop)(node, inputs, names)
            return dict(zip(self._call.outputs, outputs))
        except Error as error:
            error.at(f"node {node.name!r}")
            raise

    def close(self) -> None:
        for body in self._bodies.values():
            body.close()

    def copy(self) -> _Step:
        made = _Step(self._call, self._source, self._repeats, self._facts)
        made._bodies = {number: body.copy() for number, body in self._bodies.items()}
        return made

    def _branch(self, node: Node, inputs: list[Any], names: Mapping[str, int]) -> list[Any]:
        return self._body(0 if holds(inputs[0]) else 1).run(by_input_name(inputs), names)

    def _loop(self, node: Node, inputs: list[Any], names: Mapping[str, int]) -> list[Any]:
        body, symbol, states = self._body(0), node.subgraphs[0], node.params.num_states

        def run(values: list[Any]) -> list[Any]:
            return body.run(by_input_name(values), names)

        turns = int(np.asarray(inputs[0]).reshape(-1)[0])
        if body.whole is None or turns < 2 or not holds(inputs[1]):
            return looped(node.params, symbol, inputs, run)
        values = [np.zeros(turn_shape(symbol), np.int64), *inputs[1:]]
        first = run(values)
        quick = quick_turns(body.whole, values, first, states, names)
        if quick is None:
            return looped(node.params, symbol, inputs, run, first)
        done = quick.run(min(turns, MOST_TURNS))
        if done.turns == MOST_TURNS < turns and holds(done.goes_on):
            raise never_ends()
        items = zip(first[1 + states :], done.items)
        return [*done.states, *(np.concatenate([item[None], *blocks]) for item, blocks in items)]

    def _body(self, number: int) -> Schedule:
        body = self._bodies.get(number)
        if body is None:
            node, params = self._call.node, self._source.params
            moving = 0 if node.op is IF_ELSE else 2 + node.params.num_states  # what turns of a loop change
            stay = enumerate(self._call.inputs[moving:], moving)
            fixed = {input_name(i): params[name] for i, name in stay if name in params}
            graph, constants = self._converted(Graph(node.subgraphs[number].outputs), fixed)
            source = self._source._replace(symbol=graph.symbol, params=constants, shapes={}, dtypes={})
            body = self._bodies[number] = Schedule(graph, source, repeats=self._repeats)
            body.watch_parts(self._look)
        return body

    def _converted(self, graph: Graph, fixed: dict[str, Array]) -> tuple[Graph, dict[str, Array]]:
        """A subgraph and its parameters, with all nodes that wait converted by the names of extents: then its code may
        serve many sizes. As it is where that cannot be, or where turns change the shape of a state."""
        node, facts = self._call.node, dict(enumerate(self._facts))
        following: dict[int, int] = {}  # of what turns change, the output that is the next
        if node.op is LOOP:
            facts[0] = Fact(turn_shape(graph.symbol), INT64)
            following = {1 + place: place for place in range(1 + node.params.num_states)}
        variables = {graph.indexed.nodes[number].name for number in graph.indexed.variables}
        known = {input_name(i): (f.shape, f.dtype) for i, f in facts.items() if input_name(i) in variables}
        is_told = all(dtype is not None for _, dtype in known.values())
        if not is_told or any(inner.op is HOST_STEP for inner in graph.indexed.nodes):  # values may be no arrays
            return infer(graph), fixed
        try:
            symbol, params = specialised(graph, fixed, known, {}, {})
            shapes = {name: shape for name, (shape, _) in known.items() if name not in fixed}
            dtypes = {name: dtype for name in shapes if (dtype := known[name][1]) is not None}
            made = infer(Graph(symbol.outputs), shapes, dtypes)
        except Error:  # which a run will tell
            return infer(graph), fixed
        stays = all(made.fact(made.outputs[after]).shape == facts[now].shape for now, after in following.items())
        return (made, as_arrays(params)) if stays else (infer(graph), fixed)
