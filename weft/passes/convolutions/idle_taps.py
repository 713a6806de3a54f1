"""SkipIdleTaps: filters of convolutions without the taps that read nothing but padding.

A filter with wide steps between its taps reaches beyond a small image: at 14 x 14, taps 24 apart leave one of nine
that reads any of it. Where some rows or columns of the output have taps that others have not, they are convolved
apart and put side by side."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from ...base.shape import is_static
from ...core.graph import Graph
from ...core.ir import Node, NodeEntry
from ...core.passes import register_pass
from ...core.walk import Walker, rewrite

MOST_TAPS = 1024  # along an axis of filters that are looked at
MOST_RUNS = 3  # of rows or columns with the same taps
WORTH = 0.6  # of the work, at most, to convolve them apart
READ = 8  # outputs whose products take as long as reading a weight from memory
H, W = 2, 3  # axes of images and of filters
ALL = 2**31 - 1  # the end of any axis


class Run(NamedTuple):
    """Outputs [begin, end) along an axis, the taps [first, last] they need, and what they read: a part of the input
    [start, stop) with zeros before and after it."""

    begin: int
    end: int
    first: int
    last: int
    start: int
    stop: int
    before: int
    after: int

    @property
    def outputs(self) -> int:
        return self.end - self.begin

    @property
    def taps(self) -> int:
        return self.last - self.first + 1


class Axis(NamedTuple):
    """One direction of a convolution."""

    extent: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def outputs(self) -> int:
        reach = self.dilation * (self.taps - 1) + 1
        return (self.extent + self.before + self.after - reach) // self.stride + 1

    def taps_of(self, output: int) -> tuple[int, int]:
        """The first and the last tap that read the input; none where the first is the larger one."""
        at = output * self.stride - self.before
        first = max(-(at // self.dilation), 0)
        return first, min((self.extent - 1 - at) // self.dilation, self.taps - 1)

    def run(self, begin: int, end: int, first: int, last: int) -> Run:
        low = begin * self.stride + first * self.dilation - self.before
        high = (end - 1) * self.stride + last * self.dilation - self.before
        start, stop = max(low, 0), min(high, self.extent - 1) + 1
        return Run(begin, end, first, last, start, stop, start - low, high + 1 - stop)

    def kinds(self) -> Iterator[tuple[int, int, int, int]]:
        """(begin, end, first, last) of outputs with the same taps; of those that have any there are no more than about
        twice as many as taps, however many outputs there are."""
        begin, outputs = 0, self.outputs
        while begin < outputs:
            first, last = self.taps_of(begin)
            changes = [(self.extent - 1 + self.before - last * self.dilation) // self.stride + 1]
            if first > 0:
                changes.append(-((first * self.dilation - self.dilation - self.before) // self.stride))
            end = min([outputs, *(change for change in changes if change > begin)])
            yield begin, end, first, last
            begin = end

    def plans(self) -> list[list[Run]]:
        """All outputs with the taps of any, and, where there are few kinds, runs of outputs with the same taps; nothing
        where an output has no tap at all."""
        kinds = []
        for kind in self.kinds():
            if kind[2] > kind[3]:
                return []
            kinds.append(kind)
        if not kinds:
            return []
        whole = self.run(0, self.outputs, min(kind[2] for kind in kinds), max(kind[3] for kind in kinds))
        apart = [self.run(*kind) for kind in kinds]
        return [[whole], apart] if 1 < len(apart) <= MOST_RUNS else [[whole]]


class Plan(NamedTuple):
    """Runs of rows and of columns."""

    rows: list[Run]
    columns: list[Run]

    @property
    def work(self) -> int:
        """Products of one filter for one channel, and reading it."""
        parts = product(self.rows, self.columns)
        return sum(row.taps * column.taps * (row.outputs * column.outputs + READ) for row, column in parts)


def _best_plan(axes: list[Axis]) -> Plan | None:
    rows, columns = (axis.plans() for axis in axes)
    if not rows or not columns:
        return None
    whole, *apart = [Plan(*runs) for runs in product(rows, columns)]
    best = min(apart, key=lambda plan: plan.work, default=whole)
    return best if best.work <= WORTH * whole.work else whole


def _axes(node: Node, shape: Any) -> list[Axis]:
    p = node.params
    pads = p.padding if len(p.padding) == 4 else (p.padding[0], p.padding[-1]) * 2
    return [Axis(shape[H + i], p.kernel_size[i], p.strides[i], p.dilation[i], pads[i], pads[i + 2]) for i in range(2)]


@register_pass("SkipIdleTaps")
def skip_idle_taps(graph: Graph) -> Graph:
    """Of convolutions in NCHW whose images have known sizes."""

    def skip(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | None:
        if node.op_name != "conv2d" or node.control_deps or not _is_plain(node):
            return None
        shape = walker.fact(inputs[0]).shape
        if shape is None or not is_static(shape[H:]) or not 1 < max(node.params.kernel_size) <= MOST_TAPS:
            return None
        axes = _axes(node, shape)
        plan = _best_plan(axes)
        if plan is None or all(_is_all(axis, runs) for axis, runs in zip(axes, plan)):
            return None
        bands = [[_part(walker, node, inputs, axes, row, column) for column in plan.columns] for row in plan.rows]
        return _joined(walker, [_joined(walker, band, W) for band in bands], H)

    return rewrite(graph, skip)


def _is_plain(node: Node) -> bool:
    p = node.params
    return p.layout == "NCHW" and p.kernel_layout == "OIHW" and p.out_layout in ("__undef__", "NCHW")


def _is_all(axis: Axis, runs: list[Run]) -> bool:
    return len(runs) == 1 and runs[0].taps == axis.taps


def _joined(walker: Walker, parts: list[NodeEntry], axis: int) -> NodeEntry:
    return parts[0] if len(parts) == 1 else walker.make("concatenate", parts, {"axis": axis})


def _part(walker: Walker, node: Node, inputs: list[NodeEntry], axes: list[Axis], row: Run, column: Run) -> NodeEntry:
    """The outputs of a run of rows and one of columns."""
    data, weight, *bias = inputs
    runs = (row, column)
    if any((run.start, run.stop) != (0, axis.extent) for run, axis in zip(runs, axes)):
        data = _sliced(walker, data, [(run.start, run.stop) for run in runs])
    if any((run.first, run.last) != (0, axis.taps - 1) for run, axis in zip(runs, axes)):
        weight = _sliced(walker, weight, [(run.first, run.last + 1) for run in runs])
    sizes = {
        "kernel_size": tuple(run.taps for run in runs),
        "padding": tuple([run.before for run in runs] + [run.after for run in runs]),
    }
    return walker.make("conv2d", [data, weight, *bias], {**node.attrs, **sizes})


def _sliced(walker: Walker, value: NodeEntry, ranges: list[tuple[int, int]]) -> NodeEntry:
    """The value within ranges of its last two axes."""
    begin, end = ((*outer, *inner) for outer, inner in zip(((0, 0), (ALL, ALL)), zip(*ranges)))
    return walker.make("strided_slice", [value], {"begin": begin, "end": end})
