"""Sums over windows in NCHW, of which any number is a constant or an argument: convolutions, and their transposes in
data.

    out[n, c, y, x] = bias[c] + sum over channels r, taps t of source[n, r, ...] * weight[c, r, t]

Along an axis, result number b * out_step + rest is made from the sources b * step + (sign * (t * dilation - before) +
rest) / out_step, of the taps t for which that is whole. In a convolution all windows have the same taps: out_step is 1.
In its transpose, of sign -1, results are parts, by remainder by the strides, that have taps of their own.
"""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

from ....base.dtype import DType
from ....te.build import UNBOUNDED, KernelBuilder
from ....te.expr import Expr, ExprLike, as_expr, call, cast, const, maximum, minimum, select
from ....te.extents import passed
from ....te.loops import Buffer
from ..taps import Line, Reach
from ..tile_walk import lanes_from

Number = Any  # an int or an Extent


class WindowAxis(NamedTuple):
    sources: Number
    results: Number
    taps: Number
    step: Number
    out_step: Number
    sign: Number
    before: Number
    dilation: Number
    tap_step: Number  # from a tap that stands on a source to the next
    common: Number  # the greatest common divisor of out_step and dilation
    inverse: Number  # of dilation / common modulo tap_step

    @classmethod
    def of(cls, line: Line) -> WindowAxis:
        size, stride, before, _, dilation = line.window
        if not line.transposed:
            return cls(line.sources, line.outs, size, stride, 1, 1, before, dilation, 1, 1, 0)
        common = gcd(stride, dilation)
        inverse = pow(dilation // common, -1, stride // common)
        numbers = (before, dilation, stride // common, common, inverse)
        return cls(line.sources, line.outs, size, 1, stride, -1, *numbers)

    @property
    def spread(self) -> Number:
        """How far apart the sources of a result are at most."""
        return (self.taps - 1) * self.dilation // self.out_step

    @property
    def results_of_part(self) -> Number:
        """At most."""
        return (self.results + (self.out_step - 1)) // self.out_step


class WindowSum(NamedTuple):
    """Channels are of a group: `deep` of them are read, `rows` are made. `row` and `channel` are the steps of the
    weight from one of those to the next."""

    images: Number
    groups: Number
    deep: Number
    rows: Number
    row: Number
    channel: Number
    down: WindowAxis
    across: WindowAxis

    @classmethod
    def of(cls, images: Number, groups: Number, deep: Number, rows: Number, down: Line, across: Line) -> WindowSum:
        taps = down.window.size * across.window.size
        row, channel = (taps, rows * taps) if down.transposed else (deep * taps, taps)
        return cls(images, groups, deep, rows, row, channel, WindowAxis.of(down), WindowAxis.of(across))

    @classmethod
    def of_numbers(cls, numbers: list[Number]) -> WindowSum:
        """The inverse of `numbers`."""
        first, size = len(cls._fields) - 2, len(WindowAxis._fields)
        axes = [WindowAxis(*numbers[at : at + size]) for at in (first, first + size)]
        return cls._make([*numbers[:first], *axes])

    @property
    def numbers(self) -> tuple[Number, ...]:
        return (*self[:-2], *self.down, *self.across)

    @property
    def source(self) -> tuple[Number, ...]:
        """The shapes of what is read and made."""
        return self.images, self.groups * self.deep, self.down.sources, self.across.sources

    @property
    def filters(self) -> tuple[Number, ...]:
        return self.groups * self.rows, self.deep, self.down.taps, self.across.taps

    @property
    def out(self) -> tuple[Number, ...]:
        return self.images, self.groups * self.rows, self.down.results, self.across.results

    @property
    def parts(self) -> Number:
        return self.down.out_step * self.across.out_step

    @property
    def work(self) -> Number:
        """Products."""
        total = self.images * self.groups * self.rows * self.deep * self.down.results * self.across.results
        return total * (self.down.taps * self.across.taps) // self.parts


def parted(b: KernelBuilder, number: ExprLike, by: ExprLike) -> tuple[Expr, Expr]:
    """How many times one number, which is not negative, has another that is positive, and what is left."""
    divided = cast(as_expr(number), "uint64") // cast(as_expr(by), "uint64")
    times = b.let("times", cast(divided, "int64"))
    return times, b.let("rest", as_expr(number) - times * by)


class Images(NamedTuple):
    """What windows stand on. Steps are in elements."""

    height: Expr
    width: Expr
    image: Expr  # from an image to the next, and from a channel to the next
    plane: Expr
    down: Expr  # from a window to the next
    across: Expr


class Results(NamedTuple):
    """The pixels that windows make, which may be every so many pixels of their images."""

    image: Expr
    plane: Expr
    width: Expr
    down: Expr  # from a pixel that windows make to the next
    across: Expr


class Part(NamedTuple):
    """Results that the same taps reach: how many rows and columns of them there are in an image, the first of them, and
    the taps, with what is lowest and highest of the sources that those stand on, from the first result on."""

    rows: Expr
    columns: Expr
    first_row: Expr
    first_column: Expr
    y: Reach
    x: Reach
    lowest_dy: Expr
    highest_dy: Expr
    lowest_dx: Expr
    highest_dx: Expr
    taps: Expr


class Windows:
    """The numbers of a sum, computed in a turn of a kernel."""

    def __init__(self, b: KernelBuilder, job: WindowSum) -> None:
        self.b, self.job = b, job
        _, channels, height, width = job.source
        _, outputs, rows, columns = job.out
        images = (height, width, channels * height * width, height * width, job.down.step, job.across.step)
        results = (outputs * rows * columns, rows * columns, columns, job.down.out_step, job.across.out_step)
        self.images = Images(*[self.number(name, n) for name, n in zip(Images._fields, images)])
        self.results = Results(*[self.number(name, n) for name, n in zip(Results._fields, results)])

    def number(self, name: str, number: Number) -> Expr:
        """A number that the kernel is given, or computes once in a turn."""
        return self.b.let(name, passed(name, number))

    def part(self, number: Expr) -> Part:
        b, job = self.b, self.job
        row, column = parted(b, number, job.across.out_step)
        rows, y, (top, bottom) = self._results(job.down, row)
        columns, x, (left, right) = self._results(job.across, column)
        return Part(rows, columns, row, column, y, x, top, bottom, left, right, b.let("taps", y.taps * x.taps))

    def _results(self, axis: WindowAxis, rest: Expr) -> tuple[Expr, Reach, tuple[Expr, Expr]]:
        """How many there are along an axis, their taps, and the lowest and highest source of the first."""
        b, whole, step = self.b, axis.out_step, axis.tap_step
        length = self._counted(axis.results, whole, rest)
        _, first = parted(b, parted(b, rest + axis.before, axis.common)[0] * axis.inverse, step)
        offset = b.let("offset", (first * axis.dilation - axis.before) * axis.sign + rest)
        at = b.let("at", offset // whole)
        taps = b.let("taps", select((at * whole).equal(offset), self._counted(axis.taps, step, first), 0))
        found = Reach(taps, first, step, at, self.number("distance", step * axis.dilation // whole * axis.sign))
        last = b.let("last", at + maximum(taps - 1, 0) * found.distance)
        return length, found, (b.let("lowest", minimum(at, last)), b.let("highest", maximum(at, last)))

    def _counted(self, end: Number, step: Number, first: Expr) -> Expr:
        """How many numbers there are below an end, from a first one on, which is less than a step."""
        most, last = self.number("most", (end + (step - 1)) // step), self.number("last", (end - 1) % step)
        return self.b.let("count", most - select(first > last, 1, 0))

    def mend(
        self, part: Part, buffers: Buffers, y: Expr, x: Expr, source: Expr, weight: Expr, at: Expr, bias: Expr
    ) -> None:
        """Computes a result again of which a tap stands outside, if it is NaN or infinite: zeros stand for what is
        there, which infinite weights make NaN of. `y` and `x` are where the tap (0, 0) of the result stands, `source`
        and `weight` the first channels, `at` the place of the result."""
        b, images, out = self.b, self.images, buffers.out
        inside = (y + part.lowest_dy >= 0) & (y + part.highest_dy < images.height)
        inside &= (x + part.lowest_dx >= 0) & (x + part.highest_dx < images.width)
        made = b.let("made", out[0, at])
        with b.when(~inside & call("isnan", made * 0.0)):
            total = b.registers("total", out.dtype, start=bias)
            with b.loop("p", part.y.taps) as p, b.loop("q", part.x.taps) as q:
                row, column = (b.let("at", o + r.at + n * r.distance) for o, r, n in ((y, part.y, p), (x, part.x, q)))
                there = (row >= 0) & (row < images.height) & (column >= 0) & (column < images.width)
                with b.when(there), b.loop("channel", self.job.deep) as channel:
                    value = buffers.source[source + channel * images.plane, row * images.width + column]
                    factor = buffers.weight[weight + channel * self.job.channel, self.tap_of(part, p, q)]
                    b.store(total, (), total[()] + value * factor)
            b.store(out, (0, at), total[()])

    def tap_of(self, part: Part, p: Expr, q: Expr) -> Expr:
        """Where the weight of a part's tap is."""
        return (part.y.first + p * part.y.step) * self.job.across.taps + part.x.first + q * part.x.step


class Buffers(NamedTuple):
    """Of a kernel, each addressed by two numbers that add up."""

    source: Buffer
    weight: Buffer
    out: Buffer
    bias: Buffer | None = None

    @classmethod
    def of(cls, b: KernelBuilder, dtype: DType, has_bias: bool = False) -> Buffers:
        names = cls._fields if has_bias else cls._fields[:3]
        return cls(*[b.arg(name, dtype, (UNBOUNDED, UNBOUNDED), strides=(1, 1)) for name in names])

    def bias_of(self, channel: Expr) -> Expr:
        return const(0, self.out.dtype) if self.bias is None else self.bias[0, channel]


class NonFinite:
    """A vector in registers: 0 until it has seen a value that is not finite, then NaN."""

    def __init__(self, b: KernelBuilder, dtype: DType, lanes: int) -> None:
        self.b, self.lanes = b, lanes
        self.seen = b.registers("seen", dtype, lanes=lanes)

    def see(self, value: Expr, mask: Expr | None = None) -> None:
        nothing = value * 0.0  # of what is finite
        given = nothing if mask is None else select(mask, nothing, 0.0)
        self.b.store(self.seen, (), self.seen[()] + given)

    def some(self) -> Expr:
        """Whether there was one."""
        b, dtype = self.b, self.seen.dtype
        lanes = b.alloc("lanes", dtype, (self.lanes,))
        b.store(lanes, lanes_from(0, self.lanes), self.seen[()])
        total = b.registers("total", dtype)
        with b.loop("lane", self.lanes) as lane:
            b.store(total, (), total[()] + lanes[lane])
        return b.let("some", call("isnan", total[()]))
