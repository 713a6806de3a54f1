"""What the kernels of convolutions sum: tensors in some layout, and copies of them in which the
lanes of a vector stand side by side."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import prod
from typing import Any, NamedTuple

from ... import te
from ...base.cpu_target import CpuTarget
from ...base.dtype import DType
from ...base.layout import Layout
from ...core.ir import NodeEntry
from ...ops._layouts import physical_index
from ...ops.nn._convolution import Convolution, logical_extents
from ...te.build import KernelBuilder
from ...te.loops import Buffer
from ..epilogue import static_spec
from ..group import Facts, LoweredKernel, Strides, Temporary
from .stage import stage_kernel
from .taps import Line


class Operand(NamedTuple):
    """A tensor that a kernel reads: where it is, and how its elements are laid out."""

    entry: NodeEntry
    layout: Layout
    shape: tuple[int, ...]
    dtype: DType

    @classmethod
    def of(cls, entry: NodeEntry, layout: Layout, fact: Facts) -> Operand:
        return cls(entry, layout, *static_spec(fact(entry)))

    def extents(self) -> dict[str, int]:
        return logical_extents(self.layout, self.shape)


class ConvSum(NamedTuple):
    """A sum over windows: a convolution, or its transpose in data, where sources are windows, results what those stand
    on, and the filters' O are the channels of the source. In its transpose in filters these are made, of windows that
    stand where the results would be."""

    conv: Convolution
    source: Operand
    filters: Operand
    result: Operand
    wide: DType  # what is summed in
    transposed: bool = False
    bias: NodeEntry | None = None

    @property
    def deep(self) -> int:
        """Source channels of a group."""
        return self.source.extents()["C"] // self.conv.groups

    @property
    def channels(self) -> int:
        """Result channels of a group."""
        return self.result.extents()["C"] // self.conv.groups

    @property
    def depthwise(self) -> bool:
        return self.deep == self.channels == 1 and self.conv.groups > 1

    @property
    def work(self) -> int:
        """Products, counting that a transposed tap meets every stride-th result only."""
        total = prod(self.result.extents().values(), start=self.deep)
        for window in self.conv.windows:
            total = total * window.size // (window.stride if self.transposed else 1)
        return max(total, 1)

    def line(self, letter: str) -> Line:
        window = self.conv.windows["HW".index(letter)]
        return Line(window, self.result.extents()[letter], self.source.extents()[letter], self.transposed)


def lanes_for(channels: int, dtype: DType, target: CpuTarget) -> int:
    """As many lanes as a vector has, or as few as hold all channels."""
    lanes = target.lanes(dtype)
    while lanes > 1 and lanes // 2 >= channels:
        lanes //= 2
    return lanes


class Packed(NamedTuple):
    """Where an operand is now, and the kernel that put it there, if one had to."""

    place: Hashable
    kernel: LoweredKernel | None = None

    def argument(self, b: KernelBuilder, name: str, operand: Operand, strides: Strides) -> Buffer:
        """The buffer of a kernel that reads it."""
        held = self.place if isinstance(self.place, Temporary) else operand
        return b.arg(name, held.dtype, held.shape, strides=strides.get(self.place))


def in_blocks(
    name: str,
    operand: Operand,
    lanes: int,
    dtype: DType,
    number: int,
    target: CpuTarget,
    strides: Strides | None = None,
) -> Packed:
    """An image as (n, block of channels, row, column, lane), in the dtype to sum in."""
    if operand.layout == Layout(f"NCHW{lanes}c") and operand.dtype == dtype:
        return Packed(operand.entry)
    extents = operand.extents()
    shape = (extents["N"], -(-extents["C"] // lanes), extents["H"], extents["W"], lanes)
    given = te.placeholder(operand.shape, operand.dtype, "image")

    def element(n: Any, block: Any, h: Any, w: Any, lane: Any) -> Any:
        at = {"N": n, "C": block * lanes + lane, "H": h, "W": w}
        return element_or_zero(given, operand.layout, at, "C", extents["C"], lanes, dtype)

    made = te.compute(shape, element)
    return stored(name, given, operand.entry, made, number, target, strides)


def element_or_zero(
    given: te.Tensor,
    layout: Layout,
    at: Mapping[str, Any],
    letter: str,
    extent: int,
    lanes: int,
    dtype: DType,
    base: Any = 0,
) -> Any:
    """An element in another dtype; 0 where `letter` is beyond its extent."""
    index = physical_index(layout, {**at, letter: at[letter] + base})
    if extent % lanes:
        return te.cast(te.read_or(given, index, at[letter] < extent, 0), dtype)
    return te.cast(given[index], dtype)


def stored(
    name: str,
    given: te.Tensor,
    entry: NodeEntry,
    made: te.Tensor,
    number: int,
    target: CpuTarget,
    strides: Strides | None,
) -> Packed:
    place = Temporary(number, made.shape, made.dtype)
    return Packed(place, stage_kernel(name, made, {given: entry, made: place}, target, strides))
