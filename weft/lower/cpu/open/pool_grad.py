"""Gradients of pools as open kernels: image by image, every window gives to the elements it saw.

Windows are described by scalars; images are dense, (images, height, width).
"""

from __future__ import annotations

from typing import NamedTuple

from .... import te
from ....base.cpu_target import CpuTarget
from ....base.dtype import INT64, DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, Var, as_expr, maximum, minimum
from ....te.loops import Buffer, Kernel, Store
from ....te.transform import lower_vectors
from ....te.visit import masked_load
from .nest import vector_loop

NOWHERE = -1


class Along(NamedTuple):
    """Windows along one axis, as scalars of a kernel in this order."""

    extent: Expr
    windows: Expr
    size: Expr
    stride: Expr
    before: Expr
    dilation: Expr

    def place(self, window: Expr, tap: Expr) -> Expr:
        return window * self.stride + tap * self.dilation - self.before

    def first(self, tap: Expr) -> Expr:
        """The first window whose tap is inside."""
        return maximum((self.before - tap * self.dilation + self.stride - 1) // self.stride, 0)

    def end(self, tap: Expr) -> Expr:
        """The window after the last whose tap is inside."""
        last = self.extent - 1 + self.before - tap * self.dilation
        return maximum(minimum(last // self.stride + 1, self.windows), 0)


class _Images:
    """What both kernels begin with."""

    def __init__(self, name: str, dtype: DType, target: CpuTarget) -> None:
        self.b, self.lanes, self.dtype = KernelBuilder(name), target.lanes(dtype), dtype
        self.count = self.b.scalar("images")
        self.down, self.across = (
            Along(*[self.b.scalar(f"{axis}_{field}") for field in Along._fields]) for axis in "hw"
        )
        self.elements = self.down.extent * self.across.extent
        self.windows = self.down.windows * self.across.windows

    def inputs(self, *names: str) -> list[Buffer]:
        """Arrays with an element for each window."""
        return [self.b.arg(name, self.dtype, (self.count * self.windows,)) for name in names]

    def images(self, name: str) -> Buffer:
        return self.b.arg(name, self.dtype, (self.count * self.elements,))

    def clear(self, out: Buffer, start: Expr) -> None:
        i = Var("i")
        zero = Store(out, (start + i,), te.const(0, self.dtype))
        self.b.emit(vector_loop(i, as_expr(0), self.elements, self.lanes, zero))


def shares_kernel(dtype: DType, target: CpuTarget) -> Kernel:
    """Every element of a window gets what is given for it. Buffers: shares, result."""
    pools = _Images("window_shares", dtype, target)
    b, down, across = pools.b, pools.down, pools.across
    (shares,), out = pools.inputs("shares"), pools.images("out")
    with b.parallel("image", pools.count) as image:
        start = b.let("start", image * pools.elements)
        given = b.let("given", image * pools.windows)
        pools.clear(out, start)
        with b.loop("row", down.windows) as row, b.loop("kh", down.size) as kh:
            line = b.let("line", down.place(row, kh))
            with b.when((line >= 0) & (line < down.extent)), b.loop("kw", across.size) as kw:
                first = b.let("first", across.first(kw))
                to = b.let("to", start + line * across.extent + across.place(first, kw))
                of = b.let("of", given + row * across.windows + first)
                with b.loop("column", across.end(kw) - first) as column:
                    at = b.let("at", to + column * across.stride)
                    b.store(out, at, out[at] + shares[of + column])
    return lower_vectors(b.finish())


def first_largest_kernel(dtype: DType, target: CpuTarget) -> Kernel:
    """The first largest element of a window, or NaN, gets what is given for it. Buffers: what is
    given, the images, their pools, result."""
    pools = _Images("first_largest", dtype, target)
    b, down, across, lanes = pools.b, pools.down, pools.across, pools.lanes
    given, x = pools.inputs("given")[0], pools.images("x")
    tops, out = pools.inputs("tops")[0], pools.images("out")
    with b.parallel("image", pools.count) as image:
        start = b.let("start", image * pools.elements)
        windows = b.let("windows", image * pools.windows)
        pools.clear(out, start)
        places = b.alloc("places", INT64, (lanes,))
        blocks = b.let("blocks", (across.windows + (lanes - 1)) // lanes)
        with b.loop("row", down.windows) as row, b.loop("block", blocks) as block:
            first = b.let("first", block * lanes)
            own = b.let("own", windows + row * across.windows + first)
            count = b.let("count", minimum(across.windows - first, lanes))
            with b.vector("lane", lanes) as lane:
                found = _found(pools, x, tops, start, own, row, first, count, lane)
                b.store(places, lane, found)
            with b.loop("each", count) as each:
                place = b.let("place", places[each])
                with b.when(place >= 0):
                    at = b.let("at", start + place)
                    b.store(out, at, out[at] + given[own + each])
    return lower_vectors(b.finish())


def _found(
    pools: _Images, x: Buffer, tops: Buffer, start: Expr, own: Expr, row: Expr, first: Expr, count: Expr, lane: Expr
) -> Expr:
    """Where in the image the first element stands that is the largest of its window; taps are
    asked from the last to the first."""
    b, down, across = pools.b, pools.down, pools.across
    here = b.let("here", lane < count)
    top = b.let("top", masked_load(tops, (own + lane,), here))
    found = b.alloc("found", INT64, (), scope="register")
    b.store(found, (), as_expr(NOWHERE))
    with b.loop("kh", down.size) as kh:
        line = b.let("line", down.place(row, down.size - 1 - kh))
        with b.when((line >= 0) & (line < down.extent)), b.loop("kw", across.size) as kw:
            column = b.let("column", across.place(first + lane, across.size - 1 - kw))
            inside = b.let("inside", here & (column >= 0) & (column < across.extent))
            place = b.let("place", line * across.extent + column)
            value = b.let("value", masked_load(x, (start + place,), inside))
            largest = inside & (value.equal(top) | te.isnan(value))
            b.store(found, (), te.select(largest, place, found[()]))
    return found[()]
