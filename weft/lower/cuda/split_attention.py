"""Attention in which reading keys and values is what counts: few queries over many keys, and all that tensor cores do
not take. Sums and exponentials are in float32, and nothing is rounded before the result is.

A block of threads has a few lines, queries that share keys (of all heads that do), and a chunk of the keys. It goes
over them tile by tile: scores go to shared memory, where each line's largest one so far and the sum of exponentials are
kept, and what was summed up of values is scaled anew. A second kernel does the same over chunks, whose largest scores
stand for scores and whose sums for values. What a chunk is follows from the sizes alone, so bits repeat on any GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any, NamedTuple

from ...base.cuda_target import CudaTarget
from ...base.dtype import DTYPES, FLOAT32
from ...te.build import KernelBuilder
from ...te.expr import Expr, Ramp, as_expr, call, cast, const, lane_of, maximum, minimum, select, widen
from ...te.loops import WARP, Buffer, Kernel, buffer
from ...te.transform import legalise
from ...te.visit import masked_load
from .aligned import with_alignment
from .attention import AttentionRequest, Strided, is_empty
from .few_rows import most_rows
from .grid import quotient, remainder
from .totals import DISTANCES, group_total, shown_item, warp_total

LINES = 8  # of a block
TILE = 256  # keys whose scores are in shared memory
WARPS = 4
IN_FLIGHT = 8  # loads that a thread waits for at once
BLOCKS = 512  # that fill a GPU
LEAST_KEYS = 64  # of a chunk
MOST_COLUMNS = 256
RESIDENT = 2  # blocks that a multiprocessor has registers for
FLOATS = frozenset(DTYPES[name] for name in ("float16", "bfloat16", "float32"))
LOW, ZERO = const(-inf, FLOAT32), const(0.0, FLOAT32)


def can_split(request: AttentionRequest) -> bool:
    """Whether registers hold the columns of lines, and all is of one dtype that is no wider than the sums."""
    sides = request.query, request.key, request.value, request.out
    alike = len({side.buffer.dtype for side in sides}) == 1 and request.out.buffer.dtype in FLOATS
    return alike and not is_empty(request) and max(request.width, request.values) <= MOST_COLUMNS


def has_few_queries(request: AttentionRequest, target: CudaTarget) -> bool:
    """Whether so few lines share a key that threads multiply as fast as memory gives keys: as products of few rows."""
    return _Heads(request).lines <= most_rows(request.key.buffer.dtype, target)


class _Heads:
    """The axes of the batch: along some, keys and values stay the same. A line is an index along those and a query."""

    def __init__(self, request: AttentionRequest) -> None:
        self.request = request
        shared = [
            key == value == 0 for key, value in zip(request.key.steps[:-2], request.value.steps[:-2], strict=True)
        ]
        self.shared = [axis for axis, same in enumerate(shared) if same]
        self.own = [axis for axis, same in enumerate(shared) if not same]
        self.count = prod(request.batch[axis] for axis in self.own)
        self.lines = prod(request.batch[axis] for axis in self.shared) * request.queries

    def index(self, head: Expr, line: Expr) -> tuple[list[Expr], Expr]:
        """The index of the batch, and the query."""
        found: list[Expr] = [as_expr(0)] * len(self.request.batch)
        query = remainder(line, self.request.queries, self.lines) if self.request.queries > 1 else as_expr(0)
        pairs = (
            (self.own, head, self.count),
            (self.shared, quotient(line, self.request.queries, self.lines), self.lines),
        )
        for axes, number, total in pairs:
            for axis in reversed(axes):
                extent = self.request.batch[axis]
                found[axis] = remainder(number, extent, total) if extent > 1 else as_expr(0)
                number = quotient(number, extent, total)
        return found, query


class _Chunks(NamedTuple):
    """How keys are cut: into chunks of so many tiles."""

    number: int
    turns: int
    tile: int

    @property
    def keys(self) -> int:
        return self.turns * self.tile


def _chunks(keys: int, blocks: int) -> _Chunks:
    """As many as fill a GPU, where there are so many blocks without them."""
    wanted = min(max(BLOCKS // blocks, 1), -(-keys // LEAST_KEYS))
    each = -(-keys // wanted)
    turns = -(-each // TILE)
    tile = -(-each // (turns * WARP)) * WARP
    return _Chunks(-(-keys // (turns * tile)), turns, tile)


class _Row(NamedTuple):
    """How threads of a warp share a row of some columns: vectors of `lanes`, `across` threads, each with `turns`."""

    columns: int
    lanes: int
    across: int
    turns: int

    @property
    def vectors(self) -> int:
        return self.columns // self.lanes

    @property
    def beside(self) -> int:
        """Rows that the threads of a block have at once."""
        return WARPS * (WARP // self.across)

    @property
    def is_full(self) -> bool:
        return self.across * self.turns == self.vectors


def _row(columns: int, side: Strided, target: CudaTarget) -> _Row:
    lanes = target.lanes(side.buffer.dtype) if side.steps[-1] == 1 else 1
    while any(number % lanes for number in (columns, side.start, *side.steps[:-1])):
        lanes //= 2
    across = 1
    while across < WARP and across * lanes < columns:
        across *= 2
    return _Row(columns, lanes, across, -(-columns // (lanes * across)))


def _seen_keys(request: AttentionRequest) -> int:
    """The keys that any query sees."""
    keys, queries = int(request.keys), int(request.queries)
    return min(keys, queries) if request.causal else keys


def write_split_attention(
    name: str, buffers: Sequence[Buffer], request: AttentionRequest, target: CudaTarget
) -> list[Kernel]:
    """The kernels: one, or one for chunks and one for what they give. What they pass on are buffers that `buffers` has
    not, and all others keep their names."""
    heads = _Heads(request)
    tiles = -(-heads.lines // LINES)
    chunks = _chunks(_seen_keys(request), heads.count * tiles)
    inputs = [each for each in buffers if each is not request.out.buffer]
    if chunks.number == 1:
        body = _OverKeys(request, heads, chunks, target, None).body()
        return [_kernel(name, [*inputs, request.out.buffer], body)]
    lines = heads.count * heads.lines
    parts = _Parts(
        buffer("mixed", FLOAT32, (lines * chunks.number * request.values,)),
        buffer("tops", FLOAT32, (lines * chunks.number,)),
        buffer("totals", FLOAT32, (lines * chunks.number,)),
    )
    first = _OverKeys(request, heads, chunks, target, parts).body()
    second = _OverChunks(request, heads, chunks.number, parts, target).body()
    return [_kernel(f"{name}_chunks", [*inputs, *parts], first), _kernel(name, [*parts, request.out.buffer], second)]


def _kernel(name: str, buffers: Sequence[Buffer], body: Any) -> Kernel:
    aligned, body = with_alignment(buffers, body)
    return legalise(Kernel(name, tuple(aligned), body, resident=RESIDENT))


class _Parts(NamedTuple):
    """What chunks give, for each line and chunk: sums of values, the largest score, the sum of exponentials."""

    mixed: Buffer
    tops: Buffer
    totals: Buffer


class _Mixing:
    """Writes a kernel in which a block makes sums of rows, for each of its lines, by the softmax of their scores.
    What scores are, where rows are and where sums go, those who inherit say."""

    lines: int
    rows: int  # that there are
    blocks: int
    values: _Row
    first_row: Expr  # of a block

    def __init__(self, request: AttentionRequest, heads: _Heads, chunks: _Chunks) -> None:
        self.b = KernelBuilder("mixing")
        self.request, self.heads, self.chunks = request, heads, chunks

    def body(self) -> Any:
        b, count = self.b, self.request.values
        with b.block("block", self.blocks) as block:
            self.scores = b.alloc("scores", FLOAT32, (self.lines, self.chunks.tile), scope="shared")
            self.sums = b.alloc("sums", FLOAT32, (WARPS, self.lines * count), scope="shared")
            self.top, self.total, self.factor = (
                b.alloc(name, FLOAT32, (self.lines,), scope="shared") for name in ("top", "total", "factor")
            )
            with b.thread("warp", WARPS, "y") as self.warp, b.thread("lane", WARP) as self.lane:
                self.thread = b.let("thread", self.warp * WARP + self.lane)
                self._locate(block)
                self._mix()
        return b.finish().body

    def _locate(self, block: Expr) -> None:
        raise NotImplementedError

    def _turns(self) -> Expr:
        """Tiles of the chunk that a block goes over."""
        return as_expr(self.chunks.turns)

    def _score(self, first: Expr) -> None:
        """Puts the scores of rows from the first on into shared memory; minus infinity where there is no row."""
        raise NotImplementedError

    def _weight(self, exponential: Expr, row: Expr) -> Expr:
        """What counts of a row in the sum of exponentials."""
        return exponential

    def _value(self, row: Expr, column: Expr, mask: Expr | None) -> Expr:
        """A vector of a row from a column on."""
        raise NotImplementedError

    def _store(self, line: Expr, column: Expr, total: Expr) -> None:
        raise NotImplementedError

    def _store_line(self, line: Expr) -> None:
        """What else is known of a line in the end."""

    def _mix(self) -> None:
        b, items = self.b, self.lines * self.values.turns * self.values.lanes
        mixed = b.alloc("mixed_here", FLOAT32, (items,), scope="register")
        for item in range(items):
            b.store(mixed, item, ZERO)
        rounds = range(-(-self.lines // WARPS))  # a warp has every so many-th line when it comes to exponentials
        tops, totals = (
            b.alloc(name, FLOAT32, (len(rounds),), scope="register") for name in ("tops_here", "totals_here")
        )
        for number in rounds:
            b.store(tops, number, LOW)
            b.store(totals, number, ZERO)
        with b.loop("turn", self._turns()) as turn:
            first = b.let("first", self.first_row + turn * self.chunks.tile)
            b.barrier()
            self._score(first)
            b.barrier()
            for number in rounds:
                self._softmax(first, number, tops, totals)
            b.barrier()
            self._add_values(mixed, first)
        for number in rounds:
            line = self.warp + number * WARPS
            with b.when((line < self.lines) & (self.lane < 1)):
                b.store(self.top, line, tops[number])
                b.store(self.total, line, totals[number])
        group_total(b, mixed, [distance for distance in DISTANCES if distance >= self.values.across])
        self._gather(mixed)

    # The softmax of a tile

    def _softmax(self, first: Expr, number: int, tops: Buffer, totals: Buffer) -> None:
        """A warp makes exponentials of the scores of a line, whose largest score may have grown."""
        b, line, count = self.b, self.warp + number * WARPS, self.chunks.tile // WARP
        scores = b.alloc("held", FLOAT32, (count,), scope="register")
        share = b.alloc("share", FLOAT32, (), scope="register")
        for each in range(count):
            b.store(scores, each, LOW)
        with b.when(line < self.lines):
            for each in range(count):
                b.store(scores, each, self.scores[line, self.lane + each * WARP])
        largest = scores[0]
        for each in range(1, count):
            largest = maximum(largest, scores[each])
        b.store(share, (), largest)
        warp_total(b, "max", share)
        top = b.let("top", maximum(tops[number], share[()]))
        usable = b.let("usable", select(top.equal(-inf), ZERO, top))
        factor = b.let("factor", call("exp", tops[number] - usable))
        b.store(tops, number, top)
        b.store(share, (), ZERO)
        for each in range(count):
            b.store(scores, each, call("exp", scores[each] - usable))
            b.store(share, (), share[()] + self._weight(scores[each], first + (self.lane + each * WARP)))
        warp_total(b, "sum", share)
        b.store(totals, number, totals[number] * factor + share[()])
        with b.when(line < self.lines):
            for each in range(count):
                b.store(self.scores, (line, self.lane + each * WARP), scores[each])
            with b.when(self.lane < 1):
                b.store(self.factor, line, factor)

    # Sums of values

    def _add_values(self, mixed: Buffer, first: Expr) -> None:
        """Each thread adds vectors of every so many-th row, times what became of its scores."""
        b, row = self.b, self.values
        if self.chunks.turns > 1:
            for line in range(self.lines):
                factor = b.let("factor", self.factor[line])
                for item in range(line * row.turns * row.lanes, (line + 1) * row.turns * row.lanes):
                    b.store(mixed, item, mixed[item] * factor)
        self._over_rows(row, lambda places: self._add_some(mixed, first, places))

    def _over_rows(self, row: _Row, take: Callable[[Sequence[Expr]], None]) -> None:
        """The rows of a tile that a thread has, some at a time: as many as there are loads to be waited for at once."""
        b, count = self.b, -(-self.chunks.tile // row.beside)
        own = b.let("own", self.warp * (WARP // row.across) + self.lane // row.across)
        together = min(max(IN_FLIGHT // row.turns, 1), count)
        with b.loop("some", count // together) as turn:
            take([b.let("row", (turn * together + n) * row.beside + own) for n in range(together)])
        rest = range(count // together * together, count)
        if rest:
            take([b.let("row", own + n * row.beside) for n in rest])

    def _column(self, row: _Row, turn: int) -> Expr:
        """Which vector of a row a thread has in a turn."""
        return self.lane % row.across + turn * row.across

    def _add_some(self, mixed: Buffer, first: Expr, places: Sequence[Expr]) -> None:
        b, row = self.b, self.values
        held = b.alloc("held", FLOAT32, (len(places) * row.turns,), scope="register", lanes=row.lanes)
        ragged = self.rows % self.chunks.keys or self.chunks.tile % row.beside
        for number, place in enumerate(places):
            there = (first + place < self.rows) & (place < self.chunks.tile) if ragged else None
            safe = minimum(first + place, as_expr(self.rows - 1))
            for turn in range(row.turns):
                column = minimum(self._column(row, turn), as_expr(row.vectors - 1)) * row.lanes
                b.store(held, number * row.turns + turn, cast(self._value(safe, column, there), FLOAT32))
        for number, place in enumerate(places):
            at = minimum(place, as_expr(self.chunks.tile - 1))
            for line in range(self.lines):
                weight = b.let("weight", self.scores[line, at])
                for turn in range(row.turns):
                    vector, item = held[number * row.turns + turn], (line * row.turns + turn) * row.lanes
                    for lane in range(row.lanes):
                        b.store(mixed, item + lane, mixed[item + lane] + weight * lane_of(vector, lane))

    def _gather(self, mixed: Buffer) -> None:
        """Warps' sums go through shared memory, and are added up in the order of warps."""
        b, row, replicas = self.b, self.values, WARP // self.values.across
        each, count = row.turns * row.lanes, self.request.values
        for start in range(0, self.lines * each, replicas):
            replica = self.lane // row.across
            shown, item = shown_item(b, mixed, start, replica, replicas), b.let("item", replica + start)
            vector = item % each // row.lanes * row.across + self.lane % row.across
            column = b.let("column", vector * row.lanes + item % row.lanes)
            with b.when((item < self.lines * each) & (column < count)):
                b.store(self.sums, (self.warp, item // each * count + column), shown)
        b.barrier()
        for start in range(0, self.lines * count, WARPS * WARP):
            number = b.let("number", self.thread + start)
            with b.when(number < self.lines * count):
                total: Expr = self.sums[0, number]
                for warp in range(1, WARPS):
                    total = total + self.sums[warp, number]
                self._store(number // count, number % count, total)
        with b.when(self.thread < self.lines):
            self._store_line(self.thread)

    def _store_result(self, head: Expr, line: Expr, column: Expr, mixed: Expr, total: Expr) -> None:
        """What is divided by the sum of exponentials; of a line that sees no key as the operator says."""
        request, out = self.request, self.request.out
        made = mixed / total
        if request.unseen != "nan":
            lost = total.equal(0.0)
            made = select(lost | call("isnan", total) if request.unseen == "clean" else lost, ZERO, made)
        batch, query = self.heads.index(head, line)
        self.b.store(out.buffer, _place(out, batch, query, column), cast(made, out.buffer.dtype))


class _OverKeys(_Mixing):
    """Lines of a head over a chunk of its keys; sums go to the result, or to what chunks give."""

    def __init__(
        self, request: AttentionRequest, heads: _Heads, chunks: _Chunks, target: CudaTarget, parts: _Parts | None
    ) -> None:
        super().__init__(request, heads, chunks)
        self.parts = parts
        self.lines = min(heads.lines, LINES)
        self.tiles = -(-heads.lines // LINES)
        self.rows = _seen_keys(request)
        self.blocks = heads.count * self.tiles * chunks.number
        self.keys, self.values = _row(request.width, request.key, target), _row(request.values, request.value, target)

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
                vector = _vector(query, batch, at, self._column(row, turn) * row.lanes, row.lanes, self._has(row, turn))
                b.store(held, line * row.turns + turn, cast(vector, FLOAT32))
        self._over_rows(row, lambda places: self._score_some(held, first, places))

    def _has(self, row: _Row, turn: int) -> Expr | None:
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
                vector = _vector(self.request.key, self.shared_batch, key, column, row.lanes, self._has(row, turn))
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
        return _vector(self.request.value, self.shared_batch, row, column, self.values.lanes, mask)

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


class _OverChunks(_Mixing):
    """A line over what chunks give: sum of exp(top - largest top) * mixed, divided by that of totals."""

    def __init__(self, request: AttentionRequest, heads: _Heads, count: int, parts: _Parts, target: CudaTarget) -> None:
        super().__init__(request, heads, _chunks(count, BLOCKS))
        self.parts, self.rows, self.lines = parts, count, 1
        self.blocks = heads.count * heads.lines
        self.values = _row(request.values, Strided(parts.mixed, 0, (request.values, 1)), target)

    def _locate(self, block: Expr) -> None:
        self.block, self.first_row = block, as_expr(0)

    def _part(self, chunk: Expr) -> Expr:
        return self.block * self.rows + minimum(chunk, as_expr(self.rows - 1))

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
        side = Strided(self.parts.mixed, 0, (self.rows * self.request.values, self.request.values, 1))
        return _vector(side, [self.block], row, column, self.values.lanes, mask)

    def _store(self, line: Expr, column: Expr, total: Expr) -> None:
        lines = self.heads.lines
        head, number = quotient(self.block, lines, self.blocks), remainder(self.block, lines, self.blocks)
        self._store_result(head, number, column, total, self.total[0])


def _place(side: Strided, batch: Sequence[Expr], row: Expr, column: Expr) -> Expr:
    place = as_expr(side.start)
    for index, step in zip((*batch, row, column), side.steps, strict=True):
        place = place + index * as_expr(step)
    return place


def _vector(side: Strided, batch: Sequence[Expr], row: Expr, column: Expr, lanes: int, mask: Expr | None) -> Expr:
    """So many neighbours of a row; zeros where the mask says that there are none."""
    place = _place(side, batch, row, column)
    index: Expr = place if lanes == 1 else Ramp(place, as_expr(side.steps[-1]), lanes)
    return masked_load(side.buffer, (index,), None if mask is None else widen(mask, lanes))
