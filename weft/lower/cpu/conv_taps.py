"""The template of transposed convolutions and of data gradients: vectors of result channels, some
results side by side in registers, one broadcast source element and only the taps that exist.

    result[n, c, y, x] = sum over taps (p, q) inside, and channels r, of
                         source[n, r, row(y, p), column(x, q)] * weight[c, r, p, q]
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from typing import Any, NamedTuple

from ... import te
from ...base.cpu_target import CpuTarget
from ...base.layout import Layout
from ...base.stages import decided
from ...core.fused import FusedGroup
from ...ops._layouts import physical_index
from ...te.build import KernelBuilder
from ...te.expr import Expr, as_expr, minimum, select
from ...te.loops import Buffer
from ..epilogue import Epilogue, static_spec
from ..group import Facts, LoweredKernel, Strides, kernel_name
from ..long_sums import finished
from .operands import ConvSum, Packed, element_or_zero, in_blocks, lanes_for, stored
from .taps import Line, OpenRun, Phase, Reach, Run, code_size, open_run, padded, phases, reach, runs
from .tile import MAX_ACROSS, MAX_PANELS, registers

OPEN_ACROSS = 8  # results side by side where it is an argument how many there are: the last tile is seldom full
MAX_CODE = 1600  # products in straight code, beyond which loops that test are the better choice


class TapPlan(NamedTuple):
    """Blocks of `lanes` result channels, `panels` of them side by side, and runs of columns."""

    lanes: int
    blocks: int  # of a group; of all channels where every channel is a group
    panels: int
    columns: list[tuple[Phase, list[Run] | OpenRun]]


def plan_of(job: ConvSum, target: CpuTarget) -> TapPlan | None:
    """The tiles with the fewest operations for a product; None where the code would be too long."""
    channels = job.conv.groups if job.depthwise else job.channels
    lanes = lanes_for(channels, job.wide, target)
    blocks, line = -(-channels // lanes), job.line("W")
    budget, parts = registers(target), phases(line)
    most = 1 if job.depthwise else min(MAX_PANELS, blocks)
    shares = any(len(phase.taps) > 1 for phase in parts)  # a source, read by one tap, is kept for the next
    sizes = [
        (padded(blocks, panels) * (1 + 1 / width + 1 / panels), panels, width)
        for panels, width in product(range(1, most + 1), _widths(line, parts))
        if width * panels + panels + (width if shares else 1) < budget  # one is left for what moves
    ]
    for _, panels, width in sorted(sizes):  # of equals with fewer panels: weights come from further away
        columns = [_columns(phase, line, width) for phase in parts]
        if panels * sum(_products(*part) for part in columns) <= MAX_CODE:
            decided("register tile", plan_of, f"{width} x {panels}", lambda: {f"{w} x {p}": c for c, p, w in sizes})
            return TapPlan(lanes, blocks, panels, columns)
    return None


def _widths(line: Line, parts: Sequence[Phase]) -> Sequence[int]:
    """How many results may stand side by side."""
    if line.is_open:
        return range(1, OPEN_ACROSS + 1)
    return range(1, min(MAX_ACROSS, max((phase.length for phase in parts), default=1)) + 1)


def _columns(phase: Phase, line: Line, width: int) -> tuple[Phase, list[Run] | OpenRun]:
    make = open_run if line.is_open else runs
    return phase, make(phase, line.sources, width)


def _products(phase: Phase, columns: list[Run] | OpenRun) -> int:
    """Products of one panel in straight code."""
    if isinstance(columns, OpenRun):
        return 2 * columns.width * len(phase.taps)
    return code_size(columns)


def tap_sum_kernels(
    job: ConvSum, group: FusedGroup, fact: Facts, target: CpuTarget, strides: Strides | None = None
) -> list[LoweredKernel] | None:
    """The kernels of a group whose master is such a sum; None where no plan serves it."""
    plan = plan_of(job, target)
    if plan is None:
        return None
    name = kernel_name(group)
    steps = strides or {}
    weight, source = _packed_weight(f"{name}_packed", job, plan, target, steps), Packed(job.source.entry)
    if job.depthwise:
        source = in_blocks(f"{name}_blocks", job.source, plan.lanes, job.wide, 1, target, steps)
    kernels = [packed.kernel for packed in (weight, source) if packed.kernel is not None]
    return [*kernels, _main_kernel(name, job, plan, group, fact, weight, source, steps)]


def _packed_weight(name: str, job: ConvSum, plan: TapPlan, target: CpuTarget, strides: Strides) -> Packed:
    """Filters as (block of result channels, source channel, tap down, tap across, lane)."""
    weight, lanes = job.filters, plan.lanes
    vector, deep = ("I", "O") if job.transposed else ("O", "I")
    wanted = Layout(f"{vector}{deep}HW{lanes}{vector.lower()}")
    if weight.layout == wanted and weight.dtype == job.wide and job.conv.groups == 1:
        return Packed(weight.entry)
    if job.depthwise:
        vector, deep = "O", "I"
    groups = 1 if job.depthwise else job.conv.groups
    given = te.placeholder(weight.shape, weight.dtype, "filters")
    sizes = [window.size for window in job.conv.windows]
    shape = (groups * plan.blocks, job.deep, *sizes, lanes)
    extent = job.conv.groups if job.depthwise else job.channels

    def element(block: Any, r: Any, p: Any, q: Any, lane: Any) -> Any:
        part = block // plan.blocks
        channel, depth = block % plan.blocks * lanes + lane, r
        if groups > 1:  # O counts the channels of all groups, I those of one
            depth, base = (r + part * job.deep, 0) if job.transposed else (r, part * extent)
        else:
            base = 0
        at = {vector: channel, deep: depth, "H": p, "W": q}
        return element_or_zero(given, weight.layout, at, vector, extent, lanes, job.wide, base)

    return stored(name, given, weight.entry, te.compute(shape, element), 0, target, strides)


# The main kernel.


class _Buffers(NamedTuple):
    weight: Buffer
    source: Buffer
    bias: Buffer | None
    out: Buffer


def _main_kernel(
    name: str,
    job: ConvSum,
    plan: TapPlan,
    group: FusedGroup,
    fact: Facts,
    weight: Packed,
    source: Packed,
    strides: Strides,
) -> LoweredKernel:
    b = KernelBuilder(name)
    factors = weight.argument(b, "w", job.filters, strides), source.argument(b, "x", job.source, strides)
    bias = None
    if job.bias is not None:
        shape, dtype = static_spec(fact(job.bias))
        bias = b.arg("bias", dtype, shape, strides=strides.get(job.bias))
    epilogue = Epilogue(b, group, fact, strides)
    _TapKernel(b, job, plan, epilogue, _Buffers(*factors, bias, epilogue.result())).write()
    entries = [weight.place, source.place, *([] if job.bias is None else [job.bias])]
    arguments = (*entries, *epilogue.arguments)
    return LoweredKernel(finished(b.finish()), arguments, job.work)


class _TapKernel:
    """Writes the main kernel: a task is one row of results in some panels of channels."""

    def __init__(self, b: KernelBuilder, job: ConvSum, plan: TapPlan, epilogue: Epilogue, buffers: _Buffers) -> None:
        self.b, self.job, self.plan = b, job, plan
        self.epilogue, self.buffers = epilogue, buffers
        self.vectors = job.depthwise  # sources are vectors too: every channel has its own filter

    def write(self) -> None:
        b, plan, extents = self.b, self.plan, self.job.result.extents()
        groups = 1 if self.vectors else self.job.conv.groups
        teams = -(-plan.blocks // plan.panels)
        with b.parallel("p", groups * teams * extents["N"] * extents["H"]) as p:
            team = b.let("team", p // (extents["N"] * extents["H"]))
            self.group = b.let("group", team // teams) if groups > 1 else as_expr(0)
            self.first = b.let("first", team % teams * plan.panels)
            self.image = b.let("image", p // extents["H"] % extents["N"])
            self.row = b.let("row", p % extents["H"])
            self.rows = self._let(reach(self.job.line("H"), self.row))
            for phase, columns in plan.columns:
                if isinstance(columns, OpenRun):
                    self._open_run(phase, columns)
                else:
                    for run in columns:
                        self._run(phase, run)

    def _run(self, phase: Phase, run: Run) -> None:
        if run.tiles == 1:
            self._tile(phase, run, as_expr(run.start))
            return
        with self.b.loop("tile", run.tiles) as tile:
            self._tile(phase, run, self.b.let("start", tile * run.width + run.start))

    def _open_run(self, phase: Phase, run: OpenRun) -> None:
        b, width = self.b, run.width
        every = Run(0, width, 1, (tuple(range(width)),) * len(phase.taps))
        with b.loop("tile", (run.length + (width - 1)) // width) as tile:
            start = b.let("start", tile * width)
            with b.when((start >= run.whole) & (start + width <= run.rim)):
                self._tile(phase, every, start)
            with b.otherwise():
                self._tile(phase, every, start, run)

    def _tile(self, phase: Phase, run: Run, start: Expr, rim: OpenRun | None = None) -> None:
        """Sums of a tile's results in registers, then what follows, and the stores. At the rim it is asked of each
        result whether it is one, and of each source whether it is there."""
        b = self.b
        with b.vector("lane", self.plan.lanes) as lane:
            sums = self._sums(run.width)
            if any(run.inside):
                self._add_taps(phase, run, start, sums, lane, rim is not None)
            for number, row in enumerate(sums):
                column = (start + number) * phase.step + phase.first
                with nullcontext() if rim is None else b.when(start + number < rim.length):
                    for panel, one in enumerate(row):
                        self._finish(one[()], column, panel, lane)

    def _sums(self, width: int) -> list[list[Buffer]]:
        """Registers for so many results in all panels."""
        panels = range(self.plan.panels)
        return [[self.b.registers("sum", self.job.wide) for _ in panels] for _ in range(width)]

    def _add_taps(
        self, phase: Phase, run: Run, start: Expr, sums: list[list[Buffer]], lane: Expr, at_rim: bool
    ) -> None:
        b, rows = self.b, self.rows
        reads = [
            (across, [(number, *self._place((start + number) * phase.stride + offset, at_rim)) for number in columns])
            for (across, offset), columns in zip(phase.taps, run.inside)
            if columns
        ]
        with b.loop("j", rows.taps) as j:
            tap = b.let("p", rows.first + j * rows.step)
            row = b.let("y", rows.at + j * rows.distance)
            with b.loop("r", self.job.deep) as r:
                for across, columns in reads:
                    weights = self._weights(r, tap, across, lane)
                    for number, place, inside in columns:
                        value = b.let("v", self._source(r, row, place, lane))
                        for one, weight in zip(sums[number], weights):
                            total = one[()] + value * weight
                            b.store(one, (), total if inside is None else select(inside, total, one[()]))

    def _place(self, place: Expr, at_rim: bool) -> tuple[Expr, Expr | None]:
        """Where a source is read, and whether it is there; where it is not, the first is read in its place."""
        if not at_rim:
            return place, None
        at = self.b.let("at", place)
        inside = self.b.let("inside", (at >= 0) & (at < self.job.line("W").sources))
        return self.b.let("place", select(inside, at, 0)), inside

    def _let(self, found: Reach) -> Reach:
        b = self.b
        taps, first, at = b.let("taps", found.taps), b.let("tap", found.first), b.let("at", found.at)
        return found._replace(taps=taps, first=first, at=at)

    def _weights(self, r: Expr, tap: Expr, across: int, lane: Expr) -> list[Expr]:
        return [
            self.b.let("w", self.buffers.weight[self._block(panel), r, tap, across, lane])
            for panel in range(self.plan.panels)
        ]

    def _block(self, panel: int) -> Expr:
        """The block of a panel; one past the last is the last again, and not stored."""
        block = minimum(self.first + panel, self.plan.blocks - 1)
        return self.group * self.plan.blocks + block

    def _source(self, r: Expr, row: Expr, place: Expr, lane: Expr) -> Expr:
        if self.vectors:
            return self.buffers.source[self.image, self._block(0), row, place, lane]
        at = {"N": self.image, "C": self.group * self.job.deep + r, "H": row, "W": place}
        return te.cast(self.buffers.source[physical_index(self.job.source.layout, at)], self.job.wide)

    def _finish(self, value: Expr, column: Expr, panel: int, lane: Expr) -> None:
        """Stores a result, where the lane is a channel and the panel a block."""
        b, job = self.b, self.job
        channels = job.conv.groups if self.vectors else job.channels
        inner = b.let("c", (self.first + panel) * self.plan.lanes + lane)
        whole = channels % self.plan.lanes == 0 and self.plan.blocks % self.plan.panels == 0
        if whole:
            self._store(value, self.group * channels + inner, column)
        else:
            with b.when(inner < channels):
                self._store(value, self.group * channels + inner, column)

    def _store(self, value: Expr, channel: Expr, column: Expr) -> None:
        b, job = self.b, self.job
        if self.buffers.bias is not None:
            place = physical_index(job.conv.bias, {"C": channel})
            value = value + te.cast(self.buffers.bias[place], job.wide)
        at = {"N": self.image, "C": channel, "H": self.row, "W": column}
        index = physical_index(job.result.layout, at)
        made = self.epilogue.finished(b.let("s", te.cast(value, job.result.dtype)), index)
        b.store(self.buffers.out, index, made)
