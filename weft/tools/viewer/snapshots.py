"""Graphs become records: what is equal in two graphs is one record, so that a page of many passes stays small."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...base.dtype import dtype_name
from ...base.shape import show_dims
from ...core.graph import Graph
from ...core.ir import Fact, Node
from .records import NodeRecord, Snapshot
from .scopes import Scopes

LONGEST_ATTR = 400  # characters of an attribute that are shown


class Names:
    """A number for each name."""

    def __init__(self) -> None:
        self.list: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        found = self._numbers.setdefault(name, len(self.list))
        if found == len(self.list):
            self.list.append(name)
        return found


class Recorder:
    """Takes the graphs of one program, the model's own first, which tells the blocks."""

    def __init__(self, first: Graph) -> None:
        self.names = Names()
        self.scopes = Scopes([node.name for node in first.indexed.nodes if node.op is not None])
        self.records: list[NodeRecord] = []
        self.snapshots: list[Snapshot] = []
        self._numbers: dict[NodeRecord, int] = {}

    def take(self, title: str, note: str, graph: Graph) -> None:
        """Adds a graph, unless it is the same as the last one."""
        own = distinct_names(graph.indexed.nodes)
        scopes = self._node_scopes(graph)
        nodes = [self.record(self._record(graph, node, own, scopes[node])) for node in graph.indexed.nodes]
        outputs = [self.names.number(own[entry.node]) for entry in graph.outputs]
        made = Snapshot(title, note, nodes, outputs)
        if not self.snapshots or self.snapshots[-1][2:] != made[2:]:
            self.snapshots.append(made)

    def record(self, record: NodeRecord) -> int:
        """The number of a record, which may be there already."""
        found = self._numbers.setdefault(record, len(self.records))
        if found == len(self.records):
            self.records.append(record)
        return found

    def _record(self, graph: Graph, node: Node, own: dict[Node, str], scope: int) -> NodeRecord:
        sources = graph.sources.get(node, ())
        attrs = ((key, _short(value)) for key, value in node.attrs.items() if not key.startswith("__"))
        return NodeRecord(
            self.names.number(own[node]),
            "variable" if node.op is None else node.op.name,
            scope,
            tuple(self.names.number(own[entry.node]) for entry in node.inputs),
            tuple(fact_text(fact) for fact in graph.node_facts(node)),
            tuple(attrs),
            tuple(self.names.number(source.name) for source in sources),
        )

    def _node_scopes(self, graph: Graph) -> dict[Node, int]:
        """The block of every node: a variable stands beside the first node that reads it."""
        scopes: dict[Node, int] = {}
        for node in graph.indexed.nodes:
            if node.op is not None:
                sources = [source.name for source in graph.sources.get(node, ())]
                scopes[node] = self.scopes.of(node.name, sources)
                for entry in node.inputs:
                    scopes.setdefault(entry.node, scopes[node])
        return {node: scopes.get(node, 0) for node in graph.indexed.nodes}


def distinct_names(nodes: Iterable[Node]) -> dict[Node, str]:
    """A name of its own for each node; of several with one name, the later ones are numbered."""
    taken: dict[str, int] = {}
    found = {}
    for node in nodes:
        count = taken[node.name] = taken.get(node.name, 0) + 1
        found[node] = node.name if count == 1 else f"{node.name} #{count}"
    return found


def fact_text(fact: Fact) -> str:
    """The dtype, shape and layout of a value.

    >>> fact_text(Fact((1, "n"), None))
    '?[1, n]'
    """
    dtype = "?" if fact.dtype is None else dtype_name(fact.dtype)
    layout = f" {fact.layout}" if fact.layout.defined else ""
    return f"{dtype}[{show_dims(fact.shape)}]{layout}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_ATTR else f"{text[:LONGEST_ATTR]} … ({len(text)} characters)"


def runs(numbers: Sequence[int]) -> list[int]:
    """Numbers as pairs of a first one and how many follow each other from there.

    >>> runs([4, 5, 6, 9])
    [4, 3, 9, 1]
    """
    made: list[int] = []
    for number in numbers:
        if made and number == made[-2] + made[-1]:
            made[-1] += 1
        else:
            made += [number, 1]
    return made
