"""TransposedAsProducts: a transposed convolution with very few channels in its output becomes a pointwise convolution
that makes all its taps, and a sum of those that fall on the same place. So does one with more channels that fill no
vectors, where no two taps fall on the same place.

    y[s t + r] = sum over i < m of z[i s + r, t - i],  z[k, t] = sum over c of w[c, k] x[c, t],  taps k = i s + r < m s

A vector holds taps then, where one of channels would be nearly empty."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

from ...base.shape import is_static
from ...core.graph import Graph
from ...core.ir import Node, NodeEntry
from ...core.passes import register_pass
from ...core.walk import Walker, rewrite

FEW = 4  # channels of the output
WHOLE = 16  # channels that fill vectors of any target, so that kernels of transposed convolutions have no empty lanes
MOST_SUMS = 16  # taps that fall on one place


class _Side(NamedTuple):
    """One direction: extents of the data and the output, taps that fall on one place, the step, and what is cut off
    before the output begins."""

    extent: int
    out: int
    over: int
    stride: int
    before: int

    def widths(self, number: int) -> tuple[int, int]:
        """Zeros around the taps `number` steps after the first."""
        whole = (self.extent + self.over - 1) * self.stride
        missing = max(self.before + self.out - whole, 0)
        return number * self.stride, (self.over - 1 - number) * self.stride + missing


@register_pass("TransposedAsProducts")
def transposed_as_products(graph: Graph) -> Graph:
    """Of transposed convolutions in NCHW with known sizes, whose taps are a multiple of their steps."""

    def as_products(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | None:
        if node.op_name != "conv2d_transpose" or node.control_deps or not _suits(node):
            return None
        shape, out = walker.fact(inputs[0]).shape, graph.node_facts(node)[0].shape
        if not is_static(shape) or not is_static(out) or 0 in (*shape, *out):
            return None
        sides = _sides(node, shape, out)
        if prod(side.over for side in sides) > MOST_SUMS:
            return None
        made = _folded(walker, _taps(walker, node, inputs), sides, (shape[0], node.params.channels))
        begin = (0, 0, *(side.before for side in sides))
        cut = walker.make("strided_slice", [made], {"begin": begin, "end": [b + e for b, e in zip(begin, out)]})
        if not node.params.use_bias:
            return cut
        bias = walker.make("reshape", [inputs[2]], {"shape": (node.params.channels, 1, 1)})
        return walker.make("broadcast_add", [cut, bias])

    return rewrite(graph, as_products)


def _suits(node: Node) -> bool:
    p = node.params
    plain = p.layout == "NCHW" and p.kernel_layout == "OIHW" and p.groups == 1 and p.out_dtype == "same"
    whole = all(size % stride == 0 for size, stride in zip(p.kernel_size, p.strides))
    alone = p.kernel_size == p.strides and p.channels % WHOLE != 0
    return plain and whole and (p.channels <= FEW or alone) and set(p.dilation) == {1}


def _sides(node: Node, shape: Any, out: Any) -> list[_Side]:
    p = node.params
    before = (p.padding[0], p.padding[1] if len(p.padding) > 1 else p.padding[0])
    sizes = zip(shape[2:], out[2:], p.kernel_size, p.strides, before)
    return [_Side(extent, size, taps // stride, stride, first) for extent, size, taps, stride, first in sizes]


def _taps(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry:
    """What every element of the data gives to every tap: (images, channels and taps, height, width)."""
    channels: Any = walker.fact(inputs[0]).shape[1]  # type: ignore[index]
    made = node.params.channels * prod(node.params.kernel_size)
    turned = walker.make("transpose", [inputs[1]], {"axes": (1, 2, 3, 0)})
    filters = walker.make("reshape", [turned], {"shape": (made, channels, 1, 1)})
    attrs = {"channels": made, "kernel_size": (1, 1), "use_bias": False}
    return walker.make("conv2d", [inputs[0], filters], attrs)


def _folded(walker: Walker, taps: NodeEntry, sides: list[_Side], outer: tuple[int, int]) -> NodeEntry:
    """The sum of all taps at their places, before anything is cut off."""
    down, across = sides
    extents = (down.over, down.stride, across.over, across.stride, down.extent, across.extent)
    apart = walker.make("reshape", [taps], {"shape": (*outer, *extents)})
    total: NodeEntry | None = None
    for i, j in product(range(down.over), range(across.over)):
        begin, end = (0, 0, i, 0, j), (*outer, i + 1, down.stride, j + 1)
        some = walker.make("strided_slice", [apart], {"begin": begin, "end": end})
        ordered = walker.make("transpose", [some], {"axes": (0, 1, 2, 4, 6, 3, 7, 5)})
        image = (*outer, down.extent * down.stride, across.extent * across.stride)
        placed = walker.make("reshape", [ordered], {"shape": image})
        widths = ((0, 0), (0, 0), down.widths(i), across.widths(j))
        placed = walker.make("pad", [placed], {"pad_width": widths}) if any(map(any, widths)) else placed
        total = placed if total is None else walker.make("broadcast_add", [total, placed])
    assert total is not None
    return total
