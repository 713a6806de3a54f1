"""Graphs as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .attributes import text_of

if TYPE_CHECKING:
    from .graph import Graph
    from .nodes import Node, Value


def graph_text(graph: Graph, sources: bool = True) -> str:
    """A graph as text, with the graphs that are attributes of its nodes below it, and the places in the source."""
    subgraphs = _Subgraphs(sources)
    return _finished(_graph(graph, subgraphs), subgraphs)


def node_text(node: Node) -> str:
    subgraphs = _Subgraphs()
    return _finished(_nodes([node], "", subgraphs), subgraphs)


def _finished(lines: Iterator[str], subgraphs: _Subgraphs) -> str:
    written = list(lines)
    for name, graph in subgraphs:
        first, *others = _graph(graph, subgraphs)
        written += [f"with {name} = {first}", *others]
    return "\n".join(written) + "\n"


class _Subgraphs:
    """Graphs that are attributes, in the order in which they are met; more may come while they are written."""

    def __init__(self, sources: bool = True) -> None:
        self.sources = sources  # whether places in the source are written, too
        self._found: list[tuple[str, Graph]] = []

    def name(self, kind: str, graph: Graph) -> str:
        self._found.append((f"{kind}_{len(self._found)}", graph))
        return self._found[-1][0]

    def __iter__(self) -> Iterator[tuple[str, Graph]]:
        return iter(self._found)


def _graph(graph: Graph, subgraphs: _Subgraphs) -> Iterator[str]:
    inputs = ",\n      ".join([_defined(value) for value in graph.inputs()])
    yield f"graph({inputs}):"
    yield from _nodes(graph.nodes(), "  ", subgraphs)
    yield f"  return ({_read(graph.return_node())})"


def _defined(value: Value) -> str:
    return f"%{value.debugName()} : {value.type().str()}"


def _read(node: Node) -> str:
    return ", ".join([f"%{value.debugName()}" for value in node.inputs()])


def _nodes(nodes: Any, indent: str, subgraphs: _Subgraphs) -> Iterator[str]:
    """The lines of some nodes, with those of their blocks."""
    stack: list[tuple[Iterator[Any], str]] = [(iter(nodes), indent)]
    while stack:
        part = next(stack[-1][0], None)
        indent = stack[-1][1]
        if part is None:
            stack.pop()
        elif isinstance(part, str):
            yield indent + part
        elif hasattr(part, "kind"):
            yield indent + _line(part, subgraphs)
            stack.append((enumerate(part.blocks()), indent + "  "))
        else:
            number, block = part
            yield f"{indent}block{number}({', '.join([_defined(value) for value in block.inputs()])}):"
            stack.append((iter([*block.nodes(), f"-> ({_read(block.returnNode())})"]), indent + "  "))


def _line(node: Node, subgraphs: _Subgraphs) -> str:
    outputs = ", ".join([_defined(value) for value in node.outputs()])
    names, kind = node.attributeNames(), node.kind()
    if "Subgraph" in names:  # the graph that the node runs gives it its name
        names.remove("Subgraph")
        kind = _attribute(node, "Subgraph", subgraphs)
    attributes = ", ".join([f"{name}={_attribute(node, name, subgraphs)}" for name in names])
    scope = f", scope: {node.scopeName()}" if node.scopeName() else ""
    source = f" # {node.sourceRange()}" if subgraphs.sources and node.sourceRange() else ""
    return f"{outputs} = {kind}{f'[{attributes}]' if attributes else ''}({_read(node)}){scope}{source}"


def _attribute(node: Node, name: str, subgraphs: _Subgraphs) -> str:
    kind, value = node._attributes[name]
    if kind in ("g", "gs"):
        names = [subgraphs.name(node.kind(), graph) for graph in (value if kind == "gs" else [value])]
        return f"[{', '.join(names)}]" if kind == "gs" else names[0]
    return text_of(kind, value)
