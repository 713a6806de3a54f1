"""The rules of the graph IR, checked. Comes in: a graph. Goes out: nothing, or an error that names
the node and the rule it breaks."""

from __future__ import annotations

from ..base.errors import GraphError
from .compose import check_mutation
from .graph import Graph
from .ir import Node, topo_order
from .op import VARIADIC, Op
from .passes import add_verifier


def verify(graph: Graph) -> None:
    """Checks structure (acyclic, arity, output indices, mutation) and facts (one an output)."""
    pending = [graph.outputs]
    owners: dict[Node, int] = {}
    seen: set[int] = set()
    while pending:
        outputs = pending.pop()
        if id(outputs) in seen:
            continue
        seen.add(id(outputs))
        for node in topo_order(outputs):
            _verify_node(node)
            _verify_closed(node, owners, id(outputs))
            pending += [subgraph.outputs for subgraph in node.subgraphs]
        for position, entry in enumerate(outputs):
            _verify_index(entry.node, entry.index, None, position)
    _verify_facts(graph)


def _verify_closed(node: Node, owners: dict[Node, int], graph: int) -> None:
    if owners.setdefault(node, graph) != graph:
        raise GraphError(
            "a node belongs to a graph and to a subgraph, or to two subgraphs",
            where=f"node {node.name!r}",
            why="what a subgraph uses from outside must be an input",
        )


def _verify_node(node: Node) -> None:
    where = f"node {node.name!r}"
    for position, (producer, index, _) in enumerate(node.inputs):
        if index or producer.op is not None:
            _verify_index(producer, index, node.name, position)
    if node.op is None:
        if node.inputs or node.control_deps or node.subgraphs:
            raise GraphError("a variable has inputs", where=where)
        return
    wanted = node.op.inputs_of(node.params)
    if wanted not in (VARIADIC, len(node.inputs)):
        raise GraphError(f"operator {node.op.name} has {len(node.inputs)} inputs, and takes {wanted}", where=where)
    if node.op in Op.mutates:
        check_mutation(node)


def _verify_index(node: Node, index: int, reader: str | None, position: int) -> None:
    if not 0 <= index < node.num_outputs:
        graph_output = f"output {position} of the graph"
        where = graph_output if reader is None else f"node {reader!r}, input {position}"
        raise GraphError(
            f"output {index} of node {node.name!r} is used",
            where=where,
            why=f"operator {node.op_name} has {node.num_outputs} outputs",
        )


def _verify_facts(graph: Graph) -> None:
    if graph.facts:
        for node in graph.indexed.nodes:
            facts = graph.facts.get(node)
            if facts is not None and len(facts) != node.num_outputs:
                raise GraphError(f"{len(facts)} facts for {node.num_outputs} outputs", where=f"node {node.name!r}")


add_verifier(verify)
