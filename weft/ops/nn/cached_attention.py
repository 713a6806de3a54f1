"""Attention over keys and values that earlier calls kept, and over those of new tokens.

    out[i] = softmax(scale q[i] K') V     of the `past` tokens of the cache and of new tokens 0 to i

Heads may share keys and values. The cache has all layers of a model, in blocks of 16 tokens that lie one behind the
other, so that it can be reserved for many tokens and costs as much as there are: the keys of a block have tokens side
by side, its values have columns side by side. Nothing is written to it: who calls puts new keys and values there. It
may be of other floats than the new tokens; all is computed in float32.

With a window each token sees itself and those before it, `window` tokens in all, and the cache is a ring: token t is at
place t modulo the places that there are, and who calls writes over those that nobody sees any more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import BFLOAT16, FLOAT16, FLOAT32, INT64, DType, dtype_name
from ...base.errors import DTypeError, InvalidValue, ShapeError
from ...base.shape import Dim, show, unify
from ...core.schema import FLOAT, INT, attr, optional, schema
from .._families import Array, Dtypes, Inferred, Shapes, define
from .._kernels import Body, Spec, Written

BLOCK = 16  # tokens of the cache whose keys lie side by side
CHUNK = 8  # blocks whose scores are made at a time
LINES = 4  # queries of heads that share keys, for which keys are read once
TYPICAL = 16  # blocks of the cache that are used, as far as work is told before
FAR_LEAST = float("-inf")
FLOATS = (FLOAT32, FLOAT16, BFLOAT16)

INPUTS = {
    "query": "(rows, heads * width)",
    "key": "(rows, shared * width), of the new tokens",
    "value": "(rows, shared * width), of the new tokens",
    "keys": "(blocks, layers, shared, width, 16), of the cache",
    "values": "(blocks, layers, shared, 16, width), of the cache",
    "past": "(1,): tokens that were put into the cache",
    "layer": "(1,): which layer of the cache, so that all layers run the same code",
}


@schema
class CachedAttentionAttrs:
    scale: float | None = attr(optional(FLOAT), "factor of the scores; none: 1 / sqrt(width)", default=None)
    window: int | None = attr(
        optional(INT), "tokens that each token sees, with itself, of a cache that is a ring; none: all", default=None
    )


def _shape(params: CachedAttentionAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    query, key, value, keys, values, past, layer = ins
    out = unify(unify(query, outs[0]), None if query is None and outs[0] is None else (None, None))
    past, layer = unify(past, (1,)), unify(layer, (1,))
    new = unify(unify(key, value), None if key is None and value is None else (None, None))
    if keys is None or values is None:
        return [out, new, new, keys, values, past, layer], [out]
    if len(keys) != 5 or len(values) != 5:
        raise ShapeError(f"caches of shapes {show(keys)} and {show(values)}", why="a cache has five axes")
    blocks, layers, shared, width, block = keys
    unify((blocks, layers, shared, block, width), values)
    unify((block,), (BLOCK,))
    if any(extent == 0 for extent in keys):
        raise ShapeError(f"a cache of shape {show(keys)} has no room")
    _check_window(params.window, blocks)
    if isinstance(shared, int) and isinstance(width, int):
        new = unify(new, (None, shared * width))
        wide = None if out is None else out[1]
        if isinstance(wide, int) and wide % (shared * width):
            raise ShapeError(
                f"queries of {wide} columns", why=f"heads share {shared} keys of {width} columns: not a multiple"
            )
    if new is not None and out is not None:
        rows = unify(new[:1], out[:1])
        assert rows is not None
        new, out = (*rows, *new[1:]), (*rows, *out[1:])
    return [out, new, new, keys, (blocks, layers, shared, block, width), past, layer], [out]


def _check_window(window: int | None, blocks: Dim) -> None:
    """What a token sees before itself has to be in the cache."""
    if window is not None and window < 1:
        raise InvalidValue(f"a window of {window} tokens", why="a token sees itself")
    if window is not None and isinstance(blocks, int) and window - 1 > blocks * BLOCK:
        raise ShapeError(f"a window of {window} tokens", why=f"the cache keeps the last {blocks * BLOCK}")


def _dtype(params: CachedAttentionAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    new = _one_float((*ins[:3], *outs), "of")
    cache = _one_float(ins[3:5], "over a cache of")
    for dtype in ins[5:]:
        if dtype is not None and dtype != INT64:
            raise DTypeError(f"a number of tokens or of a layer of {dtype_name(dtype)}", why="it is of int64")
    return [new] * 3 + [cache] * 2 + [INT64] * 2, [new]


def _one_float(dtypes: Sequence[DType | None], where: str) -> DType | None:
    """What all that are known are."""
    known = list(dict.fromkeys(dtype for dtype in dtypes if dtype is not None))
    if len(known) > 1 or (known and known[0] not in FLOATS):
        told = " and ".join(map(dtype_name, known))
        raise DTypeError(
            f"cached attention {where} {told}", why="it is of one of " + ", ".join(map(dtype_name, FLOATS))
        )
    return known[0] if known else None


def factor_of(params: CachedAttentionAttrs, width: int) -> float:
    """What products of queries and keys are multiplied by."""
    return params.scale if params.scale is not None else 1 / math.sqrt(max(width, 1))


def _reference(
    params: CachedAttentionAttrs,
    query: Array,
    key: Array,
    value: Array,
    keys: Array,
    values: Array,
    past: Array,
    layer: Array,
) -> Array:
    blocks, layers, shared, width, block = keys.shape
    number = min(max(int(layer[0]), 0), layers - 1)
    rows, count, room = query.shape[0], max(int(past[0]), 0), blocks * block
    count = min(count, room) if params.window is None else count
    first = 0 if params.window is None else max(count + 1 - params.window, 0)
    places = np.arange(first, count) % room
    q = query.reshape(rows, shared, query.shape[1] // (shared * width), width).transpose(1, 2, 0, 3).astype(np.float64)
    old_keys = keys[:, number].transpose(1, 0, 3, 2).reshape(shared, -1, width)[:, places]
    old_values = values[:, number].transpose(1, 0, 2, 3).reshape(shared, -1, width)[:, places]
    k, v = (
        np.concatenate([old, new.reshape(rows, shared, width).swapaxes(0, 1)], 1).astype(np.float64)[:, None]
        for old, new in ((old_keys, key), (old_values, value))
    )
    scores = q @ k.swapaxes(-1, -2) * factor_of(params, width)
    behind = np.arange(rows)[:, None] + count - np.arange(first, count + rows)
    seen = (behind >= 0) & (behind < (params.window or count + rows + 1))
    scores = np.where(seen, scores, FAR_LEAST)
    p = np.exp(scores - scores.max(-1, keepdims=True, initial=FAR_LEAST))
    made = (p / p.sum(-1, keepdims=True)) @ v
    return made.transpose(2, 0, 1, 3).reshape(query.shape).astype(query.dtype)


def _wide(value: te.Expr) -> te.Expr:
    return te.cast(value, FLOAT32)


class _Tokens(NamedTuple):
    """Keys in blocks and values in rows, and which tokens are looked at."""

    keys: te.Buffer
    key: Callable[[te.Expr], te.Expr]  # where a block begins, by the number of its first token
    values: te.Buffer
    value: Callable[[te.Expr], te.Expr]  # where a row begins, by the number of its token
    first: te.Expr  # a multiple of what a block has
    total: te.Expr  # where tokens end
    low: Sequence[te.Expr] | None = None  # the first that each line sees
    high: Sequence[te.Expr] | None = None  # and where those end that it sees; none: at the total


def _kernels(params: CachedAttentionAttrs, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> list[Written]:
    body = Body("cached_attention", inputs, outputs)
    (rows, columns), (blocks, layers, shared, width, _) = inputs[0][0], inputs[3][0]
    if not rows:
        with body.kernel({7: (0,)}, work=1) as (b, out), b.parallel("p", 0) as p:
            b.store(out, p, te.const(0, out.dtype))
        return body.kernels
    new_blocks = -(-rows // BLOCK)
    turned = body.temporary((shared, new_blocks, width, BLOCK), FLOAT32)
    views = {1: (rows * shared * width,), turned: (shared * new_blocks, width, BLOCK)}
    count = shared * new_blocks
    with body.kernel(views, work=count * width) as (b, key, out), b.parallel("p", count) as p:
        first = b.let("first", p % new_blocks * BLOCK)
        start = b.let("start", p // new_blocks * width + first * (shared * width))
        with b.loop("e", width) as e, b.vector("lane", BLOCK) as lane:
            b.store(out, (p, e, lane), te.const(0, FLOAT32))
        with b.loop("token", te.minimum(rows - first, BLOCK)) as token, b.loop("e", width) as e:
            b.store(out, (p, e, token), _wide(key[start + token * (shared * width) + e]))
    whole = blocks * layers * shared * width * BLOCK
    sizes = {0: rows * columns, 2: rows * shared * width, 3: whole, 4: whole, 5: 1, 6: 1}
    views = {position: (size,) for position, size in sizes.items()}
    views |= {turned: (shared * new_blocks * width * BLOCK,), 7: (rows * columns,)}
    work = rows * columns * (rows + min(blocks, TYPICAL) * BLOCK) // 4
    with body.kernel(views, work) as (b, query, value, keys, values, past, layer, new_keys, out):
        _Attending(b, params, inputs, query, out).write(value, keys, values, past, layer, new_keys)
    return body.kernels


class _Attending:
    """Writes the kernel: a turn takes a few lines, which are queries of heads that share keys."""

    def __init__(self, b: te.KernelBuilder, params: Any, inputs: Sequence[Spec], query: te.Buffer, out: te.Buffer):
        self.b, self.query, self.out = b, query, out
        (self.rows, self.columns), (self.blocks, self.layers, self.shared, self.width, _) = inputs[0][0], inputs[3][0]
        self.repeat = self.columns // (self.shared * self.width)
        self.all_lines = self.rows * self.repeat
        self.lines = min(LINES, self.all_lines)
        self.scale, self.window = te.const(factor_of(params, self.width), FLOAT32), params.window
        self.parts = [(at, min(BLOCK, self.width - at)) for at in range(0, self.width, BLOCK)]

    def write(
        self,
        value: te.Buffer,
        keys: te.Buffer,
        values: te.Buffer,
        past: te.Buffer,
        layer: te.Buffer,
        new_keys: te.Buffer,
    ) -> None:
        b, tiles = self.b, -(-self.all_lines // self.lines)
        with b.parallel("p", self.shared * tiles) as p:
            head, first = b.let("head", p // tiles), b.let("first", p % tiles * self.lines)
            numbers = [te.minimum(first + t, self.all_lines - 1) for t in range(self.lines)]
            self.at = [
                b.let("at", n // self.repeat * self.columns + (head * self.repeat + n % self.repeat) * self.width)
                for n in numbers
            ]
            self.scores = b.alloc("scores", FLOAT32, (self.lines, CHUNK * BLOCK))
            self.made = b.alloc("made", FLOAT32, (self.lines, self.width))
            self.top, self.total = (b.alloc(name, FLOAT32, (self.lines,)) for name in ("top", "total"))
            self.shares = b.alloc("shares", FLOAT32, (BLOCK,))
            for t in range(self.lines):
                b.store(self.top, t, te.const(FAR_LEAST, FLOAT32))
                b.store(self.total, t, te.const(0, FLOAT32))
                self._columns(partial(self._store_made, t, lambda at: te.const(0, FLOAT32)))
            rows = [b.let("row", n // self.repeat) for n in numbers]
            number = te.maximum(te.minimum(layer[0], self.layers - 1), 0)
            start = b.let("start", (head + number * self.shared) * (self.width * BLOCK))
            self._take(self._cached(keys, values, start, te.maximum(past[0], 0), rows))
            self._take(self._new(new_keys, value, head, rows))
            self._finish()

    def _columns(self, write: Callable[[te.Expr], None]) -> None:
        """Something for each column of values."""
        for first, count in self.parts:
            if count == 1:
                write(te.as_expr(first))
            else:
                with self.b.vector("lane", count) as lane:
                    write(lane + first)

    def _cached(
        self, keys: te.Buffer, values: te.Buffer, start: te.Expr, past: te.Expr, rows: Sequence[te.Expr]
    ) -> _Tokens:
        """The tokens of the cache that some rows see."""
        b, size, window = self.b, self.width * BLOCK, self.window
        step = self.layers * self.shared * size
        if window is None:
            key = lambda token: start + token // BLOCK * step
            value = lambda token: start + token // BLOCK * step + token % BLOCK * self.width
            total = b.let("count", te.minimum(past, self.blocks * BLOCK))
            return _Tokens(keys, key, values, value, te.as_expr(0), total)
        key = lambda token: start + token // BLOCK % self.blocks * step
        value = lambda token: start + token // BLOCK % self.blocks * step + token % BLOCK * self.width
        total = b.let("count", past)
        low = [b.let("low", te.maximum(total + row + (1 - window), 0)) for row in rows]
        return _Tokens(keys, key, values, value, b.let("begin", low[0] // BLOCK * BLOCK), total, low)

    def _new(self, keys: te.Buffer, values: te.Buffer, head: te.Expr, rows: Sequence[te.Expr]) -> _Tokens:
        """The new tokens that some rows see: up to each, and all that its window has."""
        b, size, window = self.b, self.width * BLOCK, self.window
        start = b.let("start", head * (-(-self.rows // BLOCK) * size))
        key = lambda token: start + token // BLOCK * size
        value = lambda token: token * (self.shared * self.width) + head * self.width
        high = [b.let("seen", row + 1) for row in rows]
        if window is None or window >= self.rows:
            return _Tokens(keys, key, values, value, te.as_expr(0), high[-1], None, high)
        low = [b.let("low", te.maximum(row + (1 - window), 0)) for row in rows]
        return _Tokens(keys, key, values, value, b.let("begin", low[0] // BLOCK * BLOCK), high[-1], low, high)

    def _take(self, tokens: _Tokens) -> None:
        """Takes tokens in, a chunk at a time."""
        b, size = self.b, CHUNK * BLOCK
        with b.loop("chunk", te.maximum(tokens.total - tokens.first + (size - 1), 0) // size) as chunk:
            first = b.let("first", tokens.first + chunk * size)
            count = b.let("count", te.minimum(tokens.total - first, size))
            blocks = b.let("blocks", (count + (BLOCK - 1)) // BLOCK)
            with b.loop("block", blocks) as block:
                self._score(tokens, first + block * BLOCK, block)
            for t in range(self.lines):
                self._exponentials(t, blocks)
            self._sum_values(tokens, first, count)

    def _score(self, tokens: _Tokens, first: te.Expr, block: te.Expr) -> None:
        b = self.b
        start = b.let("key", tokens.key(first))
        with b.vector("lane", BLOCK) as lane:
            acc = b.alloc("acc", FLOAT32, (self.lines,), scope="register")
            for t in range(self.lines):
                b.store(acc, t, te.const(0, FLOAT32))
            times = next(n for n in (4, 2, 1) if self.width % n == 0)
            with b.loop("e", self.width // times) as outer:
                for turn in range(times):
                    e = outer * times + turn
                    key = b.let("k", _wide(tokens.keys[start + e * BLOCK + lane]))
                    for t in range(self.lines):
                        b.store(acc, t, acc[t] + key * _wide(self.query[self.at[t] + e]))
            for t in range(self.lines):
                seen = first + lane < (tokens.total if tokens.high is None else tokens.high[t])
                seen = seen if tokens.low is None else seen & (first + lane >= tokens.low[t])
                score = te.select(seen, acc[t] * self.scale, te.const(FAR_LEAST, FLOAT32))
                b.store(self.scores, (t, block * BLOCK + lane), score)

    def _exponentials(self, t: int, blocks: te.Expr) -> None:
        """Scores become exp(score - top), the largest so far; what was summed before is brought to the same scale."""
        b = self.b
        with b.vector("lane", BLOCK) as lane:
            acc = b.alloc("acc", FLOAT32, (1,), scope="register")
            b.store(acc, 0, te.const(FAR_LEAST, FLOAT32))
            with b.loop("block", blocks) as block:
                score = b.let("score", self.scores[t, block * BLOCK + lane])
                b.store(acc, 0, te.select(score > acc[0], score, acc[0]))
            b.store(self.shares, lane, acc[0])
        before = b.let("before", self.top[t])
        largest = b.let("largest", self._folded(lambda x, y: te.select(x > y, x, y)))
        top = b.let("top", te.select(largest > before, largest, before))
        usable = b.let("usable", te.select(top.equal(FAR_LEAST), te.const(0, FLOAT32), top))
        factor = b.let("factor", te.exp(before - usable))
        with b.vector("lane", BLOCK) as lane:
            acc = b.alloc("acc", FLOAT32, (1,), scope="register")
            b.store(acc, 0, te.const(0, FLOAT32))
            with b.loop("block", blocks) as block:
                e = b.let("e", te.exp(self.scores[t, block * BLOCK + lane] - usable))
                b.store(self.scores, (t, block * BLOCK + lane), e)
                b.store(acc, 0, acc[0] + e)
            b.store(self.shares, lane, acc[0])
        b.store(self.total, t, self.total[t] * factor + self._folded(lambda x, y: x + y))
        b.store(self.top, t, top)
        self._columns(lambda at: b.store(self.made, (t, at), self.made[t, at] * factor))

    def _folded(self, combine: Callable[[te.Expr, te.Expr], te.Expr]) -> te.Expr:
        """A vector of shares as one number: halves are combined."""
        half = BLOCK // 2
        while half > 1:
            with self.b.vector("lane", half) as lane:
                self.b.store(self.shares, lane, combine(self.shares[lane], self.shares[lane + half]))
            half //= 2
        return self.b.let("folded", combine(self.shares[0], self.shares[1]))

    def _sum_values(self, tokens: _Tokens, first: te.Expr, count: te.Expr) -> None:
        """Adds the values of a chunk, times what became of their scores."""
        b = self.b
        # What no line sees is not read: it may be anything.
        skipped = te.as_expr(0)
        if tokens.low is not None:
            skipped = b.let("skipped", te.minimum(te.maximum(tokens.low[0] - first, 0), count))
        for at, lanes in self.parts:
            with b.loop("lane", 1) if lanes == 1 else b.vector("lane", lanes) as lane:
                acc = b.alloc("acc", FLOAT32, (self.lines,), scope="register")
                for t in range(self.lines):
                    b.store(acc, t, self.made[t, at + lane])
                with b.loop("token", count - skipped) as number:
                    token = number if tokens.low is None else b.let("token", number + skipped)
                    value = b.let("v", _wide(tokens.values[tokens.value(first + token) + (at + lane)]))
                    for t in range(self.lines):
                        b.store(acc, t, acc[t] + value * self.scores[t, token])
                for t in range(self.lines):
                    b.store(self.made, (t, at + lane), acc[t])

    def _store_made(self, t: int, value: Callable[[te.Expr], te.Expr], at: te.Expr) -> None:
        self.b.store(self.made, (t, at), value(at))

    def _finish(self) -> None:
        b = self.b
        for t, start in enumerate(self.at):
            inverse = b.let("inverse", te.const(1, FLOAT32) / self.total[t])
            self._columns(partial(self._store_out, t, start, inverse))

    def _store_out(self, t: int, start: te.Expr, inverse: te.Expr, at: te.Expr) -> None:
        self.b.store(self.out, start + at, te.cast(self.made[t, at] * inverse, self.out.dtype))


cached_attention = define(
    "cached_attention",
    "Attention of new tokens over the first `past` tokens of a cache and over the new ones up to each.",
    inputs=INPUTS,
    named=False,
    attrs=CachedAttentionAttrs,
    shape=_shape,
    dtype=_dtype,
    reference=_reference,
    kernels=_kernels,
)
