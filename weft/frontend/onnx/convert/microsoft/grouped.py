"""GroupQueryAttention: heads of queries that share keys and values, which are kept in a cache from step to step."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .....base.dtype import INT32
from .....base.errors import FormatError, Unsupported
from ....emitter import Value
from ...call import OnnxCall
from ..heads import Heads, attended, attention_steps, first_keys, mask_of, merged_heads, split_heads, visible, written
from ..norms import rms_norm
from ..rotary import angles, rotated
from .domain import microsoft

_DEFAULTS = {
    "do_rotary": 0,
    "rotary_interleaved": 0,
    "local_window_size": -1,
    "softcap": 0.0,
    "smooth_softmax": -1,
    "causal": 1,
    "qk_output": 0,
    "qk_norm_epsilon": 1e-6,
    "sliding_window_cache": 0,
    "kv_cache_bit_width": 0,
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
}


class _Step(NamedTuple):
    """Where the tokens of a step stand: behind how many others of their sequence, in a cache of how many places."""

    before: Value | int
    capacity: int


@microsoft("GroupQueryAttention", decides=(6,), **_DEFAULTS)
def group_query_attention(call: OnnxCall) -> list[Value | None]:
    if call.attr("k_quant_type") != "NONE" or call.attr("v_quant_type") != "NONE" or call.attr("sliding_window_cache"):
        raise Unsupported("GroupQueryAttention with a quantised cache, or one as large as the window")
    call.ignore("kv_cache_bit_width")
    query, key, value = _separate(call)
    step = _step(call, call.shape(query)[2])
    query, key = _normalised(call, query, 14), _normalised(call, key, 15)
    if call.attr("do_rotary"):
        query, key = _turned(call, query, step), _turned(call, key, step)
    else:
        call.ignore(7, 8, 9, "rotary_interleaved")
    key, value = _cached(call, call.get(3), key, step), _cached(call, call.get(4), value, step)
    output, shown = _attended(call, query, key, value, step)
    return [merged_heads(call, output), key, value, shown]


def _separate(call: OnnxCall) -> list[Value]:
    """Query, key and value as (batch, heads, length, size), from three tensors or from one."""
    heads, shared = call.attr("num_heads"), call.attr("kv_num_heads")
    if call.get(1) is not None:
        return [split_heads(call, call[i], count) for i, count in enumerate((heads, shared, shared))]
    size = call.shape(call[0])[2] // (heads + 2 * shared)
    bounds = [0, heads, heads + shared, heads + 2 * shared]
    parts = [call.sliced(call[0], {2: (a * size, b * size, 1)}) for a, b in pairwise(bounds)]
    return [split_heads(call, part, count) for part, count in zip(parts, (heads, shared, shared))]


def _step(call: OnnxCall, length: int) -> _Step:
    """As many tokens as the whole sequence has are its first ones; others are the last of theirs."""
    total, past = int(call.number(6, "the total length")), call.get(3)
    capacity = max(total, 0 if past is None else call.shape(past)[2])
    if total == length:
        call.ignore(5)
        return _Step(0, capacity)
    return _Step(call.shifted(call.flat(call.cast(call[5], INT32)), 1 - length), capacity)


def _normalised(call: OnnxCall, data: Value, index: int) -> Value:
    scale, epsilon = call.get(index), call.attr("qk_norm_epsilon")
    return data if scale is None else rms_norm(call, data, scale, 3, epsilon)


def _turned(call: OnnxCall, data: Value, step: _Step) -> Value:
    """By the angles of the positions, which follow those before unless they are given."""
    cos, sin, places = call[7], call[8], call.get(9)
    if places is None:
        places = call.positions(call.shape(data)[2], 1, 2, INT32)
        if isinstance(step.before, Value):
            before = call.reshape(step.before, (*call.shape(step.before), 1))
            places = call.op("broadcast_add", places, before)
    cosines, sines = (angles(call, call.widened(table), places) for table in (cos, sin))
    turned = rotated(
        call, call.widened(data), cosines, sines, bool(call.attr("rotary_interleaved")), 2 * call.shape(cos)[1]
    )
    return call.cast(turned, call.dtype(data))


def _cached(call: OnnxCall, past: Value | None, new: Value, step: _Step) -> Value:
    """The cache with the new tokens in it, behind those before; it grows where it has no place for them."""
    batch, heads, length, size = call.shape(new)
    if past is None and step.capacity == length:
        return new
    if past is None:
        raise FormatError(f"{length} tokens of {step.capacity}, and nothing is past")
    room = step.capacity - call.shape(past)[2]
    if room and batch == 1 and room == length:
        return call.joined([past, new], 2)
    if room:
        past = call.joined([past, call.op("zeros", shape=(batch, heads, room, size), dtype=call.dtype(past))], 2)
    start = step.before if isinstance(step.before, Value) else None
    return written(call, past, new, 2, start)


def _attended(call: OnnxCall, query: Value, key: Value, value: Value, step: _Step) -> tuple[Value, Value | None]:
    """What is seen, and the scores or weights of it where they are asked for."""
    dtype, length = call.dtype(query), call.shape(query)[2]
    causal, window, bias = call.attr("causal"), call.attr("local_window_size"), call.get(10)
    capacity, scale, softcap = call.shape(key)[2], call.attr("scale") or None, call.attr("softcap")
    query, key, value = (call.widened(part) for part in (query, key, value))
    bias = None if bias is None else _as_long(call, call.widened(bias), capacity)
    seen = visible(call, length, capacity, step.before, max(window, 0) - 1, 0) if causal else _present(call, capacity)
    mask = mask_of(call, [seen], bias, call.dtype(query))
    key, value, mask = _with_sink(call, key, value, mask)
    heads, mode = Heads(query, key, value), call.attr("qk_output")
    if 3 not in call.wanted:
        return call.cast(attended(call, heads, mask, scale, softcap), dtype), None
    steps = attention_steps(call, heads, mask, scale, softcap)
    if mode not in (1, 2):
        raise FormatError(f"an output of scores with qk_output {mode}")
    shown = steps.weights if mode == 2 else _without_hidden(call, steps.masked)
    return call.cast(steps.output, dtype), call.cast(call.sliced(shown, {3: (0, capacity, 1)}), dtype)


def _without_hidden(call: OnnxCall, scores: Value) -> Value:
    """Scores, of which those that are hidden are shown as 0."""
    zero, lowest = (call.make(number, call.dtype(scores)) for number in (0, -math.inf))
    return call.op("broadcast_where", call.op("broadcast_equal", scores, lowest), zero, scores)


def _present(call: OnnxCall, capacity: int) -> Value:
    """Which keys there are, of which a sequence has one more than is said."""
    return first_keys(call, call.shifted(call.flat(call.cast(call[5], INT32)), 1), capacity)


def _as_long(call: OnnxCall, bias: Value, capacity: int) -> Value:
    """The bias for all places of the cache, of which those behind its end are not seen."""
    missing = capacity - call.shape(bias)[3]
    if missing < 0:
        raise FormatError(f"a bias of {call.shape(bias)} for {capacity} keys")
    return call.op("pad", bias, pad_width=((0, 0),) * 3 + ((0, missing),)) if missing else bias


def _with_sink(call: OnnxCall, key: Value, value: Value, mask: Value | None) -> tuple[Value, Value, Value | None]:
    """A softmax over one key more, which has a score of its own in each head, or 0, and no value."""
    sink, smooth = call.get(11), call.attr("smooth_softmax") > 0
    if sink is None and not smooth:
        return key, value, mask
    heads, dtype, capacity = call.attr("num_heads"), call.dtype(key), call.shape(key)[2]
    mask = call.op("zeros", shape=(1, 1, 1, capacity), dtype=dtype) if mask is None else mask
    outer = np.broadcast_shapes(call.shape(mask)[:-1], (1, heads, 1))
    score = call.make(0, dtype) if sink is None else call.reshape(call.cast(sink, dtype), (1, heads, 1, 1))
    columns = call.broadcast_to(mask, (*outer, capacity)), call.broadcast_to(score, (*outer, 1))
    return _with_zeros(call, key), _with_zeros(call, value), call.joined(columns, 3)


def _with_zeros(call: OnnxCall, value: Value) -> Value:
    return call.op("pad", value, pad_width=((0, 0), (0, 0), (0, 1), (0, 0)))
