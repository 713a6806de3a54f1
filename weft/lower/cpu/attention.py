"""The template of _strided_attention: one kernel, a turn for each block of queries of each head.

Queries lie in the lanes while scores are computed: the block of queries is transposed once, keys
are read where they are, an element at a time for all queries, and the softmax needs no sums across
lanes. The product with the values has the values' columns in the lanes. Scores stay in scratch.

Where the number of queries or keys is an argument, where keys are many, and where queries see only the keys up to
their own, a turn goes over blocks of keys: what it has summed so far is scaled anew whenever the largest score of a
query has grown. A block of one query, as decoders have it, has the columns of a key in the lanes, then the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

from ... import te
from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32, FLOAT64, DType
from ...base.shape import StaticShape, is_static, numel
from ...core.fused import FusedGroup
from ...core.ir import Fact, NodeEntry
from ...ops.nn.strided_attention import View, mask_shape, views
from ...te.build import KernelBuilder
from ...te.expr import Expr, Load, as_expr
from ...te.extents import is_open
from ...te.loops import Buffer, Kernel
from ..group import LoweredKernel, kernel_name
from ..long_sums import finished
from .tile import balanced, registers
from .tile_walk import Sizes, tiles_and_rest

SCORES = 3 / 16  # of the second cache, for those of a block of queries
STACK_BYTES = 512 << 10  # where they lie
UNROLL = 4
MAX_KEYS = 2048  # whose scores stay in a cache
MAX_TURNS = 12  # keys, or queries, whose results are side by side in registers
KEY_BLOCK = 240  # keys at a time; a multiple of most tiles
KEYS_TOGETHER = 8  # keys of one query whose products are summed side by side


class _Block(NamedTuple):
    """Queries from row `first` on, in `vectors` vectors of which the last may not be full."""

    first: Expr
    rows: Any
    vectors: int


def attention_kernels(group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CpuTarget) -> list[LoweredKernel]:
    """The kernel of a group that is a _strided_attention."""
    (node,) = group.nodes
    facts = [fact(entry) for entry in node.inputs]
    return [attention_kernel(kernel_name(group), node.params, facts, (*node.inputs, NodeEntry(node)), target)]


def attention_kernel(
    name: str, params: Any, facts: Sequence[Fact], arguments: tuple[Any, ...], target: CpuTarget
) -> LoweredKernel:
    """The kernel of an attention, whose arguments stand for its inputs and its result. Extents and steps are numbers or
    arguments."""
    in_blocks = is_open(params.queries) or is_open(params.keys) or params.is_causal or params.keys > MAX_KEYS
    template = _OpenAttention if in_blocks else _Attention
    made = template(name, params, facts, target)
    heads = prod(params.batch) * params.queries * params.keys
    work = heads * (params.width + params.values + target.facts.function_operations)
    return LoweredKernel(finished(made.kernel()), arguments, work)


def query_vectors(rows: int, lanes: int, itemsize: int, target: CpuTarget) -> int:
    """How many vectors of queries a block has; 0 where even one has too many scores."""
    most = min(SCORES * target.caches[1], STACK_BYTES)
    return next((n for n in (2, 1) if rows * n * lanes * itemsize <= most), 0)


class _Attention:
    def __init__(self, name: str, params: Any, facts: Sequence[Fact], target: CpuTarget) -> None:
        self.b, self.params = KernelBuilder(name), params
        assert facts[0].dtype is not None
        self.dtype: DType = facts[0].dtype
        self.wide = FLOAT64 if self.dtype == FLOAT64 else FLOAT32
        self.lanes, self.budget = max(target.lanes(self.wide), 2), registers(target)
        self.views = views(params)
        self.sources = [self._flat(f"in{i}", fact) for i, fact in enumerate(facts)]
        self.mask_steps = _broadcast_steps(facts[3].shape, params) if params.masked else ()
        self.out_steps = _out_steps(params)
        size = prod(params.batch) * params.queries * params.values
        self.out = self.b.arg("out", self.dtype, (size,))
        self.most = query_vectors(self._scratch_rows(), self.lanes, self.wide.itemsize, target) or 1

    def _scratch_rows(self) -> int:
        """How many numbers a query has in large scratch."""
        keys: int = self.params.keys
        return keys

    def _flat(self, name: str, fact: Fact) -> Buffer:
        assert is_static(fact.shape)
        return self.b.arg(name, self.dtype, (numel(fact.shape),))

    def kernel(self) -> Kernel:
        b, params = self.b, self.params
        block = self.most * self.lanes
        full, rest = divmod(params.queries, block)
        blocks = full + bool(rest)
        with b.parallel("p", prod(params.batch) * blocks) as p:
            self.at = self._batch_index(p // blocks if blocks > 1 else p)
            number = b.let("block", p % blocks) if blocks > 1 else as_expr(0)
            self._scratch(min(block, -(-params.queries // self.lanes) * self.lanes))
            whole = _Block(number * block, block, self.most)
            last = _Block(as_expr(full * block), rest, -(-rest // self.lanes))
            if full and rest:
                with b.when(number < full):
                    self._block(whole)
                with b.otherwise():
                    self._block(last)
            elif blocks:
                self._block(whole if full else last)
        return b.finish()

    def _batch_index(self, number: Expr) -> list[Expr]:
        found: list[Expr] = []
        for extent in reversed(self.params.batch):
            found.append(self.b.let("head", number % extent))
            number = number // extent
        return found[::-1]

    def _scratch(self, width: int) -> None:
        alloc, params = self.b.alloc, self.params
        self.turned = alloc("turned", self.wide, (params.width, width))
        self.scores = alloc("scores", self.wide, (params.keys, width))
        self.top = alloc("top", self.wide, (width,))
        self.inverse = alloc("inverse", self.wide, (width,))

    def _block(self, block: _Block) -> None:
        self._turn_queries(block)
        for vector in range(block.vectors):
            self._fill(self.top, vector, float("-inf"))
        self._score(block)
        self._exponentials(block)
        self._products(block)

    def _fill(self, memory: Buffer, vector: int, value: float) -> None:
        with self.b.vector("lane", self.lanes) as lane:
            self.b.store(memory, vector * self.lanes + lane, te.const(value, self.wide))

    def _start(self, view: View) -> Expr:
        """Where the matrix of this turn begins."""
        total = as_expr(view.start)
        for index, step in zip(self.at, view.steps):
            total = total + index * step
        return total

    def _turn_queries(self, block: _Block) -> None:
        """turned[e, query] = scale * query[query, e]; lanes without a query hold zeros."""
        b, view, source = self.b, self.views[0], self.sources[0]
        row, column = view.steps[-2:]
        start = b.let("query", self._start(view) + block.first * row)
        scale = te.const(self.params.scale, self.wide)
        for vector in range(block.vectors):
            done = vector * self.lanes
            used = min(self.lanes, block.rows - done)
            with b.loop("e", self.params.width) as e:
                if used < self.lanes:
                    with b.vector("lane", self.lanes) as lane:
                        b.store(self.turned, (e, done + lane), te.const(0, self.wide))
                with self._lanes(used) as lane:
                    value = source[start + (lane + done) * row + e * column]
                    b.store(self.turned, (e, lane + done), te.cast(value, self.wide) * scale)

    @contextmanager
    def _lanes(self, count: int) -> Iterator[Expr]:
        if count == 1:
            yield as_expr(0)
        else:
            with self.b.vector("lane", count) as lane:
                yield lane

    def _score(self, block: _Block) -> None:
        """scores[key, query] and the largest for each query, keys in tiles."""
        b = self.b
        most = min((self.budget - block.vectors - 1) // block.vectors, MAX_TURNS)
        done = 0
        for turns, count in self._tiles(self._key_count(), most):
            with b.loop("tile", count) as tile, b.vector("lane", self.lanes) as lane:
                self._score_tile(block, tile * turns + done, turns, lane)
            done = done + turns * count

    def _tiles(self, extent: Any, most: int) -> Sizes:
        """Tiles that cover an extent: how many turns, and how many such tiles."""
        return balanced(extent, most)

    def _key_count(self) -> Any:
        """How many keys there are scores of."""
        return self.params.keys

    def _key(self, number: Expr) -> Expr:
        """The key that the scores of a number are of."""
        return number

    def _score_tile(self, block: _Block, first: Expr, turns: int, lane: Expr) -> None:
        b, view, source = self.b, self.views[1], self.sources[1]
        row, column = view.steps[-2:]
        start = b.let("key", self._start(view) + self._key(first) * row)
        columns = range(block.vectors)
        acc = self.b.registers("acc", self.wide, (turns * block.vectors,))

        def step(e: Expr) -> None:
            queries = [b.let("q", self.turned[e, v * self.lanes + lane]) for v in columns]
            for turn in range(turns):
                key = b.let("k", te.cast(source[start + turn * row + e * column], self.wide))
                for v in columns:
                    at = turn * block.vectors + v
                    b.store(acc, at, acc[at] + key * queries[v])

        self._unrolled("e", self.params.width, step)
        for v in columns:
            top = b.let("top", self.top[v * self.lanes + lane])
            for turn in range(turns):
                value: Expr = acc[turn * block.vectors + v]
                if self.params.masked:
                    value = self._masked(value, self._mask(block, self._key(first) + turn, v, lane))
                score = b.let("score", self._seen(block, value, self._key(first) + turn, v * self.lanes + lane))
                b.store(self.scores, (first + turn, v * self.lanes + lane), score)
                # NaN is never larger: it comes back in the sum of exponentials.
                top = b.let("top", te.select(score > top, score, top))
            b.store(self.top, v * self.lanes + lane, top)

    def _unrolled(self, name: str, extent: int, step: Callable[[Expr], None]) -> None:
        times = UNROLL if extent % UNROLL == 0 else 1
        with self.b.loop(name, extent // times) as outer:
            for turn in range(times):
                step(outer * times + turn)

    def _masked(self, score: Expr, mask: Expr) -> Expr:
        if not self.params.replaces:
            return score + mask
        named = self.b.let("mask", mask)
        return te.select(named.equal(0), score, named)

    def _seen(self, block: _Block, score: Expr, key: Expr, row: Expr) -> Expr:
        """The score of a key, if the query of a row of the block sees it."""
        if not self.params.is_causal:
            return score
        return te.select(block.first + row >= key, score, te.const(float("-inf"), self.wide))

    def _mask(self, block: _Block, key: Expr, vector: int, lane: Expr) -> Expr:
        *batch, per_key, per_query = self.mask_steps
        index = key * per_key
        for at, step in zip(self.at, batch):
            index = index + at * step
        done = vector * self.lanes
        if not per_query:
            return te.cast(self.sources[3][index], self.wide)
        index = index + (block.first + lane + done) * per_query
        inside = None if self._is_full(block, vector) else lane < block.rows - done
        return te.cast(Load(self.sources[3], (index,), inside), self.wide)

    def _is_full(self, block: _Block, vector: int) -> bool:
        return bool(block.rows >= (vector + 1) * self.lanes)

    def _exponentials(self, block: _Block) -> None:
        """scores become exp(score - top), `inverse` one over their sum."""
        b, keys, unseen = self.b, self.params.keys, self.params.unseen
        one, zero = te.const(1, self.wide), te.const(0, self.wide)
        for vector in range(block.vectors):
            with b.vector("lane", self.lanes) as lane:
                at = vector * self.lanes + lane
                top: Expr = b.let("top", self.top[at])
                if unseen == "zero":
                    top = b.let("top", te.select(top.equal(float("-inf")), zero, top))
                acc = self.b.registers("acc", self.wide, (1,))
                with b.loop("key", keys) as key:
                    e = b.let("e", te.exp(self.scores[key, at] - top))
                    b.store(self.scores, (key, at), e)
                    b.store(acc, 0, acc[0] + e)
                total = b.let("total", acc[0])
                if unseen == "zero":
                    total = b.let("total", te.select(total.equal(0), one, total))
                b.store(self.inverse, at, one / total)
        if unseen == "clean":
            self._clean(block)

    def _clean(self, block: _Block) -> None:
        """scores become probabilities, with zeros for NaN."""
        b = self.b
        one, zero = te.const(1, self.wide), te.const(0, self.wide)
        for vector in range(block.vectors):
            with b.vector("lane", self.lanes) as lane:
                at = vector * self.lanes + lane
                factor = b.let("factor", self.inverse[at])
                with b.loop("key", self.params.keys) as key:
                    p = b.let("p", self.scores[key, at] * factor)
                    b.store(self.scores, (key, at), te.select(p.equal(p), p, zero))
                b.store(self.inverse, at, one)

    def _products(self, block: _Block) -> None:
        """out[query] = sum of scores[key, query] * value[key], times inverse[query]."""
        full, rest = divmod(self.params.values, self.lanes)
        done = 0
        for vectors, count in balanced(full, 4) if full else ():
            for _ in range(count):
                self._columns(block, done, vectors, self.lanes)
                done += vectors * self.lanes
        if rest:
            self._columns(block, done, 1, rest)

    def _columns(self, block: _Block, first: int, vectors: int, lanes: int) -> None:
        most = min((self.budget - vectors - 1) // vectors, MAX_TURNS)
        done = 0
        for turns, count in self._tiles(block.rows, most):
            with self.b.loop("tile", count) as tile, self._lanes(lanes) as lane:
                columns = [lane + (first + v * lanes) for v in range(vectors)]
                acc = self._product_tile(tile * turns + done, turns, columns)
                self._store_tile(block, tile * turns + done, turns, columns, acc)
            done = done + turns * count

    def _product_tile(self, first: Expr, turns: int, columns: Sequence[Expr]) -> Buffer:
        b, view, source = self.b, self.views[2], self.sources[2]
        row, column = view.steps[-2:]
        start = b.let("value", self._first_value(view))
        acc = self.b.registers("acc", self.wide, (turns * len(columns),))

        def step(key: Expr) -> None:
            at = start + key * row
            values = [b.let("v", te.cast(source[at + c * column], self.wide)) for c in columns]
            for turn in range(turns):
                score = b.let("p", self.scores[key, first + turn])
                for v, value in enumerate(values):
                    place = turn * len(columns) + v
                    b.store(acc, place, acc[place] + score * value)

        self._unrolled("key", self._key_count(), step)
        return acc

    def _first_value(self, view: View) -> Expr:
        """Where the first row of values is that belongs to the scores."""
        return self._start(view)

    def _store_tile(self, block: _Block, first: Expr, turns: int, columns: Sequence[Expr], acc: Buffer) -> None:
        b = self.b
        start_out = self._out_start(block.first + first)
        row_step, column_step = self.out_steps[-2:]
        for turn in range(turns):
            factor = b.let("factor", self.inverse[first + turn])
            for v, c in enumerate(columns):
                value = acc[turn * len(columns) + v] * factor
                place = start_out + turn * row_step + c * column_step
                b.store(self.out, place, te.cast(value, self.dtype))

    def _out_start(self, query: Expr) -> Expr:
        """Where the results of a query begin."""
        *batch, row_step, _ = self.out_steps
        start = query * row_step
        for index, step in zip(self.at, batch):
            start = start + index * step
        return self.b.let("start", start)


class _OpenAttention(_Attention):
    """Attention where the numbers of queries and keys may be arguments: scores of a block of keys at a time, as far as
    the queries of a turn see them."""

    def _scratch_rows(self) -> int:
        rows: int = KEY_BLOCK + self.params.width + self.params.values
        return rows

    def kernel(self) -> Kernel:
        b, params = self.b, self.params
        width = self.most * self.lanes
        blocks = (params.queries + (width - 1)) // width
        with b.parallel("p", prod(params.batch) * blocks) as p:
            self.at = self._batch_index(p // blocks)
            number = p % blocks
            if params.is_causal:  # who sees the most begins
                number = blocks - 1 - number
            first = b.let("first", number * width)
            rows = b.let("rows", te.minimum(params.queries - first, width))
            self.keys = b.let("keys", te.minimum(params.keys, first + rows)) if params.is_causal else params.keys
            self._scratch(width)
            column = self.views[1].steps[-1]
            if not is_open(column) and column == 1:
                with b.when(rows > 1):
                    self._queries(_Block(first, rows, self.most))
                with b.otherwise():
                    self._one_query(_Block(first, 1, 1))
            else:
                self._queries(_Block(first, rows, self.most))
        return b.finish()

    def _scratch(self, width: int) -> None:
        alloc, params = self.b.alloc, self.params
        self.turned = alloc("turned", self.wide, (params.width, width))
        self.scores = alloc("scores", self.wide, (KEY_BLOCK, width))
        self.partial = alloc("partial", self.wide, (width, params.values))
        self.top = alloc("top", self.wide, (width,))
        self.before = alloc("before", self.wide, (width,))  # the largest score of the keys before these
        self.total = alloc("total", self.wide, (width,))
        self.inverse = alloc("inverse", self.wide, (width,))  # what partial results are to be multiplied with

    def _queries(self, block: _Block) -> None:
        """Results for a block of queries, of all keys."""
        b = self.b
        for vector in range(block.vectors):
            with self._used(block, vector):
                self._turn_vector(block, vector)
                self._begin_vector(vector)
        self._each(block, lambda row, column: b.store(self.partial, (row, column), te.const(0, self.wide)))
        with self._key_blocks():
            self._score_used(block)
            for vector in range(block.vectors):
                with self._used(block, vector):
                    self._exponential_vector(vector)
            self._products(block)
        for vector in range(block.vectors):
            with self._used(block, vector):
                self._invert(vector)
        self._finish(block)

    def _begin_vector(self, vector: int) -> None:
        self._fill(self.top, vector, float("-inf"))
        self._fill(self.before, vector, float("-inf"))
        self._fill(self.total, vector, 0)

    @contextmanager
    def _key_blocks(self) -> Iterator[None]:
        b = self.b
        with b.loop("keys", (self.keys + (KEY_BLOCK - 1)) // KEY_BLOCK) as number:
            self.first_key = b.let("first", number * KEY_BLOCK)
            self.count = b.let("count", te.minimum(self.keys - self.first_key, KEY_BLOCK))
            yield

    @contextmanager
    def _used(self, block: _Block, vector: int) -> Iterator[None]:
        """What is done only where there are queries for a vector."""
        if vector:
            with self.b.when(block.rows > vector * self.lanes):
                yield
        else:
            yield

    def _each(self, block: _Block, write: Callable[[Expr, Expr], None]) -> None:
        """Something for each query and column of the results."""
        b, (full, rest) = self.b, divmod(self.params.values, self.lanes)
        with b.loop("row", block.rows) as row:
            if full:
                with b.loop("part", full) as part, b.vector("lane", self.lanes) as lane:
                    write(row, part * self.lanes + lane)
            if rest:
                with self._lanes(rest) as lane:
                    write(row, lane + full * self.lanes)

    def _tiles(self, extent: Any, most: int) -> Sizes:
        return balanced(extent, most) if isinstance(extent, int) else tiles_and_rest(extent, most)

    def _key_count(self) -> Any:
        return self.count

    def _key(self, number: Expr) -> Expr:
        return self.first_key + number

    def _first_value(self, view: View) -> Expr:
        return self._start(view) + self.first_key * view.steps[-2]

    def _is_full(self, block: _Block, vector: int) -> bool:
        return isinstance(block.rows, int) or vector < block.vectors - 1

    def _unrolled(self, name: str, extent: Any, step: Callable[[Expr], None]) -> None:
        if isinstance(extent, int):
            super()._unrolled(name, extent, step)
            return
        with self.b.loop(name, extent // UNROLL) as outer:
            for turn in range(UNROLL):
                step(outer * UNROLL + turn)
        with self.b.loop(name, extent % UNROLL) as last:
            step(extent // UNROLL * UNROLL + last)

    def _turn_vector(self, block: _Block, vector: int) -> None:
        """turned[e, query] = scale * query[query, e]; lanes without a query hold zeros."""
        b, view, source = self.b, self.views[0], self.sources[0]
        row, column = view.steps[-2:]
        done = vector * self.lanes
        start = b.let("query", self._start(view) + (block.first + done) * row)
        scale = te.const(self.params.scale, self.wide)
        with b.loop("e", self.params.width) as e, b.vector("lane", self.lanes) as lane:
            value = Load(source, (start + lane * row + e * column,), lane < block.rows - done)
            b.store(self.turned, (e, lane + done), te.cast(value, self.wide) * scale)

    def _score_used(self, block: _Block) -> None:
        """Scores of as many vectors of queries as there are."""
        if block.vectors == 1:
            self._score(block)
            return
        with self.b.when(block.rows > self.lanes):
            self._score(block)
        with self.b.otherwise():
            self._score(block._replace(vectors=1))

    def _exponential_vector(self, vector: int) -> None:
        """scores become exp(score - top), which is the largest so far: what was summed before is brought to the same
        scale. A query that has seen no key yet has sums of zeros."""
        b, zero = self.b, te.const(0, self.wide)
        clean = self.params.unseen == "clean"
        with b.vector("lane", self.lanes) as lane:
            at = vector * self.lanes + lane
            largest = b.let("largest", self.top[at])
            top = b.let("top", te.select(largest.equal(float("-inf")), zero, largest))
            factor = b.let("factor", te.exp(self.before[at] - top))
            if clean:
                factor = b.let("factor", te.select(factor.equal(factor), factor, zero))
            acc = self.b.registers("acc", self.wide, (1,))
            with b.loop("key", self.count) as key:
                e = b.let("e", te.exp(self.scores[key, at] - top))
                b.store(self.scores, (key, at), te.select(e.equal(e), e, zero) if clean else e)
                b.store(acc, 0, acc[0] + e)  # NaN stays in the sum
            b.store(self.total, at, self.total[at] * factor + acc[0])
            b.store(self.inverse, at, factor)
            b.store(self.before, at, largest)

    def _store_tile(self, block: _Block, first: Expr, turns: int, columns: Sequence[Expr], acc: Buffer) -> None:
        b = self.b
        for turn in range(turns):
            factor = b.let("factor", self.inverse[first + turn])
            for v, c in enumerate(columns):
                at = (first + turn, c)
                b.store(self.partial, at, self.partial[at] * factor + acc[turn * len(columns) + v])

    def _invert(self, vector: int) -> None:
        """One over the sum of exponentials; where that is 0, or NaN, what the query is to have instead."""
        b, unseen = self.b, self.params.unseen
        one, zero = te.const(1, self.wide), te.const(0, self.wide)
        with b.vector("lane", self.lanes) as lane:
            at = vector * self.lanes + lane
            total: Expr = b.let("total", self.total[at])
            if unseen != "nan":
                total = b.let("total", te.select(total.equal(0), one, total))
            inverse: Expr = b.let("inverse", one / total)
            if unseen == "clean":
                inverse = te.select(inverse.equal(inverse), inverse, zero)
            b.store(self.inverse, at, inverse)

    def _finish(self, block: _Block) -> None:
        column_step = self.out_steps[-1]

        def write(row: Expr, column: Expr) -> None:
            place = self._out_start(block.first + row) + column * column_step
            value = self.partial[row, column] * self.inverse[row]
            self.b.store(self.out, place, te.cast(value, self.dtype))

        self._each(block, write)

    # One query

    def _one_query(self, block: _Block) -> None:
        """The same for one query: scores of neighbouring keys are neighbours in scratch."""
        b, zero = self.b, te.const(0, self.wide)
        self.line = b.alloc("line", self.wide, (self.params.width,))
        self.shares = b.alloc("shares", self.wide, (KEYS_TOGETHER * self.lanes,))
        self.scores = b.alloc("scores", self.wide, (KEY_BLOCK + self.lanes, 1))
        self._copy_query(block)
        self._begin_vector(0)
        self._each(block, lambda row, column: b.store(self.partial, (row, column), zero))
        with self._key_blocks():
            done: Any = 0
            for turns, count in self._tiles(self.count, KEYS_TOGETHER):
                with b.loop("tile", count) as tile:
                    self._dot_tile(block, tile * turns + done, turns)
                done = done + turns * count
            with b.vector("lane", self.lanes) as lane:  # so that there are whole vectors
                b.store(self.scores, (self.count + lane, 0), te.const(float("-inf"), self.wide))
            self._key_exponentials()
            self._products(block)
        self._invert(0)
        self._finish(block)

    def _copy_query(self, block: _Block) -> None:
        """line[e] = scale * query[e]"""
        b, view, source = self.b, self.views[0], self.sources[0]
        row, column = view.steps[-2:]
        start = b.let("query", self._start(view) + block.first * row)
        scale = te.const(self.params.scale, self.wide)
        with b.loop("e", self.params.width) as e:
            b.store(self.line, e, te.cast(source[start + e * column], self.wide) * scale)

    def _dot_tile(self, block: _Block, first: Expr, turns: int) -> None:
        """scores[key] of some keys."""
        b, source, row = self.b, self.sources[1], self.views[1].steps[-2]
        start = b.let("key", self._start(self.views[1]) + self._key(first) * row)
        full, rest = divmod(self.params.width, self.lanes)
        with b.vector("lane", self.lanes) as lane:
            acc = self.b.registers("acc", self.wide, (turns,))

            def step(part: Expr) -> None:
                at = part * self.lanes + lane
                query = b.let("q", self.line[at])
                for turn in range(turns):
                    key = te.cast(source[start + turn * row + at], self.wide)
                    b.store(acc, turn, acc[turn] + key * query)

            if full:
                self._unrolled("part", full, step)
            for turn in range(turns):
                b.store(self.shares, turn * self.lanes + lane, acc[turn])
        if rest:
            with self._lanes(rest) as last:
                at = last + full * self.lanes
                for turn in range(turns):
                    place = turn * self.lanes + last
                    product = te.cast(source[start + turn * row + at], self.wide) * self.line[at]
                    b.store(self.shares, place, self.shares[place] + product)
        for turn in range(turns):
            score = self._folded(turn * self.lanes, lambda a, b: a + b)
            if self.params.masked:
                score = self._masked(score, self._mask(block, self._key(first) + turn, 0, as_expr(0)))
            b.store(self.scores, (first + turn, 0), score)

    def _folded(self, start: int, combine: Callable[[Expr, Expr], Expr]) -> Expr:
        """A vector of shares as one number: halves are combined."""
        half = self.lanes // 2
        while half:
            with self._lanes(half) as lane:
                at = lane + start
                self.b.store(self.shares, at, combine(self.shares[at], self.shares[at + half]))
            half //= 2
        return self.shares[start]

    def _key_exponentials(self) -> None:
        """scores become exp(score - top), with keys in the lanes."""
        b, zero, clean = self.b, te.const(0, self.wide), self.params.unseen == "clean"
        vectors = (self.count + (self.lanes - 1)) // self.lanes
        with b.vector("lane", self.lanes) as lane:
            acc = self.b.registers("acc", self.wide, (1,))
            b.store(acc, 0, self.before[0])
            with b.loop("part", vectors) as part:
                score = b.let("score", self.scores[part * self.lanes + lane, 0])
                b.store(acc, 0, te.select(score > acc[0], score, acc[0]))
            b.store(self.shares, lane, acc[0])
        largest = b.let("largest", self._folded(0, lambda a, b: te.select(a > b, a, b)))
        top = b.let("top", te.select(largest.equal(float("-inf")), zero, largest))
        factor: Expr = b.let("factor", te.exp(self.before[0] - top))
        if clean:
            factor = b.let("factor", te.select(factor.equal(factor), factor, zero))
        with b.vector("lane", self.lanes) as lane:
            acc = self.b.registers("acc", self.wide, (1,))
            with b.loop("part", vectors) as part:
                at = (part * self.lanes + lane, 0)
                e = b.let("e", te.exp(self.scores[at] - top))
                b.store(self.scores, at, te.select(e.equal(e), e, zero) if clean else e)
                b.store(acc, 0, acc[0] + e)
            b.store(self.shares, lane, acc[0])
        b.store(self.total, 0, self.total[0] * factor + self._folded(0, lambda a, b: a + b))
        b.store(self.inverse, 0, factor)
        b.store(self.before, 0, largest)


def _dense_steps(shape: Sequence[int]) -> list[int]:
    steps, total = [], 1
    for extent in reversed(shape):
        steps.append(total)
        total *= max(extent, 1)
    return steps[::-1]


def _out_steps(params: Any) -> tuple[int, ...]:
    """How far apart neighbours along (batch..., query, column) are in the result."""
    whole = (*params.batch, params.queries, params.values)
    dense = _dense_steps([whole[axis] for axis in params.out_axes])
    return tuple(dense[params.out_axes.index(axis)] for axis in range(len(whole)))


def _broadcast_steps(shape: Any, params: Any) -> tuple[int, ...]:
    """The steps of the mask along (batch..., key, query); 0 where it is the same everywhere."""
    whole = mask_shape(params)
    given: StaticShape = (1,) * (len(whole) - len(shape)) + tuple(shape)
    return tuple(step if extent > 1 else 0 for extent, step in zip(given, _dense_steps(given)))
