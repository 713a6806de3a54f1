"""Attention in which reading keys and values is what counts: few queries over many keys, and all that tensor cores do
not take. Sums and exponentials are in float32, and nothing is rounded before the result is.

A block of threads has a few lines, queries that share keys (of all heads that do), and a chunk of the keys. A second
kernel does the same over chunks, whose largest scores stand for scores and whose sums for values. What a chunk is
follows from the sizes alone, so bits repeat on any GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.cuda_target import CudaTarget
from ...base.dtype import DTYPES, FLOAT32
from ...te.expr import Expr, as_expr, cast, const, lane_of, maximum, minimum, select
from ...te.loops import WARP, Buffer, Kernel, buffer
from ...te.transform import legalise
from .aligned import with_alignment
from .attention import AttentionRequest, Strided, is_empty
from .few_rows import most_rows
from .grid import quotient, remainder
from .mixing import (
    BLOCKS,
    LINES,
    LOW,
    MOST_COLUMNS,
    RESIDENT,
    WARPS,
    ZERO,
    Chunks,
    Heads,
    Mixing,
    Parts,
    Row,
    chunks_of,
    row_of,
    vector_at,
)
from .totals import DISTANCES, group_total, shown_item

SHARE = 0.6  # of the rate of multiply-adds that is worth it: of few queries tensor cores have few blocks
FLOATS = frozenset(DTYPES[name] for name in ("float16", "bfloat16", "float32"))


def can_split(request: AttentionRequest) -> bool:
    """Whether registers hold the columns of lines, and all is of one dtype that is no wider than the sums."""
    sides = request.query, request.key, request.value, request.out
    alike = len({side.buffer.dtype for side in sides}) == 1 and request.out.buffer.dtype in FLOATS
    return alike and not is_empty(request) and max(request.width, request.values) <= MOST_COLUMNS


def has_few_queries(request: AttentionRequest, target: CudaTarget) -> bool:
    """Whether so few lines share a key that threads multiply as fast as memory gives keys: as products of few rows."""
    return Heads(request).lines <= most_rows(request.key.buffer.dtype, target, SHARE)


def _seen_keys(request: AttentionRequest) -> int:
    """The keys that any query sees."""
    keys, queries = int(request.keys), int(request.queries)
    return min(keys, queries) if request.causal else keys


def write_split_attention(
    name: str, buffers: Sequence[Buffer], request: AttentionRequest, target: CudaTarget
) -> list[Kernel]:
    """The kernels: one, or one for chunks and one for what they give. What they pass on are buffers that `buffers` has
    not, and all others keep their names."""
    heads = Heads(request)
    tiles = -(-heads.lines // LINES)
    chunks = chunks_of(_seen_keys(request), heads.count * tiles)
    inputs = [each for each in buffers if each is not request.out.buffer]
    if chunks.number == 1:
        body = OverKeys(request, heads, chunks, target, None).body()
        return [mixing_kernel(name, [*inputs, request.out.buffer], body)]
    parts = parts_of(request, heads, chunks.number)
    first = OverKeys(request, heads, chunks, target, parts).body()
    second = OverChunks(request, heads, chunks.number, parts, target).body()
    return [
        mixing_kernel(f"{name}_chunks", [*inputs, *parts], first),
        mixing_kernel(name, [*parts, request.out.buffer], second),
    ]


def parts_of(request: AttentionRequest, heads: Heads, chunks: int) -> Parts:
    """Memory for what so many chunks give."""
    lines = heads.count * heads.lines
    return Parts(
        buffer("mixed", FLOAT32, (lines * chunks * request.values,)),
        buffer("tops", FLOAT32, (lines * chunks,)),
        buffer("totals", FLOAT32, (lines * chunks,)),
    )


def mixing_kernel(name: str, buffers: Sequence[Buffer], body: Any) -> Kernel:
    """A kernel of a body that a `Mixing` wrote."""
    aligned, body = with_alignment(buffers, body)
    return legalise(Kernel(name, tuple(aligned), body, resident=RESIDENT))


class OverKeys(Mixing):
    """Lines of a head over a chunk of its keys; sums go to the result, or to what chunks give."""

    def __init__(
        self, request: AttentionRequest, heads: Heads, chunks: Chunks, target: CudaTarget, parts: Parts | None
    ) -> None:
        super().__init__(request, heads, chunks)
        self.parts, self.held = parts, request.value.buffer.dtype
        self.lines = min(heads.lines, LINES)
        self.tiles = -(-heads.lines // LINES)
        self.rows = _seen_keys(request)
        self.blocks = heads.count * self.tiles * chunks.number
        self.keys, self.values = (
            row_of(request.width, request.key, target),
            row_of(request.values, request.value, target),
        )

    def _locate(self, block: Expr) -> None:
        b, chunks, total = self.b, self.chunks.number, self.blocks
        self.chunk = b.let("chunk", remainder(block, chunks, total))
        group = b.let("group", quotient(block, chunks, total))
        self.head = b.let("head", quotient(group, self.tiles, total))
        self.first_line = b.let("first_line", remainder(group, self.tiles, total) * LINES)
        self.first_row = self.chunk * self.chunks.keys
        self.shared_batch, _ = self.heads.index(self.head, as_expr(0))  # keys and values have no step along the rest

    def _turns(self) -> Expr:
        """Where query i sees keys 0 to i and lines are queries, no more than the last one of the block sees."""
        if not self.request.causal or self.heads.lines != self.request.queries:
            return super()._turns()
        seen = minimum(self.first_line + LINES, as_expr(self.rows)) - self.first_row
        return minimum((maximum(seen, as_expr(0)) + (self.chunks.tile - 1)) // self.chunks.tile, super()._turns())

    def _line(self, line: Expr) -> Expr:
        """A line that there is."""
        return minimum(self.first_line + line, as_expr(self.heads.lines - 1))

    def _score(self, first: Expr) -> None:
        b, row, query = self.b, self.keys, self.request.query
        held = b.alloc("query", FLOAT32, (self.lines * row.turns,), scope="register", lanes=row.lanes)
        for line in range(self.lines):
            batch, at = self.heads.index(self.head, self._line(as_expr(line)))
            for turn in range(row.turns):
                vector = vector_at(
                    query, batch, at, self._column(row, turn) * row.lanes, row.lanes, self._has(row, turn)
                )
                b.store(held, line * row.turns + turn, cast(vector, FLOAT32))
        self._over_rows(row, lambda places: self._score_some(held, first, places))

    def _has(self, row: Row, turn: int) -> Expr | None:
        """Whether a thread has a vector in a turn; None: all have."""
        return None if row.is_full else self._column(row, turn) < row.vectors

    def _score_some(self, query: Buffer, first: Expr, places: Sequence[Expr]) -> None:
        b, row = self.b, self.keys
        held = b.alloc(
            "held", self.request.key.buffer.dtype, (len(places) * row.turns,), scope="register", lanes=row.lanes
        )
        for number, place in enumerate(places):
            key = minimum(first + place, as_expr(self.rows - 1))
            for turn in range(row.turns):
                column = self._column(row, turn) * row.lanes
                vector = vector_at(self.request.key, self.shared_batch, key, column, row.lanes, self._has(row, turn))
                b.store(held, number * row.turns + turn, vector)
        for number, place in enumerate(places):
            dots = b.alloc("dots", FLOAT32, (self.lines,), scope="register")
            for line in range(self.lines):
                total: Expr = ZERO
                for turn in range(row.turns):
                    a, k = query[line * row.turns + turn], cast(held[number * row.turns + turn], FLOAT32)
                    for lane in range(row.lanes):
                        total = total + lane_of(a, lane) * lane_of(k, lane)
                b.store(dots, line, total)
            group_total(b, dots, [distance for distance in DISTANCES if distance < row.across])
            for start in range(0, self.lines, row.across):
                replica = self.lane % row.across
                dot, own = shown_item(b, dots, start, replica, row.across), b.let("own", replica + start)
                with b.when((own < self.lines) & (place < self.chunks.tile)):
                    b.store(self.scores, (own, place), self._scored(dot, own, first + place))

    def _scored(self, dot: Expr, line: Expr, row: Expr) -> Expr:
        """The score of a line and a key, whatever masks make of it."""
        request = self.request
        batch, query = self.heads.index(self.head, self._line(line))
        key = self.b.let("key", minimum(row, as_expr(self.rows - 1)))
        score = dot if request.score is None else request.score(dot, batch, query, key)
        made = score * const(request.factor, FLOAT32)
        if request.causal:
            made = select(key <= query, made, LOW)
        return select(row < self.rows, made, LOW)

    def _value(self, row: Expr, column: Expr, mask: Expr | None) -> Expr:
        return vector_at(self.request.value, self.shared_batch, row, column, self.values.lanes, mask)

    def _store(self, line: Expr, column: Expr, total: Expr) -> None:
        b, parts = self.b, self.parts
        number = b.let("number", self.first_line + line)
        with b.when(number < self.heads.lines):
            if parts is None:
                self._store_result(self.head, number, column, total, self.total[line])
            else:
                b.store(parts.mixed, self._part(number) * self.request.values + column, total)

    def _part(self, number: Expr) -> Expr:
        return (self.head * self.heads.lines + number) * self.chunks.number + self.chunk

    def _store_line(self, line: Expr) -> None:
        b, parts = self.b, self.parts
        if parts is not None:
            number = b.let("number", self.first_line + line)
            with b.when(number < self.heads.lines):
                b.store(parts.tops, self._part(number), self.top[line])
                b.store(parts.totals, self._part(number), self.total[line])


class OverChunks(Mixing):
    """A line over what chunks give: sum of exp(top - largest top) * mixed, divided by that of totals."""

    def __init__(self, request: AttentionRequest, heads: Heads, count: int, parts: Parts, target: CudaTarget) -> None:
        """`count` chunks, of which `rows` may say, once a block is located, that fewer gave something."""
        super().__init__(request, heads, chunks_of(count, BLOCKS))
        self.parts, self.rows, self.number, self.lines = parts, count, count, 1
        self.blocks = heads.count * heads.lines
        self.values = row_of(request.values, Strided(parts.mixed, 0, (request.values, 1)), target)

    def _locate(self, block: Expr) -> None:
        self.block, self.first_row = block, as_expr(0)

    def _part(self, chunk: Expr) -> Expr:
        return self.block * self.number + minimum(chunk, as_expr(self.rows - 1))

    def _score(self, first: Expr) -> None:
        b, tile = self.b, self.chunks.tile
        for start in range(0, tile, WARPS * WARP):
            place = b.let("place", self.thread + start)
            with b.when(place < tile):
                top = self.parts.tops[self._part(first + place)]
                b.store(self.scores, (0, place), select(first + place < self.rows, top, LOW))

    def _weight(self, exponential: Expr, row: Expr) -> Expr:
        return exponential * self.parts.totals[self._part(row)]

    def _value(self, row: Expr, column: Expr, mask: Expr | None) -> Expr:
        side = Strided(self.parts.mixed, 0, (self.number * self.request.values, self.request.values, 1))
        return vector_at(side, [self.block], row, column, self.values.lanes, mask)

    def _store(self, line: Expr, column: Expr, total: Expr) -> None:
        lines = self.heads.lines
        head, number = quotient(self.block, lines, self.blocks), remainder(self.block, lines, self.blocks)
        self._store_result(head, number, column, total, self.total[0])
