"""Sums of rows weighted by the softmax of their scores, of which kernels of attention without tensor cores are made:
how lines and chunks are cut, how threads share rows, and a kernel whose scores, rows and results others name.

A block of threads has a few lines, and goes over its rows tile by tile: scores go to shared memory, where each line's
largest one so far and the sum of exponentials are kept, and what was summed up is scaled anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any, NamedTuple

from ...base.cuda_target import CudaTarget
from ...base.dtype import FLOAT32, DType
from ...te.build import KernelBuilder
from ...te.expr import Expr, Ramp, as_expr, call, cast, const, lane_of, maximum, minimum, select, widen
from ...te.loops import WARP, Buffer
from ...te.visit import masked_load
from .attention import AttentionRequest, Strided
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
LOW, ZERO = const(-inf, FLOAT32), const(0.0, FLOAT32)


class Heads:
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


class Chunks(NamedTuple):
    """How keys are cut: into chunks of so many tiles."""

    number: int
    turns: int
    tile: int

    @property
    def keys(self) -> int:
        return self.turns * self.tile


def chunks_of(keys: int, blocks: int) -> Chunks:
    """As many as fill a GPU, where there are so many blocks without them."""
    wanted = min(max(BLOCKS // blocks, 1), -(-keys // LEAST_KEYS))
    each = -(-keys // wanted)
    turns = -(-each // TILE)
    tile = -(-each // (turns * WARP)) * WARP
    return Chunks(-(-keys // (turns * tile)), turns, tile)


class Row(NamedTuple):
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


def row_of(columns: int, side: Strided, target: CudaTarget) -> Row:
    lanes = target.lanes(side.buffer.dtype) if side.steps[-1] == 1 else 1
    while any(number % lanes for number in (columns, side.start, *side.steps[:-1])):
        lanes //= 2
    across = 1
    while across < WARP and across * lanes < columns:
        across *= 2
    return Row(columns, lanes, across, -(-columns // (lanes * across)))


class Parts(NamedTuple):
    """What chunks give, for each line and chunk: sums of values, the largest score, the sum of exponentials."""

    mixed: Buffer
    tops: Buffer
    totals: Buffer


class Mixing:
    """Writes a kernel in which a block makes sums of rows, for each of its lines, by the softmax of their scores.
    What scores are, where rows are and where sums go, those who inherit say."""

    lines: int
    rows: int | Expr  # that there are
    blocks: int
    values: Row
    in_flight = IN_FLIGHT
    held: DType = FLOAT32  # of values in registers: theirs, so that they take no more
    first_row: Expr  # of a block

    def __init__(self, request: AttentionRequest, heads: Heads, chunks: Chunks) -> None:
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
                there = self._there()
                if there is None:
                    self._mix()
                else:
                    with b.when(there):
                        self._mix()
        return b.finish().body

    def _locate(self, block: Expr) -> None:
        raise NotImplementedError

    def _there(self) -> Expr | None:
        """Whether a block has rows; None where all have. What others give nobody reads."""
        return None

    def _begin(self) -> None:
        """What is done before the first tile."""

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
        self._begin()
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

    def _over_rows(self, row: Row, take: Callable[[Sequence[Expr]], None]) -> None:
        """The rows of a tile that a thread has, some at a time: as many as there are loads to be waited for at once."""
        b, count = self.b, -(-self.chunks.tile // row.beside)
        own = b.let("own", self.warp * (WARP // row.across) + self.lane // row.across)
        together = min(max(self.in_flight // row.turns, 1), count)
        with b.loop("some", count // together) as turn:
            take([b.let("row", (turn * together + n) * row.beside + own) for n in range(together)])
        rest = range(count // together * together, count)
        if rest:
            take([b.let("row", own + n * row.beside) for n in rest])

    def _column(self, row: Row, turn: int) -> Expr:
        """Which vector of a row a thread has in a turn."""
        return self.lane % row.across + turn * row.across

    def _add_some(self, mixed: Buffer, first: Expr, places: Sequence[Expr]) -> None:
        b, row = self.b, self.values
        held = b.alloc("held", self.held, (len(places) * row.turns,), scope="register", lanes=row.lanes)
        self._hold(held, first, places)
        for number, place in enumerate(places):
            at = minimum(place, as_expr(self.chunks.tile - 1))
            for line in range(self.lines):
                weight = b.let("weight", self.scores[line, at])
                for turn in range(row.turns):
                    vector = cast(held[number * row.turns + turn], FLOAT32)
                    item = (line * row.turns + turn) * row.lanes
                    for lane in range(row.lanes):
                        b.store(mixed, item + lane, mixed[item + lane] + weight * lane_of(vector, lane))

    def _hold(self, held: Buffer, first: Expr, places: Sequence[Expr]) -> None:
        """Loads vectors of the values of some rows, zeros of those that are not there."""
        row, tile = self.values, self.chunks.tile
        ragged = isinstance(self.rows, Expr) or self.rows % self.chunks.keys or tile % row.beside
        for number, place in enumerate(places):
            there = (first + place < self.rows) & (place < tile) if ragged else None
            safe = minimum(first + place, as_expr(self.rows - 1))
            for turn in range(row.turns):
                column = minimum(self._column(row, turn), as_expr(row.vectors - 1)) * row.lanes
                value = self._value(safe, column, there)
                self.b.store(held, number * row.turns + turn, cast(value, self.held))

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
        self.b.store(out.buffer, place_of(out, batch, query, column), cast(made, out.buffer.dtype))


def place_of(side: Strided, batch: Sequence[Expr], row: Expr, column: Expr) -> Expr:
    place = as_expr(side.start)
    for index, step in zip((*batch, row, column), side.steps, strict=True):
        place = place + index * as_expr(step)
    return place


def vector_at(side: Strided, batch: Sequence[Expr], row: Expr, column: Expr, lanes: int, mask: Expr | None) -> Expr:
    """So many neighbours of a row; zeros where the mask says that there are none."""
    place = place_of(side, batch, row, column)
    index: Expr = place if lanes == 1 else Ramp(place, as_expr(side.steps[-1]), lanes)
    return masked_load(side.buffer, (index,), None if mask is None else widen(mask, lanes))
