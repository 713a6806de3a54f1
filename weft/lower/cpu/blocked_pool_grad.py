"""The template of gradients of pools in blocks of channels: a vector is a block, so that every window gives to the
elements it saw by whole vectors, tap by tap; lanes to which it gives nothing get 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

from ... import te
from ...base.cpu_facts import COSTS
from ...base.cpu_target import CpuTarget
from ...core.fused import FusedGroup
from ...core.ir import Fact, NodeEntry
from ...ops.nn._windows import Window, windows_of
from ...ops.nn.adaptive_pool import AdaptivePool2DAttrs, bin_ends, sizes_of
from ...ops.nn.pool import Pool, window_elements
from ...te.build import KernelBuilder
from ...te.expr import Expr, as_expr
from ...te.transform import lower_vectors
from ..epilogue import Epilogue, static_spec
from ..group import LoweredKernel, kernel_name


def blocked_pool_grad_kernel(group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CpuTarget) -> LoweredKernel:
    """The kernel of such a gradient and what follows it, for images of shape (n, blocks, height, width, lanes)."""
    assert group.master is not None
    kind = _Largest if len(group.master.inputs) > 2 else _Mean
    return kind(group, fact, target).lowered()


class _Blocked:
    """Writes a kernel whose turns are images of one block."""

    def __init__(self, group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CpuTarget) -> None:
        assert group.master is not None
        self.node, self.group, self.b = group.master, group, KernelBuilder(kernel_name(group))
        (windows, self.dtype), (self.shape, _) = (static_spec(fact(entry)) for entry in self.node.inputs[:2])
        self.tap = COSTS.tap / target.facts.nanoseconds_per_operation
        n, blocks, self.height, self.width, self.lanes = self.shape
        self.rows, self.columns = windows[2:4]
        self.whole = (n * blocks, self.height, self.width, self.lanes)
        self.given = self.b.arg("given", self.dtype, (n * blocks, *windows[2:]))
        self.read = self.arguments()
        self.epilogue = Epilogue(self.b, group, fact)
        self.out = self.b.arg("out", self.dtype, self.whole)

    def arguments(self) -> list[NodeEntry]:
        """What is read beside the gradient, for which buffers are added here."""
        return []

    def window(self, row: Expr, column: Expr, lane: Expr) -> None:
        """Adds what one window gives."""
        raise NotImplementedError

    def lowered(self) -> LoweredKernel:
        b = self.b
        with b.parallel("image", self.whole[0]) as self.image:
            with self._elements() as at:
                b.store(self.out, (self.image, *at), te.const(0, self.dtype))
            rows, columns = b.loop("row", self.rows), b.loop("column", self.columns)
            with rows as row, columns as column, b.vector("lane", self.lanes) as lane:
                self.window(row, column, lane)
            if len(self.group.nodes) > 1:
                first = [b.let("n", self.image // self.shape[1]), b.let("c", self.image % self.shape[1])]
                with self._elements() as at:
                    index = (self.image, *at)
                    b.store(self.out, index, self.epilogue.finished(self.out[index], (*first, *at)))
        places = (self.node.inputs[0], *self.read, *self.epilogue.arguments, self.group.outputs[0])
        taps = self.height * self.width // max(self.rows * self.columns, 1) + prod(self.sizes())
        work = self.whole[0] * self.rows * self.columns * max(round(taps * self.tap), 1)
        return LoweredKernel(lower_vectors(b.finish()), places, work)

    @contextmanager
    def _elements(self) -> Iterator[tuple[Expr, Expr, Expr]]:
        b = self.b
        with b.loop("y", self.height) as y, b.loop("x", self.width) as x, b.vector("lane", self.lanes) as lane:
            yield y, x, lane

    def sizes(self) -> tuple[int, ...]:
        """The taps of a window, down and across."""
        params = self.node.params
        if isinstance(params, AdaptivePool2DAttrs):
            return tuple(-(-extent // size) for extent, size in zip((self.height, self.width), sizes_of(params)))
        return tuple(window.size for window in self.windows())

    def windows(self) -> tuple[Window, Window]:
        params = self.node.params
        return windows_of(params.pool_size, params.strides, params.padding, params.dilation)

    @contextmanager
    def taps(self, row: Expr, column: Expr) -> Iterator[tuple[Expr, Expr]]:
        """The elements that a window saw, from the first to the last."""
        b, (down, across) = self.b, self.windows()
        with b.loop("kh", down.size) as kh:
            line = b.let("line", down.source(row, kh))
            with b.when((line >= 0) & (line < self.height)), b.loop("kw", across.size) as kw:
                place = b.let("place", across.source(column, kw))
                with b.when((place >= 0) & (place < self.width)):
                    yield line, place

    def add(self, line: Expr, place: Expr, lane: Expr, value: Expr) -> None:
        at = (self.image, line, place, lane)
        self.b.store(self.out, at, self.out[at] + value)


class _Largest(_Blocked):
    """The first largest element of a window, or NaN, gets what is given for it."""

    def arguments(self) -> list[NodeEntry]:
        images = self.whole[0]
        self.x = self.b.arg("x", self.dtype, self.whole)
        self.tops = self.b.arg("tops", self.dtype, (images, self.rows, self.columns, self.lanes))
        return list(self.node.inputs[1:])

    def window(self, row: Expr, column: Expr, lane: Expr) -> None:
        b = self.b
        at = (self.image, row, column, lane)
        left = b.alloc("left", self.dtype, (), scope="register")
        b.store(left, (), 1)
        given, top = b.let("given", self.given[at]), b.let("top", self.tops[at])
        with self.taps(row, column) as (line, place):
            value = b.let("value", self.x[self.image, line, place, lane])
            found = b.let("found", (value.equal(top) | te.isnan(value)) & (left[()] > 0))
            self.add(line, place, lane, te.select(found, given, te.const(0, self.dtype)))
            b.store(left, (), te.select(found, te.const(0, self.dtype), left[()]))


class _Mean(_Blocked):
    """Every element of a window gets the same."""

    def window(self, row: Expr, column: Expr, lane: Expr) -> None:
        b, given = self.b, self.given[self.image, row, column, lane]
        if not isinstance(self.node.params, AdaptivePool2DAttrs):
            pool = Pool(self.windows(), (self.height, self.width), (self.rows, self.columns))
            elements = window_elements(self.node.params, pool, (row, column), self.dtype)
            share = b.let("share", given / elements)
            with self.taps(row, column) as (line, place):
                self.add(line, place, lane, share)
            return
        top, bottom = (b.let("end", end) for end in bin_ends(row, self.height, self.rows))
        left, right = (b.let("end", end) for end in bin_ends(column, self.width, self.columns))
        share = b.let("share", given / te.cast((bottom - top) * (right - left), self.dtype))
        with b.loop("line", as_expr(bottom - top)) as line, b.loop("place", as_expr(right - left)) as place:
            self.add(top + line, left + place, lane, share)
