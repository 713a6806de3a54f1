"""GroupQueryAttention: heads of queries that share keys and values, which are kept in a cache from step to step."""

from __future__ import annotations

import math
from itertools import pairwise

from .....base.dtype import INT32
from .....base.errors import FormatError
from .....base.shape import broadcast, max_dims, show, sub_dims
from ....emitter import Value
from ...call import OnnxCall
from ..heads import Heads, attended, attention_steps, first_keys, mask_of, merged_heads, split_heads, visible
from ..norms import rms_norm
from ..rotary import angles, rotated
from .caches import NOWHERE, Step, Window, extended, levels_of, numbers, stored
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


@microsoft("GroupQueryAttention", decides=(6,), **_DEFAULTS)
def group_query_attention(call: OnnxCall) -> list[Value | None]:
    query, key, value = _separate(call)
    length, past = call.told(call.dims(query))[2], (call.get(3), call.get(4))
    step = _step(call, length)
    query, key = _normalised(call, query, 14), _normalised(call, key, 15)
    if call.attr("do_rotary"):
        query, key = _turned(call, query, step), _turned(call, key, step)
    else:
        call.ignore(7, 8, 9, "rotary_interleaved")
    levels = levels_of(call, "k", 12), levels_of(call, "v", 13)
    call.ignore(12, 13, "kv_cache_bit_width")
    new = [stored(call, part, how) for part, how in zip((key, value), levels)]
    window = _window(call, step)
    if window is None:
        present = seen = [extended(call, old, part, step) for old, part in zip(past, new)]
    else:
        seen = [call.joined([old, part], 2) for old, part in zip(past, new) if old is not None]
        present = [window.present(part) for part in seen]
    heads = Heads(call.widened(query), *(numbers(call, part, how) for part, how in zip(seen, levels)))
    output, shown = _attended(call, heads, step, window)
    dtype = call.dtype(query)
    scores = None if shown is None else call.cast(shown, dtype)
    return [merged_heads(call, call.cast(output, dtype)), *present, scores]


def _window(call: OnnxCall, step: Step) -> Window | None:
    """The cache as one of the last tokens, where it is that."""
    if not call.attr("sliding_window_cache"):
        return None
    past = call.get(3)
    if past is None or call.get(4) is None or 3 in call.wanted or not call.attr("causal"):
        raise FormatError("a cache of the last tokens has keys and values, shows no scores, and is read one way")
    length = call.shape(call[0])[1]
    return Window(call, step.before, length, call.shape(past)[2], call.attr("local_window_size"))


def _separate(call: OnnxCall) -> list[Value]:
    """Query, key and value as (batch, heads, length, size), from three tensors or from one."""
    heads, shared = call.attr("num_heads"), call.attr("kv_num_heads")
    if call.get(1) is not None:
        return [split_heads(call, call[i], count) for i, count in enumerate((heads, shared, shared))]
    size = call.extent(call[0], 2) // (heads + 2 * shared)
    bounds = [0, heads, heads + shared, heads + 2 * shared]
    parts = [call.sliced(call[0], {2: (a * size, b * size, 1)}) for a, b in pairwise(bounds)]
    return [split_heads(call, part, count) for part, count in zip(parts, (heads, shared, shared))]


def _step(call: OnnxCall, length: int | str) -> Step:
    """As many tokens as the whole sequence has are its first ones; others are the last of theirs."""
    (total,), past = call.told(call.extents(6, "the total length")), call.get(3)
    held = 0 if past is None else call.told(call.dims(past))[2]
    if total == length:
        call.ignore(5)
        return Step(0, call.told([max_dims(total, held)])[0])
    before = call.shifted(call.flat(call.cast(call[5], INT32)), 1)
    before = call.op("broadcast_sub", before, call.counted(length, INT32))
    if isinstance(total, str):  # which may be the length after all, when there is nothing past
        before = call.op("clip", before, a_min=0, a_max=NOWHERE)
    grows = sub_dims(total, held) == length
    return Step(before, total if grows else call.told([max_dims(total, held)])[0])


def _normalised(call: OnnxCall, data: Value, index: int) -> Value:
    scale, epsilon = call.get(index), call.attr("qk_norm_epsilon")
    return data if scale is None else rms_norm(call, data, scale, 3, epsilon)


def _turned(call: OnnxCall, data: Value, step: Step) -> Value:
    """By the angles of the positions, which follow those before unless they are given."""
    cos, sin, places = call[7], call[8], call.get(9)
    if places is None:
        places = call.positions(call.told(call.dims(data))[2], 1, 2, INT32)
        if isinstance(step.before, Value):
            before = call.reshape(step.before, (*call.shape(step.before), 1))
            places = call.op("broadcast_add", places, before)
    cosines, sines = (angles(call, call.widened(table), places) for table in (cos, sin))
    turned = rotated(
        call, call.widened(data), cosines, sines, bool(call.attr("rotary_interleaved")), 2 * call.shape(cos)[1]
    )
    return call.cast(turned, call.dtype(data))


def _attended(call: OnnxCall, heads: Heads, step: Step, window: Window | None) -> tuple[Value, Value | None]:
    """What is seen, and the scores or weights of it where they are asked for."""
    (_, _, length, _), (_, _, capacity, _) = (call.told(call.dims(part)) for part in heads[:2])
    dtype = call.dtype(heads.query)
    scale, softcap, mode, bias = call.attr("scale") or None, call.attr("softcap"), call.attr("qk_output"), call.get(10)
    bias = None if bias is None else call.widened(bias)
    seen: Value | None
    if window is not None:
        seen, bias = window.seen(), None if bias is None else window.columns(bias)
    else:
        bias = None if bias is None else _as_long(call, bias, capacity)
        before = max(call.attr("local_window_size"), 0) - 1
        causal = call.attr("causal")
        seen = visible(call, length, capacity, step.before, before, 0) if causal else _present(call, capacity)
    mask = mask_of(call, [seen], bias, dtype)
    key, value, mask = _with_sink(call, heads.key, heads.value, mask)
    heads = Heads(heads.query, key, value)
    if 3 not in call.wanted:
        return attended(call, heads, mask, scale, softcap), None
    steps = attention_steps(call, heads, mask, scale, softcap)
    if mode not in (1, 2):
        raise FormatError(f"an output of scores with qk_output {mode}")
    shown = steps.weights if mode == 2 else _without_hidden(call, steps.masked)
    return steps.output, call.sliced(shown, {3: (0, int(call.number(6, "the total length")), 1)})


def _without_hidden(call: OnnxCall, scores: Value) -> Value:
    """Scores, of which those that are hidden are shown as 0."""
    zero, lowest = (call.make(number, call.dtype(scores)) for number in (0, -math.inf))
    return call.op("broadcast_where", call.op("broadcast_equal", scores, lowest), zero, scores)


def _present(call: OnnxCall, capacity: int | str) -> Value:
    """Which keys there are, of which a sequence has one more than is said."""
    return first_keys(call, call.shifted(call.flat(call.cast(call[5], INT32)), 1), capacity)


def _as_long(call: OnnxCall, bias: Value, capacity: int | str) -> Value:
    """The bias for all places of the cache, of which those behind its end are not seen."""
    if call.dims(bias)[3] == capacity:
        return bias
    if isinstance(capacity, str):
        raise call.undetermined(f"whether a bias of {show(call.dims(bias))} is for {capacity} keys")
    missing = capacity - call.extent(bias, 3)
    if missing < 0:
        raise FormatError(f"a bias of {call.shape(bias)} for {capacity} keys")
    return call.op("pad", bias, pad_width=((0, 0),) * 3 + ((0, missing),)) if missing else bias


def _with_sink(call: OnnxCall, key: Value, value: Value, mask: Value | None) -> tuple[Value, Value, Value | None]:
    """A softmax over one key more, which has a score of its own in each head, or 0, and no value."""
    sink, smooth = call.get(11), call.attr("smooth_softmax") > 0
    if sink is None and not smooth:
        return key, value, mask
    heads, dtype, capacity = call.attr("num_heads"), call.dtype(key), call.told(call.dims(key))[2]
    mask = call.op("zeros", shape=(1, 1, 1, capacity), dtype=dtype) if mask is None else mask
    outer = broadcast(call.dims(mask)[:-1], (1, heads, 1)) or ()
    score = call.make(0, dtype) if sink is None else call.reshape(call.cast(sink, dtype), (1, heads, 1, 1))
    columns = call.broadcast_to(mask, (*outer, capacity)), call.broadcast_to(score, (*outer, 1))
    return _with_zeros(call, key), _with_zeros(call, value), call.joined(columns, 3)


def _with_zeros(call: OnnxCall, value: Value) -> Value:
    return call.op("pad", value, pad_width=((0, 0), (0, 0), (0, 1), (0, 0)))
