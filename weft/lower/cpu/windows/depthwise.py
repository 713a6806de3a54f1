"""Convolutions whose groups have one channel to read, and their transposes in data and in weights,
with extents as arguments, in NCHW. Each output is made from one plane of the source.

Each turn copies a rectangle of a plane, with zeros around it, split by remainder of the columns by
the step across: so what a tap reads for neighbouring windows is a vector. Taps stand in a table of
(place in the copy, where the weight is).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, Var, binary, call, const
from ....te.loops import Buffer, Kernel
from ....te.visit import masked_load
from ..matrices.open_tile import ceil_div, lanes_from
from .nonfinite import NonFinite
from .patches import UNBOUNDED, Part, part_at, scalars, window_arguments

TAP_FIELDS = 2
ROWS = 7  # rows of windows side by side in registers: all or a half of most images' heights
TAPS = 9  # taps side by side in registers
MAX_TAPS = 1024  # of a filter whose gradient is summed
SUMMED = 4096  # elements of a turn of the kernel that adds parts


class Copies(NamedTuple):
    """Scalars: the rectangles that are copied, and steps in a copy."""

    rows: Var  # windows of a rectangle, and rectangles of a plane
    columns: Var
    bands: Var
    blocks: Var
    pitch: Var  # from a row to the next
    remainder: Var  # from columns of one remainder to those of the next
    outputs: Var  # planes that are made
    sharing: Var  # how many of them are made from one plane of the source


def copied_elements(dtype: DType, target: CpuTarget) -> int:
    """Of a plane: as many as stay in the first cache."""
    return target.caches[0] // dtype.itemsize


class _Planes:
    """What both kernels have in common."""

    def __init__(self, b: KernelBuilder, target: CpuTarget, dtype: DType, factors: Sequence[str]) -> None:
        self.b, self.dtype, self.lanes = b, dtype, target.lanes(dtype)
        self.copied = copied_elements(dtype, target)
        self.source = b.arg("source", dtype, (UNBOUNDED,))
        self.factors = [b.arg(name, dtype, (UNBOUNDED,)) for name in factors]
        given = window_arguments(b, dtype, (UNBOUNDED,))
        self.taps, self.parts, self.out, self.nonfinite = given[:4]
        self.images, self.results = given.images, given.results
        self.copies = scalars(b, Copies, "copies")

    def room(self) -> Buffer:
        """For a copy, and what vectors read past its end."""
        elements = self.copied + 2 * self.lanes
        return self.b.alloc("copy", self.dtype, (elements,), alignment=64)

    def rectangle(self, part: Part, band: Expr, block: Expr) -> None:
        b, copies = self.b, self.copies
        self.part = part
        self.y, self.x = b.let("y", band * copies.rows), b.let("x", block * copies.columns)
        self.rows = b.let("rows", binary("min", copies.rows, part.rows - self.y))
        self.columns = b.let("columns", binary("min", copies.columns, part.columns - self.x))

    def copy(self, room: Buffer, image: Expr, output: Expr) -> None:
        """Copies what the windows of the rectangle stand on; zeros where there is nothing."""
        b, part, images = self.b, self.part, self.images
        plane = image * images.image + output // self.copies.sharing * images.plane
        top = b.let("top", self.y * images.down + part.lowest_dy)
        high = (self.rows - 1) * images.down + (part.highest_dy - part.lowest_dy + 1)
        wide = self.columns + (part.highest_dx - part.lowest_dx) // images.across
        with b.loop("remainder", images.across) as remainder, b.loop("row", high) as row:
            to = b.let("to", remainder * self.copies.remainder + row * self.copies.pitch)
            y = b.let("y", top + row)
            inside = b.let("inside", (y >= 0) & (y < images.height))
            first = b.let("first", self.x * images.across + part.lowest_dx + remainder)
            start = b.let("start", plane + y * images.width)
            with b.when(images.across.equal(1)):
                self._copy_row(room, to, wide, inside, first, start, 1)
            with b.otherwise():
                self._copy_row(room, to, wide, inside, first, start, images.across)

    def _copy_row(
        self, room: Buffer, to: Expr, wide: Expr, inside: Expr, first: Expr, start: Expr, step: Expr | int
    ) -> None:
        b, lanes = self.b, self.lanes
        with b.loop("v", ceil_div(wide, lanes)) as v:
            column = lanes_from(first + (v * lanes) * step, lanes, step)
            mask = (column >= 0) & (column < self.images.width) & inside
            at = lanes_from(start + first + (v * lanes) * step, lanes, step)
            value = masked_load(self.source, (at,), mask)
            b.store(room, lanes_from(to + v * lanes, lanes), value)

    def row_of_results(self, image: Expr, output: Expr, y: Expr) -> Expr:
        """Where the first result of a row of the rectangle is."""
        results, part = self.results, self.part
        row = (self.y + y) * results.down + part.first_row
        column = self.x * results.across + part.first_column
        return image * results.image + output * results.plane + row * results.width + column


# Results.


class DepthwiseTurns(NamedTuple):
    taps: Var  # of a filter
    images: Var
    turns: Var


def depthwise_kernel(target: CpuTarget, dtype: DType) -> Kernel:
    """The kernel over buffers source, weight, bias, taps, parts, out, and `nonfinite`: a vector whose
    elements become NaN where results are NaN or infinite."""
    b = KernelBuilder(f"open_depthwise_{dtype.name}")
    planes = _Planes(b, target, dtype, ("weight", "bias"))
    cut = scalars(b, DepthwiseTurns, "turns")
    copies = planes.copies
    with b.parallel("turn", cut.turns) as turn:
        block, rest = b.let("block", turn % copies.blocks), b.let("rest", turn // copies.blocks)
        band, rest = b.let("band", rest % copies.bands), b.let("rest", rest // copies.bands)
        output = b.let("output", rest % copies.outputs)
        rest = b.let("rest", rest // copies.outputs)
        image, number = b.let("image", rest % cut.images), b.let("number", rest // cut.images)
        planes.rectangle(part_at(b, planes.parts, number), band, block)
        with b.when((planes.rows > 0) & (planes.columns > 0)):
            room = planes.room()
            planes.copy(room, image, output)
            bias = b.let("bias", planes.factors[1][output])
            results = _Results(planes, room, image, output, bias)
            results.write(b.let("filter", output * cut.taps))
    return b.finish()


class _Results:
    """Writes the results of a rectangle."""

    def __init__(self, planes: _Planes, room: Buffer, image: Expr, output: Expr, bias: Expr) -> None:
        self.planes, self.room = planes, room
        self.image, self.output, self.bias = image, output, bias

    def write(self, filters: Expr) -> None:
        planes = self.planes
        b, lanes = planes.b, planes.lanes
        nonfinite = NonFinite(b, planes.dtype, lanes)
        with b.loop("v", ceil_div(planes.columns, lanes)) as v:
            column = b.let("column", v * lanes)
            there = b.let("there", lanes_from(column, lanes) < planes.columns)
            with b.loop("group", ceil_div(planes.rows, ROWS)) as group:
                y = b.let("y", group * ROWS)
                sums = self._sums(filters, y, column)
                for i in range(ROWS):
                    value = b.let("value", sums[i] + self.bias)
                    with b.when(y + i < planes.rows):
                        self._store(y + i, column, value, there)
                        nonfinite.see(value, there)
        nonfinite.tell(planes.nonfinite)

    def _sums(self, filters: Expr, y: Expr, column: Expr) -> Buffer:
        planes = self.planes
        b, lanes, part = planes.b, planes.lanes, planes.part
        sums = b.alloc("sums", planes.dtype, (ROWS,), scope="register", lanes=lanes)
        for i in range(ROWS):
            b.store(sums, i, const(0, planes.dtype))
        step = b.let("step", planes.images.down * planes.copies.pitch)
        rows = [b.let("row", binary("min", y + i, planes.rows - 1) * step + column) for i in range(ROWS)]
        with b.loop("tap", part.taps) as tap:
            at = b.let("at", (part.first_tap + tap) * TAP_FIELDS)
            place = b.let("place", planes.taps[at])
            weight = b.let("weight", planes.factors[0][filters + planes.taps[at + 1]])
            for i, row in enumerate(rows):
                value = self.room[lanes_from(row + place, lanes)]
                b.store(sums, i, call("fma", value, weight, sums[i]))
        return sums

    def _store(self, y: Expr, column: Expr, value: Expr, there: Expr) -> None:
        planes = self.planes
        b, lanes, across = planes.b, planes.lanes, planes.results.across
        start = b.let("start", planes.row_of_results(self.image, self.output, y))
        with b.when(across.equal(1)):
            b.store(planes.out, lanes_from(start + column, lanes), value, there)
        with b.otherwise():
            b.store(planes.out, lanes_from(start + column * across, lanes, across), value, there)


# Filters.


class DepthwiseFilterTurns(NamedTuple):
    taps: Var
    images: Var  # of a split, of all that there are
    all_images: Var
    turns: Var


def depthwise_filters_kernel(target: CpuTarget, dtype: DType) -> Kernel:
    """The kernel over buffers source, windows, taps, parts (of which there is one), out, which has
    a copy for each split of the images, and `nonfinite`."""
    b = KernelBuilder(f"open_depthwise_filters_{dtype.name}")
    planes = _Planes(b, target, dtype, ("windows",))
    cut = scalars(b, DepthwiseFilterTurns, "turns")
    copies, lanes = planes.copies, planes.lanes
    with b.parallel("turn", cut.turns) as turn:
        output = b.let("output", turn % copies.outputs)
        split = b.let("split", turn // copies.outputs)
        part = part_at(b, planes.parts, const(0, "int64"))
        sums = b.alloc("sums", dtype, (MAX_TAPS * lanes,), alignment=64)
        with b.loop("tap", cut.taps) as tap:
            b.store(sums, lanes_from(tap * lanes, lanes), const(0, dtype))
        first = b.let("first", split * cut.images)
        count = b.let("count", binary("min", cut.images, cut.all_images - first))
        room = planes.room()
        with (
            b.loop("image", count) as number,
            b.loop("band", copies.bands) as band,
            b.loop("block", copies.blocks) as block,
        ):
            image = b.let("image", first + number)
            planes.rectangle(part, band, block)
            planes.copy(room, image, output)
            _add_windows(planes, room, sums, image, output)
        _write_filter(planes, sums, turn, cut.taps)
    return b.finish()


def _add_windows(planes: _Planes, room: Buffer, sums: Buffer, image: Expr, output: Expr) -> None:
    """Adds the products of a rectangle to the sums of all taps, some of them at a time."""
    b, lanes, part = planes.b, planes.lanes, planes.part
    step = b.let("step", planes.images.down * planes.copies.pitch)
    with b.loop("taps", ceil_div(part.taps, TAPS)) as group:
        numbers = [b.let("tap", binary("min", group * TAPS + i, part.taps - 1)) for i in range(TAPS)]
        places = [b.let("place", planes.taps[number * TAP_FIELDS]) for number in numbers]
        made = b.alloc("made", planes.dtype, (TAPS,), scope="register", lanes=lanes)
        for i, number in enumerate(numbers):
            b.store(made, i, sums[lanes_from(number * lanes, lanes)])
        with b.loop("y", planes.rows) as y:
            start = b.let("start", planes.row_of_results(image, output, y))
            with b.loop("v", ceil_div(planes.columns, lanes)) as v:
                there = b.let("there", lanes_from(v * lanes, lanes) < planes.columns)
                at = lanes_from(start + v * lanes, lanes)
                window = b.let("window", masked_load(planes.factors[0], (at,), there))
                row = b.let("row", y * step + v * lanes)
                for i, place in enumerate(places):
                    read = masked_load(room, (lanes_from(row + place, lanes),), there)
                    b.store(made, i, call("fma", window, read, made[i]))
        for i, number in enumerate(numbers):
            b.store(sums, lanes_from(number * lanes, lanes), made[i])


def _write_filter(planes: _Planes, sums: Buffer, turn: Expr, taps: Expr) -> None:
    """The sums over the lanes of each tap."""
    b, lanes = planes.b, planes.lanes
    nonfinite = NonFinite(b, planes.dtype, 1)
    with b.loop("tap", taps) as tap:
        total = b.alloc("total", planes.dtype, (), scope="register")
        b.store(total, (), const(0, planes.dtype))
        with b.loop("lane", lanes) as lane:
            b.store(total, (), total[()] + sums[tap * lanes + lane])
        nonfinite.see(total[()])
        b.store(planes.out, turn * taps + tap, total[()])
    nonfinite.tell(planes.nonfinite)


def added_parts_kernel(target: CpuTarget, dtype: DType) -> Kernel:
    """out[i] = the sum over some parts of parts[part * length + i], in their order."""
    b, lanes = KernelBuilder(f"open_added_parts_{dtype.name}"), target.lanes(dtype)
    parts, out = b.arg("parts", dtype, (UNBOUNDED,)), b.arg("out", dtype, (UNBOUNDED,))
    count, length, turns = b.scalar("count"), b.scalar("length"), b.scalar("turns")
    with b.parallel("turn", turns) as turn:
        first = b.let("first", turn * SUMMED)
        left = b.let("left", binary("min", SUMMED, length - first))
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
