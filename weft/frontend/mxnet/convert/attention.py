"""Converters of attention whose queries, keys and values are interleaved by head."""

from __future__ import annotations

from ....base.errors import FormatError
from ...emitter import Value
from ..call import Call
from ..registry import converter


def _parts(call: Call, value: Value, count: int) -> list[Value]:
    """(time, batch, heads * count * d) as `count` tensors of shape (batch * heads, time, d)."""
    time, batch, wide = call.shape(value)
    heads = call.attr("heads")
    if heads < 1 or wide % (heads * count):
        raise FormatError(f"{wide} features do not split into {count} for each of {heads} heads")
    size = wide // (heads * count)
    split = call.reshape(value, (time, batch * heads, count, size))
    parts = []
    for which in range(count):
        part = call.sliced(split, {2: (which, which + 1, 1)})
        part = call.reshape(part, (time, batch * heads, size))
        parts.append(call.op("transpose", part, axes=(1, 0, 2)))
    return parts


def _scores(call: Call, queries: Value, keys: Value) -> Value:
    """Products of all queries with all keys, over the root of their size."""
    scaled = call.scaled(queries, call.shape(queries)[-1] ** -0.5)
    return call.op("batch_matmul", scaled, keys, transpose_b=True)


def _mixed(call: Call, attention: Value, values: Value, batch: int) -> Value:
    """The values, weighed, as (time, batch, heads * d)."""
    mixed = call.op("batch_matmul", attention, values)
    heads_in_batch, time, size = call.shape(mixed)
    turned = call.op("transpose", mixed, axes=(1, 0, 2))
    return call.reshape(turned, (time, batch, heads_in_batch // batch * size))


@converter("_contrib_interleaved_matmul_selfatt_qk")
def self_scores(call: Call) -> Value:
    queries, keys, _ = _parts(call, call[0], 3)
    return _scores(call, queries, keys)


@converter("_contrib_interleaved_matmul_selfatt_valatt")
def self_mixed(call: Call) -> Value:
    values = _parts(call, call[0], 3)[2]
    return _mixed(call, call[1], values, call.shape(call[0])[1])


@converter("_contrib_interleaved_matmul_encdec_qk")
def cross_scores(call: Call) -> Value:
    [queries] = _parts(call, call[0], 1)
    return _scores(call, queries, _parts(call, call[1], 2)[0])


@converter("_contrib_interleaved_matmul_encdec_valatt")
def cross_mixed(call: Call) -> Value:
    values = _parts(call, call[0], 2)[1]
    return _mixed(call, call[1], values, call.shape(call[0])[1])
