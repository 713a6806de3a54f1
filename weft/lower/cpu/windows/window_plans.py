"""How open kernels of convolutions are called: extents come in, tables and scalars go out.

A sum over windows is one of two linear maps in data. In a convolution all windows have the same
taps. In its transpose the elements that windows stand on are parts, by remainder by the strides;
the windows that reach an element of a part are found by taps of its own.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....ops.nn._convolution import Convolution
from ....ops.nn._windows import Windows
from ..conv_filters import Form, chosen, open_sizes
from ..matrices.open_tile import tile_size
from ..taps import Line, Phase, phases
from . import depthwise
from . import patch_convolution as convolution
from .patches import Images, Part, Results

Shape = tuple[int, ...]
Table = NDArray[Any]

FEW_TURNS = 8  # turns that keep threads busy
PLANE_PART = 1 / 4  # of the rate of register tiles, which sums have whose vectors are read each time
MATRIX_PIXELS = 128  # of an image that is multiplied as a matrix
SUMMED_WINDOWS = 8192  # of the images in a split, whose products are added one after the other
SPLIT_BYTES = 1 << 21  # of what is packed for a split, unless the filters are larger
FEW_OUTPUTS = 4  # of a plane, for which tiles would be mostly empty
USEFUL = 0.6  # share of products with elements, below which zeros are not worth multiplying
MAX_PRODUCTS = 1 << 24  # that are kept at once
NARROW = (1024, 256, 64, 32, 16)  # columns of copies of planes that are too wide as a whole


class WindowPlan(NamedTuple):
    """The arguments of a call that depend on extents alone."""

    kind: str
    tables: tuple[Table, ...]  # taps and parts
    scalars: tuple[int, ...]
    out: Shape
    splits: int  # copies of the output, to be added
    turns: int
    work: float  # nanoseconds of one thread
    lanes: int  # of the vector that tells of results that are not finite
    outside: bool  # whether some tap of some window stands outside
    form: Form | None = None  # of the template of weight gradients
    pointwise: bool = False  # whether it is a product of the filters and each image as a matrix
    transposed: bool = False  # whether that is of the filters' transpose


class WindowSum(NamedTuple):
    """What is read and what is made, and how."""

    source: Shape
    out: Shape
    windows: Windows
    filters: Shape
    transposed: bool
    groups: int

    @property
    def steps(self) -> tuple[int, int]:
        """In the source, from a result to the next."""
        return (1, 1) if self.transposed else (self.windows[0].stride, self.windows[1].stride)

    @property
    def out_steps(self) -> tuple[int, int]:
        return (self.windows[0].stride, self.windows[1].stride) if self.transposed else (1, 1)

    @property
    def lines(self) -> list[list[Phase]]:
        """Results along each axis, with the taps that they have."""
        axes = zip(self.windows, self.out[2:], self.source[2:])
        return [phases(Line(*axis, self.transposed)) for axis in axes]

    @property
    def rows(self) -> int:
        """Result channels of a group."""
        return self.out[1] // self.groups

    @property
    def deep(self) -> int:
        """Source channels of a group."""
        return self.source[1] // self.groups

    @property
    def is_pointwise(self) -> bool:
        """Whether each result is made from one pixel, of images that are not tiny."""
        one_each = (1, 1) == self.filters[2:] == self.steps == self.out_steps
        one_each = one_each and self.source[2:] == self.out[2:] and not self.reaches_out
        return one_each and self.groups == 1 and prod(self.source[2:]) >= MATRIX_PIXELS

    @property
    def reaches_out(self) -> bool:
        for lines, step, extent in zip(self.lines, self.steps, self.source[2:]):
            for line in lines:
                low, high = _reach(line)
                if line.taps and (low < 0 or (line.length - 1) * step + high >= extent):
                    return True
        return False


def _reach(line: Phase) -> tuple[int, int]:
    distances = [distance for _, distance in line.taps]
    return min(distances, default=0), max(distances, default=0)


def forward_sum(conv: Convolution, x: Shape, w: Shape, out: Shape) -> WindowSum:
    """A convolution of x."""
    return WindowSum(x, out, conv.windows, w, False, conv.groups)


def transposed_sum(conv: Convolution, g: Shape, w: Shape, out: Shape) -> WindowSum:
    """The transpose in data of a convolution that makes what has the shape of g."""
    return WindowSum(g, out, conv.windows, w, True, conv.groups)


def _strides(job: WindowSum) -> tuple[int, ...]:
    """The scalars of Images and Results."""
    (_, channels, height, width), (_, outputs, rows, columns) = job.source, job.out
    images = (height, width, channels * height * width, height * width, *job.steps)
    results = (outputs * rows * columns, rows * columns, columns, *job.out_steps)
    assert len(images) == len(Images._fields)
    assert len(results) == len(Results._fields)
    return (*images, *results)


class _Place(NamedTuple):
    """Where a tap is, from the first result of its part on, and from the lowest tap on."""

    dy: int
    dx: int
    down: int
    right: int
    number: int


def _parts(job: WindowSum) -> tuple[list[_Place], list[tuple[int, ...]]]:
    """The taps of all parts, and the fields of Part of each."""
    taps: list[_Place] = []
    parts: list[tuple[int, ...]] = []
    across, (down_lines, across_lines) = job.filters[3], job.lines
    for y in down_lines:
        for x in across_lines:
            (top, bottom), (left, right) = _reach(y), _reach(x)
            own = [_Place(dy, dx, dy - top, dx - left, p * across + q) for p, dy in y.taps for q, dx in x.taps]
            reach = (top, bottom, left, right)
            parts.append((y.length, x.length, len(taps), len(own), *reach, y.first, x.first))
            assert len(parts[-1]) == len(Part._fields)
            taps += own
    return taps, parts


def _table(rows: Any) -> Table:
    return np.array(rows, np.int64).reshape(-1)


def _products(target: CpuTarget) -> float:
    """Of one thread in a nanosecond, in register tiles."""
    return target.facts.flops / 2e9


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def even_parts(total: int, parts: int, unit: int) -> int:
    """The size of so many nearly equal parts, in whole units."""
    return _ceil(_ceil(total, parts), unit) * unit


# Sums over windows.


def plan_sum(job: WindowSum, target: CpuTarget, dtype: DType) -> WindowPlan:
    if _is_planes(job):
        made = _plan_planes(job, target, dtype)
        if made is not None:
            return made
    places, parts = _parts(job)
    taps = [(place.dy, place.dx, place.number) for place in places]
    most = max(part[3] for part in parts)
    pixels = job.source[0] * max(part[0] * part[1] for part in parts)
    others = job.groups * len(parts)
    turn_pixels, turn_rows = _cut(job.rows, pixels, others, target, dtype)
    pixel_turns, row_turns = _ceil(pixels, turn_pixels), _ceil(job.rows, turn_rows)
    block = min(max(most, 1), convolution.MAX_DEPTH)
    turns = pixel_turns * row_turns * others
    blocks = (job.groups, block, convolution.MAX_DEPTH // block)
    cut = (turn_pixels, pixel_turns, turn_rows, row_turns, *blocks, job.source[0], turns)
    assert len(cut) == len(convolution.Turns._fields)
    scalars = (*_strides(job), *_weight_steps(job), *cut)
    products = prod(job.out) * job.deep * len(taps) / len(parts)
    work = products / _products(target) + prod(job.out)
    tables, lanes, outside = (_table(taps), _table(parts)), target.lanes(dtype), job.reaches_out
    made = WindowPlan("convolution", tables, scalars, job.out, 1, turns, work, lanes, outside)
    return made._replace(pointwise=job.is_pointwise, transposed=job.transposed)


def suits_taps(job: WindowSum) -> bool:
    """Whether few taps of a result stand on an element, so that a template that walks over those alone is better."""
    few = prod(job.source[2:]) <= USEFUL * prod(job.out[2:])
    return few and job.transposed and job.out_steps == (1, 1) and not _is_planes(job)


def _is_planes(job: WindowSum) -> bool:
    """Whether every channel is a group of its own, or nearly so."""
    return job.deep == 1 and job.rows <= FEW_OUTPUTS


def _weight_steps(job: WindowSum) -> tuple[int, ...]:
    """The fields of Weights."""
    taps = job.filters[2] * job.filters[3]
    row, channel = job.filters[1] * taps, taps
    if job.transposed:
        row, channel = channel, row
    return job.rows, job.deep, row, channel, job.rows * job.deep * taps


def _cut(rows: int, pixels: int, others: int, target: CpuTarget, dtype: DType) -> tuple[int, int]:
    """Pixels and channels of a turn: many, but enough turns for all threads."""
    size, most = tile_size(target, dtype), convolution.turn_vectors(target, dtype)
    total = _ceil(pixels, size.lanes)
    choices = [(most, convolution.MAX_ROWS), (most, 64)]
    choices += [(most // part, tall) for part, tall in ((2, 64), (2, 32), (4, 32), (4, 16))]
    vectors, tall = next(
        ((v, r) for v, r in choices if others * _ceil(total, v) * _ceil(rows, r) >= FEW_TURNS), choices[-1]
    )
    made = even_parts(total, _ceil(total, vectors), size.vectors)
    turn_rows = even_parts(rows, _ceil(rows, tall), size.rows)
    return min(made, most) * size.lanes, min(turn_rows, convolution.MAX_ROWS)


# Filters.


def plan_filters(job: WindowSum, target: CpuTarget, dtype: DType) -> WindowPlan:
    """The transpose in weights of a convolution: `job.out` is what its windows make."""
    if job.deep == 1 and job.rows <= FEW_OUTPUTS:
        made = _plan_plane_filters(job, target, dtype)
        if made is not None:
            return made
    lanes, taps, images = target.lanes(dtype), prod(job.filters[2:]), job.source[0]
    form = chosen(job.rows, job.deep, (lanes, lanes), open_sizes(target))
    wide, others = (job.rows, job.deep) if form.by_output else (job.deep, job.rows)
    windows, pixels = prod(job.out[2:]), prod((job.out if form.by_output else job.source)[2:])
    packed = job.groups * even_parts(wide, 1, lanes) * pixels  # elements of an image
    fitting = max(SPLIT_BYTES // dtype.itemsize, prod(job.filters)) // packed
    splits = _ceil(images, max(min(SUMMED_WINDOWS // windows, fitting), 1))
    turns = job.groups * _ceil(_ceil(wide, lanes), form.panels) * _ceil(others, form.others) * taps
    axes = zip(job.source[2:], job.out[2:], job.windows)
    numbers = [n for source, out, win in axes for n in (source, out, win.size, win.stride, win.before, win.dilation)]
    scalars = (images, job.groups, job.deep, job.rows, *numbers, turns)
    work = images * windows * prod(job.filters) / _products(target) + prod(job.filters)
    pointwise = job.is_pointwise and images * prod(job.filters) <= MAX_PRODUCTS
    return WindowPlan("filters", (), scalars, job.filters, splits, turns, work, lanes, False, form, pointwise)


# One plane of the source for each output.


class _Copies(NamedTuple):
    scalars: tuple[int, ...]  # the fields of Copies
    taps: list[tuple[int, int]]
    rectangles: int


def _copies(job: WindowSum, places: list[_Place], parts: Any, target: CpuTarget, dtype: DType) -> _Copies | None:
    """Rectangles of planes that fit; None if none does."""
    room, (down, across) = depthwise.copied_elements(dtype, target), job.steps
    most_rows, most_columns = (max(part[axis] for part in parts) for axis in (0, 1))
    high = max(part[5] - part[4] for part in parts)
    wide = max(part[7] - part[6] for part in parts) // across
    for limit in (most_columns, *NARROW):
        columns = min(limit, most_columns)
        pitch = columns + wide
        rows = (room // (across * pitch) - high - 1) // down + 1
        if rows >= min(most_rows, depthwise.ROWS):
            break
    else:
        return None
    bands, blocks = _ceil(most_rows, rows), _ceil(most_columns, columns)
    rows = _ceil(most_rows, bands)
    remainder = ((rows - 1) * down + high + 1) * pitch
    taps = [(p.right % across * remainder + p.down * pitch + p.right // across, p.number) for p in places]
    numbers = (rows, columns, bands, blocks, pitch, remainder, job.out[1], job.rows)
    assert len(numbers) == len(depthwise.Copies._fields)
    return _Copies(numbers, taps, bands * blocks)


def _plan_planes(job: WindowSum, target: CpuTarget, dtype: DType) -> WindowPlan | None:
    places, parts = _parts(job)
    copies = _copies(job, places, parts, target, dtype)
    if copies is None:
        return None
    turns = copies.rectangles * job.out[0] * job.out[1] * len(parts)
    taps = job.filters[2] * job.filters[3]
    scalars = (*_strides(job), *copies.scalars, taps, job.out[0], turns)
    work = prod(job.out) * (1 + len(places) / len(parts)) / (PLANE_PART * _products(target))
    tables, lanes = (_table(copies.taps), _table(parts)), target.lanes(dtype)
    return WindowPlan("depthwise", tables, scalars, job.out, 1, turns, work, lanes, job.reaches_out)


def _plan_plane_filters(job: WindowSum, target: CpuTarget, dtype: DType) -> WindowPlan | None:
    places, parts = _parts(job)
    copies = _copies(job, places, parts, target, dtype)
    if copies is None or len(places) > depthwise.MAX_TAPS:
        return None
    images, outputs = job.out[:2]
    part = _ceil(images, min(_ceil(FEW_TURNS, outputs), images))
    splits = _ceil(images, part)
    turns = outputs * splits
    scalars = (*_strides(job), *copies.scalars, len(places), part, images, turns)
    work = prod(job.out) * (1 + len(places)) / (PLANE_PART * _products(target))
    tables = (_table(copies.taps), _table(parts))
    numbers = (splits, turns, work, target.lanes(dtype), job.reaches_out)
    return WindowPlan("depthwise_filters", tables, scalars, job.filters, *numbers)
