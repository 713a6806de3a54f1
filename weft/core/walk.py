"""The one walker. A pass is a rule that looks at a node and says what stands in its place; nodes it
makes get their facts and sources when they are made, so nothing is ever stale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base.errors import GraphError
from .graph import Graph
from .infer import infer_node
from .ir import UNKNOWN, Fact, Node, NodeEntry, topo_order
from .op import Op
from .schema import text_of


class Walker:
    """Where a pass makes nodes, and reads facts about those it was given or made."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.facts: dict[Node, tuple[Fact, ...]] = {}
        self.sources: dict[Node, tuple[Node, ...]] = {}
        self._at: Node | None = None

    def fact(self, entry: NodeEntry) -> Fact:
        """What is known about an entry of the new graph."""
        facts = self.facts.get(entry.node) or self.graph.facts.get(entry.node)
        return facts[entry.index] if facts else UNKNOWN

    def make(
        self, op_name: str, inputs: Sequence[NodeEntry], attrs: Mapping[str, Any] | None = None, name: str | None = None
    ) -> NodeEntry:
        """A new node; its first output. It comes from the source of the node now looked at."""
        op = Op.get(op_name)
        base = self._at.name if self._at is not None else op_name
        texts = {key: text_of(value) for key, value in (attrs or {}).items()}
        node = Node(op, name or f"{base}_{op_name}", texts, inputs)
        self._record(node)
        return NodeEntry(node)

    def variable(self, name: str, fact: Fact) -> NodeEntry:
        """A new variable with known facts."""
        node = Node(None, name)
        self.facts[node] = (fact,)
        self._trace(node)
        return NodeEntry(node)

    def copy(self, node: Node, inputs: Sequence[NodeEntry], control_deps: Sequence[Node]) -> Node:
        """The same node on other inputs, with facts inferred anew."""
        made = node.copy_with(inputs, control_deps)
        self._record(made)
        return made

    def _record(self, node: Node) -> None:
        assert node.op is not None
        facts = [self.fact(entry) for entry in node.inputs]
        self.facts[node] = infer_node(node.op, node.params, facts, node.name, node.subgraphs)
        self._trace(node)

    def _trace(self, node: Node) -> None:
        if self._at is not None:
            self.sources[node] = self.graph.sources.get(self._at, (self._at,))


Rule = Callable[[Walker, Node, list[NodeEntry]], Sequence[NodeEntry] | NodeEntry | None]


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """A graph in which `rule(walker, node, new_inputs)` decided about every node.

    The rule returns entries that replace the node's outputs (one entry for one output), or None to
    keep the node. Nodes that nothing touches are shared between both graphs.
    """
    walker = Walker(graph)
    replaced: dict[Node, Sequence[NodeEntry]] = {}
    moved: dict[Node, Node] = {}
    for node in topo_order(graph.outputs):
        walker._at = node
        inputs = [_follow(entry, replaced, moved) for entry in node.inputs]
        answer = rule(walker, node, inputs)
        if answer is None:
            moved[node] = _keep(walker, node, inputs, moved, replaced)
        else:
            replaced[node] = [answer] if isinstance(answer, NodeEntry) else list(answer)
    outputs = [_follow(entry, replaced, moved) for entry in graph.outputs]
    return graph.replace(
        outputs=outputs, facts={**graph.facts, **walker.facts}, sources={**graph.sources, **walker.sources}
    ).trimmed()


def _keep(
    walker: Walker,
    node: Node,
    inputs: list[NodeEntry],
    moved: Mapping[Node, Node],
    replaced: Mapping[Node, Sequence[NodeEntry]],
) -> Node:
    deps = [_follow(NodeEntry(dep), replaced, moved).node for dep in node.control_deps]
    if node.op is None or (inputs == node.inputs and deps == node.control_deps):
        return node
    return walker.copy(node, inputs, deps)


def _follow(entry: NodeEntry, replaced: Mapping[Node, Sequence[NodeEntry]], moved: Mapping[Node, Node]) -> NodeEntry:
    answer = replaced.get(entry.node)
    if answer is not None:
        if entry.index >= len(answer):
            raise GraphError(
                f"output {entry.index} of node {entry.node.name!r} is used",
                why=f"the rule that replaced the node gave {len(answer)} outputs",
            )
        return answer[entry.index]
    return entry._replace(node=moved[entry.node])
