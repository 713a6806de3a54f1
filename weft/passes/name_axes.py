"""NameAxes: every tensor of a graph gets names for its axes, by position, as operators call them.

A name is given once, by the producer or else by the first reader, and says nothing about storage.
Where a reader calls axes otherwise, it reads a copy with those names, which moves no element; a
graph means the same with and without names.
"""

from __future__ import annotations

from ..base.layout import Layout
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.op import Op
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite
from .correct_layout import Layouts, fits


@register_pass("NameAxes", provides=("layout",), op_attrs=("FCorrectLayout",))
def name_axes(graph: Graph) -> Graph:
    """The graph with names for the axes of every entry that an operator has names for."""
    unnamed = {node: tuple(fact._replace(layout=Layout()) for fact in facts) for node, facts in graph.facts.items()}
    names = _Names(graph.replace(attrs={}, facts=unnamed))
    made = rewrite(names.graph, names.correct)
    facts = {node: names.stamp(node, made.node_facts(node)) for node in made.indexed.nodes}
    return made.replace(facts=facts)


class _Names(Layouts):
    """Names as they are given, in the order of the graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.read: set[tuple[Node, int]] = set()

    def ask(
        self, walker: Walker, node: Node, op: Op, inputs: list[NodeEntry], last_outs: list[Layout]
    ) -> tuple[list[Layout], list[Layout]]:
        wanted, outs = super().ask(walker, node, op, inputs, last_outs)
        read = zip(wanted, [walker.fact(entry).shape for entry in inputs])
        made = zip(outs, [fact.shape for fact in self.graph.node_facts(node)])
        if all(fits(layout, shape) for layout, shape in (*read, *made)):
            return wanted, outs
        return [Layout()] * len(inputs), [Layout()] * len(outs)

    def arrive(self, walker: Walker, entry: NodeEntry, wanted: Layout, reader: Node, written: bool) -> NodeEntry:
        """An input with the names that its reader has for it."""
        have = self.now[entry.node][entry.index]
        is_first = (entry.node, entry.index) not in self.read
        self.read.add((entry.node, entry.index))
        if not wanted.defined or have == wanted:
            return entry
        if not have.defined and is_first:
            self.now[entry.node][entry.index] = wanted
        if written or self.now[entry.node][entry.index] == wanted:
            return entry
        if (entry, wanted) not in self.transforms:
            made = walker.make("copy", [entry], name=f"{entry.node.name}_{wanted.name}")
            self.now[made.node] = [wanted]
            self.transforms[entry, wanted] = made
        return self.transforms[entry, wanted]
