"""Sums over windows by products: each turn of the parallel loop makes some pixels of some channels. It packs what taps
read for the pixels (patches.py), some products at a time, and multiplies weights, where they are, with that, in the
register tiles that all products have (product.py). Pixels are counted over all images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, ExprLike, as_expr, binary, cast, const, minimum, select, widen
from ....te.extents import greater, lesser, passed
from ....te.loops import Kernel
from ....te.visit import masked_load
from ..product import Matrix, Packing, Panel, Product, ProductPlan, Strip
from ..product import Part as Products
from ..tile import tile_size
from ..tile_walk import ceil_div, clamped, even_groups, lanes_from, place_of, total_of
from .patches import Patches
from .window_sum import Buffers, NonFinite, Number, Part, Windows, WindowSum, parted

PANELS = 9 / 64  # of the second cache, for what is packed at a time
MAX_DEPTH = 192  # products of a block, which leave a panel in the first cache
MAX_ROWS = 128  # channels of a turn
FEW_TURNS = 8  # turns that keep threads busy


def turn_vectors(target: CpuTarget, dtype: DType) -> int:
    """How many vectors of pixels a turn makes at most."""
    most = int(PANELS * target.caches[1]) // (MAX_DEPTH * target.lanes(dtype) * dtype.itemsize)
    width = tile_size(target, dtype).vectors
    return most // width * width


def even_parts(total: Number, parts: Number, unit: int) -> Number:
    """The size of so many nearly equal parts, in whole units."""
    return -(-total // (parts * unit)) * unit


def _cut(job: WindowSum, target: CpuTarget, dtype: DType) -> tuple[Number, Number]:
    """Pixels and channels of a turn: many, but enough turns for all threads. Nothing is asked about sizes."""
    size, most = tile_size(target, dtype), turn_vectors(target, dtype)
    total = -(-(job.images * job.down.results_of_part * job.across.results_of_part) // size.lanes)
    others = job.groups * job.parts
    vectors: Any = most
    rows: Any = MAX_ROWS
    for part in (2, 4, 8):  # each time fewer channels, then fewer pixels
        rows = rows - MAX_ROWS // part * _too_few(others * -(-total // vectors) * -(-job.rows // rows))
        if part < 8:
            turns = others * -(-total // vectors) * -(-job.rows // rows)
            vectors = vectors - most // part * _too_few(turns)
    vectors = lesser(even_parts(total, -(-total // vectors), size.vectors), most)
    return vectors * size.lanes, lesser(even_parts(job.rows, -(-job.rows // rows), size.rows), MAX_ROWS)


def _too_few(turns: Number) -> Number:
    """1 or 0"""
    return greater(1 - turns // FEW_TURNS, 0)


def patch_kernel(name: str, job: WindowSum, target: CpuTarget, dtype: DType, has_bias: bool) -> Kernel:
    """The kernel over `Buffers`."""
    return _PatchConvolution(name, job, target, dtype, has_bias).kernel()


class _PatchConvolution:
    def __init__(self, name: str, job: WindowSum, target: CpuTarget, dtype: DType, has_bias: bool) -> None:
        self.b, self.job, self.dtype, self.size = KernelBuilder(name), job, dtype, tile_size(target, dtype)
        self.max_vectors = turn_vectors(target, dtype)
        self.buffers = Buffers.of(self.b, dtype, has_bias)
        self.source, self.weight, self.out, _ = self.buffers
        self.cut = _cut(job, target, dtype)

    def kernel(self) -> Kernel:
        b, job = self.b, self.job
        turn_pixels, turn_rows = (passed(name, n) for name, n in zip(("turn_pixels", "turn_rows"), self.cut))
        all_pixels = job.images * job.down.results_of_part * job.across.results_of_part
        pixels, turns = (
            passed("pixel_turns", -(-all_pixels // turn_pixels)),
            passed("row_turns", -(-job.rows // turn_rows)),
        )
        with b.parallel("turn", pixels * turns * job.groups * job.parts) as turn:
            self.windows = windows = Windows(b, job)
            self.deep, self.channel_step = b.let("deep", job.deep), b.let("channel_step", job.channel)
            self.row_step = b.let("row_step", job.row)
            rest, pixel_turn = parted(b, turn, pixels)
            rest, row_turn = parted(b, rest, turns)
            number, group = parted(b, rest, job.groups)
            part = windows.part(number)
            first = b.let("first", pixel_turn * turn_pixels)
            total = b.let("total", job.images * part.rows * part.columns)
            row = b.let("row", row_turn * turn_rows)
            self.rows = b.let("rows", binary("min", turn_rows, job.rows - row))
            self.first_channel = b.let("first_channel", group * job.rows + row)
            self.source_at = b.let("source_at", group * job.deep * windows.images.plane)
            filters = windows.number("filters", job.rows * job.deep * (job.down.taps * job.across.taps))
            self.weight_at = b.let("weight_at", group * filters + row * self.row_step)
            with b.when(first < total):
                self._turn(part, first, b.let("count", binary("min", turn_pixels, total - first)))
        return b.finish()

    def _turn(self, part: Part, first: Expr, count: Expr) -> None:
        b, size = self.b, self.size
        self.patches = Patches(self.windows, self.source, size.lanes, self.max_vectors, MAX_DEPTH)
        self.patches.walk(part, first, count)
        self.nonfinite = NonFinite(b, self.dtype, size.lanes)
        self.read_from = b.alloc("offsets", "int64", (MAX_DEPTH,))
        self.weight_from = b.alloc("weight_from", "int64", (MAX_DEPTH,))
        product = _PatchProduct(self)
        block = b.let("block", binary("min", MAX_DEPTH, binary("max", part.taps, 1)))
        channel_block = b.let("channel_block", MAX_DEPTH // block)
        with b.loop("tap_block", binary("max", ceil_div(part.taps, block), 1)) as t:
            tap = b.let("first_tap", t * block)
            taps = b.let("taps", binary("min", block, part.taps - tap))
            with b.loop("block", ceil_div(self.deep, channel_block)) as c:
                channel = b.let("channel", c * channel_block)
                left = self.deep - channel
                channels = b.let("channels", binary("min", channel_block, left))
                self._place_taps(part, tap, taps, channel, channels)
                last = b.let("is_last", (tap + taps).equal(part.taps) & channels.equal(left))
                product.add(taps, channels, b.let("has_begun", ~(t.equal(0) & c.equal(0))), last)
        product.write_rest()
        with b.when(self.nonfinite.some()):
            self._mend(part)

    def _place_taps(self, part: Part, tap: Expr, taps: Expr, channel: Expr, channels: Expr) -> None:
        """Notes where some taps of some channels are read, and where their weights are."""
        b, images, patches = self.b, self.windows.images, self.patches
        source = b.let("source", self.source_at + channel * images.plane)
        weight = b.let("weight", self.weight_at + channel * self.channel_step)
        with b.loop("number", taps) as number:
            p, q = parted(b, tap + number, part.x.taps)
            y, x = b.let("y", part.y.at + p * part.y.distance), b.let("x", part.x.at + q * part.x.distance)
            b.store(patches.tap_y, number, cast(y, "int32"))
            b.store(patches.tap_x, number, cast(x, "int32"))
            read = b.let("read", source + y * images.width + x)
            first = b.let("first", weight + self.windows.tap_of(part, p, q))
            with b.loop("channel", channels) as c:
                b.store(self.read_from, c * taps + number, read + c * images.plane)
                b.store(self.weight_from, c * taps + number, first + c * self.channel_step)

    def row_of_results(self, row: Expr) -> tuple[Expr, Expr]:
        """The bias of a row, and where its plane begins."""
        b = self.b
        channel = b.let("channel", self.first_channel + row)
        return b.let("bias", self.buffers.bias_of(channel)), b.let("plane", channel * self.windows.results.plane)

    def _mend(self, part: Part) -> None:
        b, patches = self.b, self.patches
        with b.loop("row", self.rows) as row, b.loop("pixel", patches.count) as pixel:
            bias, plane = self.row_of_results(row)
            y, x, image = (b.let("at", cast(at[pixel], "int64")) for at in (patches.y, patches.x, patches.image))
            source, weight = self.source_at + image * self.windows.images.image, self.weight_at + row * self.row_step
            self.windows.mend(part, self.buffers, y, x, source, weight, plane + patches.write_at[pixel], bias)


class _PatchProduct(Product):
    """The products of a turn: weights, which are read where they are, times packed patches. Sums stay in memory of the
    turn; tiles of pixels that are neighbours go from registers to where they belong."""

    def __init__(self, turn: _PatchConvolution) -> None:
        b, size, rows = turn.b, turn.size, turn.rows
        self.turn, self.patches, room = turn, turn.patches, turn.max_vectors * size.lanes
        few = size.rows // 2
        whole = b.let("whole", (rows + (size.rows - few - 1)) // size.rows)
        tiles = ((size.rows, whole), (few, b.let("few", binary("max", rows - whole * size.rows + (few - 1), 0) // few)))
        groups = [(width, b.let("groups", count)) for width, count in even_groups(self.patches.vectors, size.vectors)]
        plan = ProductPlan(
            rows,
            None,
            self.patches.count,
            size.lanes,
            tiles,
            groups,
            chunk=total_of(tiles),
            rows_first=False,
            block=None,
            together=total_of(groups),
            rows_fit=False,
        )
        self.panels = b.alloc("panels", turn.dtype, (MAX_DEPTH * room,), alignment=64)
        made = b.alloc("made", turn.dtype, (MAX_ROWS * room,), alignment=64)
        buffers, steps = (turn.weight, self.panels, made), (0, 0, room)
        matrices = [Matrix(buffer, lambda number: 0, step) for buffer, step in zip(buffers, steps)]
        super().__init__(b, plan, (matrices[0], matrices[1], matrices[2]), packing=Packing(MAX_DEPTH * room, 1, False))

    def add(self, taps: Expr, channels: Expr, has_begun: Expr, is_last: Expr) -> None:
        """Adds the products of some taps of some channels."""
        self.taps, self.channels, self.has_begun = taps, channels, widen(has_begun, self.plan.lanes)
        self._part(Products(as_expr(0), self.b.let("depth", channels * taps), 0, is_last))

    def _pack(self, part: Products) -> None:
        b, plan = self.b, self.plan
        with self._groups() as group:
            vectors, first = place_of(group, plan.groups)
            at = self._packed_at(part, group)
            with b.loop("inner", minimum(vectors, self.patches.vectors - first)) as inner:
                to = b.let("to", at + inner * plan.lanes)
                number = b.let("vector", first + inner)
                self.patches.pack(
                    number, self.panels, to, self.size.width, self.turn.read_from, self.taps, self.channels
                )

    def _strip(self, part: Products, rows: int, row: Expr, tile: Expr) -> Strip:
        b, turn, left = self.b, self.turn, self.b.let("left", self.plan.rows - row)
        firsts = [b.let("w", (row + clamped(i, left)) * turn.row_step) for i in range(rows)]
        return Strip(rows, row, tile, lambda i, k: turn.weight[firsts[i], turn.weight_from[k]])

    def _asking(self, part: Products, strip: Strip, panel: Panel, turns: Any) -> Callable[[Expr], None]:
        return lambda turn: None

    def _panels(self, part: Products, strip: Strip) -> None:
        """There is one kind of tile for few rows, which takes what is beside a narrow panel as well."""
        if strip.rows == self.size.rows:
            super()._panels(part, strip)
            return
        with self._groups() as group:
            _, first = place_of(group, self.plan.groups)
            self._tile(part, strip, self._panel(part, self.size.vectors, first, group))

    def _panel(self, part: Products, vectors: int, first: Expr, group: Expr) -> Panel:
        self.group = group
        return super()._panel(part, vectors, first, group)

    def _begin(self, part: Products, strip: Strip, firsts: Sequence[Expr]) -> Iterator[Expr]:
        for i in range(strip.rows):
            for v in range(len(firsts)):
                yield masked_load(self.out.buffer, (self._place(strip.row + i, self.group, v),), self.has_begun)

    def _place(self, row: Expr, group: Expr, v: ExprLike) -> Expr:
        """Where the sums of a row and a panel's vector are: all panels have equal room."""
        at = row * self.out.row_step + group * self.size.width + v * as_expr(self.plan.lanes)
        return lanes_from(at, self.plan.lanes)

    def _store(self, part: Products, strip: Strip, firsts: Sequence[Expr], sums: Sequence[Sequence[Expr]]) -> None:
        if (strip.rows, len(firsts)) != self.size[:2]:
            self._keep(strip, sums)
            return
        with self.b.when(self._is_straight(firsts[0]) & part.is_last):
            self._write_tile(strip, firsts[0], sums)
        with self.b.otherwise():
            self._keep(strip, sums)

    def _keep(self, strip: Strip, sums: Sequence[Sequence[Expr]]) -> None:
        for i, values in enumerate(sums):
            for v, value in enumerate(values):
                self.b.store(self.out.buffer, self._place(strip.row + i, self.group, v), value)

    def _write_tile(self, strip: Strip, first: Expr, sums: Sequence[Sequence[Expr]]) -> None:
        b, lanes, few, left = self.b, self.plan.lanes, self.size.rows // 2, self.plan.rows - strip.row
        begin = b.let("begin", self.patches.write_at[first])
        nonfinite: Expr = const(0, self.dtype)
        for i, values in enumerate(sums):
            there = None if i <= few else widen(left > i, lanes)
            bias, plane = self.turn.row_of_results(strip.row + clamped(i, left))
            for v, value in enumerate(values):
                whole = b.let("value", value + bias)
                b.store(self.turn.out, (plane, lanes_from(begin + v * lanes, lanes)), whole, there)
                nonfinite = nonfinite + whole * 0.0
        self.turn.nonfinite.see(nonfinite)

    def _is_straight(self, first: Expr) -> Expr:
        """Whether the pixels of a whole tile from one on are there, and neighbours, so that it writes them."""
        at, width = self.patches.write_at, self.size.width
        last = binary("min", first + width, self.patches.count) - 1
        return (at[last] - at[first]).equal(width - 1)

    def write_rest(self) -> None:
        """Writes what tiles did not, with the bias."""
        b, plan = self.b, self.plan
        with self._groups() as group:
            vectors, first = place_of(group, plan.groups)
            straight = vectors.equal(self.size.vectors) & self._is_straight(first * plan.lanes)
            written = b.let("written", select(straight, plan.tiles[0][1] * self.size.rows, 0))
            with b.loop("row", plan.rows - written) as number:
                row = b.let("row", written + number)
                bias, plane = self.turn.row_of_results(row)
                with b.loop("inner", minimum(vectors, self.patches.vectors - first)) as inner:
                    column = b.let("column", (first + inner) * plan.lanes)
                    made = self.out.buffer[self._place(row, group, inner)]
                    self._write(plane, column, b.let("value", made + bias))

    def _write(self, plane: Expr, first: Expr, value: Expr) -> None:
        b, lanes, patches, out = self.b, self.plan.lanes, self.patches, self.turn.out
        last = b.let("last", binary("min", first + lanes, patches.count) - 1)
        begin = b.let("begin", patches.write_at[first])
        there = b.let("there", lanes_from(first, lanes) < patches.count)
        self.turn.nonfinite.see(value, there)
        with b.when((patches.write_at[last] - begin).equal(last - first)):
            b.store(out, (plane, lanes_from(begin, lanes)), value, there)
        with b.otherwise():
            at = b.let("at", patches.write_at[lanes_from(first, lanes)])
            b.store(out, (plane, at), value, there)
