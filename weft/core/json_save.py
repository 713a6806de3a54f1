"""Graphs to JSON text, in the format of NNVM's saved graphs."""

from __future__ import annotations

import json
from typing import Any

from ..base.errors import GraphError
from .bulk import collector_paused
from .graph_attrs import FACT_TAGS, JsonAttr
from .indexed import IndexedGraph
from .ir import Node

MAX_SUBGRAPH_DEPTH = 32


@collector_paused
def graph_to_json(graph: Any) -> str:
    """What `Graph.json` gives; `graph` is a Graph. Attributes that JSON cannot hold stay out."""
    return _object(_graph_fields(graph, graph.indexed, _attrs(graph)), 0) + "\n"


def _graph_fields(graph: Any, index: Any, attrs: dict[str, Any]) -> dict[str, str]:
    fields = {
        "nodes": _array([_node(node, index) for node in index.nodes], 1),
        "arg_nodes": _flat(index.variables),
        "node_row_ptr": _flat(index.entry_ptr),
        "heads": _flat(index.triples(graph.outputs)),
    }
    if attrs:
        fields["attrs"] = _object({key: _flat(value) for key, value in attrs.items()}, 1)
    return fields


def _attrs(graph: Any) -> dict[str, Any]:
    attrs = {key: [value.tag, value.value] for key, value in graph.attrs.items() if isinstance(value, JsonAttr)}
    for key, tag in FACT_TAGS.items():
        value = graph.attr(key)
        if value is not None:
            attrs[key] = [tag, value]
    return dict(sorted(attrs.items()))


def _node(node: Node, index: Any) -> str:
    fields = {"op": _flat(node.op_name), "name": _flat(node.name)}
    if node.attrs:
        fields["attrs"] = _object({k: _flat(v) for k, v in sorted(node.attrs.items())}, 3)
    fields["inputs"] = _flat(index.triples(node.inputs))
    if node.control_deps:
        fields["control_deps"] = _flat(index.numbers(node.control_deps))
    if node.subgraphs:
        fields["subgraphs"] = _flat([_plain(symbol, 1, node.name) for symbol in node.subgraphs])
    return _object(fields, 2)


def _plain(symbol: Any, depth: int, owner: str) -> dict[str, Any]:
    """A nested graph as plain data, which is written on one line."""
    if depth > MAX_SUBGRAPH_DEPTH:
        raise GraphError(f"subgraphs are nested deeper than {MAX_SUBGRAPH_DEPTH}", where=f"node {owner!r}")
    index = IndexedGraph(symbol.outputs)
    return {
        "nodes": [_plain_node(node, index, depth) for node in index.nodes],
        "arg_nodes": index.variables,
        "node_row_ptr": index.entry_ptr,
        "heads": index.triples(symbol.outputs),
    }


def _plain_node(node: Node, index: IndexedGraph, depth: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"op": node.op_name, "name": node.name}
    if node.attrs:
        fields["attrs"] = dict(sorted(node.attrs.items()))
    fields["inputs"] = index.triples(node.inputs)
    if node.control_deps:
        fields["control_deps"] = index.numbers(node.control_deps)
    if node.subgraphs:
        fields["subgraphs"] = [_plain(graph, depth + 1, node.name) for graph in node.subgraphs]
    return fields


_flat = json.JSONEncoder(ensure_ascii=True, separators=(", ", ": ")).encode


def _array(items: list[str], depth: int) -> str:
    if not items:
        return "[]"
    pad = "  " * (depth + 1)
    return "[\n" + ",\n".join(pad + item for item in items) + "\n" + "  " * depth + "]"


def _object(fields: dict[str, str], depth: int) -> str:
    if not fields:
        return "{}"
    pad = "  " * (depth + 1)
    lines = ",\n".join(f"{pad}{_flat(key)}: {value}" for key, value in fields.items())
    return "{\n" + lines + "\n" + "  " * depth + "}"
