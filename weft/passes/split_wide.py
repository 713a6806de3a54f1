"""SplitWide: a node that joins very many tensors becomes a few levels of nodes that each join some,
so that no kernel has more code, and LLVM no more work at once, than a bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.passes import register_pass
from ..core.schema import is_hidden
from ..core.walk import Walker, rewrite

MAX_JOINED = 64  # kernels ask of every element which tensor it is from, or read all of them

Join = Callable[[list[NodeEntry]], NodeEntry]


def _concatenated(walker: Walker, node: Node, inputs: list[NodeEntry], kept: dict[str, Any]) -> Any:
    """concatenate(concatenate(a, b), concatenate(c, d))."""
    attrs = {"axis": node.params.axis}
    parts = _by_levels(inputs, lambda some: walker.make("concatenate", some, attrs))
    return walker.make("concatenate", parts, {**kept, **attrs}, node.name)


def _stacked(walker: Walker, node: Node, inputs: list[NodeEntry], kept: dict[str, Any]) -> Any:
    """concatenate(stack(a, b), stack(c, d)), along the axis that is new."""
    attrs = {"axis": node.params.axis}
    slabs = [walker.make("stack", some, attrs) for some in _cut(inputs)]
    parts = _by_levels(slabs, lambda some: walker.make("concatenate", some, attrs))
    return walker.make("concatenate", parts, {**kept, **attrs}, node.name)


def _summed(walker: Walker, node: Node, inputs: list[NodeEntry], kept: dict[str, Any]) -> Any:
    """((a + b) + c) + d: in the order of the inputs, as before."""
    total = inputs[0]
    last = range(1, len(inputs), MAX_JOINED - 1)[-1]
    for start in range(1, last, MAX_JOINED - 1):
        some = [total, *inputs[start : start + MAX_JOINED - 1]]
        total = walker.make("elemwise_sum", some, {"num_args": len(some)})
    rest = [total, *inputs[last:]]
    return walker.make("elemwise_sum", rest, {**kept, "num_args": len(rest)}, node.name)


def _cut(entries: list[NodeEntry]) -> list[list[NodeEntry]]:
    return [entries[i : i + MAX_JOINED] for i in range(0, len(entries), MAX_JOINED)]


def _by_levels(entries: list[NodeEntry], join: Join) -> list[NodeEntry]:
    """At most MAX_JOINED entries that have the same in the same order."""
    while len(entries) > MAX_JOINED:
        entries = [join(some) if len(some) > 1 else some[0] for some in _cut(entries)]
    return entries


_SPLIT = {"concatenate": _concatenated, "stack": _stacked, "elemwise_sum": _summed}


@register_pass("SplitWide")
def split_wide(graph: Graph) -> Graph:
    """Concatenations, stacks and sums of more than MAX_JOINED tensors in levels."""

    def split(walker: Walker, node: Node, inputs: list[NodeEntry]) -> Any:
        how = _SPLIT.get(node.op_name)
        if how is None or len(inputs) <= MAX_JOINED or node.control_deps:
            return None
        kept = {key: text for key, text in node.attrs.items() if is_hidden(key)}
        return how(walker, node, inputs, kept)

    return rewrite(graph, split)
