"""Caches of keys and values that GroupQueryAttention keeps from step to step: of all tokens, or of the last ones; with
numbers in them, or levels in their place."""

from __future__ import annotations

from typing import NamedTuple

from .....base.dtype import FLOAT32, FLOAT64, INT32
from .....base.errors import FormatError, Unsupported
from .....base.shape import show, sub_dims
from ....emitter import Value
from ...call import OnnxCall
from ..heads import all_of, written
from ..quantized import INT8, UINT8

NOWHERE = 1 << 30  # the position of a place that holds no token


class Step(NamedTuple):
    """Where the tokens of a step stand: behind how many others of their sequence, in a cache of how many places."""

    before: Value | int
    capacity: int | str


def extended(call: OnnxCall, past: Value | None, new: Value, step: Step) -> Value:
    """The cache with the new tokens in it, behind those before; it grows where it has no place for them."""
    batch, heads, length, size = call.told(call.dims(new))
    if past is None and step.capacity == length:
        return new
    if past is None:
        raise FormatError(f"{length} tokens of {step.capacity}, and nothing is past")
    room = sub_dims(step.capacity, call.dims(past)[2])
    if batch == 1 and room == length:
        return call.joined([past, new], 2)
    if not isinstance(room, int):
        raise call.undetermined(f"whether {step.capacity} places are more than {show(call.dims(past))} has")
    if room:
        past = call.joined([past, call.op("zeros", shape=(batch, heads, room, size), dtype=call.dtype(past))], 2)
    start = step.before if isinstance(step.before, Value) else None
    return written(call, past, new, 2, start)


# The last tokens: of T tokens the cache of C places keeps all while they have a place; after that it drops C - W + 1
# at a time, so that a window of W is always there: L = T - G ceil((T - C) / G) with G = C - W + 1.


class Window:
    """A cache of the last tokens, in the order of their positions; every tensor is (batch or 1, 1, places, 1)."""

    def __init__(self, call: OnnxCall, before: Value | int, length: int, capacity: int, width: int) -> None:
        if not 0 < width <= capacity:
            raise FormatError(f"a cache of {capacity} places for a window of {width}")
        self._call, self.capacity, self.width = call, capacity, width
        given = before if isinstance(before, Value) else call.make([before], INT32)
        self._before = call.reshape(given, (*call.shape(given), 1, 1, 1))
        self._kept_before = self._kept(self._before)
        slot = call.positions(capacity, 2, 4, INT32)
        first = call.op("broadcast_sub", self._before, self._kept_before)
        there = call.op("broadcast_less", slot, self._kept_before)
        old = call.op("broadcast_where", there, call.op("broadcast_add", slot, first), call.make(NOWHERE, INT32))
        self.queries = call.op("broadcast_add", call.positions(length, 2, 4, INT32), self._before)
        self.keys = call.joined([old, self.queries], 2)
        self._after = call.shifted(self._before, length)

    def _kept(self, count: Value) -> Value:
        call, step = self._call, self.capacity - self.width + 1
        over = call.cast(call.shifted(count, -self.capacity), FLOAT64)
        turns = call.op("ceil", call.op("__div_scalar__", call.op("clip", over, a_min=0, a_max=NOWHERE), scalar=step))
        return call.op("broadcast_sub", count, call.cast(call.scaled(turns, step), INT32))

    def present(self, tokens: Value) -> Value:
        """Of the cache with the new tokens behind it, those that stay."""
        call, kept = self._call, self._kept(self._after)
        position = call.op("broadcast_add", call.positions(self.capacity, 2, 4, INT32), self._after)
        position = call.op("broadcast_sub", position, kept)
        behind = call.op("broadcast_sub", position, self._before)  # of those before; of new ones it is their number
        is_new = call.op("broadcast_greater_equal", behind, call.make(0, INT32))
        place = call.op(
            "broadcast_where",
            is_new,
            call.shifted(behind, self.capacity),
            call.op("broadcast_add", behind, self._kept_before),
        )
        batch, heads, total, size = call.shape(tokens)
        place = call.op("clip", place, a_min=0, a_max=total - 1)  # places behind the last token hold anything
        return call.op("gather_elements", tokens, call.broadcast_to(place, (batch, heads, self.capacity, size)), axis=2)

    def seen(self) -> Value:
        """Which of the cache and of the new tokens each query sees: (batch or 1, 1, length, places)."""
        call = self._call
        distance = call.op("broadcast_sub", self.queries, call.transposed(self.keys, (0, 1, 3, 2)))
        limits = ("broadcast_greater_equal", 0), ("broadcast_less", self.width)
        return all_of(call, [call.op(name, distance, call.make(limit, INT32)) for name, limit in limits])

    def columns(self, bias: Value) -> Value:
        """Those of a bias, which has one for each position from the first token on."""
        call = self._call
        batch, heads, length, total = call.shape(bias)
        place = call.transposed(call.op("clip", self.keys, a_min=0, a_max=total - 1), (0, 1, 3, 2))
        batch = max(batch, call.shape(place)[0])
        outer = (batch, heads, length)
        spread = call.broadcast_to(place, (*outer, call.shape(place)[3]))
        return call.op("gather_elements", call.broadcast_to(bias, (*outer, total)), spread, axis=3)


# Levels: round(x / scale) in 8 bits, or in 4, two to a byte, the first in the lower half, and 8 for 0.


class Levels(NamedTuple):
    """How keys or values are stored: by what scale, in how many bits."""

    scale: Value
    bits: int


def levels_of(call: OnnxCall, side: str, index: int) -> Levels | None:
    """How the cache of keys ("k") or of values ("v") is quantised; None if it holds numbers."""
    kind, bits = call.attr(f"{side}_quant_type"), call.attr("kv_cache_bit_width")
    if kind == "NONE":
        return None
    if kind not in ("PER_TENSOR", "PER_CHANNEL") or bits not in (4, 8):
        raise Unsupported(f"GroupQueryAttention with a cache of {bits} bits that is quantised {kind!r}")
    scale = call.cast(call[index], FLOAT32)
    one = kind == "PER_TENSOR"
    shape = (1, 1, 1, 1) if one else (1, call.attr("kv_num_heads"), 1, -1)
    return Levels(call.reshape(call.flat(scale), shape), bits)


def stored(call: OnnxCall, data: Value, how: Levels | None) -> Value:
    """Numbers as the cache has them."""
    if how is None:
        return data
    half = 2 ** (how.bits - 1)
    level = call.op("round", call.op("broadcast_div", call.widened(data), how.scale))
    level = call.op("clip", level, a_min=-half, a_max=half - 1)
    if how.bits == 8:
        return call.cast(level, INT8)
    *outer, size = call.shape(data)
    if size % 2:
        raise FormatError(f"vectors of {size} levels, of which two are a byte")
    pairs = call.reshape(call.shifted(level, half), (*outer, size // 2, 2))
    return call.cast(call.op("sum", call.op("broadcast_mul", pairs, call.make([1, 16], FLOAT32)), axis=(-1,)), UINT8)


def numbers(call: OnnxCall, data: Value, how: Levels | None) -> Value:
    """What the cache stands for, in float32 or wider."""
    if how is None:
        return call.widened(data)
    level = call.cast(data, FLOAT32)
    if how.bits == 4:
        *outer, size = call.shape(data)
        upper = call.op("floor", call.scaled(level, 1 / 16))
        lower = call.op("broadcast_sub", level, call.scaled(upper, 16))
        pairs = call.op("stack", lower, upper, axis=len(outer) + 1)
        level = call.shifted(call.reshape(pairs, (*outer, 2 * size)), -8)
    return call.op("broadcast_mul", level, how.scale)
