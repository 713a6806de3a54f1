"""FuseLayerNorm: means, squares and quotients that make a layer normalisation become one operator.

c = x - mean(x);  c / sqrt(mean(c^2) + epsilon) * gamma + beta         means over the last axes
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..base.shape import normalize_axis
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite
from ._chains import Chains
from ._moves import Moves

SUMS, PRODUCTS = ("broadcast_add", "elemwise_add"), ("broadcast_mul", "elemwise_mul")


class _Norm(NamedTuple):
    data: NodeEntry
    gamma: NodeEntry
    beta: NodeEntry
    axis: int  # the first of the normalised ones
    epsilon: float
    inside: tuple[Node, ...]


@register_pass("FuseLayerNorm", requires=("shape", "dtype"))
def fuse_layer_norm(graph: Graph) -> Graph:
    """Puts layer_norm in place of the operators that compute it."""
    chains, moves = Chains(graph), Moves()

    def fuse(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        norm = _found(graph, chains, node)
        if norm is None:
            return moves.keep(walker, node, inputs)
        read = [moves.entry(entry) for entry in (norm.data, norm.gamma, norm.beta)]
        attrs = {"axis": norm.axis, "epsilon": norm.epsilon}
        return moves.put(node, [walker.make("layer_norm", read, attrs, node.name)])

    return rewrite(graph, fuse)


def _found(graph: Graph, chains: Chains, node: Node) -> _Norm | None:
    """The normalisation that a node ends, if nothing else reads what is inside it."""
    for scaled, beta in _either(node, SUMS):
        for unit, gamma in _either(scaled.node, PRODUCTS):
            made = _unit(graph, unit.node)
            if made is None:
                continue
            data, axis, epsilon, inside = made
            norm = _Norm(data, gamma, beta, axis, epsilon, (*inside, scaled.node, unit.node))
            read = (norm.data, norm.gamma, norm.beta)
            if _fits(graph, norm, node) and chains.is_closed(norm.inside, node, read):
                return norm
    return None


def _either(node: Node, op_names: tuple[str, ...]) -> Iterator[tuple[NodeEntry, NodeEntry]]:
    """The inputs of one of two operators that commute, in both orders."""
    if node.op_name in op_names:
        a, b = node.inputs
        yield a, b
        yield b, a


def _fits(graph: Graph, norm: _Norm, node: Node) -> bool:
    """Whether gamma and beta have an element for each that is normalised, in the same dtype."""
    facts = [graph.fact(entry) for entry in (norm.data, norm.gamma, norm.beta)]
    shape = facts[0].shape
    if shape is None or graph.fact(NodeEntry(node)).shape != shape:
        return False
    own = shape[norm.axis :]
    return facts[1].shape == facts[2].shape == own and len({fact.dtype for fact in facts}) == 1


def _unit(graph: Graph, node: Node) -> tuple[NodeEntry, int, float, list[Node]] | None:
    """x, axis, epsilon and the nodes of (x - mean) / sqrt(variance + epsilon)."""
    if node.op_name not in ("broadcast_div", "elemwise_div"):
        return None
    centred, root = (entry.node for entry in node.inputs)
    if root.op_name != "sqrt" or root.inputs[0].node.op_name != "__add_scalar__":
        return None
    shifted = root.inputs[0].node
    variance = shifted.inputs[0].node
    axis = _mean_axis(graph, variance)
    if axis is None or centred.op_name not in ("broadcast_sub", "elemwise_sub"):
        return None
    square = variance.inputs[0].node
    data, mean = centred.inputs
    if not _squares(square, NodeEntry(centred)) or _mean_axis(graph, mean.node) != axis:
        return None
    if mean.node.inputs[0] != data:
        return None
    inside = [centred, root, shifted, variance, square, mean.node]
    return data, axis, shifted.params.scalar, inside


def _squares(node: Node, entry: NodeEntry) -> bool:
    if node.op_name in PRODUCTS:
        return node.inputs == [entry, entry]
    power = node.op_name == "__pow_scalar__" and node.params.scalar == 2
    return (power or node.op_name == "square") and node.inputs == [entry]


def _mean_axis(graph: Graph, node: Node) -> int | None:
    """The first axis of a mean over that and all axes after it, which stay with extent 1."""
    if node.op_name != "mean" or not node.params.keepdims or node.params.exclude:
        return None
    shape = graph.fact(node.inputs[0]).shape
    if shape is None or not node.params.axis:
        return None
    axes = sorted(normalize_axis(axis, len(shape)) for axis in node.params.axis)
    return axes[0] if axes == list(range(axes[0], len(shape))) else None
