"""Transposes of convolutions in their weights, whose extents are arguments, in NCHW.

    out[o, c, t] = sum over images and windows (y, x) of
                   windows[n, o, y, x] * source[n, c, y * down + dy(t), x * across + dx(t)]

Each turn of the parallel loop makes some taps of some channels for some outputs, of a part of the
windows: it packs what the taps read (open/patches.py) and vectors of outputs, for some windows at a
time, and adds their products (open/tile.py) to sums. Sums of parts are added by a second kernel.
"""

from __future__ import annotations

from typing import NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, Var, binary, const, widen
from ....te.loops import Kernel
from ....te.visit import masked_load
from .nonfinite import NonFinite
from .patches import UNBOUNDED, Patches, part_at, scalars, tap_tables, window_arguments
from .tile import Sums, TileSize, ceil_div, choose_tile, lanes_from, row_tiles, tile_size

MAX_TAPS = 288  # of all channels of a turn
PIXEL_BYTES = 512  # of the windows that are packed at a time, for each tap
MAX_PANELS = 2  # of outputs, in a turn
SUMMED = 4096  # elements of a turn of the kernel that adds parts


class FilterTurns(NamedTuple):
    """Scalars: how the work is cut."""

    outputs: Var  # of a group
    channels: Var
    all_taps: Var  # of a channel
    turn_outputs: Var  # outputs of a turn, and turns for all of a group's
    output_turns: Var
    block_taps: Var  # taps of a turn, and turns for all of a channel's
    tap_turns: Var
    block_channels: Var  # channels of a turn, and turns for all of a group's
    channel_turns: Var
    groups: Var
    pixels: Var  # windows of a split, of all that there are
    all_pixels: Var
    by_output: Var  # 1 if out is (channel, output), else it is (output, tap of a channel)
    turns: Var


def filters_kernel(target: CpuTarget, dtype: DType) -> Kernel:
    """The kernel over buffers source, windows, taps, parts (of which there is one), out, which has
    a copy for each split, and `nonfinite`: a vector whose elements become NaN where results are NaN
    or infinite."""
    return _OpenFilterGradient(target, dtype).kernel()


class _OpenFilterGradient:
    def __init__(self, target: CpuTarget, dtype: DType) -> None:
        self.b = b = KernelBuilder(f"open_filters_{dtype.name}")
        self.dtype, self.size = dtype, tile_size(target, dtype)
        self.chunk = PIXEL_BYTES // dtype.itemsize
        apart = (UNBOUNDED, UNBOUNDED)
        self.source = b.arg("source", dtype, apart, strides=(1, 1))
        self.windows = b.arg("windows", dtype, apart, strides=(1, 1))
        given = window_arguments(b, dtype, (UNBOUNDED,))
        self.taps, self.parts, self.out, self.nonfinite = given[:4]
        self.images, self.results = given.images, given.results
        self.cut = scalars(b, FilterTurns, "turns")

    def kernel(self) -> Kernel:
        b, cut = self.b, self.cut
        with b.parallel("turn", cut.turns) as turn:
            rest: Expr = turn
            numbers = []
            for name in ("output_turns", "tap_turns", "channel_turns", "groups"):
                count = getattr(cut, name)
                numbers.append(b.let(name, rest % count))
                rest = b.let("rest", rest // count)
            output, tap, channel, self.group = numbers
            self.split = rest
            self.output = b.let("output", output * cut.turn_outputs)
            self.outputs = b.let("outputs", _upto(cut.turn_outputs, cut.outputs, self.output))
            self.tap = b.let("tap", tap * cut.block_taps)
            self.tap_count = b.let("taps", _upto(cut.block_taps, cut.all_taps, self.tap))
            self.channel = b.let("channel", channel * cut.block_channels)
            channels = _upto(cut.block_channels, cut.channels, self.channel)
            self.channel_count = b.let("channels", channels)
            self.rows = b.let("rows", self.tap_count * self.channel_count)
            self._turn()
        return b.finish()

    def _turn(self) -> None:
        b, size, cut, images = self.b, self.size, self.cut, self.images
        self.sums_rows = rows = MAX_TAPS + size.rows
        self.patches = Patches(b, self.source, self.taps, images, self.results, size.lanes, self.chunk // size.lanes)
        self.packed = b.alloc("packed", self.dtype, (rows * self.chunk,), alignment=64)
        self.panel = b.alloc("panel", self.dtype, (self.chunk * size.width,), alignment=64)
        self.sums = b.alloc("made", self.dtype, (MAX_PANELS * rows * size.width,), alignment=64)
        self.read_at = b.alloc("offsets", "int64", (MAX_TAPS,))
        source = b.let("source", (self.group * cut.channels + self.channel) * images.plane)

        def read_at(tap: Expr) -> Expr:
            return self.taps[tap] * images.width + self.taps[tap + 1] + source

        tables = [(self.read_at, read_at, images.plane)]
        tap_tables(b, self.taps, self.tap, self.tap_count, self.channel_count, tables)
        part = part_at(b, self.parts, const(0, "int64"))
        begin = b.let("begin", self.split * cut.pixels)
        pixels = b.let("pixels", _upto(cut.pixels, cut.all_pixels, begin))
        self.vectors = b.let("vectors", ceil_div(self.outputs, size.lanes))
        panels = b.let("panels", ceil_div(self.vectors, size.vectors))
        self.panel_vectors = b.let("panel_vectors", (self.vectors + panels - 1) // panels)
        with b.loop("chunk", ceil_div(pixels, self.chunk)) as chunk:
            done = b.let("done", chunk * self.chunk)
            self.count = b.let("count", binary("min", pixels - done, self.chunk))
            self.patches.walk(part, begin + done, self.count)
            place = lambda v: (v * size.lanes, self.chunk)
            self.patches.pack(self.packed, place, self.read_at, self.tap, self.tap_count, self.channel_count)
            self._panels(chunk.equal(0))
        self._finish()

    def _panels(self, is_first: Expr) -> None:
        b, size = self.b, self.size
        started = b.let("started", widen(~is_first, size.lanes))
        with b.loop("panel", (self.vectors + self.panel_vectors - 1) // self.panel_vectors) as panel:
            done = b.let("done", panel * self.panel_vectors)
            wide = b.let("wide", binary("min", self.panel_vectors, self.vectors - done))
            self._pack_outputs(done * size.lanes, wide)
            with row_tiles(b, size, self.rows) as (row, left):

                def write(part: TileSize) -> None:
                    sums = Sums(b, self.dtype, part)

                    def place(i: int, v: int) -> Expr:
                        return self._made_at(panel, row, i, v)

                    sums.fill(lambda i, v: masked_load(self.sums, (place(i, v),), started))
                    first = b.let("first", row * self.chunk)
                    read = lambda i, k: self.packed[first + (k + i * self.chunk)]
                    begin = const(0, "int64")
                    sums.add_products(self.count, read, self.panel, begin, size.width, unroll=1)
                    for i in range(part.rows):
                        for v in range(part.vectors):
                            b.store(self.sums, place(i, v), sums[i, v])

                choose_tile(b, size, left, wide, write, least=2)

    def _made_at(self, panel: Expr, row: Expr, i: int, v: int) -> Expr:
        """Where sums stand: (panel, tap of a channel, output)."""
        place = (panel * self.sums_rows + row + i) * self.size.width + v * self.size.lanes
        return lanes_from(place, self.size.lanes)

    def _pack_outputs(self, first: Expr, wide: Expr) -> None:
        """panel[window][output]; lanes without an output are 0."""
        b, size, plane = self.b, self.size, self.results.plane
        lanes = size.lanes
        with b.loop("v", wide) as v:
            output = b.let("output", first + v * lanes)
            mask = b.let("mask", lanes_from(output, lanes) < self.outputs)
            start = (self.group * self.cut.outputs + self.output + output) * plane
            index = lanes_from(start, lanes, plane)
            with b.loop("pixel", self.count) as pixel:
                value = masked_load(self.windows, (self.patches.write_at[pixel], index), mask)
                to = pixel * size.width + v * lanes
                b.store(self.panel, lanes_from(to, lanes), value)

    def _finish(self) -> None:
        """Writes the sums."""
        b = self.b
        nonfinite = NonFinite(b, self.dtype, self.size.lanes)
        with b.when(self.cut.by_output.equal(1)):
            self._write_by_output(nonfinite)
        with b.otherwise():
            self._write_by_tap(nonfinite)
        nonfinite.tell(self.nonfinite)

    def _write_by_tap(self, nonfinite: NonFinite) -> None:
        b, size, cut, lanes = self.b, self.size, self.cut, self.size.lanes
        taps = b.let("taps", cut.channels * cut.all_taps)
        output = (self.split * cut.groups + self.group) * cut.outputs + self.output
        start = b.let("start", output * taps + self.channel * cut.all_taps + self.tap)
        width = b.let("width", self.panel_vectors * lanes)
        with b.loop("vector", ceil_div(self.rows, lanes)) as vector:
            first = b.let("first", vector * lanes)
            there = b.let("there", lanes_from(first, lanes) < self.rows)
            with b.loop("output", self.outputs) as o:
                panel, inner = o // width, o % width
                place = (panel * self.sums_rows + first) * size.width + inner
                made = masked_load(self.sums, (lanes_from(place, lanes, size.width),), there)
                value = b.let("value", made)
                nonfinite.see(value)
                b.store(self.out, lanes_from(start + o * taps + first, lanes), value, there)

    def _write_by_output(self, nonfinite: NonFinite) -> None:
        b, size, cut, lanes = self.b, self.size, self.cut, self.size.lanes
        channel = (self.split * cut.groups + self.group) * cut.channels + self.channel
        start = b.let("start", channel * cut.outputs + self.output)
        with b.loop("row", self.rows) as row, b.loop("vector", self.vectors) as vector:
            first = b.let("first", vector * lanes)
            there = b.let("there", lanes_from(first, lanes) < self.outputs)
            panel, inner = vector // self.panel_vectors, vector % self.panel_vectors
            place = (panel * self.sums_rows + row) * size.width + inner * lanes
            value = b.let("value", self.sums[lanes_from(place, lanes)])
            nonfinite.see(value, there)
            at = lanes_from(start + row * cut.outputs + first, lanes)
            b.store(self.out, at, value, there)


def _upto(most: Expr, total: Expr, first: Expr) -> Expr:
    return binary("min", most, total - first)


def added_parts_kernel(target: CpuTarget, dtype: DType) -> Kernel:
    """out[i] = the sum over some parts of parts[part * length + i], in their order."""
    b, lanes = KernelBuilder(f"open_added_parts_{dtype.name}"), target.lanes(dtype)
    parts, out = b.arg("parts", dtype, (UNBOUNDED,)), b.arg("out", dtype, (UNBOUNDED,))
    count, length, turns = b.scalar("count"), b.scalar("length"), b.scalar("turns")
    with b.parallel("turn", turns) as turn:
        first = b.let("first", turn * SUMMED)
        left = b.let("left", _upto(const(SUMMED, "int64"), length, first))
        with b.loop("vector", ceil_div(left, lanes)) as vector:
            at = b.let("at", first + vector * lanes)
            there = b.let("there", lanes_from(at, lanes) < length)
            total = b.alloc("total", dtype, (), scope="register", lanes=lanes)
            b.store(total, (), const(0, dtype))
            with b.loop("part", count) as part:
                value = masked_load(parts, (lanes_from(part * length + at, lanes),), there)
                b.store(total, (), total[()] + value)
            b.store(out, lanes_from(at, lanes), total[()], there)
    return b.finish()
