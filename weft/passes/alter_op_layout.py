"""AlterOpLayout: operators are replaced by forms in the layout they prefer; see Op.alter_layout.

The new graph's layouts are those of the old one, for CorrectLayout to reconcile.
"""

from __future__ import annotations

from ..base.errors import InvalidValue
from ..core.graph import Graph
from ..core.ir import Fact, Node, NodeEntry
from ..core.naming import NameManager
from ..core.op import Op
from ..core.passes import register_pass
from ..core.symbol import Symbol
from ..core.walk import Walker, rewrite
from ._moves import Moves


class _AlteredNames(NameManager):
    """Names nodes after the one they replace."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base

    def get(self, name: str | None, hint: str) -> str:
        return name or super().get(None, f"{self._base}_{hint}")


@register_pass("AlterOpLayout", requires=("shape", "dtype"), provides=("layout",))
def alter_op_layout(graph: Graph) -> Graph:
    """Asks every operator that has an `alter_layout` rule; shapes downstream of a change are left
    unknown until CorrectLayout has put the transforms in."""
    moves = Moves()

    def alter(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        # Composing reads the newest version of a variable; the new nodes read what the old one did.
        read = {entry for entry in inputs if entry.node.op is None}
        versions = {entry.node: entry.version for entry in read}
        replacement = _replacement(graph, node, inputs) if len(versions) == len(read) else None
        if replacement is None:
            kept = moves.keep(walker, node, inputs)
            _restore(walker, graph, node, moves.node(node))
            return kept
        for made in _new_nodes(walker, graph, replacement):
            made.inputs = [e._replace(version=versions.get(e.node, e.version)) for e in made.inputs]
            walker.facts[made] = (Fact(),) * made.num_outputs
            walker.sources[made] = graph.sources.get(node, (node,))
        _restore_outputs(walker, graph, node, replacement)
        return moves.put(node, replacement.outputs)

    return rewrite(graph.replace(attrs={}), alter)


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
    rule = Op.alter_layout.get(node.op)
    if rule is None:
        return None
    facts = [graph.fact(entry) for entry in node.inputs]
    with _AlteredNames(node.name):
        answer: Symbol | None = rule(node.params, Symbol(inputs), facts)
    if answer is not None and len(answer.outputs) < node.num_visible_outputs:
        raise InvalidValue(
            f"alter_layout of {node.op_name} gave {len(answer.outputs)} outputs",
            where=f"node {node.name!r}",
            why=f"the node has {node.num_visible_outputs}",
        )
    return answer


def _restore(walker: Walker, graph: Graph, old: Node, new: Node) -> None:
    """A copied node has the layouts of the one it copies."""
    if new is not old:
        facts = zip(walker.facts[new], graph.node_facts(old))
        walker.facts[new] = tuple(made._replace(layout=was.layout) for made, was in facts)


def _restore_outputs(walker: Walker, graph: Graph, node: Node, made: Symbol) -> None:
    """The layout that readers were written for, so that they ask for it."""
    for (new, index, _), was in zip(made.outputs, graph.node_facts(node)):
        facts = list(walker.facts.get(new) or graph.node_facts(new))
        if new in walker.facts:
            facts[index] = Fact(dtype=was.dtype, layout=was.layout)
            walker.facts[new] = tuple(facts)
