"""Attention over several heads, of which the operators of ONNX and of ONNX Runtime have many forms: tensors of
(batch, heads, length, size), which keys a query may see, and the product itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....base.dtype import BOOL, INT32, DType
from ....base.errors import FormatError, Unsupported
from ....base.shape import mul_dims
from ...building import NARROW, Building
from ...emitter import Value

# Heads.


def split_heads(call: Building, value: Value, heads: int | None) -> Value:
    """(batch, length, heads x size) as (batch, heads, length, size)."""
    (batch, length, _), size = call.dims(value), call.extent(value, 2)
    if not heads or size % heads:
        raise FormatError(f"{size} columns do not split into {heads} heads")
    split = call.reshape(value, (batch, length, heads, size // heads))
    return call.op("transpose", split, axes=(0, 2, 1, 3))


def merged_heads(call: Building, value: Value) -> Value:
    """(batch, heads, length, size) as (batch, length, heads x size)."""
    batch, _, length, _ = call.dims(value)
    swapped = call.op("transpose", value, axes=(0, 2, 1, 3))
    return call.reshape(swapped, (batch, length, call.extent(value, 1) * call.extent(value, 3)))


def for_all_heads(call: Building, value: Value, heads: int) -> Value:
    """Keys or values that several heads of queries share, once for each."""
    count = call.extent(value, 1)
    if not count or heads % count:
        raise Unsupported(f"{call.op_type} of {heads} heads on {count} is not supported")
    return value if heads == count else call.op("repeat", value, repeats=heads // count, axis=1)


# Which keys a query may see.


def visible(
    call: Building, length: int | str, total: int | str, offset: int | str | Value, before: int = -1, after: int = -1
) -> Value | None:
    """Whether query i, which stands at i + offset, sees key j: at most `before` places behind it and `after` ahead,
    where -1 is no limit; None if there is none. An offset for each item of the batch gives a mask for each."""
    if before < 0 and after < 0:
        return None
    places = call.positions(length, 0, 2, INT32)
    if isinstance(offset, str):
        places = call.op("broadcast_add", places, call.counted(offset, INT32))
    elif isinstance(offset, Value):
        offset = call.reshape(call.cast(offset, INT32), (*call.dims(offset), 1, 1, 1))
        places = call.op("broadcast_add", places, offset)
    elif offset:
        places = call.shifted(places, offset)
    distance = call.op("broadcast_sub", places, call.positions(total, 1, 2, INT32))
    limits = [("broadcast_less_equal", before)] if before >= 0 else []
    limits += [("broadcast_greater_equal", -after)] if after >= 0 else []
    return all_of(call, [call.op(name, distance, call.make(limit, INT32)) for name, limit in limits])


def first_keys(call: Building, counts: Value, total: int | str) -> Value:
    """Whether key j is among the first so many of its item of the batch: (batch, 1, 1, total)."""
    counts = call.reshape(call.cast(counts, INT32), (*call.dims(counts), 1, 1, 1))
    return call.cast(call.op("broadcast_less", call.positions(total, 3, 4, INT32), counts), BOOL)


def all_of(call: Building, conditions: Sequence[Value]) -> Value:
    """Where all of them hold."""
    every = call.cast(conditions[0], BOOL)
    for condition in conditions[1:]:
        every = call.op("broadcast_min", every, call.cast(condition, BOOL))
    return every


def mask_of(
    call: Building, allowed: Sequence[Value | None], bias: Value | None, dtype: DType, hidden: float = -math.inf
) -> Value | None:
    """What is added to the scores: the bias, and -inf or `hidden` in place of it for keys that are not allowed."""
    conditions = [condition for condition in allowed if condition is not None]
    if not conditions:
        return bias
    bias = call.make(0, dtype) if bias is None else bias
    return call.op("broadcast_where", all_of(call, conditions), bias, call.make(hidden, dtype))


# The product.


class Heads(NamedTuple):
    """Query, key and value, each (batch, heads, length, size); heads of the query may share those of the others."""

    query: Value
    key: Value
    value: Value


class Attended(NamedTuple):
    """What attention gives, and what it goes through."""

    output: Value
    scores: Value
    capped: Value
    masked: Value
    weights: Value


def attended(call: Building, heads: Heads, mask: Value | None, scale: float | None, softcap: float = 0) -> Value:
    """softmax(query key' scale + mask) value, as one operator where there is one for it."""
    (batch, _, length, _), count = call.dims(heads.query), call.extent(heads.query, 1)
    if call.extent(heads.key, 1) < count and (mask is None or length == 1):
        folded, mask = _as_rows(call, heads, mask)
        output = attended(call, folded, mask, scale, softcap)
        return call.reshape(output, (batch, count, length, call.extent(output, 3)))
    query, key, value = heads
    if softcap or call.dtype(query) in NARROW or call.dtype(value) != call.dtype(query):
        return attention_steps(call, heads, mask, scale, softcap).output
    key, value = (for_all_heads(call, part, count) for part in (key, value))
    inputs = (query, key, value) if mask is None else (query, key, value, mask)
    kind = "none" if mask is None else "additive"
    return call.op("scaled_dot_product_attention", *inputs, mask=kind, scale=scale)


def _as_rows(call: Building, heads: Heads, mask: Value | None) -> tuple[Heads, Value | None]:
    """Heads that share a key as more queries of one head, so that keys are not repeated. A mask has one query."""
    batch, _, length, size = call.dims(heads.query)
    shared = call.extent(heads.key, 1)
    group = call.extent(heads.query, 1) // max(shared, 1)
    if mask is not None and call.rank(mask) > 2 and call.extent(mask, -3) > 1:
        *outer, _, _, total = call.dims(mask)
        mask = call.reshape(mask, (*outer, shared, group, total))
    rows = mul_dims(group, length)
    return heads._replace(query=call.reshape(heads.query, (batch, shared, rows, size))), mask


def attention_steps(
    call: Building,
    heads: Heads,
    mask: Value | None,
    scale: float | None,
    softcap: float = 0,
    precision: DType | None = None,
) -> Attended:
    """The same step by step, each rounded to the dtype of the query as the format defines it; the softmax may have a
    precision of its own. Query and key are scaled by the root each, so that narrow numbers do not overflow."""
    query, key, value = heads
    dtype, count = call.dtype(query), call.extent(query, 1)
    scale = 1 / math.sqrt(max(call.extent(query, 3), 1)) if scale is None else scale
    root = math.sqrt(abs(scale))
    left, right = call.scaled(query, math.copysign(root, scale)), call.scaled(key, root)
    scores = call.op("batch_matmul", left, for_all_heads(call, right, count), transpose_b=True)
    capped = _capped(call, scores, softcap)
    masked = capped if mask is None else call.op("broadcast_add", capped, mask)
    weights = _softmax(call, call.cast(masked, precision or dtype))
    if mask is not None:
        weights = _without_hidden_rows(call, weights, mask)
    weights = call.cast(weights, dtype)
    wide = np.result_type(dtype, call.dtype(value))
    spread = for_all_heads(call, call.cast(value, wide), count)
    output = call.op("batch_matmul", call.cast(weights, wide), spread)
    return Attended(call.cast(output, dtype), scores, capped, masked, weights)


def _capped(call: Building, scores: Value, softcap: float) -> Value:
    """softcap tanh(scores / softcap)"""
    if not softcap:
        return scores
    return call.scaled(call.op("tanh", call.op("__div_scalar__", scores, scalar=softcap)), softcap)


def _softmax(call: Building, scores: Value) -> Value:
    """exp(x - max) / sum of those along the last axis; 0 where all are -inf."""
    zero, one, lowest = (call.make(number, call.dtype(scores)) for number in (0, 1, -math.inf))
    top = call.op("max", scores, axis=(-1,), keepdims=True)
    hidden = call.op("broadcast_equal", top, lowest)
    powers = call.op("exp", call.op("broadcast_sub", scores, call.op("broadcast_where", hidden, zero, top)))
    total = call.op("sum", powers, axis=(-1,), keepdims=True)
    return call.op("broadcast_div", powers, call.op("broadcast_where", hidden, one, total))


def _without_hidden_rows(call: Building, weights: Value, mask: Value) -> Value:
    """0 for a query that may see nothing, whatever its scores are."""
    top = call.op("max", mask, axis=(-1,), keepdims=True)
    hidden = call.op("broadcast_equal", top, call.make(-math.inf, call.dtype(mask)))
    return call.op("broadcast_where", hidden, call.make(0, call.dtype(weights)), weights)


# A cache that is written in place.


def written(
    call: Building, cache: Value, update: Value, axis: int, start: Value | None, circular: bool = False
) -> Value:
    """The cache with an update along an axis, which begins at a place of its own for each item of the batch: place p
    holds number p - start of the update, where there is one."""
    shape, total, length = call.shape(cache), call.shape(cache)[axis], call.shape(update)[axis]
    if not length:
        return cache
    number = call.positions(total, axis, len(shape), INT32)
    if start is not None:
        start = call.reshape(call.cast(start, INT32), (shape[0], *(1,) * (len(shape) - 1)))
        number = call.op("broadcast_sub", number, start)
    if circular:
        number = call.op("broadcast_mod", number, call.make(total, INT32))
    limits = ("broadcast_greater_equal", 0), ("broadcast_less", length)
    new = all_of(call, [call.op(name, number, call.make(limit, INT32)) for name, limit in limits])
    places = call.broadcast_to(call.op("clip", number, a_min=0, a_max=length - 1), shape)
    return call.op("broadcast_where", new, call.op("gather_elements", update, places, axis=axis), cache)
