"""Attention of ONNX Runtime, with projections, masks and caches in the forms that its optimiser writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....base.dtype import BOOL, INT32
from .....base.errors import FormatError, Unsupported
from .....base.shape import show
from ....building import in_float32
from ....emitter import Value
from ....products import matrix_product
from ...call import OnnxCall
from ..heads import (
    Heads,
    all_of,
    attended,
    attention_steps,
    first_keys,
    mask_of,
    merged_heads,
    split_heads,
    visible,
    written,
)
from ..rotary import angles, rotated
from .domain import microsoft
from .quantised import scaled_product


@microsoft("Attention", unidirectional=0, mask_filter_value=-10000.0, do_rotary=0, past_present_share_buffer=0)
def attention(call: OnnxCall) -> list[Value | None]:
    """The projection to queries, keys and values, which one matrix makes, and their attention."""
    bias = call.get(2)
    projected = matrix_product(call, call[0], call[1])
    projected = projected if bias is None else call.op("broadcast_add", projected, bias)
    return _self_attention(call, projected, call.get(3), call.get(4), call.get(5))


@microsoft("QAttention", unidirectional=0, mask_filter_value=-10000.0, do_rotary=0, past_present_share_buffer=0)
def quantised_attention(call: OnnxCall) -> list[Value | None]:
    """The same with a quantised input and matrix."""
    projected = scaled_product(call, (call[0], call[3], call.get(6)), (call[1], call[4], call.get(7)))
    projected = call.op("broadcast_add", projected, call[2])
    return _self_attention(call, projected, call.get(5), call.get(8), None)


def _self_attention(
    call: OnnxCall, projected: Value, mask: Value | None, past: Value | None, bias: Value | None
) -> list[Value | None]:
    if call.attr("do_rotary") or call.attr("past_present_share_buffer"):
        raise Unsupported(f"{call.op_type} with a rotary embedding, or with one buffer for past and present")
    heads, width = call.attr("num_heads"), call.extent(projected, 2)
    sizes = call.attr("qkv_hidden_sizes") or [width // 3] * 3
    starts = [sum(sizes[:i]) for i in range(3)]
    parts = [call.sliced(projected, {2: (at, at + size, 1)}) for at, size in zip(starts, sizes)]
    query, key, value = (split_heads(call, part, heads) for part in parts)
    before: int | str = 0
    if past is not None:
        _, batch, _, before, size = call.told(call.dims(past))
        old = [call.reshape(call.sliced(past, {0: (i, i + 1, 1)}), (batch, heads, before, size)) for i in range(2)]
        key, value = call.joined([old[0], key], 2), call.joined([old[1], value], 2)
    present = call.op("stack", key, value, axis=0) if 1 in call.wanted else None
    seen = _mask(call, query, key, mask, bias, before)
    return [merged_heads(call, _attended(call, query, key, value, seen)), present]


def _attended(call: OnnxCall, query: Value, key: Value, value: Value, mask: Value | None) -> Value:
    """In float32, of which the result is rounded."""
    heads, wide = _wide(call, query, key, value), None if mask is None else call.widened(mask)
    return call.cast(attended(call, heads, wide, call.attr("scale") or None), call.dtype(query))


def _wide(call: OnnxCall, *parts: Value) -> Heads:
    return Heads(*(call.widened(part) for part in parts))


def _mask(
    call: OnnxCall, query: Value, key: Value, keys: Value | None, bias: Value | None, before: Value | int | str
) -> Value | None:
    """What is added to the scores: a bias, the filter value for keys that the mask leaves out, and -inf for those ahead
    where attention goes one way."""
    dtype, (batch, _, length, _), total = call.dtype(query), call.told(call.dims(query)), call.told(call.dims(key))[2]
    if keys is not None:
        allowed = _allowed(call, keys, batch, length, total)
        out = mask_of(call, [allowed], None, dtype, hidden=call.attr("mask_filter_value"))
        assert out is not None
        bias = out if bias is None else call.op("broadcast_add", bias, out)
    else:
        call.ignore("mask_filter_value")
    ahead = visible(call, length, total, before, after=0) if call.attr("unidirectional") else None
    return mask_of(call, [ahead], bias, dtype)


def _allowed(call: OnnxCall, mask: Value, batch: int | str, length: int | str, total: int | str) -> Value:
    """Which keys count, by any of the forms: 0 and 1 for each key, or for each query too; how many keys there are;
    their ends and then their starts."""
    shape = call.dims(mask)
    if shape == (batch,):
        return first_keys(call, mask, total)
    true = call.cast(call.is_true(call.cast(mask, INT32)), BOOL) if len(shape) > 1 else mask
    if shape == (batch, total):
        return call.reshape(true, (batch, 1, 1, total))
    if shape == (batch, length, total):
        return call.reshape(true, (batch, 1, length, total))
    if not (isinstance(batch, int) and isinstance(length, int) and isinstance(total, int)):
        raise call.undetermined(f"what a mask of {show(shape)} is for {total} keys")
    shape = call.shape(mask)
    if shape == (3 * batch + 2,):
        return first_keys(call, call.sliced(mask, {0: (0, batch, 1)}), total)
    if shape == (2 * batch,):
        ends, starts = (call.sliced(mask, {0: (i * batch, (i + 1) * batch, 1)}) for i in range(2))
        outside = first_keys(call, starts, total)
        return all_of(call, [first_keys(call, ends, total), call.op("logical_not", outside)])
    if len(shape) == 4 and shape[:2] == (batch, 1) and total <= shape[3] and total <= shape[2]:
        return call.sliced(true, {2: (total - length, total, 1), 3: (0, total, 1)})
    raise FormatError(f"a mask of shape {shape} for {batch} x {length} queries and {total} keys")


@microsoft("DecoderMaskedMultiHeadAttention", mask_filter_value=-10000.0, past_present_share_buffer=0)
def decoder_masked_attention(call: OnnxCall) -> list[Value | None]:
    """The same of one token, with its inputs in another order. The table of beams says how many there are, too."""
    call.assume(unidirectional=0)
    call.ignore("output_qk", "past_present_share_buffer")
    given = [call.get(i) for i in range(11)]
    if call.attr("past_present_share_buffer") and given[5] is not None and given[7] is None:
        raise FormatError("one buffer for past and present, and no past_sequence_length")
    call.inputs = [given[i] for i in (0, 1, 2, 10, 3, 4, 5, 6, 7, 9)]
    return multi_head_attention(call)


@microsoft("MultiHeadAttention", unidirectional=0, mask_filter_value=-10000.0)
def multi_head_attention(call: OnnxCall) -> list[Value | None]:
    """Attention of queries, keys and values in separate tensors, or packed into one or two. What is past is as long as
    its tensors, or they are a buffer with places for more."""
    query, key, value = _separate(call, call.attr("num_heads"))
    past, count = (call.get(6), call.get(7)), call.get(8)
    if past.count(None) == 1:
        raise FormatError("past_key and past_value come together")
    before: Value | int | str = 0 if past[0] is None else call.told(call.dims(past[0]))[2]
    if count is not None and past[0] is not None:
        before = call.reshape(call.cast(count, INT32), (1,))
        starts = call.broadcast_to(before, (call.shape(key)[0],))
        key, value = (written(call, old, new, 2, starts) for old, new in zip(past, (key, value)) if old is not None)
    else:
        key, value = (new if old is None else call.joined([old, new], 2) for old, new in zip(past, (key, value)))
    present = key, value
    key, value = (_of_beams(call, part, before) for part in present)
    total = call.shape(key)[2] if isinstance(before, Value) else None
    keys, bias = (_as_long(call, call.get(i), total) for i in (4, 5))
    mask = _mask(call, query, key, keys, bias, before)
    if isinstance(before, Value) and total is not None:
        filled = first_keys(call, call.shifted(before, call.shape(query)[2]), total)
        mask = mask_of(call, [filled], mask, call.dtype(query))
    if 3 not in call.wanted:
        return [merged_heads(call, _attended(call, query, key, value, mask)), *present, None]
    if isinstance(before, Value):
        raise Unsupported(f"{call.op_type} that shows the scores of a buffer", why="how many there are is not known")
    wide = None if mask is None else call.widened(mask)
    steps = attention_steps(call, _wide(call, query, key, value), wide, call.attr("scale") or None)
    output, scores = (call.cast(part, call.dtype(query)) for part in (steps.output, steps.masked))
    return [merged_heads(call, output), *present, scores]


def _of_beams(call: OnnxCall, part: Value, before: Value | int | str) -> Value:
    """Keys or values of the past, each from the beam that the table of (batch, beams, places) names, for it to become
    the past of another; new ones are of their own."""
    table = call.get(9)
    if table is None:
        return part
    batch, heads, total, size = call.shape(part)
    batches, beams, places = call.shape(table)
    assert not isinstance(before, str)  # the past is part of what has numbers for its shape
    if batches * beams != batch or (isinstance(before, int) and places < before):
        raise FormatError(f"a table of beams of shape {call.shape(table)} for {batch} x {total} keys")
    own = call.positions(batch, 0, 2, INT32)
    first = call.make(np.arange(batches).repeat(beams)[:, None] * beams, INT32)
    known = min(places, total)
    named = call.op("broadcast_add", call.reshape(call.cast(table, INT32), (batch, places)), first)
    limit = before if isinstance(before, Value) else call.make([before], INT32)
    old = call.op("broadcast_less", call.positions(known, 1, 2, INT32), call.reshape(limit, (1, 1)))
    source = call.op("broadcast_where", old, call.sliced(named, {1: (0, known, 1)}), own)
    if known < total:
        source = call.joined([source, call.broadcast_to(own, (batch, total - known))], 1)
    spread = call.broadcast_to(call.reshape(source, (batch, 1, total, 1)), (batch, heads, total, size))
    return call.op("gather_elements", part, spread, axis=0)


def _as_long(call: OnnxCall, mask: Value | None, total: int | None) -> Value | None:
    """A mask or a bias for all places of a buffer, of which those behind its end are not seen."""
    if mask is None or total is None or call.rank(mask) < 2 or call.shape(mask)[-1] >= total:
        return mask
    return call.op("pad", mask, pad_width=((0, 0),) * (call.rank(mask) - 1) + ((0, total - call.shape(mask)[-1]),))


def _separate(call: OnnxCall, heads: int) -> list[Value]:
    """Query, key and value as (batch, heads, length, size), each with its part of the bias. Keys and values that have
    this form already are those of an encoder, and have theirs."""
    packed = [part for part in (call[0], call.get(1), call.get(2)) if part is not None]
    parts = [piece for part in packed for piece in _unpacked(call, part)]
    if len(parts) != 3:
        raise FormatError(f"{len(packed)} tensors that make {len(parts)} of query, key and value")
    bias, at, separate = call.get(3), 0, []
    for part in parts:
        if call.rank(part) == 4:
            at += call.extent(part, 1) * call.extent(part, 3)
            separate.append(part)
            continue
        size = call.extent(part, 2)
        if bias is not None:
            part = call.op("broadcast_add", part, call.sliced(bias, {0: (at, at + size, 1)}))
        at += size
        separate.append(split_heads(call, part, heads))
    return separate


def _unpacked(call: OnnxCall, part: Value) -> Sequence[Value]:
    """(batch, length, heads, count, size) as `count` tensors of (batch, length, heads x size)."""
    if call.rank(part) != 5:
        return [part]
    (batch, length), (heads, count, size) = call.dims(part)[:2], call.trailing(part, 2)
    slices = (call.sliced(part, {3: (i, i + 1, 1)}) for i in range(count))
    return [call.reshape(piece, (batch, length, heads * size)) for piece in slices]


_ROTARY: dict[str, Any] = {
    "interleaved": 0,
    "rotary_embedding_dim": 0,
    "num_heads": 0,
    "scale": 1.0,
    "is_packed_batching": 0,
}


@microsoft("RotaryEmbedding", **_ROTARY)
@in_float32
def rotary_embedding(call: OnnxCall) -> Value:
    """One position is that of the first token, which the others follow."""
    data, places, tables = call[0], call[1], (call[2], call[3])
    if call.rank(places) == 1:
        length = call.shape(data)[1 if call.rank(data) == 3 else 2]
        line = call.positions(length, 1, 2, INT32)
        places = call.op("broadcast_add", line, call.reshape(call.cast(places, INT32), (1, 1)))
    return _turned(call, data, *(angles(call, table, places) for table in tables))


@microsoft("MRotaryEmbedding", mrope_layout=0, **_ROTARY)
@in_float32
def multimodal_rotary_embedding(call: OnnxCall) -> Value:
    """A token has three positions, in time, height and width, of which each pair of numbers is turned by one: those of
    three sections, or in turn, as far as sections go."""
    sections, pairs = call.attr("mrope_section"), call.shape(call[2])[1]
    if len(sections) != 3 or sum(sections) != pairs or call.shape(call[1])[0] != 3:
        raise FormatError(f"sections {sections} of {pairs} pairs, with positions of {call.shape(call[1])}")
    if call.attr("mrope_layout"):
        stream = np.zeros(pairs, np.int64)
        for number in (1, 2):
            stream[number : 3 * sections[number] : 3] = number
    else:
        stream = np.repeat(range(3), sections)
    places = [call.reshape(call.sliced(call[1], {0: (i, i + 1, 1)}), call.shape(call[1])[1:]) for i in range(3)]
    tables = []
    for table in (call[2], call[3]):
        rows = [angles(call, table, place) for place in places]
        for number in (1, 2):
            rows[0] = call.op("broadcast_where", call.make(stream == number), rows[number], rows[0])
        tables.append(rows[0])
    return _turned(call, call[0], *tables)


def _turned(call: OnnxCall, data: Value, cos: Value, sin: Value) -> Value:
    """Data turned by angles for each token. Packed heads have the size that the angles say, unless their number is
    given, as it is where only a part of each is turned."""
    if call.attr("scale") != 1 or call.attr("is_packed_batching"):
        raise Unsupported(f"{call.op_type} with a scale, or with sequences packed into one")
    packed, part = call.rank(data) == 3, call.attr("rotary_embedding_dim")
    if packed:
        heads = call.attr("num_heads") or call.shape(data)[2] // (2 * call.shape(cos)[3])
        data = split_heads(call, data, heads)
    else:
        call.ignore("num_heads")
    turned = rotated(call, data, cos, sin, bool(call.attr("interleaved")), part)
    return merged_heads(call, turned) if packed else turned
