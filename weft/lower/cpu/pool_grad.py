"""The template of gradients of pools: image by image, every window gives to the elements it saw.

What windows share equally goes along a row of windows first, then that row goes to every line they saw. Where channels
are in blocks, a vector is a block: every window gives by whole vectors, tap by tap; lanes that get nothing get 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from ... import te
from ...base.cpu_facts import COSTS
from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32, FLOAT64, INT64
from ...core.fused import FusedGroup
from ...core.ir import NodeEntry
from ...ops.nn._windows import windows_of
from ...ops.nn.adaptive_pool import AdaptivePool2DAttrs, bin_ends, sizes_of
from ...ops.nn.pool import Pool, window_elements
from ...te.build import KernelBuilder
from ...te.expr import Expr, Shuffle, Var, as_expr, minimum
from ...te.loops import Store
from ...te.transform import lower_vectors
from ...te.visit import masked_load
from ..epilogue import Epilogue, static_spec
from ..group import Facts, LoweredKernel, Temporary, kernel_name
from .nests.hoist import vector_loop
from .stage import lower_group
from .taps import Line, Reach, reach, windows_inside
from .tile_walk import lanes_from

NOWHERE = -1

POOL_GRADIENTS = ("_max_pool2d_grad", "_avg_pool2d_grad", "_adaptive_avg_pool2d_grad")


def pool_grad_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernel of such a gradient and what follows it, for images in NCHW, or in blocks of channels behind that."""
    read, made = group.anchor.inputs, (NodeEntry(group.anchor), group.outputs[0])
    shape, dtype = static_spec(fact(read[1]))
    alike = all(fact(entry).dtype == dtype for entry in (*read, *made)) and dtype in (FLOAT32, FLOAT64)
    if group.anchor.params.layout != "NCHW" or len(shape) not in (4, 5) or not alike or 0 in shape:
        return lower_group(group, fact, target)
    kinds = {4: (_LargestGradient, _MeanGradient), 5: (_LargestOfBlocks, _MeanOfBlocks)}[len(shape)]
    if len(shape) == 4 and len(group.nodes) > 1:
        int(shape[1])  # leading axes that are arguments would be one for what follows
    return [kinds[len(read) < 3](group, fact, target).lowered()]


class _Gradient:
    """Writes a kernel whose turns are images."""

    def __init__(self, group: FusedGroup, fact: Facts, target: CpuTarget) -> None:
        self.node, self.group, self.b = group.anchor, group, KernelBuilder(kernel_name(group))
        (windows, self.dtype), (self.shape, _) = (static_spec(fact(entry)) for entry in self.node.inputs[:2])
        self.lanes, self.tap = target.lanes(self.dtype), COSTS.tap / target.facts.nanoseconds_per_operation
        images = self.shape[0] * self.shape[1]
        self.whole, self.windows = (images, *self.shape[2:]), (images, *windows[2:])
        self.given = self.b.arg("given", self.dtype, self.windows)
        self.places: list[Any] = [self.node.inputs[0], *self.arguments()]
        self.epilogue = Epilogue(self.b, group, fact)
        self.out = self.epilogue.result(self.whole)

    def arguments(self) -> list[Any]:
        """The places of more buffers, which are added here: what windows chose from, and what they chose."""
        if len(self.node.inputs) > 2:
            self.x, self.tops = self.b.arg("x", self.dtype, self.whole), self.b.arg("tops", self.dtype, self.windows)
        return list(self.node.inputs[1:]) if len(self.node.inputs) > 2 else []

    def work(self) -> Any:
        raise NotImplementedError

    def clear(self) -> None:
        height, width = self.whole[1:]
        self.each(height * width, lambda i: Store(self.out, (self.image, as_expr(0), i), te.const(0, self.dtype)))

    def scatter(self) -> None:
        """Adds what the windows of an image give."""
        raise NotImplementedError

    def finish(self, at: Sequence[Expr]) -> None:
        """Does what follows, for the image of an index."""
        with self.b.loop("y", self.whole[1]) as y:
            self.each(self.whole[2], lambda x: self._finished(at, (y, x)))

    def lowered(self) -> LoweredKernel:
        b = self.b
        with b.parallel("image", self.whole[0]) as self.image:
            self.clear()
            self.scatter()
            if len(self.group.nodes) > 1:
                self.finish([b.let("n", self.image // self.shape[1]), b.let("c", self.image % self.shape[1])])
        places = (*self.places, *self.epilogue.arguments)
        return LoweredKernel(lower_vectors(b.finish()), places, self.work())

    def pool(self) -> Pool:
        params, (_, *extents), (_, *outs) = self.node.params, self.whole, self.windows
        windows = windows_of(params.pool_size, params.strides, params.padding, params.dilation)
        return Pool(windows, (extents[0], extents[1]), (outs[0], outs[1]))

    def _finished(self, at: Sequence[Expr], within: Sequence[Expr]) -> Store:
        index = (self.image, *within)
        return Store(self.out, index, self.epilogue.finished(self.out[index], (*at, *within)))

    def each(self, count: Any, store: Callable[[Expr], Store]) -> None:
        """A store for every number below a count, side by side."""
        i = Var("i")
        self.b.emit(vector_loop(i, as_expr(0), as_expr(count), self.lanes, store(i)))


class _MeanGradient(_Gradient):
    """Every element of a window gets the same."""

    def arguments(self) -> list[Any]:
        """A row of elements, and one of windows."""
        rows = [(self.whole[0], extent) for extent in (self.whole[2], self.windows[2])]
        self.row, self.shares = (self.b.arg(name, self.dtype, row) for name, row in zip(("row", "shares"), rows))
        return [Temporary(number, row, self.dtype) for number, row in enumerate(rows)]

    def work(self) -> Any:
        return prod(self.whole) * max(round(self.tap), 1)

    def scatter(self) -> None:
        b, image, (_, height, width), params = self.b, self.image, self.whole, self.node.params
        bins = isinstance(params, AdaptivePool2DAttrs)
        if bins and sizes_of(params) == (1, 1):
            share = b.let("share", self.given[image, 0, 0] / te.cast(as_expr(height * width), self.dtype))
            self.each(height * width, lambda i: Store(self.out, (image, as_expr(0), i), share))
            return
        spread = self._spread_bins if bins else self._spread_windows
        with b.loop("window", self.windows[1]) as window:
            self.each(width, lambda x: Store(self.row, (image, x), te.const(0, self.dtype)))
            lines = spread(window)
            with b.loop("line", lines.taps) as number:
                line = b.let("line", lines.at + number * lines.distance)
                self.each(width, lambda x: Store(self.out, at := (image, line, x), self.out[at] + self.row[image, x]))

    def _give(self, x: Expr, share: Expr) -> Store:
        at = (self.image, x)
        return Store(self.row, at, self.row[at] + share)

    def _spread_windows(self, window: Expr) -> Reach:
        """Shares of a row of windows go to its elements, tap by tap. What it saw of the lines comes back."""
        b, image, params, pool = self.b, self.image, self.node.params, self.pool()
        down, across = (Line(*axis, False) for axis in zip(pool.windows, self.windows[1:], self.whole[1:]))

        def share(x: Expr) -> Store:
            value = self.given[image, window, x] / window_elements(params, pool, (window, x), self.dtype)
            return Store(self.shares, (image, x), value)

        def give(i: Expr) -> Store:
            return self._give(place + i * across.window.stride, self.shares[image, first + i])

        self.each(self.windows[2], share)
        with b.loop("tap", across.window.size) as tap:
            first, count, place = (b.let("first", value) for value in windows_inside(across, tap))
            if across.window.stride == 1:
                self.each(count, give)
            else:
                with b.loop("i", count) as i:
                    b.emit(give(i))
        return reach(down, window)

    def _spread_bins(self, window: Expr) -> Reach:
        """The same, bin by bin."""
        b, (rows, columns) = self.b, sizes_of(self.node.params)
        top, bottom = (b.let("end", end) for end in bin_ends(window, self.shape[2], rows))
        with b.loop("column", columns) as column:
            left, right = (b.let("end", end) for end in bin_ends(column, self.shape[3], columns))
            elements = te.cast((bottom - top) * (right - left), self.dtype)
            share = b.let("share", self.given[self.image, window, column] / elements)
            self.each(right - left, lambda i: self._give(left + i, share))
        return Reach(bottom - top, as_expr(0), 1, top, 1)


class _LargestGradient(_Gradient):
    """The first largest element of a window, or NaN, gets what is given for it."""

    def work(self) -> Any:
        return prod(self.windows) * max(round(prod(win.size for win in self.pool().windows) * self.tap), 1)

    def scatter(self) -> None:
        b, lanes, image, (_, rows, columns) = self.b, self.lanes, self.image, self.windows
        places = b.alloc("places", INT64, (lanes,))
        with b.loop("row", rows) as row, b.loop("block", (columns + (lanes - 1)) // lanes) as block:
            first = b.let("first", block * lanes)
            b.store(places, lanes_from(0, lanes), self._found(row, first))
            with b.loop("each", minimum(columns - first, lanes)) as each:
                place = b.let("place", places[each])
                with b.when(place >= 0):
                    at = (image, as_expr(0), place)
                    b.store(self.out, at, self.out[at] + self.given[image, row, first + each])

    def _found(self, row: Expr, first: Expr) -> Expr:
        """Where in the image the first elements stand that are the largest of some windows; taps are
        asked from the last to the first."""
        b, lanes, (down, across), (_, height, width) = self.b, self.lanes, self.pool().windows, self.whole
        windows = lanes_from(first, lanes)
        here = b.let("here", windows < self.windows[2])
        top = b.let("top", masked_load(self.tops, (self.image, row, windows), here))
        found = b.registers("found", INT64, start=NOWHERE, lanes=lanes)
        with b.loop("kh", down.size) as kh:
            line = b.let("line", down.source(row, down.size - 1 - kh))
            with b.when((line >= 0) & (line < height)), b.loop("kw", across.size) as kw:
                start = b.let("start", across.source(first, across.size - 1 - kw))
                column = b.let("column", lanes_from(start, lanes, across.stride))
                inside = b.let("inside", here & (column >= 0) & (column < width))
                value = b.let("value", self._elements(line, start, inside))
                largest = inside & (value.equal(top) | te.isnan(value))
                b.store(found, (), te.select(largest, line * width + column, found[()]))
        return found[()]

    def _elements(self, line: Expr, start: Expr, inside: Expr) -> Expr:
        """What stands a stride apart in a line; every other element is picked from two vectors."""
        lanes, stride = self.lanes, self.pool().windows[1].stride
        if stride != 2:
            return masked_load(self.x, (self.image, line, lanes_from(start, lanes, stride)), inside)
        parts = [lanes_from(start + k * lanes, lanes) for k in range(stride)]
        pair = [masked_load(self.x, (self.image, line, x), (x >= 0) & (x < self.whole[2])) for x in parts]
        return Shuffle(pair[0], pair[1], tuple(range(0, stride * lanes, stride)))


# Blocks of channels


class _OfBlocks(_Gradient):
    """A turn is an image of one block: (height, width, lanes)."""

    def work(self) -> Any:
        (images, rows, columns, _), (_, height, width, _) = self.windows, self.whole
        taps = height * width // max(rows * columns, 1) + prod(self.sizes())
        return images * rows * columns * max(round(taps * self.tap), 1)

    def sizes(self) -> tuple[int, ...]:
        """The taps of a window, down and across."""
        params = self.node.params
        if isinstance(params, AdaptivePool2DAttrs):
            return tuple(-(-extent // size) for extent, size in zip(self.whole[1:], sizes_of(params)))
        return tuple(window.size for window in self.pool().windows)

    def clear(self) -> None:
        with self._elements() as at:
            self.b.store(self.out, (self.image, *at), te.const(0, self.dtype))

    def finish(self, at: Sequence[Expr]) -> None:
        with self._elements() as within:
            self.b.emit(self._finished(at, within))

    @contextmanager
    def _elements(self) -> Iterator[tuple[Expr, Expr, Expr]]:
        b, (_, height, width, lanes) = self.b, self.whole
        with b.loop("y", height) as y, b.loop("x", width) as x, b.vector("lane", lanes) as lane:
            yield y, x, lane

    def scatter(self) -> None:
        b, (_, rows, columns, lanes) = self.b, self.windows
        with b.loop("row", rows) as row, b.loop("column", columns) as column, b.vector("lane", lanes) as lane:
            self.window(row, column, lane)

    def window(self, row: Expr, column: Expr, lane: Expr) -> None:
        """Adds what one window gives."""
        raise NotImplementedError

    @contextmanager
    def taps(self, row: Expr, column: Expr) -> Iterator[tuple[Expr, Expr]]:
        """The elements that a window saw, from the first to the last."""
        b, (down, across), (_, height, width, _) = self.b, self.pool().windows, self.whole
        with b.loop("kh", down.size) as kh:
            line = b.let("line", down.source(row, kh))
            with b.when((line >= 0) & (line < height)), b.loop("kw", across.size) as kw:
                place = b.let("place", across.source(column, kw))
                with b.when((place >= 0) & (place < width)):
                    yield line, place

    def add(self, line: Expr, place: Expr, lane: Expr, value: Expr) -> None:
        at = (self.image, line, place, lane)
        self.b.store(self.out, at, self.out[at] + value)


class _LargestOfBlocks(_OfBlocks):
    """The first largest element of a window, or NaN, gets what is given for it."""

    def window(self, row: Expr, column: Expr, lane: Expr) -> None:
        b = self.b
        at = (self.image, row, column, lane)
        left = b.registers("left", self.dtype, start=1)
        given, top = b.let("given", self.given[at]), b.let("top", self.tops[at])
        with self.taps(row, column) as (line, place):
            value = b.let("value", self.x[self.image, line, place, lane])
            found = b.let("found", (value.equal(top) | te.isnan(value)) & (left[()] > 0))
            self.add(line, place, lane, te.select(found, given, te.const(0, self.dtype)))
            b.store(left, (), te.select(found, te.const(0, self.dtype), left[()]))


class _MeanOfBlocks(_OfBlocks):
    """Every element of a window gets the same."""

    def window(self, row: Expr, column: Expr, lane: Expr) -> None:
        b, given = self.b, self.given[self.image, row, column, lane]
        if not isinstance(self.node.params, AdaptivePool2DAttrs):
            elements = window_elements(self.node.params, self.pool(), (row, column), self.dtype)
            share = b.let("share", given / elements)
            with self.taps(row, column) as (line, place):
                self.add(line, place, lane, share)
            return
        (_, rows, columns, _), (_, height, width, _) = self.windows, self.whole
        top, bottom = (b.let("end", end) for end in bin_ends(row, height, rows))
        left, right = (b.let("end", end) for end in bin_ends(column, width, columns))
        share = b.let("share", given / te.cast((bottom - top) * (right - left), self.dtype))
        with b.loop("line", as_expr(bottom - top)) as line, b.loop("place", as_expr(right - left)) as place:
            self.add(top + line, left + place, lane, share)
