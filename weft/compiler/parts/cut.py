"""Cuts a graph with deferred nodes into parts, each of which can be compiled once the shapes of its inputs, and the
values of those that decide, are known.

Every node has two numbers. Its *stage* is the part that it is computed in. The stage at which its value is *known* is
the first part that may be specialised on it: what follows from shapes and parameters is known in its own stage, what is
computed from data in the next, after it was read. A node whose input decides stands no earlier than the stage at which
that input is known; a step on the host ends the stage of its inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...core.graph import Graph
from ...core.ir import Node, NodeEntry
from ...core.op import Op
from ...core.symbol import Symbol
from ...frontend.deferred import DEFERRED, HOST_STEP, IF_ELSE, LOOP, has_deferred
from ...ops.control_flow import input_name

MOST_AXES = 1  # an input of more is data, which decides nothing before it was computed with


class HostCall(NamedTuple):
    """A node that runs between parts: the names of values that it reads, and of those that it gives."""

    node: Node
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class PartPlan:
    """What is computed in one go. `symbol` is None if nothing is: only steps on the host follow."""

    symbol: Symbol | None
    outputs: list[str]  # names of the values that the outputs of the symbol are
    deciding: set[str]  # inputs whose values it is specialised on
    host: list[HostCall] = field(default_factory=list)  # in order, behind it


class Plan(NamedTuple):
    """The parts of a model, in order, and the names of its outputs among the values."""

    parts: list[PartPlan]
    outputs: list[str]


def cut(graph: Graph, params: Collection[str], repeats: bool = False) -> Plan:
    """The parts of a graph whose variables of these names are constants. With `repeats` it is the body of a loop: what
    a value decides there, branches too, would be decided anew in each turn, so it runs on the host."""
    if is_whole(graph):
        names = [f"%{position}" for position in range(len(graph.outputs))]
        return Plan([PartPlan(graph.symbol, names, set())], names)
    return _Cut(graph, params, repeats=repeats).plan()


def is_whole(graph: Graph) -> bool:
    """Whether a graph is one part whatever its inputs are, as all are without nodes that wait."""
    return not has_deferred(graph.indexed.nodes)


class _Cut:
    def __init__(
        self, graph: Graph, params: Collection[str], may_decide: Collection[str] | None = None, repeats: bool = False
    ) -> None:
        self.graph = graph
        self.params = params
        self.repeats = repeats
        self.may_decide = may_decide  # inputs whose values can be had; None: those that are small
        self.stage: dict[Node, int] = {}
        self.ready: dict[Node, int] = {}  # the first stage that may read it
        self.known: dict[Node, int] = {}
        self.on_host: set[Node] = set()
        self.fed: set[Node] = set()  # what follows from the values of inputs
        self.decides: dict[Node, list[NodeEntry]] = {}
        for node in graph.indexed.nodes:
            if node.op is None:
                self._variable(node)
            else:
                self._node(node, node.op)

    @property
    def is_simple(self) -> bool:
        """Whether it is one part that no input decides."""
        return not self.on_host and not any(self.stage.values())

    def _variable(self, node: Node) -> None:
        shape = self.graph.fact(NodeEntry(node)).shape
        small = shape is None or len(shape) <= MOST_AXES
        decides = small if self.may_decide is None else node.name in self.may_decide
        self.stage[node] = self.ready[node] = 0
        self.known[node] = 0 if node.name in self.params or decides else 1
        if node.name not in self.params:
            self.fed.add(node)

    def _node(self, node: Node, op: Op) -> None:
        ready = max((self.ready[entry.node] for entry in node.inputs), default=0)
        known = max((self.known[entry.node] for entry in node.inputs), default=0)
        deciding = self._deciding(node)
        if any(entry.node in self.fed for entry in node.inputs) and not (op is DEFERRED and node.params.by_shape):
            self.fed.add(node)
        elif op is HOST_STEP and node.params.tensors and known <= ready:
            deciding = node.inputs  # follows from shapes: it is computed while the part is made
        if self.repeats and op in (DEFERRED, IF_ELSE) and any(entry.node in self.fed for entry in deciding or ()):
            deciding = None
        if deciding is None:
            self.on_host.add(node)
            self.stage[node] = ready
            self.ready[node] = self.known[node] = ready + 1
            return
        stage = max([ready, *(self.known[entry.node] for entry in deciding)])
        self.decides[node] = deciding
        self.stage[node] = self.ready[node] = stage
        if op is DEFERRED and node.params.by_shape:
            self.known[node] = stage
        elif op.effect_of(node.params) == "pure":
            self.known[node] = min(max(known, stage), stage + 1)
        else:
            self.known[node] = stage + 1

    def _deciding(self, node: Node) -> list[NodeEntry] | None:
        """The inputs that decide what a node becomes; None if it runs on the host."""
        if node.op is DEFERRED:
            return [node.inputs[place] for place in node.params.decides]
        if node.op is IF_ELSE:
            return self._if_deciding(node)
        return None if node.op in (HOST_STEP, LOOP) else []

    def _if_deciding(self, node: Node) -> list[NodeEntry] | None:
        """The condition, and what else the branches are converted by, if each of them is one part then."""
        ready = max(self.ready[entry.node] for entry in node.inputs)
        places = {input_name(place): entry for place, entry in enumerate(node.inputs)}
        fixed = {name for name, (source, *_) in places.items() if source.op is None and source.name in self.params}
        known = {name for name, (source, *_) in places.items() if self.known[source] <= ready}
        branches = [_Cut(Graph(branch.outputs), fixed, known) for branch in node.subgraphs]
        if not all(branch.is_simple for branch in branches):
            return None
        asked = sorted(set().union(*(branch._decided_by(0, branch.decides) for branch in branches)))
        return [node.inputs[0], *(places[name] for name in asked)]

    # Parts

    def plan(self) -> Plan:
        count = 1 + max(self.stage.values(), default=0)
        nodes: list[list[Node]] = [[] for _ in range(count)]  # of each stage, in order
        crossing: list[list[NodeEntry]] = [[] for _ in range(count)]
        for node in self.graph.indexed.nodes:
            if node.op is not None:
                nodes[self.stage[node]].append(node)
        for entry in self._crossing():
            crossing[self.stage[entry.node]].append(entry)
        parts = [self._part(stage, nodes[stage], crossing[stage]) for stage in range(count)]
        return Plan(parts, [self.name(entry) for entry in self.graph.outputs])

    def _part(self, stage: int, nodes: Sequence[Node], entries: Sequence[NodeEntry]) -> PartPlan:
        """The nodes of a stage, of which these entries are read elsewhere."""
        own = [node for node in nodes if node not in self.on_host]
        symbol = self._copied(own, entries) if entries else None
        names = [self.name(entry) for entry in entries]
        host = [self._host_call(node) for node in nodes if node in self.on_host]
        return PartPlan(symbol, names, self._decided_by(stage, own), host)

    def name(self, entry: NodeEntry) -> str:
        """What a value is called outside of its part."""
        if entry.node.op is None:
            return entry.node.name
        return f"%{self.graph.indexed.node_id[entry.node]}.{entry.index}"

    def _is_made_in(self, node: Node, stage: int) -> bool:
        return node.op is not None and node not in self.on_host and self.stage[node] == stage

    def _crossing(self) -> list[NodeEntry]:
        """Values that a part has to give: others read them, or they are outputs."""
        crossing: dict[NodeEntry, None] = {}
        for node in self.graph.indexed.nodes:
            for entry in node.inputs:
                if self.stage[entry.node] < self.stage[node] or node in self.on_host:
                    crossing[NodeEntry(entry.node, entry.index)] = None
        for entry in self.graph.outputs:
            crossing[NodeEntry(entry.node, entry.index)] = None
        return [entry for entry in crossing if entry.node.op is not None and entry.node not in self.on_host]

    def _copied(self, nodes: Iterable[Node], entries: Iterable[NodeEntry]) -> Symbol:
        """The nodes of a stage, on variables for what comes from earlier ones."""
        copies: dict[Node, Node] = {}
        variables: dict[str, Node] = {}

        def entry_of(entry: NodeEntry) -> NodeEntry:
            node = entry.node
            if node in copies:
                return NodeEntry(copies[node], entry.index)
            if node.op is None:
                return entry
            name = self.name(entry)
            if name not in variables:
                variables[name] = Node(None, name)
            return NodeEntry(variables[name])

        for node in nodes:
            copies[node] = node.copy_with([entry_of(entry) for entry in node.inputs])
        return Symbol([entry_of(entry) for entry in entries])

    def _host_call(self, node: Node) -> HostCall:
        outputs = [NodeEntry(node, index) for index in range(node.num_outputs)]
        return HostCall(node, tuple(map(self.name, node.inputs)), tuple(map(self.name, outputs)))

    def _decided_by(self, stage: int, nodes: Iterable[Node]) -> set[str]:
        """Inputs of a part of these nodes whose values something in it waits for."""
        deciding: set[str] = set()
        seen: set[Node] = set()
        pending = [entry for node in nodes for entry in self.decides[node]]
        while pending:
            entry = pending.pop()
            node = entry.node
            if not self._is_made_in(node, stage):
                if node.op is not None or node.name not in self.params:
                    deciding.add(self.name(entry))
            elif node not in seen:
                seen.add(node)
                if not (node.op is DEFERRED and node.params.by_shape):
                    pending += node.inputs
        return deciding
