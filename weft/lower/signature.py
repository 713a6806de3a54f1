"""Signatures: what a group computes, on what shapes, for what target. Equal ones, equal kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.ir import Fact, NodeEntry


def signature(group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: Target) -> Hashable:
    """Operators, attributes, how they are wired, and the facts about what goes in."""
    number: dict[Hashable, int] = {entry: i for i, entry in enumerate(group.inputs)}
    rows = []
    for node in group.nodes:
        assert node.op is not None
        attrs = tuple(sorted(node.op.attributes(node.params).items()))
        rows.append((node.op.name, attrs, tuple(number[entry] for entry in node.inputs)))
        for index in range(node.num_outputs):
            number[NodeEntry(node, index)] = len(number)
    facts = tuple(fact(entry)[:2] for entry in group.inputs)
    outputs = tuple(number.get(entry, -1) for entry in group.outputs)
    return (str(target), tuple(rows), facts, outputs, tuple(fact(e)[:2] for e in group.outputs))
