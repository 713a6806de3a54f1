"""Converters of recurrent layers. A direction of a layer of the usual form is a product for all
steps and one operator; any other is composed, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ....base.dtype import INT32, INT64
from ....base.errors import FormatError
from ....base.shape import may_equal, mul_dims, show
from ...building import in_float32
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter
from .cells import CELLS, Activation, Cell, activation, scanned_cell


class Kind(NamedTuple):
    """What tells one layer from another."""

    activations: tuple[str, ...]
    order: tuple[int, ...]  # where the gates of the operator stand among ONNX's
    states: int  # that go from step to step
    transposed: bool = False  # whether weights have a column for each cell of each gate, and not a row

    @property
    def gates(self) -> int:
        return len(self.order)


KINDS = {
    "RNN": Kind(("Tanh",), (0,), 1),
    "GRU": Kind(("Sigmoid", "Tanh"), (1, 0, 2), 1),  # z, r, n here; r, z, n there
    "LSTM": Kind(("Sigmoid", "Tanh", "Tanh"), (0, 2, 3, 1), 2),  # i, o, f, g here; i, f, g, o there
    "DynamicQuantizeLSTM": Kind(("Sigmoid", "Tanh", "Tanh"), (0, 2, 3, 1), 2, transposed=True),
}


class Direction(NamedTuple):
    """One direction of a layer. Weights have a row, and biases a number, for each cell of each gate."""

    place: int  # among the directions
    reverse: bool
    activations: tuple[Activation, ...]
    of_input: Value
    of_state: Value
    input_bias: Value
    state_bias: Value
    peepholes: Value | None
    states: list[Value]


_MODES = {("tanh",): "rnn_tanh", ("relu",): "rnn_relu", ("sigmoid", "tanh"): "gru", ("sigmoid", "tanh", "tanh"): "lstm"}


@converter("RNN", "GRU", "LSTM", since=7)
def recurrent(call: OnnxCall) -> list[Value]:
    """Outputs of all steps, and the last states."""
    usual = all(_mode(functions) for functions in _activations(call)) and not _extras(call)
    return layer(call, _native) if usual else _composed_layer(call)


@in_float32
def _composed_layer(call: OnnxCall) -> list[Value]:
    return layer(call, _composed)


def _mode(functions: Sequence[Activation]) -> str | None:
    """The form of the operator that has these activations."""
    return _MODES.get(tuple(function.name for function in functions))


def _extras(call: OnnxCall) -> bool:
    """Whether there is something that the operator does not do."""
    if call.attr("clip") is not None:
        return True
    return call.op_type == "LSTM" and (bool(call.attr("input_forget")) or call.get(7) is not None)


Steps = Callable[[OnnxCall, Direction, Value, Value | None], list[Value]]


def layer(call: OnnxCall, run: Steps) -> list[Value]:
    """Outputs of all steps, and the last states; `run` gives those of one direction."""
    data, lengths = call[0], call.get(4)
    batch_first = bool(call.attr("layout", 0))
    data = call.transposed(data, (1, 0, 2)) if batch_first else data
    lengths = None if lengths is None else call.cast(lengths, INT32)
    each = [run(call, direction, data, lengths) for direction in _directions(call)]
    outputs, *states = (call.op("stack", *values, axis=0) for values in zip(*each))
    if batch_first:  # (batch, steps, directions, size) and (batch, directions, size)
        return [call.transposed(outputs, (2, 1, 0, 3)), *(call.transposed(value, (1, 0, 2)) for value in states)]
    return [call.transposed(outputs, (1, 0, 2, 3)), *states]


# What the node says.


def _reversed(call: OnnxCall) -> tuple[bool, ...]:
    """Of each direction, whether it goes from the last step to the first."""
    named = call.attr("direction")
    turns = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(named)
    if turns is None:
        raise FormatError(f"unknown direction {named!r}")
    return turns


def _directions(call: OnnxCall) -> list[Direction]:
    kind, turns = KINDS[call.op_type], _reversed(call)
    size = _hidden_size(call, kind, len(turns))
    wide = kind.gates * size
    biases = call.get(3)
    if biases is None:
        biases = call.make(np.zeros((len(turns), 2 * wide)), call.dtype(call[0]))
    states = _first_states(call, kind, len(turns), size)
    peepholes = call.get(7) if kind.states == 2 else None
    return [
        Direction(
            which,
            reverse,
            functions,
            item(call, call[1], which),
            item(call, call[2], which),
            call.sliced(item(call, biases, which), {0: (0, wide, 1)}),
            call.sliced(item(call, biases, which), {0: (wide, 2 * wide, 1)}),
            None if peepholes is None else item(call, peepholes, which),
            [item(call, state, which) for state in states],
        )
        for which, (reverse, functions) in enumerate(zip(turns, _activations(call)))
    ]


def _hidden_size(call: OnnxCall, kind: Kind, count: int) -> int:
    """The number of cells; weights and biases must fit it."""
    features, size = call.extent(call[0], 2), call.shape(call[2], "the recurrent weight")[1 if kind.transposed else 2]
    given = call.attr("hidden_size")
    if given is not None and given != size:
        raise FormatError(f"hidden_size {given} with a recurrent weight of shape {call.shape(call[2])}")
    wide = kind.gates * size
    pairs = ((wide, features), (wide, size))
    weights = [(count, *(pair[::-1] if kind.transposed else pair)) for pair in pairs]
    wanted = {1: weights[0], 2: weights[1], 3: (count, 2 * wide), 7: (count, 3 * size)}
    for index, shape in wanted.items():
        value = call.inputs[index] if index < len(call.inputs) else None
        if value is not None and call.shape(value) != shape:
            raise FormatError(f"input {index} of shape {value.shape}, and not {shape}")
    return size


def _activations(call: OnnxCall) -> list[tuple[Activation, ...]]:
    """Those of each direction; numbers are taken from two lists, in order, by those that have some."""
    usual, count = KINDS[call.op_type].activations, len(_reversed(call))
    names = call.attr("activations") or list(usual) * count
    alphas, betas = (list(call.attr(f"activation_{name}") or ()) for name in ("alpha", "beta"))
    if len(names) < len(usual) * count:
        raise FormatError(f"activations {names}, and not {len(usual)} for each of {count} directions")
    made = [activation(name, alphas, betas) for name in names]
    return [tuple(made[which * len(usual) :][: len(usual)]) for which in range(count)]


def _first_states(call: OnnxCall, kind: Kind, count: int, size: int) -> list[Value]:
    """(directions, batch, size) each: the state, and the cell of LSTM."""
    batch_first = bool(call.attr("layout", 0))
    batch = call.dims(call[0])[0 if batch_first else 1]
    wanted = call.told((count, batch, size))
    states = []
    for index in range(5, 5 + kind.states):
        value = call.get(index)
        if value is None:
            value = call.zeros(wanted, call.dtype(call[0]))
        elif batch_first:
            value = call.transposed(value, (1, 0, 2))
        if not all(map(may_equal, call.told(call.dims(value)), wanted)):
            raise FormatError(f"first states of shape {show(value.shape)}, and not {show(wanted)}")
        states.append(value)
    return states


def item(call: OnnxCall, value: Value, which: int) -> Value:
    """The part of one direction."""
    return call.reshape(call.sliced(value, {0: (which, which + 1, 1)}), call.dims(value)[1:])


# One direction: outputs of all steps, and the last states.


def _gates(call: OnnxCall, data: Value, weight: Value, bias: Value) -> Value:
    """What the inputs add to the gates, by one product for all steps."""
    steps, batch, features = call.dims(data)
    wide = call.shape(weight)[0]
    rows = call.op("dense", call.reshape(data, (mul_dims(steps, batch), features)), weight, bias, units=wide)
    return call.reshape(rows, (steps, batch, wide))


def _native(call: OnnxCall, direction: Direction, data: Value, lengths: Value | None) -> list[Value]:
    order = KINDS[call.op_type].order
    of_input, input_bias, of_state, state_bias = (
        _ordered(call, value, order)
        for value in (direction.of_input, direction.input_bias, direction.of_state, direction.state_bias)
    )
    gates = _gates(call, data, of_input, input_bias)
    inputs = [gates, call.transposed(of_state, (1, 0)), state_bias, *direction.states]
    inputs += [] if lengths is None else [lengths]
    attrs = {"mode": _mode(direction.activations), "reverse": direction.reverse, "lengths": lengths is not None}
    if call.op_type == "GRU":
        attrs["reset_first"] = not call.attr("linear_before_reset")
    return call.ops("rnn", *inputs, **attrs)


def _ordered(call: OnnxCall, value: Value, order: Sequence[int]) -> Value:
    """Rows, or numbers, of all gates in the order of the operator."""
    if len(order) == 1:
        return value
    wide, *rest = call.shape(value)
    split = call.reshape(value, (len(order), wide // len(order), *rest))
    return call.reshape(call.op("take", split, call.make(order, INT64), axis=0), (wide, *rest))


def _composed(call: OnnxCall, direction: Direction, data: Value, lengths: Value | None) -> list[Value]:
    """The steps as a loop."""
    gates = _gates(call, data, direction.of_input, direction.input_bias)
    cell = CELLS[call.op_type](direction.activations, cell_options(call))
    fixed = [call.transposed(direction.of_state, (1, 0)), direction.state_bias]
    fixed += [] if direction.peepholes is None else [direction.peepholes]
    return scanned(call, cell, direction, [gates], fixed, lengths)


def scanned(
    call: OnnxCall,
    cell: Cell,
    direction: Direction,
    data: Sequence[Value],
    fixed: Sequence[Value],
    lengths: Value | None,
) -> list[Value]:
    """The steps of a cell on data of which the first are gates, in the order of the direction. What else there is of
    each step goes with the turns. Where sequences have lengths, those of a reverse direction are turned around before
    and after the loop, each by itself."""
    if lengths is None:
        return scanned_cell(call, cell, data, direction.states, fixed, direction.reverse)
    live, places = _turns(call, data[0], lengths)
    if not direction.reverse:
        return scanned_cell(call, cell, data, direction.states, fixed, live=live)
    turned = [_rows(call, data[0], places), *data[1:]]
    outputs, *states = scanned_cell(call, cell, turned, direction.states, fixed, live=live)
    return [_rows(call, outputs, places), *states]


def cell_options(call: OnnxCall) -> dict[str, float | None]:
    names = {"RNN": ("clip",), "GRU": ("clip", "linear_before_reset")}.get(call.op_type, ("clip", "input_forget"))
    return {name: call.attr(name) for name in names}


def _turns(call: OnnxCall, data: Value, lengths: Value) -> tuple[Value, Value]:
    """(steps, batch, 1): whether a sequence still has a step; and (steps * batch,), the row of all
    steps that it takes in each turn when it is gone through backwards."""
    steps, batch, _ = call.shape(data)
    turn = call.positions(steps, 0, 2, INT32)
    ends = call.reshape(lengths, (1, batch))
    live = call.op("broadcast_less", turn, ends)
    back = call.op("broadcast_sub", call.shifted(ends, -1), turn)
    time = call.where(live, back, turn)
    rows = call.op("broadcast_add", call.scaled(time, batch), call.positions(batch, 1, 2, INT32))
    return call.reshape(live, (steps, batch, 1)), call.flat(rows)


def _rows(call: OnnxCall, value: Value, places: Value) -> Value:
    """(steps, batch, size) with other rows in the place of each."""
    steps, batch, size = call.shape(value)
    rows = call.op("take", call.reshape(value, (steps * batch, size)), places, axis=0)
    return call.reshape(rows, (steps, batch, size))
