"""Sums over windows whose groups have one channel to read, and their transposes in weights: each output is made from
one plane of the source.

Each turn copies rectangles of a plane, with zeros around them, split by remainder of the columns by
the step across: so what a tap reads for neighbouring windows is a vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, binary, call, const
from ....te.extents import greater, lesser, passed
from ....te.loops import Buffer, Kernel
from ....te.visit import masked_load
from ..tile_walk import ceil_div, lanes_from
from .window_sum import Buffers, NonFinite, Number, Part, Windows, WindowSum, parted

FEW_OUTPUTS = 4  # of a plane, for which tiles would be mostly empty
ROWS = 7  # rows of windows side by side in registers: all or a half of most images' heights
TAPS = 9  # taps side by side in registers
MAX_TAPS = 1024  # of a filter
TURN_RESULTS = 2048  # of a turn, which makes several planes where these are small
NARROW = (1024, 256, 64, 32, 16)  # columns of copies of planes that are too wide as a whole


class Copies(NamedTuple):
    """The rectangles that are copied, and steps in a copy."""

    rows: Number  # windows of a rectangle, and rectangles of a plane
    columns: Number
    bands: Number
    blocks: Number
    pitch: Number  # from a row to the next
    remainder: Number  # from columns of one remainder to those of the next


def copies_of(job: WindowSum, target: CpuTarget, dtype: DType) -> Copies | None:
    """Rectangles of planes that stay in the first cache; None where none fits, or patches are the better choice."""
    if job.deep != 1 or job.rows > FEW_OUTPUTS or job.down.taps * job.across.taps > MAX_TAPS:
        return None
    room, (down, across) = _room(target, dtype), (job.down, job.across)
    most_rows, most_columns = down.results_of_part, across.results_of_part
    for limit in (most_columns, *NARROW):
        columns = lesser(limit, most_columns)
        pitch = columns + across.spread // across.step
        rows = (room // (across.step * pitch) - down.spread - 1) // down.step + 1
        if rows >= lesser(most_rows, ROWS):
            break
    else:
        return None
    bands, blocks = -(-most_rows // rows), -(-most_columns // columns)
    rows = -(-most_rows // bands)
    return Copies(rows, columns, bands, blocks, pitch, ((rows - 1) * down.step + down.spread + 1) * pitch)


def _room(target: CpuTarget, dtype: DType) -> int:
    """Elements of a copy."""
    return target.caches[0] // dtype.itemsize


class _Planes:
    """What both kernels have in common, in one turn."""

    def __init__(self, b: KernelBuilder, job: WindowSum, copies: Copies, target: CpuTarget, buffers: Buffers) -> None:
        self.b, self.job, self.buffers = b, job, buffers
        self.dtype = buffers.out.dtype
        self.lanes, self.elements = target.lanes(self.dtype), _room(target, self.dtype)
        self.windows = Windows(b, job)
        self.images, self.results = self.windows.images, self.windows.results
        self.copies = Copies(*[self.windows.number(name, n) for name, n in zip(Copies._fields, copies)])

    def start(self, part: Part) -> None:
        """Notes where the taps of a part are read in a copy, and where their weights are."""
        b, copies, windows = self.b, self.copies, self.windows
        self.part = part
        self.room = b.alloc("copy", self.dtype, (self.elements + 2 * self.lanes,), alignment=64)  # vectors read past it
        self.places, self.weights = (b.alloc(name, "int64", (MAX_TAPS,)) for name in ("places", "weights"))
        with b.loop("q", part.x.taps) as q:
            right = b.let("right", part.x.at + q * part.x.distance - part.lowest_dx)
            times, rest = parted(b, right, self.images.across)
            column = b.let("column", times + rest * copies.remainder + (part.y.at - part.lowest_dy) * copies.pitch)
            with b.loop("p", part.y.taps) as p:
                number = b.let("number", p * part.x.taps + q)
                b.store(self.places, number, column + p * part.y.distance * copies.pitch)
                b.store(self.weights, number, windows.tap_of(part, p, q))

    @contextmanager
    def outputs(self, chunk: Expr, per: Number) -> Iterator[Expr]:
        """Those of a turn."""
        b = self.b
        first = b.let("first", chunk * per)
        with b.loop("number", binary("min", per, self.job.out[1] - first)) as number:
            yield b.let("output", first + number)

    def rectangle(self, band: Expr, block: Expr) -> None:
        b, copies, part = self.b, self.copies, self.part
        self.y, self.x = b.let("y", band * copies.rows), b.let("x", block * copies.columns)
        self.rows = b.let("rows", binary("min", copies.rows, part.rows - self.y))
        self.columns = b.let("columns", binary("min", copies.columns, part.columns - self.x))

    def copy(self, plane: Expr) -> None:
        """Copies what the windows of the rectangle stand on; zeros where there is nothing."""
        b, part, images = self.b, self.part, self.images
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
                self._copy_row(to, wide, inside, first, start, 1)
            with b.otherwise():
                self._copy_row(to, wide, inside, first, start, images.across)

    def _copy_row(self, to: Expr, wide: Expr, inside: Expr, first: Expr, start: Expr, step: Expr | int) -> None:
        b, lanes = self.b, self.lanes
        with b.loop("v", ceil_div(wide, lanes)) as v:
            column = lanes_from(first + (v * lanes) * step, lanes, step)
            mask = (column >= 0) & (column < self.images.width) & inside
            at = lanes_from(first + (v * lanes) * step, lanes, step)
            value = masked_load(self.buffers.source, (start, at), mask)
            b.store(self.room, lanes_from(to + v * lanes, lanes), value)

    def row_of_results(self, plane: Expr, y: Expr) -> Expr:
        """Where the first result of a row of the rectangle is."""
        results, part = self.results, self.part
        row = (self.y + y) * results.down + part.first_row
        return plane + row * results.width + self.x * results.across + part.first_column


def planes_kernel(name: str, job: WindowSum, copies: Copies, target: CpuTarget, dtype: DType, has_bias: bool) -> Kernel:
    """The kernel of a sum over `Buffers`."""
    b = KernelBuilder(name)
    buffers = Buffers.of(b, dtype, has_bias)
    chunks, per = _chunks(job)
    with b.parallel("turn", copies.bands * copies.blocks * job.images * chunks * job.parts) as turn:
        planes = _Planes(b, job, copies, target, buffers)
        rest, block = parted(b, turn, planes.copies.blocks)
        rest, band = parted(b, rest, planes.copies.bands)
        rest, chunk = parted(b, rest, chunks)
        number, image = parted(b, rest, job.images)
        planes.start(planes.windows.part(number))
        planes.rectangle(band, block)
        with b.when((planes.rows > 0) & (planes.columns > 0)), planes.outputs(chunk, per) as output:
            source = b.let("source", image * planes.images.image + parted(b, output, job.rows)[0] * planes.images.plane)
            planes.copy(source)
            _Results(planes, source, image, output).write()
    return b.finish()


def _chunks(job: WindowSum, results: Number = 1) -> tuple[Number, Number]:
    """How many turns the outputs are, and how many are of a turn, where each has `results` planes."""
    results = results * job.down.results_of_part * job.across.results_of_part
    per = passed("per", greater(TURN_RESULTS // results, 1))
    return passed("chunks", -(-job.out[1] // per)), per


class _Results:
    """Writes the results of a rectangle."""

    def __init__(self, planes: _Planes, source: Expr, image: Expr, output: Expr) -> None:
        b, job = planes.b, planes.job
        self.planes, self.source = planes, source
        self.plane = b.let("plane", image * planes.results.image + output * planes.results.plane)
        self.filter = b.let("filter", output * (job.down.taps * job.across.taps))
        self.bias = b.let("bias", planes.buffers.bias_of(output))

    def write(self) -> None:
        planes = self.planes
        b, lanes = planes.b, planes.lanes
        nonfinite = NonFinite(b, planes.dtype, lanes)
        with b.loop("v", ceil_div(planes.columns, lanes)) as v:
            column = b.let("column", v * lanes)
            there = b.let("there", lanes_from(column, lanes) < planes.columns)
            with b.loop("group", ceil_div(planes.rows, ROWS)) as group:
                y = b.let("y", group * ROWS)
                sums = self._sums(y, column)
                for i in range(ROWS):
                    value = b.let("value", sums[i] + self.bias)
                    with b.when(y + i < planes.rows):
                        self._store(y + i, column, value, there)
                        nonfinite.see(value, there)
        with b.when(nonfinite.some()), b.loop("y", planes.rows) as y, b.loop("x", planes.columns) as x:
            at = planes.row_of_results(self.plane, y) + x * planes.results.across
            above, left = (planes.y + y) * planes.images.down, (planes.x + x) * planes.images.across
            where = (b.let("above", above), b.let("left", left), self.source, self.filter, b.let("at", at))
            planes.windows.mend(planes.part, planes.buffers, *where, self.bias)

    def _sums(self, y: Expr, column: Expr) -> Buffer:
        planes = self.planes
        b, lanes = planes.b, planes.lanes
        sums = b.registers("sums", planes.dtype, (ROWS,), lanes=lanes)
        step = b.let("step", planes.images.down * planes.copies.pitch)
        rows = [b.let("row", binary("min", y + i, planes.rows - 1) * step + column) for i in range(ROWS)]
        with b.loop("tap", planes.part.taps) as tap:
            place = b.let("place", planes.places[tap])
            weight = b.let("weight", planes.buffers.weight[self.filter, planes.weights[tap]])
            for i, row in enumerate(rows):
                value = planes.room[lanes_from(row + place, lanes)]
                b.store(sums, i, call("fma", value, weight, sums[i]))
        return sums

    def _store(self, y: Expr, column: Expr, value: Expr, there: Expr) -> None:
        planes = self.planes
        b, lanes, across = planes.b, planes.lanes, planes.results.across
        start = b.let("start", planes.row_of_results(self.plane, y))
        with b.when(across.equal(1)):
            b.store(planes.buffers.out, (start, lanes_from(column, lanes)), value, there)
        with b.otherwise():
            b.store(planes.buffers.out, (start, lanes_from(column * across, lanes, across)), value, there)


# Filters.


def plane_filters_kernel(name: str, job: WindowSum, copies: Copies, target: CpuTarget, dtype: DType) -> Kernel:
    """The kernel of the transpose in weights of a convolution, over `Buffers`, where the windows stand for the weight,
    and what is made are filters."""
    b = KernelBuilder(name)
    buffers = Buffers.of(b, dtype)
    chunks, per = _chunks(job, job.images)
    taps = job.down.taps * job.across.taps
    with b.parallel("turn", chunks) as chunk:
        planes = _Planes(b, job, copies, target, buffers)
        lanes = planes.lanes
        planes.start(planes.windows.part(const(0, "int64")))
        sums = b.alloc("sums", dtype, (MAX_TAPS * lanes,), alignment=64)
        with planes.outputs(chunk, per) as output:
            with b.loop("tap", taps) as tap:
                b.store(sums, lanes_from(tap * lanes, lanes), const(0, dtype))
            source = b.let("source", parted(b, output, job.rows)[0] * planes.images.plane)
            made = b.let("made", output * planes.results.plane)
            with (
                b.loop("image", job.images) as image,
                b.loop("band", planes.copies.bands) as band,
                b.loop("block", planes.copies.blocks) as block,
            ):
                planes.rectangle(band, block)
                planes.copy(b.let("plane", source + image * planes.images.image))
                _add_windows(planes, sums, b.let("windows", made + image * planes.results.image))
            with b.loop("tap", taps) as tap:
                total = b.registers("total", dtype)
                with b.loop("lane", lanes) as lane:
                    b.store(total, (), total[()] + sums[tap * lanes + lane])
                with b.when(call("isnan", total[()] * 0.0)):
                    _sum_inside(planes, total, tap, source, made)
                b.store(buffers.out, (output * taps, tap), total[()])
    return b.finish()


def _add_windows(planes: _Planes, sums: Buffer, windows: Expr) -> None:
    """Adds the products of a rectangle to the sums of all taps, some of them at a time."""
    b, lanes, part = planes.b, planes.lanes, planes.part
    step = b.let("step", planes.images.down * planes.copies.pitch)
    with b.loop("taps", ceil_div(part.taps, TAPS)) as group:
        numbers = [b.let("tap", binary("min", group * TAPS + i, part.taps - 1)) for i in range(TAPS)]
        places = [b.let("place", planes.places[number]) for number in numbers]
        made = b.alloc("made", planes.dtype, (TAPS,), scope="register", lanes=lanes)
        for i, number in enumerate(numbers):
            b.store(made, i, sums[lanes_from(number * lanes, lanes)])
        with b.loop("y", planes.rows) as y:
            start = b.let("start", planes.row_of_results(windows, y))
            with b.loop("v", ceil_div(planes.columns, lanes)) as v:
                there = b.let("there", lanes_from(v * lanes, lanes) < planes.columns)
                at = lanes_from(v * lanes, lanes)
                window = b.let("window", masked_load(planes.buffers.weight, (start, at), there))
                row = b.let("row", y * step + v * lanes)
                for i, place in enumerate(places):
                    read = masked_load(planes.room, (lanes_from(row + place, lanes),), there)
                    b.store(made, i, call("fma", window, read, made[i]))
        for i, number in enumerate(numbers):
            b.store(sums, lanes_from(number * lanes, lanes), made[i])


def _sum_inside(planes: _Planes, total: Buffer, tap: Expr, source: Expr, windows: Expr) -> None:
    """Sums again, over the windows in which the tap stands on an element: zeros stood for what is outside, of which
    infinite windows make NaN."""
    b, part, images, results = planes.b, planes.part, planes.images, planes.results
    dy = b.let("dy", part.y.at + tap // part.x.taps * part.y.distance)
    dx = b.let("dx", part.x.at + tap % part.x.taps * part.x.distance)
    b.store(total, (), const(0, planes.dtype))
    with b.loop("image", planes.job.images) as image, b.loop("y", part.rows) as y, b.loop("x", part.columns) as x:
        row, column = b.let("row", y * images.down + dy), b.let("column", x * images.across + dx)
        with b.when((row >= 0) & (row < images.height) & (column >= 0) & (column < images.width)):
            value = planes.buffers.source[source + image * images.image, row * images.width + column]
            window = planes.buffers.weight[windows + image * results.image, y * results.width + x]
            b.store(total, (), total[()] + value * window)
