"""Composition: how an operator and its arguments, symbols and attributes, become a node.

Comes in: an operator, positional and keyword arguments. Goes out: a node with all its inputs;
those that are missing but have a name become variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base.errors import GraphError, InvalidValue, NotFound
from .ir import Node, NodeEntry, copy_nodes
from .op import VARIADIC, Op


def link_inputs(node: Node, positional: Sequence[NodeEntry], keywords: Mapping[str, NodeEntry]) -> None:
    """Gives a node without inputs its inputs, and settles the versions of variables."""
    op = node.op
    assert op is not None
    wanted = op.inputs_of(node.params)
    if wanted == VARIADIC:
        if keywords:
            raise InvalidValue(
                f"operator {op.name} takes no keyword inputs",
                where=f"node {node.name!r}",
                why="it takes any number of inputs, by position",
            )
        node.inputs = list(positional)
    else:
        node.inputs = _match_inputs(node, op, wanted, positional, keywords)
    settle_versions(node)


def _match_inputs(
    node: Node, op: Op, wanted: int, positional: Sequence[NodeEntry], keywords: Mapping[str, NodeEntry]
) -> list[NodeEntry]:
    if len(positional) > wanted:
        raise InvalidValue(
            f"operator {op.name} takes {wanted} inputs, {len(positional)} were given", where=f"node {node.name!r}"
        )
    if len(positional) == wanted and not keywords:
        return list(positional)
    names = op.input_names_of(node.params)
    if len(names) < wanted:
        raise InvalidValue(
            f"not enough inputs for operator {op.name}: {wanted} needed, {len(positional)} given",
            where=f"node {node.name!r}",
            why="its inputs have no names, so they are positional and none may be left out",
        )
    rest = names[len(positional) : wanted]
    unknown = [key for key in keywords if key not in rest]
    if unknown:
        raise NotFound(
            f"operator {op.name} has no open input {unknown[0]!r}",
            where=f"node {node.name!r}",
            why="open inputs: " + (", ".join(rest) or "none"),
        )
    return [*positional, *(keywords.get(name) or _auto_variable(node, name) for name in rest)]


def _auto_variable(node: Node, name: str) -> NodeEntry:
    """A variable for a missing input; it carries a copy of the operator's attributes."""
    full_name = f"{node.name}_{name}" if node.name else name
    return NodeEntry(Node(None, full_name, node.attrs))


def settle_versions(node: Node) -> None:
    """Points inputs at the present version of their variables; a mutated one gets a new version."""
    op = node.op
    assert op is not None
    inputs = node.inputs
    for index, (producer, output, version) in enumerate(inputs):
        if producer.op is None and producer.params.version != version:
            inputs[index] = NodeEntry(producer, output, producer.params.version)
    if op in Op.mutates:
        check_mutation(node)
        for index in op.mutates_of(node.params):
            producer = inputs[index].node
            producer.params.version += 1
            inputs[index] = inputs[index]._replace(version=producer.params.version)
    if op in Op.on_compose:
        for index, entry in enumerate(inputs):
            if entry.node.op is None:
                Op.on_compose[op](node.attrs, entry.node, index)


def check_mutation(node: Node) -> None:
    """An error if the node would mutate anything but a variable."""
    assert node.op is not None
    for index in node.op.mutates_of(node.params):
        if not 0 <= index < len(node.inputs) or node.inputs[index].node.op is not None:
            raise GraphError(
                f"operator {node.op.name} would mutate what is no variable",
                where=f"node {node.name!r}, input {index}",
                why="only a variable can be mutated",
            )


def substitute(outputs: Sequence[NodeEntry], replacements: Mapping[str, NodeEntry]) -> list[NodeEntry]:
    """The same graph, copied, with variables of these names replaced.

    A variable that replaces one that is mutated takes over its versions, counted from its own.
    """
    copies = copy_nodes(outputs)
    names = [node.name for node in copies if node.op is None]
    missing = set(replacements).difference(names)
    if missing:
        raise NotFound(
            f"the symbol has no variable {sorted(missing)[0]!r}", why="its variables: " + ", ".join(names[:20])
        )
    first = {e.node: e.node.params.version for e in replacements.values() if e.node.op is None}

    def replaced(entry: NodeEntry) -> NodeEntry:
        new = replacements.get(entry.node.name) if entry.node.op is None else None
        if new is None:
            return entry
        if new.node.op is not None:
            return new
        return new._replace(version=first[new.node] + entry.version)

    for node in copies.values():
        if any(entry.node.op is None and entry.node.name in replacements for entry in node.inputs):
            node.inputs = [replaced(entry) for entry in node.inputs]
            check_mutation(node)
    for old in copies.values():
        new = replacements.get(old.name) if old.op is None else None
        if new is not None and new.node.op is None:
            latest = first[new.node] + old.params.version
            new.node.params.version = max(new.node.params.version, latest)
    return [replaced(NodeEntry(copies[n], i, v)) for n, i, v in outputs]
