"""GraphCompile: a graph whose nodes are grouped becomes the compiled graph with its library."""

from __future__ import annotations

from ..base.errors import GraphError
from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.graph import Graph
from ..core.ir import Node
from ..core.pattern import OpPattern
from ..passes.fuse import group_of, pattern_of
from ..runtime.graph_module import CompiledLibrary
from .assemble import assemble, fused_groups
from .compiled_graph import compiled_graph
from .mutation import ordered, written_variables


def compile_groups(graph: Graph) -> Graph:
    """What the pass GraphCompile does. All variables are inputs of the result."""
    target = Target.create(graph.attr("target") or "llvm")
    groups = _groups(graph)
    if written_variables(graph):  # copies of old versions may be needed, which are in no group yet
        graph = ordered(graph.replace(attrs={}))
        groups = fused_groups(graph, target, any(len(group.nodes) > 1 for group in groups))
    library = CompiledLibrary(assemble(graph, groups, {}, target))
    made = compiled_graph(graph, groups)
    return made.replace(attrs={**made.attrs, "module": library})


def _groups(graph: Graph) -> list[FusedGroup]:
    """The groups that the graph's attributes describe, each after what it reads."""
    indexed, roots, masters = graph.indexed, graph.attr("group_root"), graph.attr("group_master")
    if len(roots) != indexed.num_nodes or len(masters) != indexed.num_nodes:
        raise GraphError("group_root and group_master are not about this graph's nodes")
    members: dict[int, list[Node]] = {}
    for number, node in enumerate(indexed.nodes):
        if node.op is not None:
            members.setdefault(roots[number], []).append(node)
    _check_roots(graph, roots)
    return [group_of(graph, nodes, _master(indexed.nodes[masters[root]])) for root, nodes in sorted(members.items())]


def _master(node: Node) -> Node | None:
    """The node that decides the schedule; where none does, the attribute names the root."""
    return node if pattern_of(node) > OpPattern.INJECTIVE else None


def _check_roots(graph: Graph, roots: list[int]) -> None:
    """An error unless what leaves a group comes from its root, which is its last node."""
    indexed = graph.indexed
    for number, node in enumerate(indexed.nodes):
        root = roots[number]
        readers = {reader for e in indexed.entry_range(number) for reader in indexed.consumers[e]}
        alone = all(roots[reader] == root for reader in readers)
        last = number == root or (number < root < indexed.num_nodes and roots[root] == root)
        if node.op is not None and not (last and (alone or number == root)):
            raise GraphError(
                "others read what is no root of a group, or the root is not its last node",
                where=f"node {node.name!r}",
                hint="apply GraphFindFusibleGroups",
            )
