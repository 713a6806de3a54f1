"""The template of weight gradients: a filter tap is a product of two matrices over all windows in
which it stands on an element. Vectors of the data's channels, some outputs side by side.

    result[o, i, p, q] = sum over images and windows (y, x) inside of
                         windows[n, o, y, x] * data[n, i, row(y, p), column(x, q)]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from ... import te
from ...base.cpu_target import CpuTarget
from ...base.dtype import DType
from ...core.fused import FusedGroup
from ...ops._layouts import physical_index
from ...ops.nn._convolution import Convolution
from ...te.build import KernelBuilder
from ...te.expr import Expr, as_expr, minimum
from ...te.loops import Buffer
from ..epilogue import Epilogue, static_spec
from ..group import LoweredKernel, Temporary, kernel_name
from .long_sums import finished
from .operands import Facts, Operand, Packed, in_blocks, lanes_for
from .taps import Line, padded, windows_inside
from .tile import MAX_PANELS, registers

MAX_OUTPUTS = 8


class FilterSum(NamedTuple):
    """What is to be summed: `windows` has an element for each window, `data` what they stand on."""

    conv: Convolution
    windows: Operand
    data: Operand
    result: Operand
    wide: DType

    @property
    def depthwise(self) -> bool:
        return self.outputs == self.channels == 1 and self.conv.groups > 1

    @property
    def outputs(self) -> int:
        return self.windows.extents()["C"] // self.conv.groups

    @property
    def channels(self) -> int:
        return self.data.extents()["C"] // self.conv.groups

    def line(self, letter: str) -> Line:
        window = self.conv.windows["HW".index(letter)]
        return Line(window, self.windows.extents()[letter], self.data.extents()[letter], False)


class _FilterPlan(NamedTuple):
    """Blocks of `lanes` channels in `panels` side by side, for `outputs` at once."""

    lanes: int
    blocks: int
    panels: int
    outputs: int


def _plan_of(job: FilterSum, target: CpuTarget) -> _FilterPlan | None:
    channels = job.conv.groups if job.depthwise else job.channels
    lanes = lanes_for(channels, job.wide, target)
    shared = job.conv.groups > 1 and not job.depthwise
    if lanes < 2 or (shared and channels % lanes):
        return None  # blocks of channels would reach into the next group
    blocks = -(-channels // lanes)
    if job.depthwise:
        return _FilterPlan(lanes, blocks, 1, 1)
    sizes = product(range(1, min(MAX_PANELS, blocks) + 1), range(1, MAX_OUTPUTS + 1))
    fitting = [
        (padded(blocks, panels) * padded(job.outputs, outputs) * (1 + 1 / panels + 1 / outputs), panels, outputs)
        for panels, outputs in sizes
        if panels * (outputs + 1) < registers(target) and outputs <= job.outputs
    ]
    _, panels, outputs = min(fitting)
    return _FilterPlan(lanes, blocks, panels, outputs)


def filter_sum_kernels(job: FilterSum, group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel] | None:
    """The kernels of a group whose master is such a sum; None where no plan serves it."""
    plan = _plan_of(job, target)
    if plan is None:
        return None
    name = kernel_name(group)
    data = in_blocks(f"{name}_blocks", job.data, plan.lanes, job.wide, 0, target)
    windows = Packed(job.windows.entry)
    if job.depthwise:
        windows = in_blocks(f"{name}_windows", job.windows, plan.lanes, job.wide, 1, target)
    before = [packed.kernel for packed in (data, windows) if packed.kernel is not None]
    return [*before, _main_kernel(name, job, plan, group, fact, data, windows)]


def _main_kernel(
    name: str, job: FilterSum, plan: _FilterPlan, group: FusedGroup, fact: Facts, data: Packed, windows: Packed
) -> LoweredKernel:
    b = KernelBuilder(name)
    buffers = [
        b.arg(letter, packed.place.dtype, packed.place.shape)
        if isinstance(packed.place, Temporary)
        else b.arg(letter, operand.dtype, operand.shape)
        for letter, packed, operand in (("x", data, job.data), ("g", windows, job.windows))
    ]
    epilogue = Epilogue(b, group, fact)
    shape, dtype = static_spec(fact(group.outputs[0]))
    out = b.arg("out", dtype, shape)
    _FilterGradient(b, job, plan, epilogue, buffers[0], buffers[1], out).write()
    arguments = (data.place, windows.place, *epilogue.arguments, group.outputs[0])
    work = 1
    for extent in (*job.windows.extents().values(), job.channels):
        work *= extent
    for window in job.conv.windows:
        work *= window.size
    return LoweredKernel(finished(b.finish()), arguments, max(work, 1))


class _FilterGradient:
    """Writes the main kernel: a task is some outputs and panels of channels, at all taps."""

    def __init__(
        self,
        b: KernelBuilder,
        job: FilterSum,
        plan: _FilterPlan,
        epilogue: Epilogue,
        data: Buffer,
        windows: Buffer,
        out: Buffer,
    ) -> None:
        self.b, self.job, self.plan, self.epilogue = b, job, plan, epilogue
        self.data, self.windows, self.out = data, windows, out

    def write(self) -> None:
        b, job, plan = self.b, self.job, self.plan
        teams = -(-plan.blocks // plan.panels)
        crews = 1 if job.depthwise else -(-job.outputs // plan.outputs)
        groups = 1 if job.depthwise else job.conv.groups
        with b.parallel("task", groups * teams * crews) as task:
            self.group = b.let("group", task // (teams * crews)) if groups > 1 else as_expr(0)
            self.first = b.let("first", task // crews % teams * plan.panels)
            self.output = b.let("output", task % crews * plan.outputs)
            down, across = job.conv.windows
            with b.loop("p", down.size) as p, b.loop("q", across.size) as q:
                self._tap(p, q)

    def _tap(self, p: Expr, q: Expr) -> None:
        b, plan = self.b, self.plan
        rows = [b.let("y", v) for v in windows_inside(self.job.line("H"), p)]
        columns = [b.let("x", v) for v in windows_inside(self.job.line("W"), q)]
        with b.vector("lane", plan.lanes) as lane:
            sums = [
                [b.alloc("sum", self.job.wide, (), scope="register") for _ in range(plan.panels)]
                for _ in range(plan.outputs)
            ]
            for one in (one for row in sums for one in row):
                b.store(one, (), 0)
            images = self.job.data.extents()["N"]
            with b.loop("n", images) as n, b.loop("h", rows[1]) as h, b.loop("w", columns[1]) as w:
                self._window(n, h, w, rows, columns, sums, lane)
            for number, row in enumerate(sums):
                for panel, one in enumerate(row):
                    self._finish(one[()], number, panel, p, q, lane)

    def _window(
        self,
        n: Expr,
        h: Expr,
        w: Expr,
        rows: Sequence[Expr],
        columns: Sequence[Expr],
        sums: list[list[Buffer]],
        lane: Expr,
    ) -> None:
        """Adds what one window gives to all sums."""
        b = self.b
        down, across = self.job.conv.windows
        source = (rows[2] + h * down.stride, columns[2] + w * across.stride)
        vectors = [b.let("v", self.data[n, self._block(panel), *source, lane]) for panel in range(self.plan.panels)]
        for number, row in enumerate(sums):
            value = b.let("g", self._at_window(n, number, rows[0] + h, columns[0] + w, lane))
            for one, vector in zip(row, vectors):
                b.store(one, (), one[()] + value * vector)

    def _block(self, panel: int) -> Expr:
        """The block of a panel; one past the last is the last again, and not stored."""
        block = minimum(self.first + panel, self.plan.blocks - 1)
        return self.group * self.plan.blocks + block

    def _at_window(self, n: Expr, number: int, y: Expr, x: Expr, lane: Expr) -> Expr:
        if self.job.depthwise:
            return self.windows[n, self._block(0), y, x, lane]
        output = minimum(self.output + number, self.job.outputs - 1)
        at = {"N": n, "C": self.group * self.job.outputs + output, "H": y, "W": x}
        return te.cast(self.windows[physical_index(self.job.windows.layout, at)], self.job.wide)

    def _finish(self, value: Expr, number: int, panel: int, p: Expr, q: Expr, lane: Expr) -> None:
        """Stores a result, where the lane is a channel and the turn an output."""
        b, job, plan = self.b, self.job, self.plan
        channel = b.let("c", (self.first + panel) * plan.lanes + lane)
        at: dict[str, Expr] = {"O": channel, "I": as_expr(0), "H": p, "W": q}
        if job.depthwise:
            inside, whole = channel < job.conv.groups, job.conv.groups % plan.lanes == 0
        else:
            output = self.output + number
            inside = (channel < job.channels) & (output < job.outputs)
            whole = job.channels % (plan.lanes * plan.panels) == job.outputs % plan.outputs == 0
            at |= {"O": self.group * job.outputs + output, "I": channel}
        if whole:
            self._store(value, at)
        else:
            with b.when(inside):
                self._store(value, at)

    def _store(self, value: Expr, at: dict[str, Expr]) -> None:
        index = physical_index(self.job.result.layout, at)
        made = self.b.let("s", te.cast(value, self.job.result.dtype))
        self.b.store(self.out, index, self.epilogue.finished(made, index))
