"""Converter of the fused RNN: every step of every layer becomes operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...base.errors import FormatError, Unsupported
from ..emitter import Value
from .call import Call, OpenFill
from .registry import converter

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_MOST_STEPS = 4096  # of all layers and directions together


class Weights(NamedTuple):
    """Of one direction of one layer: of the input, of the state, and what is added to each."""

    of_input: Value
    of_state: Value
    input_bias: Value
    state_bias: Value


class Cell(NamedTuple):
    """One step: the part of the gates that the input makes, and the state, give the next state."""

    mode: str
    size: int
    step: Callable[[Call, Value, list[Value], Weights], list[Value]]


@converter("RNN")
def rnn(call: Call) -> list[Value]:
    """Outputs of all steps of the last layer; last states of all layers, if asked for."""
    cell = _cell(call)
    directions = 2 if call.attr("bidirectional") else 1
    layers = call.attr("num_layers")
    time, batch, features = call.shape(call[0])
    if time * layers * directions > _MOST_STEPS or layers < 1 or time < 1:
        raise Unsupported(f"an RNN of {layers} layers and {time} steps is not supported")
    weights = _weights(call, cell, layers, directions, features)
    first = _first_states(call, cell, layers * directions, batch)
    data, last = call[0], []
    for _ in range(layers):
        outputs = []
        for backward in range(directions):
            steps, states = _run(call, cell, data, next(first), next(weights), bool(backward))
            outputs.append(steps)
            last.append(states)
        data = outputs[0] if directions == 1 else call.op("concatenate", *outputs, axis=2)
    if not call.attr("state_outputs"):
        return [data]
    return [data, *(_stacked(call, list(states)) for states in zip(*last))]


def _cell(call: Call) -> Cell:
    mode, size = call.attr("mode"), call.attr("state_size")
    if mode not in _GATES or size < 1:
        raise FormatError(f"an RNN of mode {mode!r} and {size} units")
    if call.attr("projection_size") is not None or call.attr("use_sequence_length"):
        raise Unsupported("an RNN with a projection or with sequence lengths is not supported")
    if call.attr("lstm_state_clip_min") is not None or call.attr("lstm_state_clip_max") is not None:
        raise Unsupported("an RNN that clips its state is not supported")
    call.ignore("p", "lstm_state_clip_nan")
    return Cell(mode, size, {"lstm": _lstm, "gru": _gru}.get(mode, _plain))


def _weights(
    call: Call, cell: Cell, layers: int, directions: int, features: int
) -> Iterator[Weights]:
    """Cut from one vector: the matrices of all layers and directions, then all biases."""
    wide, h = _GATES[cell.mode] * cell.size, cell.size
    ins = [features] + [h * directions] * (layers - 1)
    matrices = sum(wide * (size + h) for size in ins) * directions
    total = matrices + 2 * wide * layers * directions
    if call.shape(call[1], "the parameters") != (total,):
        raise FormatError(f"parameters of shape {call[1].shape}, and not ({total},)")
    at, bias_at = 0, matrices
    for size in ins:
        for _ in range(directions):
            pieces = []
            for rows in (size, h):
                pieces.append(_piece(call, at, (wide, rows)))
                at += wide * rows
            for _ in range(2):
                pieces.append(_piece(call, bias_at, (wide,)))
                bias_at += wide
            yield Weights(*pieces)


def _piece(call: Call, start: int, shape: tuple[int, ...]) -> Value:
    part = call.sliced(call[1], {0: (start, start + int(np.prod(shape)), 1)})
    return call.reshape(part, shape)


def _first_states(call: Call, cell: Cell, count: int, batch: int) -> Iterator[list[Value]]:
    """For each layer and direction: the state, and for lstm the cell."""
    given = [call.get(2 + i) for i in range(2 if cell.mode == "lstm" else 1)]
    for which in range(count):
        states = []
        for value in given:
            if value is None:
                raise FormatError("the first state is missing")
            states.append(_first_state(call, value, which, (count, batch, cell.size)))
        yield states


def _first_state(call: Call, value: Value, which: int, shape: tuple[int, int, int]) -> Value:
    if isinstance(value, OpenFill):
        return call.op("full", shape=shape[1:], dtype=call.dtype(call[0]), fill_value=value.fill)
    if call.shape(value) != shape:
        raise FormatError(f"a first state of shape {value.shape}, and not {shape}")
    part = call.sliced(value, {0: (which, which + 1, 1)})
    return call.reshape(part, shape[1:])


def _run(
    call: Call, cell: Cell, data: Value, state: list[Value], weights: Weights, backward: bool
) -> tuple[Value, list[Value]]:
    """All steps of one direction. What the inputs add to the gates is one product for all."""
    time, batch, features = call.shape(data)
    wide = _GATES[cell.mode] * cell.size
    rows = call.reshape(data, (time * batch, features))
    rows = call.op("dense", rows, weights.of_input, weights.input_bias, units=wide)
    made = call.reshape(rows, (time, batch, wide))
    outputs = []
    for step in reversed(range(time)) if backward else range(time):
        part = call.reshape(call.sliced(made, {0: (step, step + 1, 1)}), (batch, wide))
        state = cell.step(call, part, state, weights)
        outputs.append(state[0])
    return _stacked(call, outputs[::-1] if backward else outputs), state


def _stacked(call: Call, values: list[Value]) -> Value:
    if len(values) == 1:
        return call.op("expand_dims", values[0], axis=0)
    return call.op("stack", *values, axis=0)


def _from_state(call: Call, state: Value, weights: Weights) -> Value:
    units = call.shape(weights.state_bias)[0]
    return call.op("dense", state, weights.of_state, weights.state_bias, units=units)


def _plain(call: Call, part: Value, state: list[Value], weights: Weights) -> list[Value]:
    """h' = f(W x + R h)"""
    total = call.op("elemwise_add", part, _from_state(call, state[0], weights))
    return [call.op("relu" if call.attr("mode") == "rnn_relu" else "tanh", total)]


def _lstm(call: Call, part: Value, state: list[Value], weights: Weights) -> list[Value]:
    """c' = f c + i g;  h' = o tanh(c')"""
    total = call.op("elemwise_add", part, _from_state(call, state[0], weights))
    i, f, g, o = call.op("split", total, indices_or_sections=4, axis=1)
    i, f, o = (call.op("sigmoid", gate) for gate in (i, f, o))
    new = call.op("elemwise_mul", i, call.op("tanh", g))
    cell = call.op("elemwise_add", call.op("elemwise_mul", f, state[1]), new)
    return [call.op("elemwise_mul", o, call.op("tanh", cell)), cell]


def _gru(call: Call, part: Value, state: list[Value], weights: Weights) -> list[Value]:
    """n = tanh(W x + r R h);  h' = (1 - z) n + z h = n + z (h - n)"""
    rx, zx, nx = call.op("split", part, indices_or_sections=3, axis=1)
    own = _from_state(call, state[0], weights)
    rh, zh, nh = call.op("split", own, indices_or_sections=3, axis=1)
    r = call.op("sigmoid", call.op("elemwise_add", rx, rh))
    z = call.op("sigmoid", call.op("elemwise_add", zx, zh))
    n = call.op("tanh", call.op("elemwise_add", nx, call.op("elemwise_mul", r, nh)))
    change = call.op("elemwise_mul", z, call.op("elemwise_sub", state[0], n))
    return [call.op("elemwise_add", n, change)]
