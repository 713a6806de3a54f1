"""Reads symbol.json files of MXNet 0.8 and later: text comes in; checked nodes go out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...base.errors import FormatError, InvalidType
from ...core.schema import is_hidden
from .attributes import signature

_LARGEST_TEXT = 1 << 26
_DEEPEST = 16  # subgraphs in subgraphs
_OLDEST = 800  # what a file without a version is taken for
_BARE_HIDDEN = (
    "ctx_group lr_mult wd_mult force_mirroring mirror_stage profiler_scope"  # as __key__ nowadays
).split()


class Node(NamedTuple):
    """A variable (op "null") or an operator; inputs are pairs of node number and output number."""

    op: str
    name: str
    attrs: dict[str, str]
    inputs: list[tuple[int, int]]
    subgraphs: tuple[SymbolFile, ...] = ()


class SymbolFile(NamedTuple):
    """Nodes in topological order, and the outputs of the whole."""

    nodes: list[Node]
    heads: list[tuple[int, int]]
    version: int  # major * 10000 + minor * 100 + patch
    arguments: tuple[int, ...] = ()  # the variables, in the order in which a subgraph takes them


def read_symbol(source: str | bytes | Mapping[str, Any]) -> SymbolFile:
    """The graph of a file's text or of the parsed text, brought to the newest version's form."""
    tree = source if isinstance(source, Mapping) else _parsed(source)
    return _upgraded(_graph(tree, _version(tree), 0))


def _graph(tree: Any, version: int, depth: int) -> SymbolFile:
    if not isinstance(tree, Mapping) or depth > _DEEPEST:
        why = f"they are nested deeper than {_DEEPEST}" if depth > _DEEPEST else "no JSON object"
        raise FormatError("a graph inside a node cannot be read", why=why)
    nodes = _list(tree, "nodes", "the graph")
    read = [_node(item, number, version, depth) for number, item in enumerate(nodes)]
    heads = [_entry(head, len(read), "heads") for head in _list(tree, "heads", "the graph")]
    if not heads:
        raise FormatError("the graph has no outputs")
    arguments = tree.get("arg_nodes", [])
    _check_arguments(arguments, read)
    return SymbolFile(read, heads, version, tuple(arguments))


def _check_arguments(numbers: Any, nodes: list[Node]) -> None:
    """Where a file lists its variables, they must be variables."""
    fits = isinstance(numbers, (list, tuple)) and len(numbers) <= len(nodes)
    if not fits or any(type(n) is not int or not 0 <= n < len(nodes) for n in numbers):
        raise FormatError("arg_nodes is no list of nodes")
    wrong = next((n for n in numbers if nodes[n].op != "null"), None)
    if wrong is not None:
        raise FormatError(f"arg_nodes has node {wrong}, which is no variable")


def _parsed(text: str | bytes) -> Mapping[str, Any]:
    if len(text) > _LARGEST_TEXT:
        raise FormatError(f"a symbol file of {len(text)} characters is not credible")
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise FormatError("this is not a symbol file of MXNet", why=why) from None
    if not isinstance(tree, dict):
        raise FormatError("this is not a symbol file of MXNet", why="it is no JSON object")
    return tree


def _list(tree: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = tree.get(key)
    if not isinstance(value, (list, tuple)):
        raise FormatError(f"{where} has no list of {key}")
    return list(value)


def _version(tree: Mapping[str, Any]) -> int:
    attrs = tree.get("attrs", {})
    stamp = attrs.get("mxnet_version") if isinstance(attrs, Mapping) else None
    if stamp is None:
        return _OLDEST
    if isinstance(stamp, (list, tuple)) and len(stamp) == 2 and type(stamp[1]) is int:
        return stamp[1]
    raise FormatError(f"the version {str(stamp)[:40]} makes no sense")


def _node(item: Any, number: int, version: int, depth: int) -> Node:
    where = f"node {number}"
    if not isinstance(item, Mapping):
        raise FormatError("a node is no JSON object", where=where)
    op, name = item.get("op"), item.get("name")
    if not isinstance(op, str) or not isinstance(name, str) or not op:
        raise FormatError("a node needs an op and a name, both text", where=where)
    inputs = [_entry(entry, number, where) for entry in _inputs_of(item, where)]
    if op == "null" and inputs:
        raise FormatError(f"the variable {name!r} has inputs", where=where)
    subgraphs = item.get("subgraphs") or []
    if not isinstance(subgraphs, (list, tuple)):
        raise FormatError("subgraphs must be a list", where=where)
    inner = tuple(_graph(tree, version, depth + 1) for tree in subgraphs)
    return Node(op, name, _attrs(item, where), inputs, inner)


def _inputs_of(item: Mapping[str, Any], where: str) -> list[Any]:
    inputs = item.get("inputs") or []
    if not isinstance(inputs, (list, tuple)):
        raise FormatError("inputs must be a list", where=where)
    return list(inputs)


def _entry(entry: Any, limit: int, where: str) -> tuple[int, int]:
    """[node, output] or [node, output, version], of a node before `limit`."""
    fits = isinstance(entry, (list, tuple)) and len(entry) in (2, 3)
    if not fits or any(type(part) is not int or part < 0 for part in entry):
        raise FormatError(f"{str(entry)[:40]} is no [node, output]", where=where)
    if entry[0] >= limit:
        raise FormatError(
            f"node {entry[0]} is used before it is there",
            where=where,
            why="nodes have a cycle, are not sorted, or some are missing",
        )
    return entry[0], entry[1]


def _attrs(item: Mapping[str, Any], where: str) -> dict[str, str]:
    """Attributes are under "param" until 0.8, "attr" until 1.0, and "attrs" since; what old files
    have under "attr" beside "param" are the user's own, which no operator reads."""
    attributes: dict[str, str] = {}
    for key in ("attrs", "param", "attr"):
        texts = item.get(key) or {}
        if not isinstance(texts, Mapping) or not all(isinstance(v, str) for v in texts.values()):
            raise FormatError(f"{key} is no table of texts", where=where)
        users_own = key == "attr" and "param" in item
        for name, text in texts.items():
            attributes.setdefault(f"__{name}__" if users_own and not is_hidden(name) else name, text)
    return attributes


# What older versions wrote in another way.


def _upgraded(file: SymbolFile) -> SymbolFile:
    for node in file.nodes:
        _hide(node)
        if file.version < 905 and node.op in ("argmax", "argmin") and node.attrs.get("axis") == "-1":
            del node.attrs["axis"]  # it used to mean all axes
    return _with_missing_inputs(file) if file.version < 900 else file


def _hide(node: Node) -> None:
    """Bare hidden keys, on the node or as INPUT_key, say nothing about the operator's result."""
    for key in list(node.attrs):
        if any(key == bare or key.endswith(f"_{bare}") for bare in _BARE_HIDDEN):
            node.attrs[f"__{key}__"] = node.attrs.pop(key)


def _with_missing_inputs(file: SymbolFile) -> SymbolFile:
    """Files before 0.9 leave auxiliary variables out: they are NODE_INPUT, after those given."""
    nodes: list[Node] = []
    number_of: list[int] = []  # old number -> new one
    for node in file.nodes:
        inputs = [(number_of[at], output) for at, output in node.inputs]
        for name in _missing(node):
            nodes.append(Node("null", f"{node.name}_{name}", {}, []))
            inputs.append((len(nodes) - 1, 0))
        number_of.append(len(nodes))
        nodes.append(node._replace(inputs=inputs))
    heads = [(number_of[at], output) for at, output in file.heads]
    return SymbolFile(nodes, heads, file.version, tuple(number_of[n] for n in file.arguments))


def _missing(node: Node) -> tuple[str, ...]:
    known = signature(node.op)
    if known is None or known.variadic or node.op == "null":
        return ()
    return _needed_inputs(node, known.inputs)[len(node.inputs) :]


def _needed_inputs(node: Node, names: tuple[str, ...]) -> tuple[str, ...]:
    """The inputs that attributes do not switch off."""
    attrs = node.attrs
    no_bias = attrs.get("no_bias", "1" if node.op == "Deconvolution" else "0") in ("True", "1")
    unused = {"bias"} if no_bias else set()
    if attrs.get("act_type", "leaky") != "prelu":
        unused.add("gamma" if node.op == "LeakyReLU" else "")
    if attrs.get("use_sequence_length", "0") not in ("True", "1"):
        unused.add("sequence_length")
    if attrs.get("mode") != "lstm":
        unused.add("state_cell")
    return tuple(name for name in names if name not in unused)


def text_of_symbol(symbol: object) -> str | bytes | Mapping[str, Any]:
    """The JSON of a live symbol, or of what is JSON already."""
    if isinstance(symbol, (str, bytes, Mapping)):
        return symbol
    to_json = getattr(symbol, "tojson", None)
    if not callable(to_json):
        raise InvalidType(f"from_mxnet takes a path, JSON or a symbol of MXNet, not {type(symbol).__name__}")
    text: str = to_json()
    return text
