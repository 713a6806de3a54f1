"""FusedGroup: nodes that become one piece of compiled code. Made by the fusion pass, read by the
lowering."""

from __future__ import annotations

from typing import NamedTuple

from .ir import Node, NodeEntry
from .op import Op, Rule


class FusedGroup(NamedTuple):
    """Nodes in topological order, what they read from outside, and what others read of them."""

    nodes: tuple[Node, ...]
    inputs: tuple[NodeEntry, ...]
    outputs: tuple[NodeEntry, ...]
    master: Node | None = None  # the conv2d, dense, ... that decides the schedule

    @property
    def anchor(self) -> Node:
        """The master of a group that has one."""
        assert self.master is not None
        return self.master

    @property
    def schedule(self) -> Rule | None:
        """What was registered for the master, or for the last node where there is none."""
        rule: Rule | None = Op.schedule.get((self.master or self.nodes[-1]).op)
        return rule
