"""The template of weight gradients: a filter tap is a product of two matrices over all windows in
which it stands on an element. Vectors of channels, of the data or of the windows, some channels of
the other side by side.

    result[o, i, p, q] = sum over images and windows (y, x) inside of
                         windows[n, o, y, x] * data[n, i, row(y, p), column(x, q)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple, cast

from ... import te
from ...base.cpu_target import CpuTarget
from ...base.dtype import DType
from ...core.fused import FusedGroup
from ...core.ir import NodeEntry
from ...ops._layouts import physical_index
from ...ops.nn._convolution import NCHW, OIHW, Convolution
from ...ops.nn._windows import Window
from ...te.build import KernelBuilder
from ...te.expr import Expr, minimum
from ...te.loops import Buffer
from ...te.transform import lower_vectors
from ..epilogue import Epilogue
from ..group import Facts, LoweredKernel, Written, kernel_name
from ..long_sums import finished
from .operands import ConvSum, Operand, Packed, in_blocks, lanes_for
from .taps import windows_inside
from .tile import MAX_PANELS, registers
from .windows.window_sum import WindowSum

MAX_OTHERS = 8
UNDER_WAY = 8  # sums that keep the units busy: fewer wait for each other


class Form(NamedTuple):
    """Vectors of outputs or of channels, `panels` of them side by side, for `others` at once."""

    by_output: bool
    panels: int
    others: int


class _FilterPlan(NamedTuple):
    form: Form
    lanes: int
    blocks: int  # of a group; of all channels where every channel is a group
    depthwise: bool = False


def _sizes(target: CpuTarget) -> list[tuple[int, int]]:
    """The panels and others that registers hold."""
    sizes = product(range(1, MAX_PANELS + 1), range(1, MAX_OTHERS + 1))
    return [(panels, others) for panels, others in sizes if panels * (others + 1) < registers(target)]


def open_sizes(target: CpuTarget) -> list[tuple[int, int]]:
    """A few of those, for kernels that serve any channels."""
    panels = 4 if registers(target) > 16 else 2
    return [(panels, 6), (1, MAX_OTHERS), (panels, 3), (panels, 1)]


def chosen(outputs: int, channels: int, lanes: Sequence[int], sizes: Iterable[tuple[int, int]]) -> Form:
    """The form with the fewest operations, where vectors of channels and of outputs have so many lanes; 0: none."""

    def operations(form: Form) -> float:
        wide, others = (outputs, channels) if form.by_output else (channels, outputs)
        vectors = -(-wide // (lanes[form.by_output] * form.panels)) * form.panels
        return vectors * -(-others // form.others) * form.others * (1 + 1 / form.panels + 1 / form.others)

    sides = [bool(side) for side in (0, 1) if lanes[side]]
    return min((Form(side, *size) for side in sides for size in sizes), key=operations)


def _plan_of(job: ConvSum, target: CpuTarget) -> _FilterPlan | None:
    if job.depthwise:
        lanes = lanes_for(job.conv.groups, job.wide, target)
        return _FilterPlan(Form(False, 1, 1), lanes, -(-job.conv.groups // lanes), True) if lanes > 1 else None
    counts = (job.deep, job.channels)
    widths = [lanes_for(count, job.wide, target) for count in counts]
    fit = [lanes > 1 and (job.conv.groups == 1 or count % lanes == 0) for lanes, count in zip(widths, counts)]
    if not any(fit):
        return None  # blocks of channels would reach into the next group
    form = chosen(job.channels, job.deep, [lanes * ok for lanes, ok in zip(widths, fit)], _sizes(target))
    lanes = widths[form.by_output]
    return _FilterPlan(form, lanes, -(-counts[form.by_output] // lanes))


def filter_sum_kernels(job: ConvSum, group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel] | None:
    """The kernels of a group whose master is such a sum; None where no plan serves it."""
    plan = _plan_of(job, target)
    if plan is None:
        return None
    name = kernel_name(group)
    wide, other = (job.result, job.source) if plan.form.by_output else (job.source, job.result)
    packed = [in_blocks(f"{name}_blocks", wide, plan.lanes, job.wide, 0, target), Packed(other.entry)]
    if job.depthwise:
        packed[1] = in_blocks(f"{name}_windows", other, plan.lanes, job.wide, 1, target)
    before = [made.kernel for made in packed if made.kernel is not None]
    b = KernelBuilder(name)
    buffers = [made.argument(b, letter, operand, {}) for letter, made, operand in zip("vx", packed, (wide, other))]
    epilogue = Epilogue(b, group, fact)
    _FilterGradient(b, job, plan, epilogue.finished, buffers, epilogue.result()).write()
    arguments = (*(made.place for made in packed), *epilogue.arguments)
    return [*before, LoweredKernel(finished(b.finish()), arguments, job.work)]


def window_filters(windows: WindowSum, form: Form, dtype: DType, target: CpuTarget) -> Written:
    """The transpose in filters of a sum over windows in NCHW, any number of which may be an argument: blocks of one
    operand, by groups, and the other operand go in."""
    b, lanes = KernelBuilder("filters"), target.lanes(dtype)
    wide, other = (windows.out, windows.source) if form.by_output else (windows.source, windows.out)
    lined, beside = (windows.rows, windows.deep) if form.by_output else (windows.deep, windows.rows)
    blocks: Any = -(-lined // lanes)
    shapes = ((windows.images, windows.groups * blocks, *wide[2:], lanes), other, windows.filters)
    vectors, others, out = (b.arg(name, dtype, shape) for name, shape in zip(("v", "x", "out"), shapes))
    plan = _FilterPlan(form, lanes, blocks)
    _FilterGradient(b, _as_sum(windows, dtype), plan, lambda value, index: value, (vectors, others), out).write()
    filled = -(-blocks // form.panels) * form.panels * lanes * (-(-beside // form.others) * form.others)
    waiting = max(UNDER_WAY // (form.panels * form.others), 1)
    work = windows.work // (lined * beside) * filled * waiting  # with what lanes do that stand for no channel
    return Written.by_one(LoweredKernel(lower_vectors(b.finish()), (0, 1, 2), work), dtype, *shapes)


def _as_sum(windows: WindowSum, dtype: DType) -> ConvSum:
    axes, nowhere = (windows.down, windows.across), cast(NodeEntry, None)
    source, result = (Operand(nowhere, NCHW, shape, dtype) for shape in (windows.source, windows.out))
    filters = Operand(nowhere, OIHW, windows.filters, dtype)
    each: Any = tuple(Window(axis.taps, axis.step, axis.before, 0, axis.dilation) for axis in axes)
    return ConvSum(Convolution(each, windows.groups, NCHW, OIHW, NCHW), source, filters, result, dtype)


class _FilterGradient:
    """Writes the main kernel: a task is a tap of some panels and others."""

    def __init__(
        self,
        b: KernelBuilder,
        job: ConvSum,
        plan: _FilterPlan,
        finish: Callable[[Expr, Sequence[Expr]], Expr],
        buffers: Sequence[Buffer],
        out: Buffer,
    ) -> None:
        self.b, self.job, self.plan, self.finish = b, job, plan, finish
        self.form = plan.form
        (self.vectors, self.others), self.out = buffers, out
        self.counts: Any = (job.deep, job.channels)  # of a group: in lanes, and the others
        if plan.form.by_output:
            self.counts = self.counts[::-1]
        if plan.depthwise:
            self.counts = (job.conv.groups, 1)

    def write(self) -> None:
        b, job, form = self.b, self.job, self.form
        groups: Any = 1 if self.plan.depthwise else job.conv.groups
        teams, crews = -(-self.plan.blocks // form.panels), -(-self.counts[1] // form.others)
        down, across = (window.size for window in job.conv.windows)
        with b.parallel("task", groups * teams * crews * down * across) as task:
            p, q = b.let("p", task // across % down), b.let("q", task % across)
            rest = b.let("rest", task // (down * across))
            self.group = b.let("group", rest // (teams * crews))
            self.first = b.let("first", rest // crews % teams * form.panels)
            self.other = b.let("other", rest % crews * form.others)
            self._tap(p, q)

    def _tap(self, p: Expr, q: Expr) -> None:
        b, form = self.b, self.form
        rows = [b.let("y", v) for v in windows_inside(self.job.line("H"), p)]
        columns = [b.let("x", v) for v in windows_inside(self.job.line("W"), q)]
        places = list(product(range(form.others), range(form.panels)))
        with b.vector("lane", self.plan.lanes) as lane:
            sums = [b.registers("sum", self.job.wide) for _ in places]
            images = self.job.source.extents()["N"]
            with b.loop("n", images) as n, b.loop("h", rows[1]) as h, b.loop("w", columns[1]) as w:
                self._window(n, h, w, rows, columns, sums, lane)
            for one, (other, panel) in zip(sums, places):
                self._finish(one[()], other, panel, p, q, lane)

    def _window(
        self, n: Expr, h: Expr, w: Expr, rows: Sequence[Expr], columns: Sequence[Expr], sums: list[Buffer], lane: Expr
    ) -> None:
        """Adds what one window gives to all sums."""
        b, form = self.b, self.form
        down, across = self.job.conv.windows
        source = (rows[2] + h * down.stride, columns[2] + w * across.stride)
        window = (rows[0] + h, columns[0] + w)
        wide, at = (window, source) if form.by_output else (source, window)
        vectors = [b.let("v", self.vectors[n, self._block(panel), *wide, lane]) for panel in range(form.panels)]
        for other in range(form.others):
            value = b.let("g", self._other(n, other, *at, lane))
            for one, vector in zip(sums[other * form.panels :], vectors):
                b.store(one, (), one[()] + value * vector)

    def _block(self, panel: int) -> Expr:
        """The block of a panel; one past the last is the last again, and not stored."""
        block = minimum(self.first + panel, self.plan.blocks - 1)
        return self.group * self.plan.blocks + block

    def _other(self, n: Expr, number: int, y: Expr, x: Expr, lane: Expr) -> Expr:
        job = self.job
        if self.plan.depthwise:
            return self.others[n, self._block(0), y, x, lane]
        channel = self.group * self.counts[1] + minimum(self.other + number, self.counts[1] - 1)
        layout = (job.source if self.form.by_output else job.result).layout
        return te.cast(self.others[physical_index(layout, {"N": n, "C": channel, "H": y, "W": x})], job.wide)

    def _finish(self, value: Expr, number: int, panel: int, p: Expr, q: Expr, lane: Expr) -> None:
        """Stores a result, where the lane is a channel and the number another."""
        b, job, form = self.b, self.job, self.form
        channel, other = b.let("c", (self.first + panel) * self.plan.lanes + lane), self.other + number
        output, inner = (channel, other) if form.by_output or self.plan.depthwise else (other, channel)
        at = {"O": self.group * job.channels + output, "I": inner, "H": p, "W": q}
        index = physical_index(job.filters.layout, at)
        sizes = (form.panels * self.plan.lanes, form.others)
        if all(type(count) is int and count % size == 0 for count, size in zip(self.counts, sizes)):
            self._store(value, index)
        else:
            with b.when((channel < self.counts[0]) & (other < self.counts[1])):
                self._store(value, index)

    def _store(self, value: Expr, index: Sequence[Expr]) -> None:
        made = self.b.let("s", te.cast(value, self.job.filters.dtype))
        self.b.store(self.out, index, self.finish(made, index))
