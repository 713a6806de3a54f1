"""DropEmpty: a value without elements is made by nothing but its shape, so that no kernel, layout
or place in memory is looked for. What reads it, and has elements itself, stays."""

from __future__ import annotations

from ..base.dtype import dtype_name, is_complex
from ..core.graph import Graph
from ..core.ir import Fact, Node, NodeEntry
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite


@register_pass("DropEmpty")
def drop_empty(graph: Graph) -> Graph:
    """A node all of whose outputs are empty becomes zeros of their shapes."""
    if not any(_is_empty(fact) for facts in graph.facts.values() for fact in facts):
        return graph
    return rewrite(graph.replace(attrs={}), _dropped)


def _is_empty(fact: Fact) -> bool:
    return fact.shape is not None and 0 in fact.shape


def _dropped(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
    if node.op is None or not node.inputs or node.op.effect_of(node.params) != "pure":
        return None
    facts = [walker.fact(NodeEntry(node, index)) for index in range(node.num_outputs)]
    if node.op.mutates_of(node.params) or not all(_is_empty(f) and _is_plain(f) for f in facts):
        return None
    names = [node.name] if len(facts) == 1 else [node.output_name(i) for i in range(len(facts))]
    return [
        walker.make("zeros", [], {"shape": fact.shape, "dtype": dtype_name(fact.dtype)}, name)  # type: ignore[arg-type]
        for fact, name in zip(facts, names)
    ]


def _is_plain(fact: Fact) -> bool:
    """Whether the fact says what kind of zeros it is; those of complex numbers are made on the
    host."""
    return fact.dtype is not None and not is_complex(fact.dtype)
