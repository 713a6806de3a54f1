"""Converters of the fused RNN, of which each direction of each layer becomes a product and one
operator, and of the loss of sequences of labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from ....base.dtype import FLOAT32, INT32
from ....base.errors import FormatError
from ...emitter import Value
from ..call import Call, OpenFill
from ..registry import converter

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


class RnnWeights(NamedTuple):
    """Of one direction of one layer: of the input, of the state, what is added to each, and what
    projects the outputs."""

    of_input: Value
    of_state: Value
    input_bias: Value
    state_bias: Value
    projection: Value | None


class RnnForm(NamedTuple):
    """What the attributes say about all layers."""

    mode: str
    size: int
    state: int  # what is carried on: as large as the cells, or their projection
    layers: int
    directions: int
    projected: bool

    @property
    def wide(self) -> int:
        return _GATES[self.mode] * self.size


@converter("RNN")
def rnn(call: Call) -> list[Value]:
    """Outputs of all steps of the last layer; last states of all layers, if asked for."""
    form = _form(call)
    call.ignore("p")
    _, batch, features = call.shape(call[0])
    weights = _weights(call, form, features)
    first = _first_states(call, form, batch)
    attrs, lengths = _cell_attrs(call, form), _lengths(call, form)
    data, last = call[0], list[list[Value]]()
    for _ in range(form.layers):
        outputs = []
        for backward in range(form.directions):
            inputs = _inputs(call, form, data, next(weights), next(first), lengths)
            steps, *states = call.ops("rnn", *inputs, reverse=bool(backward), **attrs)
            outputs.append(steps)
            last.append(states)
        data = call.joined(outputs, 2)
    if not call.attr("state_outputs"):
        return [data]
    return [data, *(_stacked(call, list(states)) for states in zip(*last))]


def _form(call: Call) -> RnnForm:
    mode, size, layers = call.attr("mode"), call.attr("state_size"), call.attr("num_layers")
    projected = call.attr("projection_size")
    if mode not in _GATES or size < 1 or layers < 1:
        raise FormatError(f"an RNN of mode {mode!r}, {layers} layers and {size} units")
    if projected is not None and (mode != "lstm" or projected < 1):
        raise FormatError(f"an RNN of mode {mode!r} with a projection to {projected}")
    directions = 2 if call.attr("bidirectional") else 1
    return RnnForm(mode, size, projected or size, layers, directions, projected is not None)


def _cell_attrs(call: Call, form: RnnForm) -> dict[str, Any]:
    attrs: dict[str, Any] = {"mode": form.mode, "projected": form.projected}
    attrs["lengths"] = call.attr("use_sequence_length")
    for side in ("min", "max"):
        limit = call.attr(f"lstm_state_clip_{side}")
        if limit is not None and form.mode == "lstm":
            attrs[f"clip_{side}"] = limit
    call.ignore("lstm_state_clip_nan")
    return {**attrs, "clip_nan": call.attr("lstm_state_clip_nan")}


def _lengths(call: Call, form: RnnForm) -> list[Value]:
    """The number of steps of each sequence, where there is one."""
    if not call.attr("use_sequence_length"):
        return []
    return [call.cast(call[4 if form.mode == "lstm" else 3], INT32)]


def _weights(call: Call, form: RnnForm, features: int) -> Iterator[RnnWeights]:
    """Cut from one vector: the matrices of all layers and directions, then all biases."""
    wide, state = form.wide, form.state
    (count,) = call.shape(call[1], "the parameters")
    if form.layers > count:
        raise FormatError(f"{form.layers} layers with {count} parameters")
    later = [state * form.directions] * (form.layers - 1)
    ins = [size for size in (features, *later) for _ in range(form.directions)]
    each = [[(wide, size), (wide, state), *([(state, form.size)] if form.projected else [])] for size in ins]
    matrices = sum(math.prod(shape) for shapes in each for shape in shapes)
    total = matrices + 2 * wide * len(ins)
    if count != total:
        raise FormatError(f"{count} parameters, and not {total}")
    at, bias_at = 0, matrices
    for shapes in each:
        pieces = []
        for shape in shapes:
            pieces.append(_piece(call, at, shape))
            at += math.prod(shape)
        biases = (_piece(call, bias_at, (wide,)), _piece(call, bias_at + wide, (wide,)))
        bias_at += 2 * wide
        yield RnnWeights(pieces[0], pieces[1], *biases, pieces[2] if form.projected else None)


def _piece(call: Call, start: int, shape: tuple[int, ...]) -> Value:
    part = call.sliced(call[1], {0: (start, start + math.prod(shape), 1)})
    return call.reshape(part, shape)


def _first_states(call: Call, form: RnnForm, batch: int) -> Iterator[list[Value]]:
    """For each layer and direction: the state, and for lstm the cell."""
    first = [call.get(2 + i) for i in range(2 if form.mode == "lstm" else 1)]
    count = form.layers * form.directions
    for which in range(count):
        states = []
        for value, size in zip(first, (form.state, form.size)):
            if value is None:
                raise FormatError("the first state is missing")
            states.append(_first_state(call, value, which, (count, batch, size)))
        yield states


def _first_state(call: Call, value: Value, which: int, shape: tuple[int, int, int]) -> Value:
    if isinstance(value, OpenFill):
        return call.op("full", shape=shape[1:], dtype=call.dtype(call[0]), fill_value=value.fill)
    if call.shape(value) != shape:
        raise FormatError(f"a first state of shape {value.shape}, and not {shape}")
    part = call.sliced(value, {0: (which, which + 1, 1)})
    return call.reshape(part, shape[1:])


def _inputs(
    call: Call, form: RnnForm, data: Value, weights: RnnWeights, states: list[Value], lengths: list[Value]
) -> list[Value]:
    """What one direction of one layer reads; what the inputs add to the gates is one product."""
    time, batch, features = call.shape(data)
    rows = call.reshape(data, (time * batch, features))
    rows = call.op("dense", rows, weights.of_input, weights.input_bias, units=form.wide)
    gates = call.reshape(rows, (time, batch, form.wide))
    turned = [call.op("transpose", weights.of_state, axes=(1, 0)), weights.state_bias]
    if weights.projection is not None:
        states = [*states, call.op("transpose", weights.projection, axes=(1, 0))]
    return [gates, *turned, *states, *lengths]


def _stacked(call: Call, values: list[Value]) -> Value:
    if len(values) == 1:
        return call.op("expand_dims", values[0], axis=0)
    return call.op("stack", *values, axis=0)


@converter("CTCLoss")
def ctc_loss(call: Call) -> Value:
    """Classes are normalised first. Without lengths, labels end before the first that is padding:
    0 where the first class is the blank, else -1. What cannot be reached costs nothing."""
    call.only_first_output()
    data, labels = call[0], call[1]
    time, batch, classes = call.shape(data)
    first = call.attr("blank_label") == "first"
    uses = call.attr("use_data_lengths"), call.attr("use_label_lengths")
    place = iter(range(2, 4))
    steps = call[next(place)] if uses[0] else call.op("full", shape=(batch,), dtype=INT32, fill_value=time)
    count = call[next(place)] if uses[1] else _label_count(call, labels, 0.0 if first else -1.0)
    whole = [call.cast(value, INT32) for value in (labels, steps, count)]
    probabilities = call.op("log_softmax", data, axis=2)
    blank = 0 if first else classes - 1
    return call.op("ctc_loss", probabilities, *whole, blank=blank, zero_infinity=True)


def _label_count(call: Call, labels: Value, padding: float) -> Value:
    labels = call.cast(labels, FLOAT32)
    there = call.op("broadcast_not_equal", labels, call.op("full_like", labels, fill_value=padding))
    return call.op("sum", call.op("cumprod", there, axis=1), axis=(1,))
