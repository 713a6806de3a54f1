"""Scores of attention and what is summed by them: a turn for each block of queries of each head.

Queries lie in the lanes while scores are computed: the block of queries is transposed once, keys
are read where they are, an element at a time for all queries, and the softmax needs no sums across
lanes. The product with the values has the values' columns in the lanes. Scores stay in scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

from .... import te
from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT32, FLOAT64, DType
from ....base.shape import StaticShape, is_static, numel
from ....core.ir import Fact
from ....ops.nn.strided_attention import View, mask_shape, views
from ....te.build import KernelBuilder
from ....te.expr import Const, Expr, Load, as_expr
from ....te.loops import Buffer
from ..tile import balanced, registers, tiles_of

SCORES = 3 / 16  # of the second cache, for those of a block of queries
STACK_BYTES = 512 << 10  # where they lie
MAX_TURNS = 12  # keys, or queries, whose results are side by side in registers


class Block(NamedTuple):
    """Queries from row `first` on, in `vectors` vectors of which the last may not be full."""

    first: Expr
    rows: Any
    vectors: int


def query_vectors(rows: int, lanes: int, itemsize: int, target: CpuTarget) -> int:
    """How many vectors of queries a block has; 0 where even one has too many scores."""
    most = min(SCORES * target.caches[1], STACK_BYTES)
    return next((n for n in (2, 1) if rows * n * lanes * itemsize <= most), 0)


# Stores sums of a tile: of so many queries from one on, and of some columns of values.
StoreTile = Callable[[Block, Expr, int, Sequence[Expr], Buffer], None]


class Attention:
    """Scores of `count` keys from `first_key` on, and products with their values, of one block of queries."""

    at: list[Expr]  # the index of a turn along leading axes
    first_key: Any
    count: Any
    turned: Buffer  # queries, by column
    scores: Buffer  # by key, and query
    top: Buffer  # the largest score of each query
    inverse: Buffer  # what results of each query are multiplied with

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

    def _flat(self, name: str, fact: Fact) -> Buffer:
        assert is_static(fact.shape)
        return self.b.arg(name, self.dtype, (numel(fact.shape),))

    def _batch_index(self, number: Expr) -> list[Expr]:
        found: list[Expr] = []
        for extent in reversed(self.params.batch):
            found.append(self.b.let("head", number % extent))
            number = number // extent
        return found[::-1]

    def _fill(self, memory: Buffer, vector: int, value: float) -> None:
        with self.b.vector("lane", self.lanes) as lane:
            self.b.store(memory, vector * self.lanes + lane, te.const(value, self.wide))

    def _start(self, view: View) -> Expr:
        """Where the matrix of this turn begins."""
        total = as_expr(view.start)
        for index, step in zip(self.at, view.steps):
            total = total + index * step
        return total

    @contextmanager
    def _lanes(self, count: int) -> Iterator[Expr]:
        if count == 1:
            yield as_expr(0)
        else:
            with self.b.vector("lane", count) as lane:
                yield lane

    def _score(self, block: Block) -> None:
        """scores[key, query] and the largest for each query, keys in tiles."""
        b = self.b
        most = min((self.budget - block.vectors - 1) // block.vectors, MAX_TURNS)
        done = 0
        for turns, count in tiles_of(self.count, most):
            with b.loop("tile", count) as tile, b.vector("lane", self.lanes) as lane:
                self._score_tile(block, tile * turns + done, turns, lane)
            done = done + turns * count

    def _score_tile(self, block: Block, first: Expr, turns: int, lane: Expr) -> None:
        b, view, source = self.b, self.views[1], self.sources[1]
        row, column = view.steps[-2:]
        number = self.first_key + first
        start = b.let("key", self._start(view) + number * row)
        columns = range(block.vectors)
        acc = self.b.registers("acc", self.wide, (turns * block.vectors,))

        with b.loop("e", self.params.width) as e:
            queries = [b.let("q", self.turned[e, v * self.lanes + lane]) for v in columns]
            for turn in range(turns):
                key = b.let("k", te.cast(source[start + turn * row + e * column], self.wide))
                for v in columns:
                    at = turn * block.vectors + v
                    b.store(acc, at, acc[at] + key * queries[v])

        for v in columns:
            top = b.let("top", self.top[v * self.lanes + lane])
            for turn in range(turns):
                value: Expr = acc[turn * block.vectors + v]
                if self.params.masked:
                    value = self._masked(value, self._mask(block, number + turn, v, lane))
                score = b.let("score", self._seen(block, value, number + turn, v * self.lanes + lane))
                b.store(self.scores, (first + turn, v * self.lanes + lane), score)
                # NaN is never larger: it comes back in the sum of exponentials.
                top = b.let("top", te.select(score > top, score, top))
            b.store(self.top, v * self.lanes + lane, top)

    def _masked(self, score: Expr, mask: Expr) -> Expr:
        if not self.params.replaces:
            return score + mask
        named = self.b.let("mask", mask)
        return te.select(named.equal(0), score, named)

    def _seen(self, block: Block, score: Expr, key: Expr, row: Expr) -> Expr:
        """The score of a key, if the query of a row of the block sees it."""
        if not self.params.is_causal:
            return score
        return te.select(block.first + row >= key, score, te.const(float("-inf"), self.wide))

    def _mask(self, block: Block, key: Expr, vector: int, lane: Expr) -> Expr:
        *batch, per_key, per_query = self.mask_steps
        index = key * per_key
        for at, step in zip(self.at, batch):
            index = index + at * step
        if not per_query:
            return te.cast(self.sources[3][index], self.wide)
        index = index + (block.first + lane + vector * self.lanes) * per_query
        inside = self._inside(block, vector, lane) if vector == block.vectors - 1 else None
        return te.cast(Load(self.sources[3], (index,), inside), self.wide)

    def _inside(self, block: Block, vector: int, lane: Expr) -> Expr | None:
        """Whether there is a query for a lane; None where there is one for all."""
        done = vector * self.lanes
        is_known = isinstance(block.rows, int) and (block.rows >= done + self.lanes or isinstance(lane, Const))
        return None if is_known else lane < block.rows - done

    def _products(self, block: Block, store: StoreTile) -> None:
        """out[query] = sum of scores[key, query] * value[key], times inverse[query]."""
        full, rest = divmod(self.params.values, self.lanes)
        done = 0
        for vectors, count in balanced(full, 4) if full else ():
            for _ in range(count):
                self._columns(block, done, vectors, self.lanes, store)
                done += vectors * self.lanes
        if rest:
            self._columns(block, done, 1, rest, store)

    def _columns(self, block: Block, first: int, vectors: int, lanes: int, store: StoreTile) -> None:
        most = min((self.budget - vectors - 1) // vectors, MAX_TURNS)
        done = 0
        for turns, count in tiles_of(block.rows, most):
            with self.b.loop("tile", count) as tile, self._lanes(lanes) as lane:
                columns = [lane + (first + v * lanes) for v in range(vectors)]
                acc = self._product_tile(tile * turns + done, turns, columns)
                store(block, tile * turns + done, turns, columns, acc)
            done = done + turns * count

    def _product_tile(self, first: Expr, turns: int, columns: Sequence[Expr]) -> Buffer:
        b, view, source = self.b, self.views[2], self.sources[2]
        row, column = view.steps[-2:]
        start = b.let("value", self._start(view) + self.first_key * row)
        acc = self.b.registers("acc", self.wide, (turns * len(columns),))

        with b.loop("key", self.count) as key:
            at = start + key * row
            values = [b.let("v", te.cast(source[at + c * column], self.wide)) for c in columns]
            for turn in range(turns):
                score = b.let("p", self.scores[key, first + turn])
                for v, value in enumerate(values):
                    place = turn * len(columns) + v
                    b.store(acc, place, acc[place] + score * value)

        return acc

    def _out_start(self, query: Expr) -> Expr:
        """Where the results of a query begin."""
        *batch, row_step, _ = self.out_steps
        start = query * row_step
        for index, step in zip(self.at, batch):
            start = start + index * step
        return self.b.let("start", start)


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
