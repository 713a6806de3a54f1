"""Converters of attention: softmax over keys with its masks and caches, and updates of a cache that is kept outside."""

from __future__ import annotations

import math

from ....base.dtype import BOOL, INT32, DType
from ....base.errors import FormatError
from ....base.shape import show, sub_dims
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter
from ..tensors import dtype_of
from .heads import (
    Attended,
    Heads,
    attended,
    attention_steps,
    first_keys,
    mask_of,
    merged_heads,
    split_heads,
    visible,
    written,
)


@converter("Attention", since=23)
def attention(call: OnnxCall) -> list[Value | None]:
    """softmax(Q K^T scale + mask) V, for heads that are an axis, or packed into the last one."""
    packed = call.rank(call[0]) == 3
    query, key, value = _given(call, packed)
    past, lengths = (call.get(4), call.get(5)), call.get(6)
    if past.count(None) == 1 or (lengths is not None and past[0] is not None):
        raise FormatError("past_key and past_value come together, and without nonpad_kv_seqlen")
    before = 0 if past[0] is None else call.told(call.dims(past[0]))[2]
    key, value = (new if old is None else call.joined([old, new], 2) for old, new in zip(past, (key, value)))
    heads, mask = Heads(query, key, value), _mask(call, query, key, before)
    scale, softcap, mode = (call.attr(name) for name in ("scale", "softcap", "qk_matmul_output_mode"))
    precision = _softmax_precision(call)
    if 3 in call.wanted or precision not in (None, call.dtype(query)):
        steps = attention_steps(call, heads, mask, scale, softcap, precision)
        output, shown = steps.output, _shown(steps, mode)
    else:
        output, shown = attended(call, heads, mask, scale, softcap), None
    return [merged_heads(call, output) if packed else output, key, value, shown]


def _given(call: OnnxCall, packed: bool) -> list[Value]:
    counts = [call.attr(f"{side}_num_heads") for side in ("q", "kv", "kv")]
    inputs = [call[i] for i in range(3)]
    return [split_heads(call, part, count) for part, count in zip(inputs, counts)] if packed else inputs


def _mask(call: OnnxCall, query: Value, key: Value, before: int | str) -> Value | None:
    """What the mask, the lengths of sequences, the triangle and the window leave. Queries follow `before` keys, or are
    the last ones of their sequence where lengths are given."""
    length, total = call.told((call.dims(query)[2], call.dims(key)[2]))
    lengths, given = call.get(6), _full_mask(call, total)
    seen = None if lengths is None else first_keys(call, lengths, total)
    place = before if lengths is None else call.shifted(call.cast(lengths, INT32), -call.extent(query, 2))
    behind, ahead = call.attr("left_window_size", -1), call.attr("right_window_size", -1)
    window = visible(call, length, total, place, behind, 0 if call.attr("is_causal") else ahead)
    if given is None or call.dtype(given) == BOOL:
        return mask_of(call, [given, window, seen], None, call.dtype(query))
    return mask_of(call, [window, seen], given, call.dtype(query))


def _full_mask(call: OnnxCall, total: int | str) -> Value | None:
    """The mask, of booleans or in the dtype of the query; keys behind its end are hidden."""
    mask = call.get(3)
    if mask is None:
        return None
    mask = mask if call.dtype(mask) == BOOL else call.cast(mask, call.dtype(call[0]))
    if call.dims(mask)[-1] == total:
        return mask
    missing = sub_dims(total, call.extent(mask, -1))
    if not isinstance(missing, int):
        raise call.undetermined(f"whether a mask of {show(call.dims(mask))} is for all of {total} keys")
    if missing < 0:
        raise FormatError(f"a mask of {call.shape(mask)} for {total} keys")
    width = ((0, 0),) * (call.rank(mask) - 1) + ((0, missing),)
    return call.op("pad", mask, pad_width=width, pad_value=0.0 if call.dtype(mask) == BOOL else -math.inf)


def _softmax_precision(call: OnnxCall) -> DType | None:
    code = call.attr("softmax_precision", 0)
    return dtype_of(code, "attribute 'softmax_precision'") if code else None


def _shown(steps: Attended, mode: int) -> Value:
    """What the fourth output shows: a step of the way."""
    if mode not in range(4):
        raise FormatError(f"unknown qk_matmul_output_mode {mode}")
    return (steps.scores, steps.capped, steps.masked, steps.weights)[mode]


@converter("TensorScatter", since=24)
def tensor_scatter(call: OnnxCall) -> Value:
    """The cache with the update at a place of its own for each item of the batch; going round in a circle, or not."""
    cache, update, mode = call[0], call[1], call.attr("mode")
    axis = call.axis(call.attr("axis"), cache)
    if mode not in ("linear", "circular") or not axis:
        raise FormatError(f"mode {mode!r} along axis {axis}")
    return written(call, cache, update, axis, call.get(2), mode == "circular")
