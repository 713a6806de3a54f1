"""Convolutions and their transposes in data, whose extents are arguments, in NCHW.

    out[n, c, y, x] = bias[c] + sum over channels r, taps t of source[n, r, ...] * weight[c, r, t]

Each turn of the parallel loop makes some pixels of some channels: it packs what taps read for the
pixels (patches.py), some products at a time, and multiplies weights, where they are, with that
(open_tile.py). Pixels are counted over all images. In the transpose of a strided convolution there
is a part of the pixels for each remainder by the strides, with taps of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, ExprLike, Var, binary, const, select, widen
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
from .nonfinite import NonFinite
from .patches import TAP_FIELDS, UNBOUNDED, Part, Patches, part_at, scalars, window_arguments

PANELS = 9 / 64  # of the second cache, for what is packed at a time
MAX_DEPTH = 192  # products of a block, which leave a panel in the first cache
MAX_ROWS = 128  # channels of a turn


class Weights(NamedTuple):
    """Scalars: channels of a group that are made, those that are summed, and steps of the weight
    from one of them to the next and from a group to the next."""

    rows: Var
    deep: Var
    row: Var
    channel: Var
    group: Var


class Turns(NamedTuple):
    """Scalars: how the work is cut."""

    pixels: Var  # pixels of a turn, and turns for all of a part's pixels
    pixel_turns: Var
    rows: Var  # channels of a turn, and turns for all of a group's
    row_turns: Var
    groups: Var
    block_taps: Var  # taps and channels that are packed at a time
    block_channels: Var
    images: Var
    turns: Var


def turn_vectors(target: CpuTarget, dtype: DType) -> int:
    """How many vectors of pixels a turn makes at most."""
    most = int(PANELS * target.caches[1]) // (MAX_DEPTH * target.lanes(dtype) * dtype.itemsize)
    width = tile_size(target, dtype).vectors
    return most // width * width


def convolution_kernel(target: CpuTarget, dtype: DType) -> Kernel:
    """The kernel over buffers source, weight, bias, taps, parts, out, and `nonfinite`: a vector whose
    elements become NaN where results are NaN or infinite."""
    return _OpenConvolution(target, dtype).kernel()


class _OpenConvolution:
    def __init__(self, target: CpuTarget, dtype: DType) -> None:
        self.b = b = KernelBuilder(f"open_convolution_{dtype.name}")
        self.dtype, self.size = dtype, tile_size(target, dtype)
        self.max_vectors = turn_vectors(target, dtype)
        apart = (UNBOUNDED, UNBOUNDED)
        self.source = b.arg("source", dtype, apart, strides=(1, 1))
        self.weight = b.arg("weight", dtype, (UNBOUNDED,))
        self.bias = b.arg("bias", dtype, (UNBOUNDED,))
        given = window_arguments(b, dtype, apart, (1, 1))
        self.taps, self.parts, self.out, self.nonfinite = given[:4]
        self.images, self.results = given.images, given.results
        self.weights, self.cut = scalars(b, Weights, "weights"), scalars(b, Turns, "turns")

    def kernel(self) -> Kernel:
        b, cut, weights = self.b, self.cut, self.weights
        with b.parallel("turn", cut.turns) as turn:
            pixel_turn = b.let("pixel_turn", turn % cut.pixel_turns)
            rest = b.let("rest", turn // cut.pixel_turns)
            row_turn = b.let("row_turn", rest % cut.row_turns)
            group = b.let("group", rest // cut.row_turns % cut.groups)
            number = b.let("number", rest // cut.row_turns // cut.groups)
            part = part_at(b, self.parts, number)
            first = b.let("first", pixel_turn * cut.pixels)
            total = b.let("total", cut.images * part.rows * part.columns)
            self.row = b.let("row", row_turn * cut.rows)
            self.rows = b.let("rows", binary("min", cut.rows, weights.rows - self.row))
            self.group = group
            with b.when(first < total):
                self._turn(part, first, b.let("count", binary("min", cut.pixels, total - first)))
        return b.finish()

    def _turn(self, part: Part, first: Expr, count: Expr) -> None:
        b, size = self.b, self.size
        self.patches = Patches(b, self.source, self.taps, self.images, self.results, size.lanes, self.max_vectors)
        self.patches.walk(part, first, count)
        room = self.max_vectors * size.lanes
        self.panels = b.alloc("panels", self.dtype, (MAX_DEPTH * room,), alignment=64)
        self.sums = b.alloc("made", self.dtype, (MAX_ROWS * room,), alignment=64)
        self.nonfinite_seen = NonFinite(b, self.dtype, size.lanes)
        self.read_at = b.alloc("offsets", "int64", (MAX_DEPTH,))
        self.weight_at = b.alloc("weight_at", "int64", (MAX_DEPTH,))
        tap_blocks = binary("max", self._blocks(part.taps, self.cut.block_taps), 1)
        with b.loop("tap_block", tap_blocks) as t:
            first_tap = b.let("first_tap", t * self.cut.block_taps)
            taps = b.let("taps", binary("min", self.cut.block_taps, part.taps - first_tap))
            with b.loop("block", self._blocks(self.weights.deep, self.cut.block_channels)) as c:
                channel = b.let("channel", c * self.cut.block_channels)
                left = self.weights.deep - channel
                channels = b.let("channels", binary("min", self.cut.block_channels, left))
                tap = b.let("tap", part.first_tap + first_tap)
                self._pack(tap, taps, channel, channels)
                last = (first_tap + taps).equal(part.taps) & channels.equal(left)
                depth, begin = b.let("depth", channels * taps), t.equal(0) & c.equal(0)
                self._tiles(depth, b.let("is_first", begin), b.let("is_last", last))
        self._finish()

    def _blocks(self, total: Expr, block: Expr) -> Expr:
        return (total + block - 1) // block

    def _pack(self, tap: Expr, taps: Expr, channel: Expr, channels: Expr) -> None:
        """Packs what some taps of some channels read for all pixels."""
        b, size, images, weights = self.b, self.size, self.images, self.weights
        depth = b.let("depth", channels * taps)
        source = b.let("source", (self.group * weights.deep + channel) * images.plane)
        weight = b.let("weight", channel * weights.channel)

        with b.loop("number", taps) as number:
            at = b.let("at", (tap + number) * TAP_FIELDS)
            read = b.let("read", self.taps[at] * images.width + self.taps[at + 1] + source)
            first = b.let("first", self.taps[at + 2] + weight)
            with b.loop("channel", channels) as c:
                b.store(self.read_at, c * taps + number, read + c * images.plane)
                b.store(self.weight_at, c * taps + number, first + c * weights.channel)

        def place(v: Expr) -> tuple[Expr, int]:
            panel, inner = self._panel_of(v)
            return panel * depth * size.width + inner * size.lanes, size.width

        self.patches.pack(self.panels, place, self.read_at, tap, taps, channels)

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
        b, weights = self.b, self.weights
        start = b.let("start", self.group * weights.group + (self.row + row) * weights.row)
        firsts = [b.let("w", start + clamped(i, left) * weights.row) for i in range(part.rows)]
        return lambda i, k: self.weight[firsts[i] + self.weight_at[k]]

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
        self.nonfinite_seen.see(nonfinite)

    def _row_of_results(self, row: Expr) -> tuple[Expr, Expr]:
        """The bias of a row, and where its plane begins."""
        b = self.b
        channel = b.let("channel", self.group * self.weights.rows + self.row + row)
        return b.let("bias", self.bias[channel]), b.let("plane", channel * self.results.plane)

    def _sums_of(self, row: Expr, panel: Panel, v: ExprLike) -> Expr:
        """Where the sums of a row and a panel's vector stand; all panels have equal room, as tiles
        may have more vectors than their panels."""
        vector = row * self.max_vectors + panel.number * self.size.vectors + v
        return lanes_from(vector * self.size.lanes, self.size.lanes)

    def _finish(self) -> None:
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
        self.nonfinite_seen.tell(self.nonfinite)

    def _write(self, plane: Expr, v: Expr, value: Expr) -> None:
        b, lanes, patches = self.b, self.size.lanes, self.patches
        first = b.let("first", v * lanes)
        last = b.let("last", binary("min", first + lanes, patches.count) - 1)
        begin = b.let("begin", patches.write_at[first])
        there = b.let("there", lanes_from(first, lanes) < patches.count)
        self.nonfinite_seen.see(value, there)
        with b.when((patches.write_at[last] - begin).equal(last - first)):
            b.store(self.out, (plane, lanes_from(begin, lanes)), value, there)
        with b.otherwise():
            at = b.let("at", patches.write_at[lanes_from(first, lanes)])
            b.store(self.out, (plane, at), value, there)
