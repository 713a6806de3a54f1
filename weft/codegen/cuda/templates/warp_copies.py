"""Operands into shared memory by the threads of a block, ahead of time (cp.async): zeros beyond an operand.

A thread copies a chunk of 16 bytes of some lines, always at the same place in a line; its lines are equally far apart.
Where elements are not aligned for that, a chunk is copied in smaller pieces.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from ....te.expr import Expr, select
from ....te.extents import Extent, is_multiple
from ....te.tensor_cores.fragments import CHUNKS, Layout
from ....te.tensor_cores.layouts import CHUNK_BYTES, ROW_BYTES, window_origin
from ....te.tensor_cores.product import Window
from ...builder import Value
from . import warp_asm
from .writer import Writer, u32

FAR = 1 << 30  # a row that no picture has


class Copier:
    """Panels of lines of 128 bytes, in some layout, copied by so many threads."""

    def __init__(self, w: Writer, thread: Expr, threads: int, layout: Layout, panels: int = 1) -> None:
        self.w, self.layout, self.item_bytes = w, layout, layout.item_bytes
        self.depth = ROW_BYTES // layout.item_bytes  # elements of a line
        self.together = threads // CHUNKS  # lines that are copied at once
        self.turns = range(0, layout.lines * panels, self.together)  # the first of them, each time
        assert layout.lines % self.together == 0
        self.line = w.let("line", thread // CHUNKS)
        chunk = w.let("chunk", thread % CHUNKS)
        self.along = w.let("along", chunk * (CHUNK_BYTES // layout.item_bytes))  # the first element within a line
        self.to = w.let("to", layout.permuted(self.line * ROW_BYTES + chunk * CHUNK_BYTES))

    def advanced(self, base: Value, number: Expr, size: int | Extent) -> Value:
        """An address, so many elements of a size further."""
        b = self.w.b
        return b.binary("add", base, b.binary("mul", self.w.wide(number), self.w.long(size)))

    def copy(self, to: Expr, lines: int, piece: int, size: int, source: Value, *asked: Expr | None) -> None:
        """A piece of a chunk, where all that is asked holds."""
        count: Expr = u32(size)
        for condition in asked:
            count = count if condition is None else select(condition, count, u32(0))
        self.w.asm(warp_asm.copy(size, lines * ROW_BYTES + piece * size), to, source, count)


class Lines(NamedTuple):
    """A matrix in memory as lines: their number and elements, bytes from one to the next, and bytes that all of their
    beginnings and ends are multiples of."""

    number: int | Extent
    elements: int | Extent
    step: int | Extent
    aligned: int


class MatrixCopier(Copier):
    """A matrix at an address, from a line and an element of lines on. Blocks follow each other along lines, or (`down`)
    have other lines."""

    def __init__(
        self, w: Writer, thread: Expr, threads: int, layout: Layout, panels: int,
        base: Value, lines: Lines, line: Expr, along: Expr, down: bool,
    ) -> None:  # fmt: skip
        super().__init__(w, thread, threads, layout, panels)
        self.lines, self.down, self.size = lines, down, gcd(CHUNK_BYTES, lines.aligned)
        self.checks_lines = not is_multiple(lines.number, layout.lines)
        self.checks_elements = not is_multiple(lines.elements, panels * self.depth)
        self.line, self.along = w.let("line", self.line + line), w.let("along", self.along + along)
        self.source = self.advanced(self.advanced(base, self.line, lines.step), self.along, self.item_bytes)

    def issue(self, to: Expr, block: Expr) -> None:
        """Copies of a block, to a stage whose part for this operand begins there."""
        w, b, step = self.w, self.w.b, self.size // self.item_bytes
        to = w.let("to", to + self.to)
        source = self.advanced(self.source, block, self.lines.step * self.layout.lines if self.down else ROW_BYTES)
        done = w.let("done", block * (self.layout.lines if self.down else self.depth))
        line, along = (self.line + done, self.along) if self.down else (self.line, self.along + done)
        for first in self.turns:
            panel, below = divmod(first, self.layout.lines)
            in_lines = line + below < w.count(self.lines.number) if self.checks_lines else None
            for piece in range(CHUNK_BYTES // self.size):
                more = panel * self.depth + piece * step
                in_elements = along + more < w.count(self.lines.elements) if self.checks_elements else None
                address = b.binary("add", source, self._offset(below, panel * ROW_BYTES + piece * self.size))
                self.copy(to, first, piece, self.size, address, in_lines, in_elements)

    def _offset(self, lines: int, more: int) -> Value:
        """Bytes from a thread's first line to a later one."""
        w, b, step = self.w, self.w.b, self.lines.step
        if not isinstance(step, Extent):
            return w.long(lines * step + more)
        return b.binary("add", b.binary("mul", w.long(step), w.long(lines)), w.long(more))


class WindowCopier(Copier):
    """Windows of pictures as rows of a matrix: `row` is the tile's first pixel of the result, of `extent`."""

    def __init__(
        self, w: Writer, thread: Expr, threads: int, layout: Layout,
        base: Value, window: Window, row: Expr, extent: int | Extent,
    ) -> None:  # fmt: skip
        super().__init__(w, thread, threads, layout)
        self.window, self.base = window, base
        self.size = gcd(CHUNK_BYTES, window.channels * self.item_bytes)
        self.taps = window.filter[0] * window.filter[1]
        _, height, width, channels = window.pictures
        self.origins: list[tuple[Expr, Expr, Expr]] = []
        for lines in self.turns:
            pixel = w.let("pixel", row + self.line + lines)
            picture, top, left = window_origin(pixel, window.image, window.strides, window.pads)
            top, left = w.let("top", top), w.let("left", left)
            first = w.let("first", ((picture * height + top) * width + left) * channels)
            if not is_multiple(extent, layout.lines):
                top = w.let("top", select(pixel < w.count(extent), top, u32(FAR)))
            self.origins.append((top, left, first))

    def issue(self, to: Expr, block: Expr) -> None:
        w, window, step = self.w, self.window, self.size // self.item_bytes
        _, height, width, channels = window.pictures
        to = w.let("to", to + self.to)
        for piece in range(CHUNK_BYTES // self.size):
            k = w.let("k", block * self.depth + self.along + piece * step)
            tap = w.let("tap", k // channels)
            row = w.let("filter_row", tap // window.filter[1])
            down = w.let("down", row * window.dilation[0])
            across = w.let("across", (tap - row * window.filter[1]) * window.dilation[1])
            within = w.let("within", (down * width + across) * channels + (k - tap * channels))
            in_depth = k < self.taps * channels if self.taps * channels % self.depth else None
            for lines, (top, left, first) in zip(self.turns, self.origins):
                inside = (top + down < height) & (left + across < width)
                address = self.advanced(self.base, first + within, self.item_bytes)
                self.copy(to, lines, piece, self.size, address, inside, in_depth)
