"""Attention over a cache and over new tokens: that which splits keys into chunks, where how many keys there are is a
value that kernels read.

The grid is for as many tokens as the cache has room for; blocks whose chunk begins behind those that are there end at
once. The new tokens are chunks of their own, the first ones, so the second kernel goes over a run of chunks. Keys of
the cache lie in blocks with tokens side by side: a thread has neighbouring tokens and every so many-th column, and
threads add up what they have of columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from ...base.cuda_target import CudaTarget
from ...base.dtype import FLOAT32
from ...core.fused import FusedGroup
from ...ops.nn.cached_attention import BLOCK, factor_of
from ...te.build import KernelBuilder
from ...te.expr import Expr, Ramp, as_expr, cast, const, lane_of, maximum, minimum, select, widen
from ...te.loops import WARP, Buffer, Kernel
from ...te.visit import masked_load
from ..group import LoweredKernel, kernel_name, known_spec
from ..loop_bodies import loop_body_kernels
from .attending import Facts, arguments_of
from .attention import AttentionRequest, Strided
from .mixing import IN_FLIGHT, LINES, LOW, MOST_COLUMNS, WARPS, ZERO, Chunks, Heads, Parts, chunks_of, row_of, vector_at
from .split_attention import OverChunks, OverKeys, mixing_kernel, parts_of
from .totals import DISTANCES, group_total, shown_item

SUMS = 32  # that a thread has at most of keys, and of values beside as many loads as it can wait for


class Cached(NamedTuple):
    """What is asked for: the new tokens, as attention in which each sees those before it, and the cache with its sizes
    and the numbers that are read."""

    new: AttentionRequest
    keys: Buffer
    values: Buffer
    past: Buffer
    layer: Buffer
    blocks: int
    layers: int
    shared: int

    @property
    def capacity(self) -> int:
        return self.blocks * BLOCK

    @property
    def block_size(self) -> int:
        """Elements of a head in a block."""
        return self.new.width * BLOCK

    @property
    def block_step(self) -> int:
        """Elements from a block to the next."""
        return self.layers * self.shared * self.block_size

    def length(self) -> Expr:
        """Tokens that are in the cache."""
        return maximum(minimum(self.past[0], as_expr(self.capacity)), as_expr(0))


class _Cut(NamedTuple):
    """How tokens are cut into chunks, of which those of new tokens come first."""

    chunks: Chunks
    new: int

    @property
    def cached(self) -> int:
        return self.chunks.number - self.new


def cached_attention_kernels(group: FusedGroup, fact: Facts, target: CudaTarget) -> list[LoweredKernel]:
    """The kernels of a group that is an attention over a cache."""
    (node,) = group.nodes
    places = [*dict.fromkeys(node.inputs), group.outputs[0]]
    specs = {place: known_spec(fact(place), place) for place in places}
    (rows, columns), (blocks, layers, shared, width, _) = (specs[node.inputs[number]][0] for number in (0, 3))
    if not rows or not columns or width > MOST_COLUMNS or node.params.window is not None:
        return loop_body_kernels(group, fact)
    b = KernelBuilder(kernel_name(group))
    buffers = {
        place: b.arg(f"b{number}", dtype, (prod(shape),))
        for number, (place, (shape, dtype)) in enumerate(specs.items())
    }
    query, key, value, keys, values, past, layer, out = (buffers[e] for e in (*node.inputs, group.outputs[0]))
    repeat = columns // (shared * width)
    lines, tokens = (repeat * width, width, columns, 1), (width, 0, shared * width, 1)
    request = AttentionRequest(
        Strided(query, 0, lines), Strided(key, 0, tokens), Strided(value, 0, tokens), Strided(out, 0, lines),
        (shared, repeat), rows, rows, width, width, factor_of(node.params, width), causal=True,
    )  # fmt: skip
    asked = Cached(request, keys, values, past, layer, blocks, layers, shared)
    named: dict[str, Hashable] = {buffer.name: place for place, buffer in buffers.items()}
    kernels = write_cached_attention(b.name, asked, target)
    work = rows * columns * (rows + asked.capacity) // 2
    return [LoweredKernel(kernel, arguments_of(kernel, named), work) for kernel in kernels]


def write_cached_attention(name: str, asked: Cached, target: CudaTarget) -> list[Kernel]:
    """One kernel for chunks and one for what they give."""
    request = asked.new
    heads = Heads(request)
    chunks = chunks_of(asked.capacity, heads.count * -(-heads.lines // LINES))
    new = -(-request.keys // chunks.keys)
    cut = _Cut(chunks._replace(number=chunks.number + new), new)
    parts = parts_of(request, heads, cut.chunks.number)
    first = _OverTokens(asked, heads, cut, target, parts).body()
    second = _OverThese(asked, heads, cut, target, parts).body()
    read = [request.query.buffer, request.key.buffer, request.value.buffer, asked.keys, asked.values, asked.past]
    return [
        mixing_kernel(f"{name}_chunks", [*dict.fromkeys([*read, asked.layer]), *parts], first),
        mixing_kernel(name, [*parts, asked.past, request.out.buffer], second),
    ]


class _OverTokens(OverKeys):
    """Lines of a head over a chunk of its new tokens, or of those in the cache."""

    def __init__(self, asked: Cached, heads: Heads, cut: _Cut, target: CudaTarget, parts: Parts) -> None:
        request = asked.new
        super().__init__(request, heads, cut.chunks, target, parts)
        self.asked, self.cut = asked, cut
        self.key_lanes = target.lanes(asked.keys.dtype)
        while self.lines * self.key_lanes > SUMS:
            self.key_lanes //= 2
        if asked.values.dtype != self.held:
            self.held = FLOAT32
        if asked.values.dtype.itemsize > request.value.buffer.dtype.itemsize:  # vectors are of either
            self.values = row_of(request.values, replace(request.value, buffer=asked.values), target)
        if self.lines * self.values.turns * self.values.lanes > SUMS:
            self.in_flight //= 2

    def _locate(self, block: Expr) -> None:
        super()._locate(block)
        b, asked = self.b, self.asked
        self.is_new = b.let("is_new", self.chunk < self.cut.new)
        number = select(self.is_new, self.chunk, self.chunk - self.cut.new)
        self.first_row = b.let("first_row", number * self.chunks.keys)
        self.rows = b.let("rows", select(self.is_new, as_expr(asked.new.keys), asked.length()))
        layer = maximum(minimum(asked.layer[0], as_expr(asked.layers - 1)), as_expr(0))
        self.start = b.let("start", (self.head + layer * asked.shared) * asked.block_size)

    def _there(self) -> Expr:
        return self.first_row < self.rows

    def _turns(self) -> Expr:
        rows = self.rows - self.first_row
        return minimum((rows + (self.chunks.tile - 1)) // self.chunks.tile, as_expr(self.chunks.turns))

    def _begin(self) -> None:
        """Queries lie where sums come in the end: every thread reads some columns of all of them."""
        b, width = self.b, self.asked.new.width
        with b.when(~self.is_new):
            for first in range(0, self.lines * width, WARPS * WARP):
                number = b.let("number", self.thread + first)
                with b.when(number < self.lines * width):
                    batch, at = self.heads.index(self.head, self._line(number // width))
                    query = vector_at(self.asked.new.query, batch, at, number % width, 1, None)
                    b.store(self.sums, (0, number), cast(query, FLOAT32))

    # Scores of what the cache has

    def _score(self, first: Expr) -> None:
        with self.b.when(self.is_new):
            super()._score(first)
        with self.b.otherwise():
            self._score_blocks(first)

    def _score_blocks(self, first: Expr) -> None:
        """A warp takes every so many-th block, some at a time: as many as there are loads to be waited for at once."""
        b, count = self.b, -(-self.chunks.tile // (BLOCK * WARPS))
        beside = BLOCK // self.key_lanes  # threads that have a column
        self.shares = WARP // beside
        self.token = b.let("token", self.lane % beside * self.key_lanes)
        self.share = b.let("share", self.lane // beside)
        self.column_turns = -(-self.asked.new.width // self.shares)
        together = min(IN_FLIGHT // self.column_turns, SUMS // (self.lines * self.key_lanes), count)
        together = max(together, 1)
        with b.loop("some", count // together) as turn:
            self._score_some_blocks(first, turn * together, together)
        if count % together:
            self._score_some_blocks(first, as_expr(count // together * together), count % together)

    def _score_some_blocks(self, first: Expr, start: Expr, count: int) -> None:
        b, lines, lanes = self.b, self.lines, self.key_lanes
        blocks = [b.let("block", (start + n) * WARPS + self.warp) for n in range(count)]
        dots = b.alloc("dots", FLOAT32, (count * lines * lanes,), scope="register")
        for item in range(count * lines * lanes):
            b.store(dots, item, ZERO)
        together = max(IN_FLIGHT // count, 1)
        for turn in range(0, self.column_turns, together):
            self._add_columns(dots, first, blocks, range(turn, min(turn + together, self.column_turns)))
        group_total(b, dots, [distance for distance in DISTANCES if distance >= WARP // self.shares])
        for item in range(0, count * lines * lanes, self.shares):
            shown = shown_item(b, dots, item, self.share, self.shares)
            own = b.let("own", self.share + item)
            place = b.let(
                "place", ((start + own // (lines * lanes)) * WARPS + self.warp) * BLOCK + self.token + own % lanes
            )
            score = shown * const(self.asked.new.factor, FLOAT32)
            with b.when((own < count * lines * lanes) & (place < self.chunks.tile)):
                score = select(first + place < self.rows, score, LOW)
                b.store(self.scores, (own // lanes % lines, place), score)

    def _add_columns(self, dots: Buffer, first: Expr, blocks: Sequence[Expr], turns: Sequence[int]) -> None:
        """Adds products of some columns of some blocks, a token for each lane."""
        b, asked, lanes, width = self.b, self.asked, self.key_lanes, self.asked.new.width
        held = b.alloc("held", asked.keys.dtype, (len(blocks) * len(turns),), scope="register", lanes=lanes)
        columns = [b.let("column", self.share + turn * self.shares) for turn in turns]
        for number, block in enumerate(blocks):
            there = (first + block * BLOCK < self.rows) & (block * BLOCK < self.chunks.tile)
            begin = b.let("begin", self.start + (first // BLOCK + block) * asked.block_step + self.token)
            for at, column in enumerate(columns):
                mask = there & (column < width) if width % self.shares else there
                place = Ramp(begin + column * BLOCK, as_expr(1), lanes)
                key = masked_load(asked.keys, (place,), widen(mask, lanes))
                b.store(held, number * len(turns) + at, key)
        for at, column in enumerate(columns):
            for line in range(self.lines):
                query: Expr = self.sums[0, line * width + minimum(column, as_expr(width - 1))]
                if width % self.shares:
                    query = select(column < width, query, ZERO)
                query = b.let("query", query)
                for number in range(len(blocks)):
                    key = cast(held[number * len(turns) + at], FLOAT32)
                    for lane in range(lanes):
                        item = (number * self.lines + line) * lanes + lane
                        b.store(dots, item, dots[item] + query * lane_of(key, lane))

    # Their values

    def _hold(self, held: Buffer, first: Expr, places: Sequence[Expr]) -> None:
        with self.b.when(self.is_new):
            super()._hold(held, first, places)
        with self.b.otherwise():
            self._hold_cached(held, first, places)

    def _hold_cached(self, held: Buffer, first: Expr, places: Sequence[Expr]) -> None:
        b, asked, row = self.b, self.asked, self.values
        for number, place in enumerate(places):
            token = b.let("token", minimum(first + place, self.rows - 1))
            there = (first + place < self.rows) & (place < self.chunks.tile)
            begin = b.let("begin", self.start + token // BLOCK * asked.block_step + token % BLOCK * asked.new.width)
            for turn in range(row.turns):
                column = minimum(self._column(row, turn), as_expr(row.vectors - 1)) * row.lanes
                index: Expr = begin + column
                index = index if row.lanes == 1 else Ramp(index, as_expr(1), row.lanes)
                value = masked_load(asked.values, (index,), widen(there, row.lanes))
                b.store(held, number * row.turns + turn, cast(value, self.held))


class _OverThese(OverChunks):
    """A line over the chunks that have tokens."""

    def __init__(self, asked: Cached, heads: Heads, cut: _Cut, target: CudaTarget, parts: Parts) -> None:
        super().__init__(asked.new, heads, cut.chunks.number, parts, target)
        self.asked, self.cut = asked, cut

    def _locate(self, block: Expr) -> None:
        super()._locate(block)
        keys = self.cut.chunks.keys
        self.these = self.b.let("these", (self.asked.length() + (keys - 1)) // keys + self.cut.new)
        self.rows = self.these

    def _turns(self) -> Expr:
        return (self.these + (self.chunks.tile - 1)) // self.chunks.tile
