"""Patches of images that windows stand on, packed for products: some result pixels come in as
numbers, counted over all images; what each tap of each channel reads for them goes out as vectors.

    packed[channel * taps + tap][pixel] = source[image, channel, y * down + dy, x * across + dx]

or 0 where that is outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....te.expr import Expr, as_expr, binary, cast, select
from ....te.loops import Buffer
from ....te.visit import masked_load
from ..tile_walk import ceil_div, lanes_from
from .window_sum import Part, Windows, parted


class Patches:
    """Holds where the pixels of a turn are."""

    def __init__(self, windows: Windows, source: Buffer, lanes: int, vectors: int, depth: int) -> None:
        """`depth` products are packed at most."""
        self.b, self.source, self.lanes = windows.b, source, lanes
        self.images, self.results = windows.images, windows.results
        b = self.b
        room = (vectors + 1) * lanes
        self.y = b.alloc("y", "int32", (room,))
        self.x = b.alloc("x", "int32", (room,))
        self.image = b.alloc("image", "int32", (room,))
        self.read_at = b.alloc("read_at", "int64", (room,))
        self.write_at = b.alloc("write_at", "int64", (room,))
        self.tap_y, self.tap_x = b.alloc("tap_y", "int32", (depth,)), b.alloc("tap_x", "int32", (depth,))

    def walk(self, part: Part, first: Expr, count: Expr) -> None:
        """Notes where `count` pixels are, row by row; lanes past a row are overwritten."""
        b = self.b
        self.part, self.count = part, count
        self.vectors = b.let("vectors", ceil_div(count, self.lanes))
        pixels = b.let("pixels", part.rows * part.columns)
        state = b.alloc("state", "int64", (4,), scope="register")
        image, rest = parted(b, first, pixels)
        for number, value in enumerate((as_expr(0), image, *parted(b, rest, part.columns))):
            b.store(state, number, value)
        with b.repeat_while(state[0] < count):
            done, image = b.let("done", state[0]), b.let("image", state[1])
            y, x = b.let("y", state[2]), b.let("x", state[3])
            length = b.let("length", binary("min", part.columns - x, count - done))
            self._note_row(image, y, x, done, length)
            b.store(state, 0, done + length)
            last = b.let("last", (y + 1).equal(part.rows))
            b.store(state, 1, image + select(last, 1, 0))
            b.store(state, 2, select(last, 0, y + 1))
            b.store(state, 3, 0)

    def _note_row(self, image: Expr, y: Expr, x: Expr, done: Expr, length: Expr) -> None:
        b, lanes, source, result = self.b, self.lanes, self.images, self.results
        row = b.let("row", y * source.down)
        read = b.let("read", image * source.image + row * source.width + x * source.across)
        target = (y * result.down + self.part.first_row) * result.width
        column = x * result.across + self.part.first_column
        write = b.let("write", image * result.image + target + column)
        with b.loop("v", ceil_div(length, lanes)) as v:
            at = b.let("at", v * lanes)
            to = lanes_from(done + at, lanes)
            column = lanes_from((x + at) * source.across, lanes, source.across)
            b.store(self.y, to, cast(row, "int32"))
            b.store(self.x, to, cast(column, "int32"))
            b.store(self.image, to, cast(image, "int32"))
            read_lanes = lanes_from(read + at * source.across, lanes, source.across)
            b.store(self.read_at, to, read_lanes)
            b.store(self.write_at, to, lanes_from(write + at * result.across, lanes, result.across))

    def pack(
        self, number: Expr, packed: Buffer, to: Expr, step: int, offsets: Buffer, taps: Expr, channels: Expr
    ) -> None:
        """Packs what some taps of some channels read for a vector of pixels: vectors for each k = channel * taps + tap,
        the first of which goes `to` a place, and the others so many elements further each. `tap_y` and `tap_x` say
        where the taps stand, `offsets` for each k where that channel and tap are read, from the element on that the
        tap (0, 0) of the first channel reads.
        """
        b, lanes = self.b, self.lanes
        first = b.let("first", number * lanes)
        whole, inside = self._whole(first)

        def copy(k: Expr, at: Expr, mask: Expr, there: Expr) -> None:
            value = masked_load(self.source, (offsets[k], at), mask)
            b.store(packed, lanes_from(to + k * step, lanes), value, there)

        with b.when(whole & inside):
            there = b.let("there", lanes_from(first, lanes) < self.count)
            begin = b.let("begin", self.read_at[first])
            with b.loop("k", channels * taps) as k:
                copy(k, lanes_from(begin, lanes), there, there)
        with b.otherwise(), self._runs(first, whole) as (at, run), b.loop("tap", taps) as tap:
            mask = b.let("mask", run & self._inside(first, tap))
            with b.when(self.images.across.equal(1)), b.loop("channel", channels) as channel:
                copy(channel * taps + tap, lanes_from(at, lanes), mask, run)
            with b.otherwise():
                apart = b.let("apart", self.read_at[lanes_from(first, lanes)])
                with b.loop("channel", channels) as channel:
                    copy(channel * taps + tap, apart, mask, run)

    @contextmanager
    def _runs(self, first: Expr, whole: Expr) -> Iterator[tuple[Expr, Expr]]:
        """Lanes of a vector whose elements are neighbours: what lane 0 would read, and their mask.
        All lanes at once where windows are not neighbours anyway."""
        b, lanes = self.b, self.lanes
        at_once = b.let("at_once", whole | (self.images.across > 1))
        end = b.let("end", binary("min", first + lanes, self.count))
        begun = b.registers("begun", "int64", start=first)
        with b.repeat_while(begun[()] < end):
            start = b.let("start", begun[()])
            left = self.part.columns - cast(self.x[start], "int64")
            until = b.let("until", select(at_once, end, binary("min", start + left, end)))
            lane = lanes_from(first, lanes)
            there = b.let("there", (lane >= start) & (lane < until))
            yield b.let("at", self.read_at[start] - (start - first)), there
            b.store(begun, (), until)

    def _whole(self, first: Expr) -> tuple[Expr, Expr]:
        """Whether what a vector reads are neighbours, and whether all of its taps are inside."""
        b, source, part = self.b, self.images, self.part
        last = b.let("last", binary("min", first + self.lanes, self.count) - 1)
        low, high = (b.let("y", cast(self.y[at], "int64")) for at in (first, last))
        one_image = b.let("one", self.image[first].equal(self.image[last]))
        one_row = b.let("row", one_image & low.equal(high))
        left, right = (cast(self.x[at], "int64") for at in (first, last))
        left = b.let("left", select(one_row, left, 0))
        right = b.let("right", select(one_row, right, (part.columns - 1) * source.across))
        flat = (source.down * source.width).equal(part.columns)
        whole = one_image & (one_row | flat) & source.across.equal(1)
        inside = (low + part.lowest_dy >= 0) & (high + part.highest_dy < source.height)
        inside &= (left + part.lowest_dx >= 0) & (right + part.highest_dx < source.width)
        return b.let("whole", whole), b.let("inside", one_image & inside)

    def _inside(self, first: Expr, tap: Expr) -> Expr:
        """The lanes for which a tap stands on an element."""
        b, lanes = self.b, self.lanes
        y = b.let("y", self.y[lanes_from(first, lanes)] + self.tap_y[tap])
        x = b.let("x", self.x[lanes_from(first, lanes)] + self.tap_x[tap])
        height, width = (cast(n, "int32") for n in (self.images.height, self.images.width))
        return (y >= 0) & (y < height) & (x >= 0) & (x < width)
