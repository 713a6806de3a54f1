"""ScaleFilters: where a pointwise convolution reads a product with one factor for each channel, as
after squeeze-and-excite, and has fewer filters than data, the filters are scaled in its place.

    sum over c of w[o, c] (x[c, h, w] s[c]) = sum over c of (w[o, c] s[c]) x[c, h, w]
"""

from __future__ import annotations

from math import prod

from ..base.layout import Layout
from ..base.shape import is_static
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite

FEWER = 3  # times as many elements of data as of filters, to be worth another kernel


@register_pass("ScaleFilters")
def scale_filters(graph: Graph) -> Graph:
    """For batches of one, with channels in blocks on both sides."""
    indexed, results = graph.indexed, set(graph.outputs)

    def scale(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | None:
        if node.op_name != "conv2d" or node.control_deps or not _is_pointwise(node):
            return None
        read = node.inputs[0]
        if read in results or len(indexed.consumers[indexed.entry_id(read)]) != 1:
            return None
        found = _scaled(walker, inputs)
        if found is None:
            return None
        data, factors = found
        blocks, block = walker.fact(data).shape[1], walker.fact(data).shape[4]  # type: ignore[index]
        along = walker.make("reshape", [factors], {"shape": (blocks, 1, 1, block, 1)})
        filters = walker.make("broadcast_mul", [inputs[1], along])
        return walker.make("conv2d", [data, filters, *inputs[2:]], node.attrs, node.name)

    return rewrite(graph, scale)


def _is_pointwise(node: Node) -> bool:
    p = node.params
    data, filters = Layout(p.layout), Layout(p.kernel_layout)
    letters = "".join(letter for letter, _ in data.axes), "".join(x for x, _ in filters.axes)
    blocked = letters == ("NCHWc", "OIHWio") and data.subsizeof("C") == filters.subsizeof("I")
    return blocked and p.groups == 1 and p.kernel_size == (1, 1)


def _scaled(walker: Walker, inputs: list[NodeEntry]) -> tuple[NodeEntry, NodeEntry] | None:
    """What a product is made of: an image of many channels, and a factor for each of them."""
    product, filters = inputs[0].node, walker.fact(inputs[1]).shape
    whole = walker.fact(inputs[0]).shape
    if product.op_name != "broadcast_mul" or not is_static(whole) or not is_static(filters):
        return None
    if len(whole) != 5 or whole[0] != 1 or prod(whole) < FEWER * prod(filters):
        return None
    per_channel = (1, whole[1], 1, 1, whole[4])
    for data, factors in (product.inputs, product.inputs[::-1]):
        if walker.fact(data).shape == whole and walker.fact(factors).shape == per_channel:
            return data, factors
    return None
