"""Signatures: what a group computes, on what shapes, for what target. Equal ones, equal kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.ir import Node, NodeEntry
from .group import Facts


def signature(group: FusedGroup, fact: Facts, target: Target) -> Hashable:
    """Operators, attributes, how they are wired, and the facts about what goes in."""
    rows, outputs = wiring(group, lambda node: node.op.attributes(node.params) if node.op is not None else {})
    facts = tuple(fact(entry)[:2] for entry in group.inputs)
    return (str(target), rows, facts, outputs, tuple(fact(e)[:2] for e in group.outputs))


def wiring(group: FusedGroup, attributes: Callable[[Node], Mapping[str, str]]) -> tuple[Hashable, tuple[int, ...]]:
    """A row for each node: operator, attributes, the numbers of what goes in. And the numbers of the outputs."""
    number: dict[Hashable, int] = {entry: i for i, entry in enumerate(group.inputs)}
    rows = []
    for node in group.nodes:
        attrs = tuple(sorted(attributes(node).items()))
        rows.append((node.op_name, attrs, tuple(number[entry] for entry in node.inputs)))
        for index in range(node.num_outputs):
            number[NodeEntry(node, index)] = len(number)
    return tuple(rows), tuple(number.get(entry, -1) for entry in group.outputs)
