"""Parts of a recording that become subgraphs: what was recorded inside, what it wrote to, what it reads of the rest."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.ir import Node, NodeEntry
from ...core.symbol import Symbol
from ...eager.recording import Storage
from ...ops.control_flow import input_name
from .recorder import replaced


class Scope:
    """A branch, or the turn of a loop, while it is recorded. Memory that was born before `first` is from outside, and
    so are the states of a loop."""

    def __init__(self, first: int, states: Sequence[Storage] | None = None) -> None:
        self.first = first
        self.states = states  # of a loop, of which nothing else from outside is written to
        self.made: set[Node] = set()
        self.read: set[Storage] = set()
        self.written: dict[Storage, NodeEntry] = {}  # memory from outside, with what it held before

    def join(self, inner: Scope) -> None:
        """What was recorded in a scope inside this one is part of it too."""
        self.made |= inner.made
        self.read |= inner.read

    def closed(self, outputs: Sequence[NodeEntry], inputs: dict[NodeEntry, int]) -> Symbol:
        """The subgraph that gives some entries. What it reads from outside is added to the inputs of the node."""
        met, stack = set(outputs), list(outputs)
        found: set[NodeEntry] = set()
        while stack:
            entry = stack.pop()
            if entry.node not in self.made:
                inputs.setdefault(entry, len(inputs))
                found.add(entry)
                continue
            for source in entry.node.inputs:
                if source not in met:
                    met.add(source)
                    stack.append(source)
        variables = {entry: NodeEntry(Node(None, input_name(inputs[entry]))) for entry in found}
        return Symbol(replaced(outputs, variables))
