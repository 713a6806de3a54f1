"""AlterOpLayout: operators are replaced by forms in the layout they prefer: by their own rule, see Op.alter_layout, or
by that of the target.

An operator that stays has the layouts it had, of inputs and outputs, for CorrectLayout to
reconcile. Between two that are replaced it is what the first one's rule says; where that says
nothing, the first gives its result as it was written.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.errors import InvalidValue
from ..base.layout import Layout
from ..base.stages import reached
from ..core.graph import Graph
from ..core.ir import Fact, Node, NodeEntry
from ..core.naming import NameManager
from ..core.op import Op
from ..core.passes import register_pass
from ..core.symbol import Symbol
from ..core.walk import Walker, rewrite
from ._moves import Moves

LAYOUT_RULES = "layout_rules"  # the graph attribute with rules by operator's name: those of the target it is for


class _AlteredNames(NameManager):
    """Names nodes after the one they replace."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base

    def get(self, name: str | None, hint: str) -> str:
        return name or super().get(None, f"{self._base}_{hint}")


@register_pass("AlterOpLayout", requires=("shape", "dtype"), provides=("layout",))
def alter_op_layout(graph: Graph) -> Graph:
    """Asks the rule of every operator that has one; shapes downstream of a change are left
    unknown until CorrectLayout has put the transforms in."""
    moves = Moves()
    kept_nodes: list[Node] = []
    written: dict[NodeEntry, Layout] = {}

    def alter(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        # Composing reads the newest version of a variable; the new nodes read what the old one did.
        read = {entry for entry in inputs if entry.node.op is None}
        versions = {entry.node: entry.version for entry in read}
        replacement = _replacement(graph, node, inputs) if len(versions) == len(read) else None
        if replacement is None:
            kept_nodes.append(node)
            return moves.keep(walker, node, inputs)
        for made in _new_nodes(walker, graph, replacement):
            made.inputs = [e._replace(version=versions.get(e.node, e.version)) for e in made.inputs]
            walker.facts[made] = tuple(Fact() for _ in range(made.num_outputs))
            walker.sources[made] = graph.sources.get(node, (node,))
        for entry, fact in zip(replacement.outputs, graph.node_facts(node)):
            if entry.node in walker.facts and not _tells_layout(entry):
                written[entry] = fact.layout
        return moves.put(node, replacement.outputs)

    made = rewrite(graph.replace(attrs={}), alter)
    layouts = {**written, **_kept_layouts(graph, kept_nodes, moves)}
    facts = {
        node: tuple(
            fact._replace(layout=layouts.get(NodeEntry(node, index), fact.layout))
            for index, fact in enumerate(made.node_facts(node))
        )
        for node in made.indexed.nodes
    }
    return made.replace(facts=facts)


def _tells_layout(entry: NodeEntry) -> bool:
    """Whether an operator says by its attributes alone which layout it gives."""
    node, unknown = entry.node, Layout()
    rule = Op.layout.get(node.op)
    if rule is None:
        return False
    count = len(node.inputs)
    extra = ([None] * count,) if getattr(rule, "takes_shapes", False) else ()
    ins, outs = [unknown] * count, [unknown] * node.num_outputs
    return bool(rule(node.params, ins, ins, outs, *extra)[1][entry.index].defined)


def _kept_layouts(graph: Graph, nodes: Sequence[Node], moves: Moves) -> dict[NodeEntry, Layout]:
    """The layouts of what nodes that stay read and make."""
    entries = {entry for node in nodes for entry in node.inputs}
    entries |= {NodeEntry(node, index) for node in nodes for index in range(node.num_outputs)}
    return {moves.entry(entry)._replace(version=0): graph.fact(entry).layout for entry in entries}


def _new_nodes(walker: Walker, graph: Graph, replacement: Symbol) -> list[Node]:
    """What a rule made, and nothing that was there before."""
    found: dict[Node, None] = {}
    stack = [entry.node for entry in replacement.outputs]
    while stack:
        node = stack.pop()
        if node not in found and node not in graph.facts and node not in walker.facts:
            found[node] = None
            stack.extend(entry.node for entry in node.inputs)
    return list(found)


def _replacement(graph: Graph, node: Node, inputs: list[NodeEntry]) -> Symbol | None:
    rule = Op.alter_layout.get(node.op) or graph.attrs.get(LAYOUT_RULES, {}).get(node.op_name)
    if rule is None:
        return None
    facts = [graph.fact(entry) for entry in node.inputs]
    with _AlteredNames(node.name):
        answer: Symbol | None = rule(node.params, Symbol(inputs), facts)
    reached("altered", rule, node, detail=True)
    if answer is not None and len(answer.outputs) < node.num_visible_outputs:
        raise InvalidValue(
            f"alter_layout of {node.op_name} gave {len(answer.outputs)} outputs",
            where=f"node {node.name!r}",
            why=f"the node has {node.num_visible_outputs}",
        )
    return answer
