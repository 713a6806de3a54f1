"""DynamicQuantizeLSTM: an LSTM whose weights are levels, and whose products are of integers: the data of all steps, and
the states of all sequences in each step, are made levels by their own range first."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from .....base.dtype import FLOAT32, INT32
from .....base.errors import FormatError
from .....ops._families import F
from ....emitter import Value
from ...call import OnnxCall
from ..cells import Cell, lstm_step
from ..quantized import dynamic_levels
from ..recurrent import Direction, cell_options, item, layer, scanned
from .domain import microsoft
from .quantised import Levels, scaled_product


@microsoft("DynamicQuantizeLSTM", input_forget=0, direction="forward", layout=0)
def quantised_lstm(call: OnnxCall) -> list[Value]:
    """Weights have a column for each cell, and a scale and a zero point for each direction, or for each cell of it."""
    return layer(call, _steps)


def _steps(call: OnnxCall, direction: Direction, data: Value, lengths: Value | None) -> list[Value]:
    """One direction. Rows of sequences that ended are zero, which changes no range, from the step behind the one that
    ended them on."""
    weight, scale, zero = _levels(call, direction.of_state, 10, direction)
    gates = [_gates(call, direction, data, lengths)]
    if lengths is not None:
        turn = call.positions(call.extent(data, 0), 0, 3, INT32)
        ends = call.reshape(lengths, (1, call.extent(data, 1), 1))
        gates.append(call.op("broadcast_less_equal", turn, ends))
    peepholes = [] if direction.peepholes is None else [direction.peepholes]
    fixed = [weight, scale, *([] if zero is None else [zero]), *peepholes]
    return scanned(call, _cell(call, direction, zero is not None), direction, gates, fixed, lengths)


def _levels(call: OnnxCall, weight: Value, first: int, direction: Direction) -> Levels:
    """A weight of one direction with its scale and zero point, which are inputs from a place on; None for a zero point
    that is 0."""
    cells = call.shape(weight)[1]
    scale, zero = _along(call, call[first], direction, cells), call.get(first + 1)
    if zero is None:
        return weight, scale, None
    zero = _along(call, zero, direction, cells)
    known = call.emitter.computed(zero)
    return weight, scale, None if known is not None and not known.any() else zero


def _along(call: OnnxCall, value: Value, direction: Direction, cells: int) -> Value:
    """(1,), or (cells,): the part of one direction."""
    mine = item(call, value, direction.place)
    if call.shape(mine) not in ((), (1,), (cells,)):
        raise FormatError(f"scales or zero points of shape {value.shape} for {cells} cells of a direction")
    return call.reshape(mine, (-1,)) if call.rank(mine) == 0 else mine


def _gates(call: OnnxCall, direction: Direction, data: Value, lengths: Value | None) -> Value:
    """What the data and the biases add to the gates. Steps that no sequence has do not count for the range."""
    steps, batch, features = call.shape(data)
    if lengths is not None:
        last = call.reshape(call.reduced("max", lengths, (0,), False), (1, 1, 1))
        data = call.where(
            call.op("broadcast_less", call.positions(steps, 0, 3, INT32), last), data, call.make(0, FLOAT32)
        )
    level, scale, zero = dynamic_levels(call, call.reshape(data, (steps * batch, features)))
    product = scaled_product(call, (level, scale, zero), _levels(call, direction.of_input, 8, direction))
    bias = call.op("broadcast_add", direction.input_bias, direction.state_bias)
    whole = call.op("broadcast_add", product, bias)
    return call.reshape(whole, (steps, batch, call.shape(whole)[1]))


def _cell(call: OnnxCall, direction: Direction, use_zero: bool) -> Cell:
    """A step on gates, and on whether rows count where sequences have lengths; fixed are the weight, its scale, its
    zero point if there is one, and the peepholes if there are some."""
    step = lstm_step(direction.activations, cell_options(call))

    def cell(data: Sequence[Any], states: Sequence[Any], fixed: Sequence[Any]) -> list[Any]:
        (gates, *counts), (state, c) = data, states
        (weight, scale), zeros, peepholes = fixed[:2], fixed[2:][: int(use_zero)], fixed[2 + int(use_zero) :]
        counted = F.broadcast_where(counts[0], state, F.zeros_like(state)) if counts else state
        level, own_scale, own_zero = _state_levels(counted)
        sums = F.integer_matmul(level, weight, own_zero, *zeros, use_weight_zero=use_zero)
        product = F.broadcast_mul(F.cast(sums, dtype="float32"), F.broadcast_mul(own_scale, scale))
        return step(gates + product, c, peepholes)

    return cell


def _state_levels(state: Any) -> tuple[Any, Any, Any]:
    """`dynamic_levels` of a state inside the loop: levels, their scale and their zero point."""
    low = F.clip(F.min(state, axis=(0, 1)), a_min=-inf, a_max=0)
    high = F.clip(F.max(state, axis=(0, 1)), a_min=0, a_max=inf)
    spread = high - low
    scale = F.where(F.broadcast_equal(spread, F.zeros_like(spread)), F.ones_like(spread), spread / 255.0)
    zero = F.cast(F.round(F.clip(-low / scale, a_min=0, a_max=255)), dtype="uint8")
    return F.quantize(state, scale, zero), scale, zero
