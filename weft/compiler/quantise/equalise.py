"""Channels that reach little beside others are made larger before they become levels, and weights that read them
smaller: the same numbers come out, and more levels are used.

    sum over c of w[o, c] x[c] = sum over c of (w[o, c] e[c]) (x[c] / e[c])

With one scale for all channels of the data, a channel that reaches a hundredth of another has two levels or three. What
is left of all levels is wrong by even noise, so the noise of a product is known before anything is quantised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...core.graph import Graph
from ...core.ir import Node, NodeEntry
from ...core.walk import Walker, rewrite
from ...runtime.program import Array
from .ranges import LEVELS
from .rewrite import FURTHEST, HANDS_ON, new_constant

WORTH = 0.7  # of the noise as it is, at most, for channels to be made alike: each costs a product
STRENGTHS = (0.25, 0.5, 0.75, 1.0)  # how alike: with 1, all channels reach as far
FURTHEST_APART = 256.0  # of two factors


class Reach(NamedTuple):
    """What channels of a value reach, from zero, and the root of their mean square."""

    furthest: Array
    usual: Array


def channel_axis(node: Node, rank: int) -> int:
    """Of the data of a product."""
    return 1 if node.op_name == "conv2d" else rank - 1


def equalised(
    graph: Graph, params: Mapping[str, Array], products: Sequence[Node], reached: Mapping[NodeEntry, Reach]
) -> tuple[Graph, dict[str, Array]]:
    """The graph with channels of what products read made alike, where that leaves less noise."""
    readers: dict[NodeEntry, list[Node]] = {}
    for node in products:
        readers.setdefault(node.inputs[0], []).append(node)
    factors = {}
    for entry, nodes in readers.items():
        axes = {channel_axis(node, len(graph.fact(entry).shape or ())) for node in nodes}
        if entry in reached and len(axes) == 1 and entry.node.op_name not in HANDS_ON:
            found = _factors([_by_channel(node, params) for node in nodes], reached[entry])
            if found is not None:
                factors[entry] = found
    made = _Equalising(graph, params, products, factors)
    result = rewrite(graph, made.rule)
    used = {result.indexed.nodes[number].name for number in result.indexed.variables}
    return result, {name: value for name, value in made.params.items() if name in used}


def _by_channel(node: Node, params: Mapping[str, Array]) -> Array:
    """Magnitudes of weights: (outputs, channels of the data), of which a depthwise convolution has one row for each."""
    weight = np.abs(params[node.inputs[1].node.name].astype(np.float64))
    if node.op_name == "matmul":
        return np.asarray(weight.T)
    if node.op_name == "dense":
        return weight
    if node.params.groups == 1:
        return np.asarray(np.sqrt(np.square(weight).sum((2, 3))))
    return np.diag(np.sqrt(np.square(weight).sum((1, 2, 3))))


def _factors(weights: Sequence[Array], reach: Reach) -> Array | None:
    """By which channels are divided; None where noise stays about the same."""
    alone = np.concatenate(weights)
    largest = alone.max(1, keepdims=True)
    read = (alone / np.where(largest > 0, largest, 1)).max(0)  # of the largest weight beside it
    used = (reach.furthest > 0) & (read > 0)
    if not used.any():
        return None
    ones = np.ones(len(reach.furthest))
    before = _noise(alone, reach, ones)
    best, chosen = before * WORTH, None
    for strength in STRENGTHS:
        for back in (0.0, 1 - strength):
            made = ones.copy()
            made[used] = reach.furthest[used] ** strength / read[used] ** back
            made[used] = np.maximum(made[used] / made[used].max(), 1 / FURTHEST_APART)
            made[~used] = np.exp(np.log(made[used]).mean())  # other batches may reach it
            noise = _noise(alone, reach, made)
            if noise < best:
                best, chosen = noise, made
    return chosen


def _noise(weights: Array, reach: Reach, factors: Array) -> float:
    """What levels of the data and of weights add to the sums, as a part of these, summed over outputs."""
    step = (reach.furthest / factors).max() / LEVELS
    of_data = np.square(weights * factors * step).sum(1)
    steps = (weights * factors).max(1) / FURTHEST
    read = weights > 0
    of_weights = np.square(steps[:, None] * np.where(read, reach.usual / factors, 0)).sum(1)
    signal = np.square(weights * reach.usual).sum(1)
    there = signal > 0
    return float(((of_data + of_weights)[there] / signal[there]).sum())


class _Equalising:
    def __init__(
        self, graph: Graph, params: Mapping[str, Array], products: Sequence[Node], factors: Mapping[NodeEntry, Array]
    ) -> None:
        self.graph, self.products, self.factors = graph, set(products), factors
        self.params = dict(params)
        self.names = {node.name for node in graph.indexed.nodes}
        self.made: dict[NodeEntry, NodeEntry] = {}

    def rule(self, walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | None:
        old = node.inputs[0] if node in self.products else None
        if old is None or old not in self.factors:
            return None
        factors = self.factors[old]
        if old not in self.made:
            rank = len(self.graph.fact(old).shape or ())
            after = rank - 1 - channel_axis(node, rank)
            inverse = (1 / factors).astype(np.float32).reshape((-1,) + (1,) * after)
            name = old.node.output_name(old.index)
            constant = self._constant(walker, f"{name}_equal", inverse)
            self.made[old] = walker.make("broadcast_mul", [inputs[0], constant], None, f"{name}_equalised")
        weight = self.params[node.inputs[1].node.name]
        spread = factors.astype(np.float32)
        if node.op_name == "matmul":
            scaled = weight * spread[:, None]
        elif node.op_name == "conv2d":
            scaled = weight * (spread[None, :, None, None] if node.params.groups == 1 else spread[:, None, None, None])
        else:
            scaled = weight * spread
        changed = [self.made[old], self._constant(walker, f"{node.name}_weight_equal", scaled), *inputs[2:]]
        return walker.make(node.op_name, changed, node.attrs, node.name)

    def _constant(self, walker: Walker, name: str, value: Array) -> NodeEntry:
        return new_constant(walker, self.names, self.params, name, value)
