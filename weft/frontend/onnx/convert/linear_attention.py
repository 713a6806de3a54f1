"""Converters of what some language models have in place of attention and its layers: linear attention, whose keys and
values add up to a state, and gated activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ....base.dtype import FLOAT32
from ....base.errors import FormatError
from ....core.symbol import Group
from ....ops.control_flow import input_name
from ...building import in_float32
from ...emitter import Emitter, Value
from ..call import OnnxCall
from ..registry import converter

Operator = Callable[..., Value]  # f(name of a weft operator, *values, **attributes)


@converter("LinearAttention", since=27)
def linear_attention(call: OnnxCall) -> list[Value]:
    """Token by token: the state fades, takes in key and value, and is read by the query; in float32."""
    call.ignore("chunk_size")
    heads, rule = call.attr("kv_num_heads"), call.attr("update_rule")
    if rule not in ("linear", "gated", "delta", "gated_delta") or call.attr("q_num_heads") % heads:
        raise FormatError(f"update_rule {rule!r} with {call.attr('q_num_heads')} heads on {heads}")
    batch, length, _ = call.shape(call[0])
    group, width = call.attr("q_num_heads") // heads, call.shape(call[1])[2] // heads
    size = call.shape(call[2])[2] // heads
    query = _by_time(call, call.scaled(_wide(call, 0), call.attr("scale") or 1 / math.sqrt(width)), heads, group, width)
    key, value = _by_time(call, _wide(call, 1), heads, width, 1), _by_time(call, _wide(call, 2), heads, 1, size)
    data = [query, key, value, *_gates(call, rule, heads)]
    past = call.get(3)
    kept = call.dtype(call[0] if past is None else past)
    state = call.op("zeros", shape=(batch, heads, width, size), dtype=FLOAT32) if past is None else _wide(call, 3)
    output, state = _all_steps(call, data, state, rule)
    output = call.reshape(call.op("transpose", output, axes=(1, 0, 2, 3, 4)), (batch, length, heads * group * size))
    return [call.cast(output, call.dtype(call[0])), call.cast(state, kept)]


def _wide(call: OnnxCall, index: int) -> Value:
    return call.cast(call[index], FLOAT32)


def _by_time(call: OnnxCall, value: Value, heads: int, rows: int, columns: int) -> Value:
    """(batch, length, heads x rows x columns) as (length, batch, heads, rows, columns)."""
    batch, length, _ = call.shape(value)
    return call.op("transpose", call.reshape(value, (batch, length, heads, rows, columns)), axes=(1, 0, 2, 3, 4))


def _gates(call: OnnxCall, rule: str, heads: int) -> list[Value]:
    """How much of the state stays, a number for each head or each row of it; how much of the difference it takes."""
    gates = []
    if "gated" in rule:
        rows = call.shape(call[4])[2] // heads
        gates.append(_by_time(call, call.op("exp", _wide(call, 4)), heads, rows, 1))
    if "delta" in rule:
        gates.append(_by_time(call, _wide(call, 5), call.shape(call[5])[2], 1, 1))
    return gates


def _all_steps(call: OnnxCall, data: Sequence[Value], state: Value, rule: str) -> tuple[Value, Value]:
    """The outputs of all tokens, along the first axis, and the last state; a single token takes no loop."""
    if call.shape(data[0])[0] == 1:
        first = [call.reshape(part, call.shape(part)[1:]) for part in data]
        output, state = _step(call.op, first, state, rule)
        return call.op("expand_dims", output, axis=0), state
    emitter = Emitter(call.emitter)
    items = [emitter.input(input_name(i), call.shape(part)[1:], FLOAT32) for i, part in enumerate(data)]
    before = emitter.input(input_name(len(data)), state.shape, FLOAT32)
    body = Group([emitter.symbol(value) for value in _step(partial(_applied, emitter), items, before, rule)])
    attrs = {"num_data": len(data), "num_states": 1, "num_outputs": 1}
    output, state = call.emitter.control("scan", call.name, [*data, state], [body], attrs)
    return output, state


def _applied(emitter: Emitter, op_name: str, *inputs: Value, **attrs: Any) -> Value:
    (output,) = emitter.apply(op_name, emitter.fresh_name(op_name), list(inputs), attrs)
    return output


def _step(op: Operator, data: Sequence[Value], state: Value, rule: str) -> tuple[Value, Value]:
    """S = fade S + rate k (v - S' k)', gates may be missing; o = q S. Key and value are a column and a row."""
    query, key, value, *gates = data
    if "gated" in rule:
        state = op("broadcast_mul", state, gates[0])
    if "delta" in rule:
        known = op("batch_matmul", key, state, transpose_a=True)
        value = op("broadcast_mul", op("elemwise_sub", value, known), gates[-1])
    state = op("elemwise_add", state, op("broadcast_mul", key, value))
    return op("batch_matmul", query, state), state


@converter("SwiGLU", since=28)
@in_float32
def swiglu(call: OnnxCall) -> Value:
    """a sigmoid(alpha a) b"""
    gate = call.op("sigmoid", call.scaled(call[0], call.attr("alpha")))
    return call.op("elemwise_mul", call.op("elemwise_mul", call[0], gate), call[1])
