"""Matrix products of many rows, whose extents and strides are arguments.

Each turn of the parallel loop makes a block of the output. For a part of the products at a time it
packs the columns of b into panels as wide as a tile, which stay in the second cache, and runs
register tiles (open/tile.py) over the rows, for all panels each; meanwhile it asks for the columns
that are packed next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .....base.cpu_target import CpuTarget
from .....base.dtype import DType
from .....te.build import KernelBuilder
from .....te.expr import Expr, Var, binary, select
from .....te.loops import Buffer, Kernel
from .....te.visit import masked_load
from ..operands import Block, Operands
from ..tile import Panel, Sums, TileSize, ceil_div, choose_tile, clamped, even_panels, lanes_from, row_tiles, tile_size
from .pack import Columns, pack_panel

PANELS = 27 / 128  # of the second cache, for packed columns: rows fit it beside them
MAX_DEPTH = 384  # products of a part
UNROLL = 1  # of tiles with all rows; more takes longer to compile and is no faster


def panel_elements(dtype: DType, target: CpuTarget) -> int:
    """How many elements of packed columns a turn holds."""
    return int(PANELS * target.caches[1]) // dtype.itemsize


def product_kernel(target: CpuTarget, dtype: DType, pack_rows: bool) -> Kernel:
    """The kernel over open/operands.py. With `pack_rows` rows of a are packed as well, else the
    products of a row lie side by side."""
    return _OpenProduct(target, dtype, pack_rows).kernel()


class _Part(NamedTuple):
    """Some products of every sum, and their packed columns; where those packed next begin."""

    start: Var
    depth: Var
    panels: Buffer
    following: Var


class _Rows(NamedTuple):
    """Rows of a tile: how many there are, where each begins in a and in out (the last one for
    those that are not there), the same rows packed; a place for sums of a tile at an edge."""

    number: Var
    left: Var
    places: Buffer
    packed: Buffer | None
    edge: Buffer


class _OpenProduct:
    def __init__(self, target: CpuTarget, dtype: DType, pack_rows: bool) -> None:
        self.b = b = KernelBuilder(f"open_product_{dtype.name}{'_packed' if pack_rows else ''}")
        self.dtype, self.size, self.pack_rows = dtype, tile_size(target, dtype), pack_rows
        self.panels, self.line = panel_elements(dtype, target), target.facts.line_bytes // dtype.itemsize
        self.operands = Operands(b, dtype)
        self.arguments = self.operands.arguments

    def kernel(self) -> Kernel:
        b, arguments = self.b, self.arguments
        with b.parallel("turn", arguments.turns) as turn:
            self.block = self.operands.block(turn)
            self.vectors = self.operands.vectors(self.block, self.size.lanes)
            panels = b.alloc("panels", self.dtype, (self.panels,), alignment=64)
            with b.loop("part", (arguments.depth + arguments.part - 1) // arguments.part) as number:
                start = b.let("start", number * arguments.part)
                end = b.let("end", binary("min", start + arguments.part, arguments.depth))
                beside = arguments.turn_columns * arguments.b_column_step
                after = select(end < arguments.depth, end * arguments.b_depth_step, beside)
                following = b.let("following", self.block.b + after)
                part = _Part(start, b.let("depth", end - start), panels, following)
                self._pack(part)
                self._tiles(part)
        return b.finish()

    def _pack(self, part: _Part) -> None:
        b, arguments, size = self.b, self.arguments, self.size
        with even_panels(b, size, self.vectors) as panel:
            column = b.let("column", panel.first * size.lanes)
            first = self.block.b + part.start * arguments.b_depth_step + column * arguments.b_column_step
            count = binary("min", self.block.columns - column, panel.vectors * size.lanes)
            columns = Columns(
                self.operands.b,
                b.let("first", first),
                arguments.b_depth_step,
                arguments.b_column_step,
                b.let("count", count),
                part.depth,
            )
            pack_panel(b, size, columns, part.panels, self._panel_at(panel, part))

    def _panel_at(self, panel: Panel, part: _Part) -> Var:
        return self.b.let("at", panel.number * (part.depth * self.size.width))

    def _tiles(self, part: _Part) -> None:
        b, arguments, size = self.b, self.arguments, self.size
        places = b.alloc("places", "int64", (2 * size.rows,))
        edge = b.alloc("edge", self.dtype, (size.rows * size.width,), alignment=64)
        packed = None
        if self.pack_rows:
            packed = b.alloc("packed", self.dtype, (2 * size.rows * MAX_DEPTH,), alignment=64)
        with row_tiles(b, size, self.block.rows) as (row, left):
            first = self.block.a + row * arguments.a_row_step + part.start * arguments.a_depth_step
            first = b.let("first", first)
            with b.loop("i", size.rows) as i:
                at = b.let("at", clamped(i, left))
                b.store(places, i, first + at * arguments.a_row_step)
                b.store(places, i + size.rows, self.block.out + (row + at) * arguments.out_row_step)
            rows = _Rows(b.let("number", row // size.rows), left, places, packed, edge)
            if packed is not None:
                with b.when((rows.number % 2).equal(0)):
                    self._pack_rows(packed, first, left, part.depth)
            with even_panels(b, size, self.vectors) as panel:
                write = lambda kind: self._tile(kind, part, rows, panel)
                choose_tile(b, size, left, panel.vectors, write, least=2, few=False)

    def _tile(self, kind: TileSize, part: _Part, rows: _Rows, panel: Panel) -> None:
        b, has_all_rows = self.b, kind.rows == self.size.rows
        unroll = UNROLL if has_all_rows else 1
        sums = Sums(b, self.dtype, kind)
        place = _Place(self.operands, self.block, kind, self.size, rows, panel, part.start)
        place.ask()
        sums.fill(place.begin)
        sums.add_products(
            part.depth,
            self._reader(kind, rows),
            part.panels,
            self._panel_at(panel, part),
            self.size.width,
            self._asker(kind, part, rows, panel, unroll) if has_all_rows else None,
            unroll,
        )
        place.write(sums, has_all_rows)

    def _reader(self, kind: TileSize, rows: _Rows) -> Callable[[int, Expr], Expr]:
        b, packed, count = self.b, rows.packed, self.size.rows
        if packed is not None:
            start = b.let("start", rows.number % 2 * count)
            return lambda i, k: packed[start + k * (2 * count) + i]
        first = [b.let("at", rows.places[i]) for i in range(kind.rows)]
        return lambda i, k: self.operands.a[first[i] + k]

    def _pack_rows(self, packed: Buffer, first: Expr, left: Expr, depth: Expr) -> None:
        """packed[k][rows of two tiles], whole lines of memory where rows are side by side; rows
        that are not there are 0."""
        b, arguments, rows = self.b, self.arguments, 2 * self.size.rows
        mask = b.let("mask", lanes_from(0, rows) < left)

        def copy(step: Expr | int) -> None:
            with b.loop("k", depth) as k:
                index = lanes_from(first + k * arguments.a_depth_step, rows, step)
                value = masked_load(self.operands.a, (index,), mask)
                b.store(packed, lanes_from(k * rows, rows), value)

        with b.when(arguments.a_row_step.equal(1)):
            copy(1)
        with b.otherwise():
            copy(arguments.a_row_step)

    def _asker(self, kind: TileSize, part: _Part, rows: _Rows, panel: Panel, unroll: int) -> Callable[[Expr], None]:
        """Each tile asks for a share of the panel packed next: where columns are side by side, one
        line of some products, else one line of each column."""
        b, arguments = self.b, self.arguments
        line = self.line
        first = part.following + panel.first * self.size.lanes * arguments.b_column_step
        share = b.let("share", rows.number % (kind.vectors * unroll))
        across = share // kind.vectors * (part.depth // unroll) * arguments.b_depth_step
        across = across + share % kind.vectors * line
        along = rows.number % ceil_div(part.depth, line) * line
        is_plain = arguments.b_column_step.equal(1)
        start = b.let("ask", first + select(is_plain, across, along))
        step = b.let("step", select(is_plain, arguments.b_depth_step, arguments.b_column_step))
        return lambda turn: b.prefetch(self.operands.b, start + turn * step, level=2)


class _Place:
    """Where a tile lies in the output. Sums of the first part begin with the bias; those of later
    parts are added to what is there."""

    def __init__(
        self, operands: Operands, block: Block, kind: TileSize, size: TileSize, rows: _Rows, panel: Panel, start: Expr
    ) -> None:
        self.b, self.operands, self.kind, self.size = operands.builder, operands, kind, size
        self.left, self.places, self.edge = rows.left, rows.places, rows.edge
        b, arguments = self.b, operands.arguments
        self.inner = b.let("inner", panel.first * size.lanes)
        self.column = b.let("column", block.column + self.inner)
        self.rows = [b.let("at", rows.places[size.rows + i]) for i in range(kind.rows)]
        end = binary("min", self.column + panel.vectors * size.lanes, arguments.columns)
        self.end = b.let("end", end)
        self.is_first = b.let("is_first", start.equal(0))
        self.biased = b.let("biased", select(self.is_first, arguments.bias_columns, 0))

    def ask(self) -> None:
        with self.b.loop("i", self.kind.rows) as i:
            row = self.b.let("row", self.places[i + self.size.rows])
            for v in range(self.kind.vectors):
                self.b.prefetch(self.operands.out, row + self.inner + v * self.kind.lanes)

    def begin(self, i: int, v: int) -> Expr:
        columns = lanes_from(self.column + v * self.kind.lanes, self.kind.lanes)
        return masked_load(self.operands.bias, (columns,), columns < self.biased)

    def write(self, sums: Sums, may_be_whole: bool) -> None:
        if not may_be_whole:
            self._write_parts(sums)
            return
        whole = (self.column + self.kind.width <= self.end) & (self.left >= self.kind.rows)
        with self.b.when(whole):
            self._write_whole(sums)
        with self.b.otherwise():
            self._write_parts(sums)

    def _write_whole(self, sums: Sums) -> None:
        b, out = self.b, self.operands.out
        places = [
            (i, v, lanes_from(row + self.inner + v * self.kind.lanes, self.kind.lanes))
            for i, row in enumerate(self.rows)
            for v in range(self.kind.vectors)
        ]
        with b.when(self.is_first):
            for i, v, index in places:
                b.store(out, index, sums[i, v])
        with b.otherwise():
            for i, v, index in places:
                b.store(out, index, sums[i, v] + out[index])

    def _write_parts(self, sums: Sums) -> None:
        """The rows and columns that are there, by way of memory: each place has a mask."""
        b, kind, out = self.b, self.kind, self.operands.out
        for i in range(kind.rows):
            for v in range(kind.vectors):
                at = i * self.size.width + v * kind.lanes
                b.store(self.edge, lanes_from(at, kind.lanes), sums[i, v])
        with b.loop("row", binary("min", self.left, kind.rows)) as number:
            row = b.let("row", self.places[number + self.size.rows] + self.inner)
            with b.loop("vector", kind.vectors) as vector:
                inner = b.let("inner", vector * kind.lanes)
                columns = lanes_from(self.column + inner, kind.lanes)
                index = lanes_from(row + inner, kind.lanes)
                stop = select(self.is_first, 0, self.end)
                there = masked_load(out, (index,), columns < stop)
                value = self.edge[lanes_from(number * self.size.width + inner, kind.lanes)]
                b.store(out, index, value + there, columns < self.end)
