"""Converters of control flow: subgraphs of MXNet become subgraphs of weft, closed over what they
capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ....base.errors import FormatError
from ....core.ir import Fact, topo_order
from ....core.symbol import Group, Symbol
from ....ops.control_flow import holds, input_name
from ...emitter import Emitter, Value
from ..call import Call, Subgraph
from ..registry import converter

Item = TypeVar("Item")


class Captures:
    """The inputs of a node with subgraphs: those that are given, and behind them what subgraphs
    turn out to use."""

    def __init__(self, call: Call, inputs: Sequence[Value]) -> None:
        self.call = call
        self.inputs = list(inputs)
        self._count = len(self.inputs)

    def _position(self, value: Value) -> int:
        for position in range(self._count, len(self.inputs)):
            if self.inputs[position] is value:
                return position
        self.inputs.append(value)
        return len(self.inputs) - 1

    def close(self, part: Subgraph, first: Mapping[int, Fact], outer: Mapping[int, Value]) -> Symbol:
        """A subgraph that reads inputs of the node. `first` are the arguments that are its first
        inputs, in order, with what is known of them; `outer` are those it captures."""
        emitter = Emitter(self.call.emitter)
        arguments: list[Value | None] = [None] * part.arguments
        sources: dict[str, int | Value] = {}
        for position, (place, fact) in enumerate(first.items()):
            arguments[place] = emitter.input(input_name(position), fact.shape, fact.dtype)
            sources[input_name(position)] = position
        inside: dict[Value, Value] = {}
        for place, value in outer.items():
            if value not in inside:
                name = emitter.fresh_name(value.name)
                inside[value] = _inner(emitter, name, value)
                sources[inside[value].name] = value
            arguments[place] = inside[value]
        body = Group([emitter.symbol(value) for value in part.convert(emitter, arguments)])
        self._name_inputs(body, emitter, sources)
        return body

    def _name_inputs(self, body: Symbol, emitter: Emitter, sources: Mapping[str, int | Value]) -> None:
        """Every variable of the subgraph gets the name of the input that it stands for."""
        for node in topo_order(body.outputs):
            if node.op is not None:
                continue
            source = sources.get(node.name)
            if source is None and node.name in emitter.params:
                constant = emitter.params[node.name].numpy()
                source = self.call.emitter.constant(f"{self.call.name}_{node.name}", constant)
            if source is None:
                raise FormatError(f"a subgraph reads {node.name!r}, which nothing gives")
            place = source if isinstance(source, int) else self._position(source)
            node.name = input_name(place)


def _inner(emitter: Emitter, name: str, value: Value) -> Value:
    """A captured value as its subgraph sees it: what is constant is so inside, too."""
    if value.constant is not None:
        return emitter.stored(name, value.constant)
    return emitter.input(name, value.shape, value.dtype)


def _subgraph(call: Call, number: int, count: int) -> Subgraph:
    if len(call.subgraphs) != count:
        raise FormatError(f"{len(call.subgraphs)} subgraphs, and not {count}")
    return call.subgraphs[number]


def _picked(values: Sequence[Item], places: Sequence[int]) -> list[Item]:
    if any(not 0 <= place < len(values) for place in places):
        raise FormatError(f"inputs {list(places)[:20]} of {len(values)}")
    return [values[place] for place in places]


def _check_places(part: Subgraph, places: Sequence[int]) -> None:
    if sorted(places) != list(range(part.arguments)):
        raise FormatError(f"a subgraph of {part.arguments} inputs gets {list(places)[:20]}")


@converter("_foreach")
def foreach(call: Call) -> list[Value]:
    """A step for each item of the data, along its first axis."""
    part, inputs = _subgraph(call, 0, 1), call.all()
    data, states = call.attr("in_data_locs"), call.attr("in_state_locs")
    places = [*data, *states, *call.attr("remain_locs")]
    _check_places(part, places)
    if len(inputs) != len(places) or not data:
        raise FormatError(f"{len(inputs)} inputs for {len(places)} places")
    first = len(data) + len(states)
    for value in inputs[: len(data)]:
        if call.rank(value) < 1:
            raise FormatError("a scalar has no items")
    facts = [Fact(call.dims(value)[1:], value.dtype) for value in inputs[: len(data)]]
    facts += [value.fact for value in inputs[len(data) : first]]
    captures = Captures(call, inputs[:first])
    body = captures.close(part, dict(zip(places, facts)), dict(zip(places[first:], inputs[first:])))
    outputs = call.attr("num_out_data")
    _check_outputs(call, body, outputs + len(states))
    return call.emitter.control(
        "scan",
        call.name,
        captures.inputs,
        [body],
        {"num_data": len(data), "num_states": len(states), "num_outputs": outputs},
    )


def _check_outputs(call: Call, body: Symbol, count: int) -> None:
    if len(body.outputs) != count or call.attr("num_outputs") != count:
        raise FormatError(f"a subgraph of {len(body.outputs)} outputs, and not {count}")


@converter("_while_loop")
def while_loop(call: Call) -> list[Value]:
    """Turns while the first subgraph says so; outputs are 0 behind the last one."""
    test, body, inputs = _subgraph(call, 0, 2), _subgraph(call, 1, 2), call.all()
    of_test, of_body = call.attr("cond_input_locs"), call.attr("func_input_locs")
    for part, places in ((test, of_test), (body, of_body)):
        if part.arguments != len(places):
            raise FormatError(f"a subgraph of {part.arguments} inputs gets {len(places)}")
    variables = call.attr("func_var_locs")
    states = _picked(list(of_body), variables)  # which inputs of the node are the states
    captures = Captures(call, _picked(inputs, states))
    graphs = []
    for part, places in ((test, of_test), (body, of_body)):
        values = _picked(inputs, places)
        places_of_states = [places.index(state) if state in places else None for state in states]
        graphs.append(_closed(captures, part, values, places_of_states))
    outputs = call.attr("num_out_data")
    _check_outputs(call, graphs[1], outputs + len(states))
    return call.emitter.control(
        "while_loop",
        call.name,
        captures.inputs,
        graphs,
        {"num_states": len(states), "num_outputs": outputs, "max_iterations": call.attr("max_iterations")},
    )


def _closed(captures: Captures, part: Subgraph, values: Sequence[Value], first: Sequence[int | None]) -> Symbol:
    """A subgraph of which some arguments are the node's first inputs, None where it reads none."""
    facts: dict[int, Fact] = {}
    for position, place in enumerate(first):
        at = part.arguments + position if place is None else place
        facts[at] = captures.inputs[position].fact
    outer = {place: value for place, value in enumerate(values) if place not in facts}
    wide = Subgraph(part.arguments + len(first), lambda e, arguments: part.convert(e, arguments[: len(values)]))
    return captures.close(wide, facts, outer)


@converter("_cond")
def cond(call: Call) -> list[Value]:
    """One subgraph or the other; where which one is known already, just that."""
    parts, inputs = [_subgraph(call, number, 3) for number in range(3)], call.all()
    values_of = [_picked(inputs, call.attr(name)) for name in ("cond_input_locs", "then_input_locs", "else_input_locs")]
    for part, values in zip(parts, values_of):
        if part.arguments != len(values):
            raise FormatError(f"a subgraph of {part.arguments} inputs gets {len(values)}")
    count = call.attr("num_outputs")
    (answer,) = parts[0].convert(call.emitter, values_of[0])
    if answer.constant is not None:
        number = 1 if holds(answer.constant) else 2
        return parts[number].convert(call.emitter, values_of[number])
    captures = Captures(call, [answer])
    branches = [_closed(captures, parts[n], values_of[n], [None]) for n in (1, 2)]
    for branch in branches:
        _check_outputs(call, branch, count)
    return call.emitter.control("cond", call.name, captures.inputs, branches, {"num_outputs": count})
