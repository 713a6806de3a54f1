"""Sums over windows by products: each turn of the parallel loop makes some pixels of some channels. It packs what taps
read for the pixels (patches.py), some products at a time, and multiplies weights, where they are, with that
(open_tile.py). Pixels are counted over all images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, ExprLike, binary, cast, const, select, widen
from ....te.extents import greater, lesser, passed
from ....te.loops import Kernel
from ....te.visit import masked_load
from ..matrices.open_tile import (
    FEW,
    Panel,
    Sums,
    TileSize,
    ceil_div,
    choose_tile,
    clamped,
    even_panels,
    lanes_from,
    row_tiles,
    tile_size,
)
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
        room = self.max_vectors * size.lanes
        self.panels = b.alloc("panels", self.dtype, (MAX_DEPTH * room,), alignment=64)
        self.sums = b.alloc("made", self.dtype, (MAX_ROWS * room,), alignment=64)
        self.nonfinite = NonFinite(b, self.dtype, size.lanes)
        self.read_from = b.alloc("offsets", "int64", (MAX_DEPTH,))
        self.weight_from = b.alloc("weight_from", "int64", (MAX_DEPTH,))
        block = b.let("block", binary("min", MAX_DEPTH, binary("max", part.taps, 1)))
        channel_block = b.let("channel_block", MAX_DEPTH // block)
        tap_blocks = binary("max", self._blocks(part.taps, block), 1)
        with b.loop("tap_block", tap_blocks) as t:
            tap = b.let("first_tap", t * block)
            taps = b.let("taps", binary("min", block, part.taps - tap))
            with b.loop("block", self._blocks(self.deep, channel_block)) as c:
                channel = b.let("channel", c * channel_block)
                left = self.deep - channel
                channels = b.let("channels", binary("min", channel_block, left))
                self._pack(part, tap, taps, channel, channels)
                last = (tap + taps).equal(part.taps) & channels.equal(left)
                depth, begin = b.let("depth", channels * taps), t.equal(0) & c.equal(0)
                self._tiles(depth, b.let("is_first", begin), b.let("is_last", last))
        self._finish(part)

    def _blocks(self, total: Expr, block: Expr) -> Expr:
        return (total + block - 1) // block

    def _pack(self, part: Part, tap: Expr, taps: Expr, channel: Expr, channels: Expr) -> None:
        """Packs what some taps of some channels read for all pixels."""
        b, size, images, patches = self.b, self.size, self.windows.images, self.patches
        depth = b.let("depth", channels * taps)
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

        def place(v: Expr) -> tuple[Expr, int]:
            panel, inner = self._panel_of(v)
            return panel * depth * size.width + inner * size.lanes, size.width

        patches.pack(self.panels, place, self.read_from, taps, channels)

    def _panel_of(self, v: Expr) -> tuple[Expr, Expr]:
        """The panel of a vector among `even_panels`, and its place there."""
        b, most = self.b, self.size.vectors
        panels = ceil_div(self.patches.vectors, most)
        full = b.let("full", binary("max", self.patches.vectors - panels * (most - 1), 0))
        after = b.let("after", v - full * most)
        is_full = b.let("is_full", after < 0)
        panel = select(is_full, v // most, full + after // (most - 1))
        return b.let("panel", panel), select(is_full, v % most, after % (most - 1))

    def _tiles(self, depth: Expr, is_first: Expr, is_last: Expr) -> None:
        b, size = self.b, self.size
        with row_tiles(b, size, self.rows) as (row, left), even_panels(b, size, self.patches.vectors) as panel:
            at = b.let("at", panel.number * (depth * size.width))
            straight = b.let("straight", is_last & self._is_straight(panel))
            started = b.let("started", widen(~is_first, size.lanes))

            def write(part: TileSize) -> None:
                sums = Sums(b, self.dtype, part)

                def place(i: int, v: int) -> Expr:
                    return self._sums_of(row + i, panel, v)

                sums.fill(lambda i, v: masked_load(self.sums, (place(i, v),), started))
                read = self._reader(part, row, left)
                sums.add_products(depth, read, self.panels, at, size.width)
                if part != size:
                    self._keep_tile(sums, place)
                    return
                with b.when(straight):
                    self._write_tile(sums, panel, row, left)
                with b.otherwise():
                    self._keep_tile(sums, place)

            choose_tile(b, size, left, panel.vectors, write, least=2)

    def _reader(self, part: TileSize, row: Expr, left: Expr) -> Callable[[int, Expr], Expr]:
        b = self.b
        firsts = [b.let("w", (row + clamped(i, left)) * self.row_step) for i in range(part.rows)]
        return lambda i, k: self.weight[firsts[i], self.weight_from[k]]

    def _is_straight(self, panel: Panel) -> Expr:
        """Whether the results of a panel are neighbours, so that whole tiles write them."""
        patches, first, width = self.patches, panel.first * self.size.lanes, self.size.width
        last = binary("min", first + width, patches.count) - 1
        neighbours = (patches.write_at[last] - patches.write_at[first]).equal(width - 1)
        return neighbours & panel.vectors.equal(self.size.vectors)

    def _keep_tile(self, sums: Sums, place: Callable[[int, int], Expr]) -> None:
        for i in range(sums.size.rows):
            for v in range(sums.size.vectors):
                self.b.store(self.sums, place(i, v), sums[i, v])

    def _write_tile(self, sums: Sums, panel: Panel, row: Expr, left: Expr) -> None:
        b, lanes, few = self.b, self.size.lanes, self.size.rows // FEW
        begin = b.let("begin", self.patches.write_at[panel.first * lanes])
        nonfinite: Expr = const(0, self.dtype)
        for i in range(self.size.rows):
            there = None if i <= few else widen(left > i, lanes)
            bias, plane = self._row_of_results(row + clamped(i, left))
            for v in range(self.size.vectors):
                value = b.let("value", sums[i, v] + bias)
                at = lanes_from(begin + v * lanes, lanes)
                b.store(self.out, (plane, at), value, there)
                nonfinite = nonfinite + value * 0.0
        self.nonfinite.see(nonfinite)

    def _row_of_results(self, row: Expr) -> tuple[Expr, Expr]:
        """The bias of a row, and where its plane begins."""
        b = self.b
        channel = b.let("channel", self.first_channel + row)
        return b.let("bias", self.buffers.bias_of(channel)), b.let("plane", channel * self.windows.results.plane)

    def _sums_of(self, row: Expr, panel: Panel, v: ExprLike) -> Expr:
        """Where the sums of a row and a panel's vector stand; all panels have equal room, as tiles
        may have more vectors than their panels."""
        vector = row * self.max_vectors + panel.number * self.size.vectors + v
        return lanes_from(vector * self.size.lanes, self.size.lanes)

    def _finish(self, part: Part) -> None:
        """Adds the bias and writes what tiles did not write."""
        b, size = self.b, self.size
        whole = (self.rows + (size.rows // FEW - 1)) // size.rows * size.rows
        with even_panels(b, size, self.patches.vectors) as panel:
            written = b.let("written", select(self._is_straight(panel), whole, 0))
            with b.loop("row", self.rows - written) as number:
                row = b.let("row", written + number)
                bias, plane = self._row_of_results(row)
                with b.loop("vector", panel.vectors) as inner:
                    value = b.let("value", self.sums[self._sums_of(row, panel, inner)] + bias)
                    self._write(plane, b.let("v", panel.first + inner), value)
        with b.when(self.nonfinite.some()):
            self._mend(part)

    def _mend(self, part: Part) -> None:
        b, patches = self.b, self.patches
        with b.loop("row", self.rows) as row, b.loop("pixel", patches.count) as pixel:
            bias, plane = self._row_of_results(row)
            y, x, image = (b.let("at", cast(at[pixel], "int64")) for at in (patches.y, patches.x, patches.image))
            source, weight = self.source_at + image * self.windows.images.image, self.weight_at + row * self.row_step
            self.windows.mend(part, self.buffers, y, x, source, weight, plane + patches.write_at[pixel], bias)

    def _write(self, plane: Expr, v: Expr, value: Expr) -> None:
        b, lanes, patches = self.b, self.size.lanes, self.patches
        first = b.let("first", v * lanes)
        last = b.let("last", binary("min", first + lanes, patches.count) - 1)
        begin = b.let("begin", patches.write_at[first])
        there = b.let("there", lanes_from(first, lanes) < patches.count)
        self.nonfinite.see(value, there)
        with b.when((patches.write_at[last] - begin).equal(last - first)):
            b.store(self.out, (plane, lanes_from(begin, lanes)), value, there)
        with b.otherwise():
            at = b.let("at", patches.write_at[lanes_from(first, lanes)])
            b.store(self.out, (plane, at), value, there)
