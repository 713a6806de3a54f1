"""Attention whose queries are known in number, with the scores of all keys at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .... import te
from ....te.expr import Expr, as_expr
from ....te.loops import Buffer, Kernel
from .scores import Attention, Block


class WholeAttention(Attention):
    def _scratch_rows(self) -> int:
        keys: int = self.params.keys
        return keys

    def kernel(self) -> Kernel:
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
                    self._block(whole)
                with b.otherwise():
                    self._block(last)
            elif blocks:
                self._block(whole if full else last)
        return b.finish()

    def _scratch(self, width: int) -> None:
        alloc, params = self.b.alloc, self.params
        self.turned = alloc("turned", self.wide, (params.width, width))
        self.scores = alloc("scores", self.wide, (params.keys, width))
        self.top = alloc("top", self.wide, (width,))
        self.inverse = alloc("inverse", self.wide, (width,))

    def _block(self, block: Block) -> None:
        self._turn_queries(block)
        for vector in range(block.vectors):
            self._fill(self.top, vector, float("-inf"))
        self._score(block)
        self._exponentials(block)
        self._products(block)

    def _turn_queries(self, block: Block) -> None:
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

    def _exponentials(self, block: Block) -> None:
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

    def _clean(self, block: Block) -> None:
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

    def _store_tile(self, block: Block, first: Expr, turns: int, columns: Sequence[Expr], acc: Buffer) -> None:
        b = self.b
        start_out = self._out_start(block.first + first)
        row_step, column_step = self.out_steps[-2:]
        for turn in range(turns):
            factor = b.let("factor", self.inverse[first + turn])
            for v, c in enumerate(columns):
                value = acc[turn * len(columns) + v] * factor
                place = start_out + turn * row_step + c * column_step
                b.store(self.out, place, te.cast(value, self.dtype))
