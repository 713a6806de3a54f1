"""Graphs from JSON text. Nothing in a file is trusted: every field's presence, type and range is
checked, and an error names the node and the field."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from ..base.errors import Error, FormatError, InvalidType
from .bulk import collector_paused
from .graph import Graph, facts_from_attr
from .graph_attrs import FACT_KEYS, checked_json_attr
from .ir import Node, NodeEntry, topo_order
from .json_save import MAX_SUBGRAPH_DEPTH
from .loaded import check_index, check_inputs, count_outputs, restore_versions
from .op import Op
from .symbol import Symbol

GRAPH_FIELDS = ("nodes", "arg_nodes", "node_row_ptr", "heads", "attrs")
NODE_FIELDS = tuple("op name attrs attr param inputs control_deps subgraphs backward_source_id".split())
MAX_NUMBER = 2**31  # of outputs and versions


@collector_paused
def graph_from_json(text: str | bytes, *, parse_attrs: bool = True) -> Graph:
    """The graph that `Graph.json` wrote, or NNVM or an old version of it did.

    Without `parse_attrs` attributes are kept as text and operators' schemas are not consulted.
    """
    if not isinstance(text, (str, bytes, bytearray)):
        raise InvalidType(f"a graph is loaded from text, not from {type(text).__name__}")
    try:
        return _graph(_parsed(text), parse_attrs, 0)
    except RecursionError:
        raise FormatError("the JSON is nested too deep to be a graph") from None
    except Error as error:
        error.at("graph")
        raise


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except FormatError:
        raise
    except ValueError as error:  # not JSON, not UTF-8, or a number of thousands of digits
        raise FormatError("this is not JSON", why=str(error)[:200]) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = counts.most_common(1)[0][0]
        raise FormatError(f"an object has the field {twice[:80]!r} twice")
    return made


def _graph(data: Any, parse_attrs: bool, depth: int) -> Graph:
    if depth > MAX_SUBGRAPH_DEPTH:
        raise FormatError(f"subgraphs are nested deeper than {MAX_SUBGRAPH_DEPTH}")
    _check_fields(data, "a graph", GRAPH_FIELDS, ("nodes", "arg_nodes", "heads"))
    rows = _array(data, "nodes")
    nodes = [_placed(_node, i, row, row, parse_attrs, depth) for i, row in enumerate(rows)]
    for number, row in enumerate(rows):
        _placed(_link, number, row, nodes[number], row, nodes)
    outputs = _entries(data, "heads", nodes)
    _check_arguments(data, nodes)
    counts = _check_structure(nodes, rows, outputs)
    restore_versions(nodes, outputs)
    graph = Graph(outputs)
    _set_attrs(graph, _fields(data, "attrs"), nodes, counts)
    return graph


def _placed(step: Callable[..., Any], number: int, row: Any, *args: Any) -> Any:
    """Runs a step about one node; an error in it names the node."""
    try:
        return step(*args)
    except Error as error:
        name = row.get("name") if isinstance(row, dict) else None
        shown = f"node {number} ({name[:80]!r})" if isinstance(name, str) else f"node {number}"
        error.at(shown)
        raise


def _node(row: Any, parse_attrs: bool, depth: int) -> Node:
    """A node of its own, without inputs."""
    _check_fields(row, "a node", NODE_FIELDS, ("op", "name", "inputs"))
    name, op_name = _typed(row["name"], str, "name"), _typed(row["op"], str, "op")
    attrs = _node_attrs(row)
    subgraphs = [_subgraph(item, number, parse_attrs, depth) for number, item in enumerate(_array(row, "subgraphs"))]
    try:
        op = None if op_name == "null" else Op.get(op_name)
        params = attrs if op is not None and not parse_attrs else None
        return Node(op, name, attrs, subgraphs=subgraphs, params=params)
    except Error as error:
        raise FormatError(
            f"cannot load operator {op_name[:80]}: {error.what}", where=error.where, why=error.why, hint=error.hint
        ) from None


def _subgraph(data: Any, number: int, parse_attrs: bool, depth: int) -> Symbol:
    try:
        return Symbol(_graph(data, parse_attrs, depth + 1).outputs)
    except Error as error:
        error.at(f"subgraph {number}")
        raise


def _node_attrs(row: dict[str, Any]) -> dict[str, str]:
    """The attributes, merged from the present and the two older spellings."""
    attrs: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):
        if key in row:
            for name, value in _fields(row, key).items():
                if type(value) is not str:
                    raise _wrong_type(value, str, f"attribute {name[:80]!r}")
                attrs[name] = value
    return attrs


def _link(node: Node, row: dict[str, Any], nodes: Sequence[Node]) -> None:
    node.inputs = _entries(row, "inputs", nodes)
    if "control_deps" in row:
        node.control_deps = [nodes[_number(item, len(nodes), "control_deps")] for item in _array(row, "control_deps")]
    if node.op is None and (node.inputs or node.control_deps or node.subgraphs):
        raise FormatError("a variable cannot have inputs", where="field inputs")


def _entries(row: dict[str, Any], field: str, nodes: Sequence[Node]) -> list[NodeEntry]:
    """Entries, each [node, output] or [node, output, version]."""
    count = len(nodes)
    made = []
    for item in _array(row, field):
        numbers = item if type(item) is list else ()
        if len(numbers) == 2:
            numbers = [*numbers, 0]
        if len(numbers) != 3:
            raise FormatError("an entry must be [node, output] or [node, output, version]", where=f"field {field}")
        node, index, version = numbers
        if not type(node) is type(index) is type(version) is int or not (
            0 <= node < count and 0 <= index < MAX_NUMBER and 0 <= version < MAX_NUMBER
        ):
            raise FormatError(
                f"{json.dumps(item)[:80]} is no entry of a graph with {count} nodes", where=f"field {field}"
            )
        made.append(NodeEntry(nodes[node], index, version))
    return made


def _check_arguments(data: dict[str, Any], nodes: Sequence[Node]) -> None:
    for item in _array(data, "arg_nodes"):
        node = nodes[_number(item, len(nodes), "arg_nodes")]
        if node.op is not None:
            raise FormatError(f"node {node.name[:80]!r} is no variable", where="field arg_nodes")


def _check_structure(nodes: Sequence[Node], rows: Sequence[Any], outputs: Sequence[NodeEntry]) -> list[int]:
    """Checks that need all nodes linked: cycles, arity, output indices. Goes out: the number of
    outputs of each node."""
    try:
        topo_order([NodeEntry(node) for node in nodes])
    except Error as error:
        raise FormatError(error.what, where=error.where) from None
    counts = [_placed(count_outputs, i, rows[i], node) for i, node in enumerate(nodes)]
    count_of = dict(zip(nodes, counts))
    for number, node in enumerate(nodes):
        if node.op is not None:
            _placed(check_inputs, number, rows[number], node, count_of)
    for entry in outputs:
        check_index(entry, count_of, "field heads")
    return counts


def _set_attrs(graph: Graph, attrs: dict[str, Any], nodes: Sequence[Node], counts: Sequence[int]) -> None:
    pointers = [0, *accumulate(counts)]
    for key, pair in attrs.items():
        if type(pair) is not list or len(pair) != 2:
            raise FormatError("a graph attribute must be [type, value]", where=f"attribute {key[:80]!r}")
        try:
            checked = checked_json_attr(pair[0], pair[1])
            if key in FACT_KEYS:
                graph.facts = facts_from_attr(graph.facts, key, checked, nodes, pointers)
            else:
                graph.attrs[key] = checked
        except Error as error:
            where = f"attribute {key[:80]!r}"
            raise FormatError(error.what, where=where, why=error.why) from None


def _number(item: Any, bound: int, field: str) -> int:
    if type(item) is not int or not 0 <= item < bound:
        raise FormatError(f"{json.dumps(item)[:40]} is not a number from 0 to {bound - 1}", where=f"field {field}")
    return item


def _array(data: dict[str, Any], field: str) -> list[Any]:
    found: list[Any] = _typed(data.get(field, []), list, field)
    return found


def _fields(data: dict[str, Any], field: str) -> dict[str, Any]:
    found: dict[str, Any] = _typed(data.get(field, {}), dict, field)
    return found


def _typed(value: Any, kind: type, field: str) -> Any:
    if type(value) is not kind:
        raise _wrong_type(value, kind, f"field {field}")
    return value


def _wrong_type(value: Any, kind: type, where: str) -> FormatError:
    names: dict[type, str] = {dict: "an object", list: "an array", str: "a string"}
    found = names.get(type(value), type(value).__name__)
    return FormatError(f"expected {names[kind]}, found {found}", where=where)


def _check_fields(data: Any, what: str, known: Sequence[str], required: Sequence[str]) -> None:
    if type(data) is not dict:
        raise FormatError(f"{what} must be an object, not {type(data).__name__}")
    for key in data:
        if key not in known:
            raise FormatError(f"unknown field {key[:80]!r}; fields are {', '.join(known)}")
    for key in required:
        if key not in data:
            raise FormatError(f"missing field {key!r}")
