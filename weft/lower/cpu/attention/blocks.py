"""Attention with the scores of some keys at a time: of all keys, where queries are known in number and keys are not
many and seen by all queries; else of blocks of them. What a turn has summed so far is scaled anew then whenever the
largest score of a query has grown. A block of one query, as decoders have it, has the columns of a key in the lanes,
then the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from .... import te
from ....base.cpu_target import CpuTarget
from ....core.ir import Fact
from ....te.expr import Expr, ExprLike, Load, as_expr
from ....te.extents import is_open
from ....te.loops import Buffer, Kernel
from ..tile import tiles_of
from .scores import Attention, Block, query_vectors

KEY_BLOCK = 240  # keys at a time; a multiple of most tiles
MAX_KEYS = 1024  # whose scores stay in a cache, so that all are taken at once
KEYS_TOGETHER = 8  # keys of one query whose products are summed side by side


class BlockedAttention(Attention):
    """Scores of a block of keys at a time, as far as the queries of a turn see them. Numbers of queries and keys may be
    arguments."""

    def __init__(self, name: str, params: Any, facts: Sequence[Fact], target: CpuTarget) -> None:
        super().__init__(name, params, facts, target)
        self.in_lines = not is_open(self.views[1].steps[-1]) and self.views[1].steps[-1] == 1
        several = not is_open(params.queries) and (params.queries > 1 or not self.in_lines)
        self.at_once = several and not is_open(params.keys) and not params.is_causal and params.keys <= MAX_KEYS
        rows = (
            params.keys if self.at_once else KEY_BLOCK + params.width + params.values
        )  # of large scratch, for a query
        self.most = query_vectors(rows, self.lanes, self.wide.itemsize, target) or 1

    def kernel(self) -> Kernel:
        if self.at_once:
            self._write_known()
        else:
            self._write_open()
        return self.b.finish()

    def _write_known(self) -> None:
        """All blocks but the last have as many queries as there can be."""
        b, params = self.b, self.params
        self.first_key, self.count = 0, params.keys
        block = self.most * self.lanes
        full, rest = divmod(params.queries, block)
        blocks = full + bool(rest)
        with b.parallel("p", prod(params.batch) * blocks) as p:
            self.at = self._batch_index(p // blocks if blocks > 1 else p)
            number = b.let("block", p % blocks) if blocks > 1 else as_expr(0)
            self._scratch(min(block, -(-params.queries // self.lanes) * self.lanes))
            whole = Block(number * block, block, self.most)
            last = Block(as_expr(full * block), rest, -(-rest // self.lanes))
            if full and rest:
                with b.when(number < full):
                    self._queries(whole)
                with b.otherwise():
                    self._queries(last)
            elif blocks:
                self._queries(whole if full else last)

    def _write_open(self) -> None:
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
            if self.in_lines and not is_open(params.queries) and params.queries == 1:
                self._one_query(Block(first, 1, 1))
            elif self.in_lines:
                with b.when(rows > 1):
                    self._queries(Block(first, rows, self.most))
                with b.otherwise():
                    self._one_query(Block(first, 1, 1))
            else:
                self._queries(Block(first, rows, self.most))

    def _scratch(self, width: int) -> None:
        alloc, params = self.b.alloc, self.params
        self.turned = alloc("turned", self.wide, (params.width, width))
        self.scores = alloc("scores", self.wide, (params.keys if self.at_once else KEY_BLOCK, width))
        self.top = alloc("top", self.wide, (width,))
        if not self.at_once:
            self.partial = alloc("partial", self.wide, (width, params.values))
            self.before = alloc("before", self.wide, (width,))  # the largest score of the keys before these
        self.total = alloc("total", self.wide, (width,))
        self.inverse = alloc("inverse", self.wide, (width,))  # what partial results are to be multiplied with

    def _queries(self, block: Block) -> None:
        """Results for a block of queries, of all keys."""
        for vector in range(block.vectors):
            with self._used(block, vector):
                self._turn_vector(block, vector)
                self._begin_vector(vector)
        if self.at_once:
            self._score(block)
            for vector in range(block.vectors):
                self._exponential_vector(vector)
                self._invert(vector)
            self._products(block, self._store_tile)
            return
        self._each(block, lambda row, column: self.b.store(self.partial, (row, column), te.const(0, self.wide)))
        with self._key_blocks():
            self._score_used(block)
            for vector in range(block.vectors):
                with self._used(block, vector):
                    self._exponential_vector(vector)
            self._products(block, self._store_tile)
        for vector in range(block.vectors):
            with self._used(block, vector):
                self._invert(vector)
        self._finish(block)

    def _begin_vector(self, vector: int) -> None:
        self._fill(self.top, vector, float("-inf"))
        if not self.at_once:
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
    def _used(self, block: Block, vector: int) -> Iterator[None]:
        """What is done only where there are queries for a vector."""
        if vector and not isinstance(block.rows, int):
            with self.b.when(block.rows > vector * self.lanes):
                yield
        else:
            yield

    def _each(self, block: Block, write: Callable[[Expr, Expr], None]) -> None:
        """Something for each query and column of the results."""
        b, (full, rest) = self.b, divmod(self.params.values, self.lanes)
        with b.loop("row", block.rows) as row:
            if full:
                with b.loop("part", full) as part, b.vector("lane", self.lanes) as lane:
                    write(row, part * self.lanes + lane)
            if rest:
                with self._lanes(rest) as lane:
                    write(row, lane + full * self.lanes)

    def _turn_vector(self, block: Block, vector: int) -> None:
        """turned[e, query] = scale * query[query, e]; lanes without a query hold zeros."""
        b, view, source = self.b, self.views[0], self.sources[0]
        row, column = view.steps[-2:]
        done = vector * self.lanes
        start = b.let("query", self._start(view) + (block.first + done) * row)
        scale = te.const(self.params.scale, self.wide)
        with b.loop("e", self.params.width) as e, b.vector("lane", self.lanes) as lane:
            value = Load(source, (start + lane * row + e * column,), self._inside(block, vector, lane))
            b.store(self.turned, (e, lane + done), te.cast(value, self.wide) * scale)

    def _score_used(self, block: Block) -> None:
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
            factor = None if self.at_once else self._factor(at, top)
            acc = self.b.registers("acc", self.wide, (1,))
            with b.loop("key", self.count) as key:
                e = b.let("e", te.exp(self.scores[key, at] - top))
                b.store(self.scores, (key, at), te.select(e.equal(e), e, zero) if clean else e)
                b.store(acc, 0, acc[0] + e)  # NaN stays in the sum
            if factor is None:
                b.store(self.total, at, acc[0])
            else:
                b.store(self.total, at, self.total[at] * factor + acc[0])
                b.store(self.inverse, at, factor)
                b.store(self.before, at, largest)

    def _factor(self, at: ExprLike, top: Expr) -> Expr:
        """What brings to a new scale what was summed before."""
        factor = self.b.let("factor", te.exp(self.before[at] - top))
        if self.params.unseen != "clean":
            return factor
        return self.b.let("factor", te.select(factor.equal(factor), factor, te.const(0, self.wide)))

    def _store_tile(self, block: Block, first: Expr, turns: int, columns: Sequence[Expr], acc: Buffer) -> None:
        b, (row_step, column_step) = self.b, self.out_steps[-2:]
        start = self._out_start(block.first + first) if self.at_once else as_expr(0)
        for turn in range(turns):
            factor = b.let("factor", self.inverse[first + turn])
            for v, c in enumerate(columns):
                at, value = (first + turn, c), acc[turn * len(columns) + v]
                if self.at_once:
                    place = start + turn * row_step + c * column_step
                    b.store(self.out, place, te.cast(value * factor, self.dtype))
                else:
                    b.store(self.partial, at, self.partial[at] * factor + value)

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

    def _finish(self, block: Block) -> None:
        column_step = self.out_steps[-1]

        def write(row: Expr, column: Expr) -> None:
            place = self._out_start(block.first + row) + column * column_step
            value = self.partial[row, column] * self.inverse[row]
            self.b.store(self.out, place, te.cast(value, self.dtype))

        self._each(block, write)

    # One query

    def _one_query(self, block: Block) -> None:
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
            for turns, count in tiles_of(self.count, KEYS_TOGETHER):
                with b.loop("tile", count) as tile:
                    self._dot_tile(block, tile * turns + done, turns)
                done = done + turns * count
            with b.vector("lane", self.lanes) as lane:  # so that there are whole vectors
                b.store(self.scores, (self.count + lane, 0), te.const(float("-inf"), self.wide))
            self._key_exponentials()
            self._products(block, self._store_tile)
        self._invert(0)
        self._finish(block)

    def _copy_query(self, block: Block) -> None:
        """line[e] = scale * query[e]"""
        b, view, source = self.b, self.views[0], self.sources[0]
        row, column = view.steps[-2:]
        start = b.let("query", self._start(view) + block.first * row)
        scale = te.const(self.params.scale, self.wide)
        with b.loop("e", self.params.width) as e:
            b.store(self.line, e, te.cast(source[start + e * column], self.wide) * scale)

    def _dot_tile(self, block: Block, first: Expr, turns: int) -> None:
        """scores[key] of some keys."""
        b, source, row = self.b, self.sources[1], self.views[1].steps[-2]
        number = self.first_key + first
        start = b.let("key", self._start(self.views[1]) + number * row)
        full, rest = divmod(self.params.width, self.lanes)
        with b.vector("lane", self.lanes) as lane:
            acc = self.b.registers("acc", self.wide, (turns,))
            if full:
                with b.loop("part", full) as part:
                    at = part * self.lanes + lane
                    query = b.let("q", self.line[at])
                    for turn in range(turns):
                        key = te.cast(source[start + turn * row + at], self.wide)
                        b.store(acc, turn, acc[turn] + key * query)
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
                score = self._masked(score, self._mask(block, number + turn, 0, as_expr(0)))
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
        factor = self._factor(0, top)
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
