"""Products of words by a unit that multiplies tiles of 16 x 16 of them (AMX): the template of `word_product.py`, whose
sums are in tiles and go through a small scratch to what follows.

A tile of the data has some neighbouring rows, or pixels along a row of the result; of the last one some rows may have
been there before, so that all are of one size, and only what is new is stored. The tiles of weights lie in panels as
they are: 16 words of every column of one panel."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import BFLOAT16
from ....base.shape import is_static
from ....core.ir import Node, NodeEntry
from ....ops.nn.words import word_windows
from ....te.expr import Expr, as_expr, minimum
from ....te.loops import TILE_ROWS, TILE_WORDS, TILES, Buffer, Kernel
from ...group import Facts
from ..product import PIECES
from ..tile_walk import counted, leading_index
from .word_product import WordProduct

FEWEST_ROWS = 4  # below that, weights that come from memory decide, and vectors read them as fast
AHEAD = 2  # steps that lines are asked for before they are read: a third to a half faster, measured on Emerald Rapids
PALETTE = (2, 2)  # tiles of rows and of panels at once: four of sums, and two of each factor
ONE_TALL = (1, 4)  # where one tile has all rows


def tile_feature(node: Node, fact: Facts, target: CpuTarget) -> str | None:
    """The feature by which tiles multiply the words of a product; None where they cannot, or not as well."""
    data, panels = fact(node.inputs[0]), fact(node.inputs[1])
    feature = "amx-bf16" if data.dtype == BFLOAT16 else "amx-int8"
    made = fact(NodeEntry(node)).shape
    if not is_static(data.shape) or not is_static(panels.shape) or not is_static(made):
        return None
    if not target.has(feature) or len(node.inputs) > 3:  # zero points of weights are for vectors
        return None
    _, _, lanes, together = panels.shape
    run = data.shape[-1] // together
    if hasattr(node.params, "kernel_size"):
        _, across = word_windows(node.params)
        run *= across.size if across.dilation == 1 else 1
    whole = lanes == TILE_WORDS and run > 0 and run % TILE_WORDS == 0
    return feature if whole and prod(made[:-1]) >= FEWEST_ROWS else None


class TilePlan(NamedTuple):
    """Stretches of neighbouring rows, `length` each, are `parts` tiles of `rows` each."""

    stretches: int
    length: int
    parts: int
    rows: int
    tall: int  # tiles of rows at once
    wide: int  # panels at once
    chunk: int  # such blocks of rows that run for the same panels
    rows_first: bool

    @property
    def blocks(self) -> int:
        return -(-self.stretches * self.parts // self.tall)


def plan_tiles(stretches: int, length: int, depth: int, panels: int, target: CpuTarget) -> TilePlan:
    parts = -(-length // TILE_ROWS)
    rows = -(-length // parts)
    tall, wide = ONE_TALL if stretches * parts == 1 else PALETTE
    wide = min(wide, panels)
    blocks, sets = -(-stretches * parts // tall), -(-panels // wide)
    fitting = max(target.caches[1] // (depth * 4 * tall * rows), 1)
    chunk = -(-blocks // -(-blocks // fitting))
    rows_first = chunk < blocks
    if sets * -(-blocks // chunk) < PIECES:
        chunk = -(-blocks // min(-(-PIECES // sets), blocks))
    return TilePlan(stretches, length, parts, rows, tall, wide, chunk, rows_first)


class _Group(NamedTuple):
    """A tile of rows: the first, where its words begin, and which rows are new."""

    row: Expr
    start: Expr
    first_new: Expr


class TileProduct(WordProduct):
    """Writes the kernel of a group for which there is a `tile_feature`."""

    def _kernel(self) -> Kernel:
        b, (stretches, length) = self.b, self._stretches()
        self.count = -(-self.units // self.lanes)
        self.tiles = plan = plan_tiles(stretches, length, self.depth, self.count, self.target)
        sets, chunks = -(-self.count // plan.wide), -(-plan.blocks // plan.chunk)
        sums = [plan.rows] * (plan.tall * plan.wide)
        shapes = [*sums, *[plan.rows] * plan.tall, *[TILE_ROWS] * (TILES - len(sums) - plan.tall)]
        with b.parallel("p", sets * chunks) as p:
            chunk, number = (p // sets, p % sets) if plan.rows_first else (p % chunks, p // chunks)
            first_block, wanted = b.let("first", chunk * plan.chunk), b.let("wanted", number * plan.wide)
            panel = b.let("panel", minimum(wanted, self.count - plan.wide))
            scratch = b.alloc("sums", self.words.sums, (len(sums) * TILE_ROWS * TILE_WORDS,), alignment=64)
            b.tile("shape", *range(TILES), rows=shapes)
            with counted(b, first_block, plan.chunk, plan.blocks) as block:
                self._block(block, panel, wanted, scratch)
            b.tile("release")
        return b.finish()

    def _stretches(self) -> tuple[int, int]:
        """Rows that lie evenly in memory: how often, and how many."""
        *outer, across = self.leading or (1,)
        if self.image is None:
            return 1, self.plan.rows
        windows = word_windows(self.params)
        flat = all(window.size == window.stride == 1 for window in windows)
        return (1, prod(self.leading)) if flat else (prod(outer), across)

    def _group(self, number: Expr) -> _Group:
        b, plan = self.b, self.tiles
        stretch, part = b.let("stretch", number // plan.parts), b.let("part", number % plan.parts)
        first = b.let("first", minimum(part * plan.rows, plan.length - plan.rows))
        row = b.let("row", stretch * plan.length + first)
        start = self._start(row, leading_index(b, row, self.leading))
        return _Group(row, start, b.let("new", part * plan.rows - first))

    @property
    def row_step(self) -> int:
        """Words from a row to the next of its stretch."""
        if self.image is None:
            return self.depth
        _, across = word_windows(self.params)
        return across.stride * self.image[3] // self.words.together

    def _block(self, block: Expr, panel: Expr, wanted: Expr, scratch: Buffer) -> None:
        b, plan = self.b, self.tiles
        asked = b.let("asked", block * plan.tall)
        first = b.let("group", minimum(asked, plan.stretches * plan.parts - plan.tall))
        groups = [self._group(first + j) for j in range(plan.tall)]
        for tile in range(plan.tall * plan.wide):
            b.tile("zero", tile)
        weights = b.let("w", panel * (self.depth * self.lanes))
        self._over_taps([group.start for group in groups], weights, self._products)
        for tile in range(plan.tall * plan.wide):
            b.tile("store", tile, source=scratch, at=tile * TILE_ROWS * TILE_WORDS, stride=TILE_WORDS)
        for j, group in enumerate(groups):
            with b.when(first + j >= asked):
                self._store_group(j, group, panel, wanted, scratch)

    def _products(self, starts: list[Expr], weights: Expr, run: int) -> None:
        """All products of words that lie side by side."""
        b, plan, step = self.b, self.tiles, self.row_step
        sums, panel_size, tile = plan.tall * plan.wide, self.depth * self.lanes, TILE_WORDS * self.lanes
        spare = TILES - sums - plan.tall
        with b.loop("k", run // TILE_WORDS) as k:
            for j, start in enumerate(starts):
                at = b.let("x", start + k * TILE_WORDS)
                for i in range(plan.rows):
                    b.prefetch(self.data, at + (i * step + AHEAD * TILE_WORDS))
                b.tile("load", sums + j, source=self.data, at=at, stride=step)
            for v in range(plan.wide):
                at, held = b.let("v", weights + v * panel_size + k * tile), sums + plan.tall + v % spare
                for line in range(TILE_WORDS):
                    b.prefetch(self.panels, at + (AHEAD * tile + line * self.lanes))
                b.tile("load", held, source=self.panels, at=at, stride=self.lanes)
                for j in range(plan.tall):
                    b.tile(self.words.dot, j * plan.wide + v, sums + j, held)

    def _store_group(self, j: int, group: _Group, panel: Expr, wanted: Expr, scratch: Buffer) -> None:
        b, plan = self.b, self.tiles
        with b.loop("new", plan.rows - group.first_new) as new:
            i = b.let("i", new + group.first_new)
            row = b.let("row", group.row + i)
            place = leading_index(b, row, self.leading)
            for v in range(plan.wide):
                with b.when(panel + v >= wanted), b.vector("lane", self.lanes) as lane:
                    column = b.let("column", (panel + v) * self.lanes + lane)
                    at = ((j * plan.wide + v) * TILE_ROWS + i) * TILE_WORDS + lane
                    with self._where_there(column):
                        self._store(row, place, column, self._with_offset(scratch[as_expr(at)], column))
