"""Whether several images are computed one by one, each from the first kernel to the last, or all by every kernel.
One by one, what lies between kernels stays in caches, and threads take images of their own; but weights that are used
once for an image are read for each."""

from __future__ import annotations

from math import prod

from ...base.cpu_facts import CpuFacts
from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32
from ...base.shape import is_static, numel
from ...base.stages import decided
from ...core.graph import Graph
from ...core.ir import Fact, Node, NodeEntry

WEIGHTED = frozenset("conv1d conv2d conv3d conv2d_transpose dense".split())


def pays_apart(graph: Graph, count: int, target: CpuTarget) -> bool:
    """For so many images, with the graph of one."""
    core = target.facts
    saved = lost = 0.0
    for node in graph.indexed.nodes:
        fact = graph.fact(NodeEntry(node))
        if node.op is None or not is_static(fact.shape):
            continue
        size = numel(fact.shape) * (fact.dtype or FLOAT32).itemsize
        saved += 2 * size * count * (1 / _rate(size * count, core) - 1 / _rate(size, core))
        if node.op_name in WEIGHTED:
            lost += (count - 1) * _waiting(node, graph, fact, core)
    costs = {"one by one, us": 1e6 * lost, "together, us": 1e6 * saved}
    decided("images", pays_apart, "one by one, us" if saved > lost else "together, us", lambda: costs)
    return saved > lost


def _rate(size: int, core: CpuFacts) -> float:
    """Bytes a second of what is written by a kernel and read by the next."""
    _, second, last = core.caches
    return core.near_rate if size <= second else core.last_rate if 2 * size <= last else core.far_rate


def _waiting(node: Node, graph: Graph, made: Fact, core: CpuFacts) -> float:
    """Seconds that an image waits for weights, beside what is computed with them."""
    shape = graph.fact(node.inputs[1]).shape
    if not is_static(shape) or not is_static(made.shape):
        return 0.0
    spots = prod(made.shape[1:-1] if node.op_name == "dense" else made.shape[2:])
    weights = numel(shape)
    return max(weights * FLOAT32.itemsize / core.far_rate - 2 * weights * spots / core.flops, 0.0)
