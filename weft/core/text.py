"""Graphs as text people read: one line a node, results named by number, variables by name.

The short form is what NNVM printed; the full form says all there is, and `parse_graph` reads it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..base.dtype import DType, dtype_name
from ..base.errors import GraphError, InvalidType, InvalidValue, NotFound
from ..base.layout import Layout
from ..base.shape import Dim, Shape
from .bulk import collector_paused
from .graph_attrs import FACT_KEYS, JsonAttr
from .indexed import IndexedGraph
from .ir import Fact, Node, NodeEntry
from .json_save import MAX_SUBGRAPH_DEPTH

MANY_INPUTS = 4  # from so many on, each input of the graph gets a line
PLAIN_NAME = r"[^\W\d][\w./-]*"
_is_plain = re.compile(PLAIN_NAME).fullmatch
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile(r"[\\'\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff]")


@collector_paused
def print_ir(graph: Any, entry_keys: Sequence[str], node_keys: Sequence[str]) -> str:
    """What `Graph.ir` gives; `graph` is a Graph."""
    return _JoinedPrinter(graph, entry_keys, node_keys).text()


@collector_paused
def print_full(graph: Any) -> str:
    """What `Graph.ir(full=True)` gives: names, versions, subgraphs, facts, graph attributes."""
    body = _FullPrinter(graph.outputs, graph.indexed, graph.facts, depth=0).body()
    rows = [
        f"attr {word(key)}: {value.tag} = {json.dumps(value.value)}\n"
        for key, value in graph.attrs.items()
        if isinstance(value, JsonAttr)
    ]
    return f"{body}\n" + "".join(rows)


def quoted(text: str) -> str:
    """Text between quotes, which are escaped inside it.

    >>> print(quoted("it's"))
    'it\\'s'
    """
    return f"'{_SPECIAL.sub(_escape, text)}'"


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return _ESCAPES.get(char) or f"\\u{ord(char):04x}"


def word(text: str) -> str:
    """A name as it is, or quoted where it would read as something else."""
    return text if _is_plain(text) else quoted(text)


class _Printer:
    """What both forms share."""

    def __init__(self, outputs: Sequence[NodeEntry], index: IndexedGraph) -> None:
        self.outputs, self.index = outputs, index
        self.indent = "  "

    def body(self) -> str:
        names = [self._declared(self.index.nodes[number]) for number in self.index.variables]
        separator = f",\n{self.indent}    " if len(names) >= MANY_INPUTS else ", "
        lines = [f"Graph({separator.join(names)}) {{"]
        for number, node in enumerate(self.index.nodes):
            line = self._variable(number, node) if node.op is None else self._line(number, node)
            lines += [self.indent + line] if line else []
        results = [entry for entry in self.outputs if entry.node in self.index.node_id]
        lines.append(f"{self.indent}ret {', '.join(map(self._entry, results))}")
        return "\n".join(lines) + f"\n{self.indent[2:]}}}"

    def _declared(self, node: Node) -> str:
        return self._node(node)

    def _variable(self, number: int, node: Node) -> str:
        raise NotImplementedError

    def _line(self, number: int, node: Node) -> str:
        raise NotImplementedError

    def _call(self, number: int, node: Node) -> str:
        args = [self._entry(entry) for entry in node.inputs if entry.node in self.index.node_id]
        args += [f"{word(key)}={quoted(value)}" for key, value in node.attrs.items()]
        return f"{self._node(node)} = {word(node.op_name)}({', '.join(args)})"

    def _control_deps(self, node: Node) -> str:
        deps = ", ".join(self._node(dep) for dep in node.control_deps if dep in self.index.node_id)
        return f", control_deps=[{deps}]" if deps else ""

    def _node(self, node: Node) -> str:
        return f"%{word(node.name)}" if node.op is None else f"%{self.index.node_id[node]}"

    def _entry(self, entry: NodeEntry) -> str:
        name = self._node(entry.node)
        return name if entry.node.num_outputs == 1 else f"{name}.{entry.index}"


class _JoinedPrinter(_Printer):
    """The short form, with columns of graph attributes joined to each line."""

    def __init__(self, graph: Any, entry_keys: Sequence[str], node_keys: Sequence[str]) -> None:
        super().__init__(graph.outputs, graph.indexed)
        self.graph = graph
        entries, nodes = self.index.num_node_entries, self.index.num_nodes
        facts = [key for key in node_keys if key in FACT_KEYS]  # a node's are those of its outputs
        self.entry_columns = [(key, self._column(key, entries, "entries")) for key in (*entry_keys, *facts)]
        self.node_columns = [(key, self._column(key, nodes, "nodes")) for key in node_keys if key not in facts]

    def text(self) -> str:
        keys = [word(key) for key in self._keys()]
        return self.body() + "\n" + (f"graph_attr_keys = [{', '.join(keys)}]\n" if keys else "")

    def _column(self, key: str, count: int, of: str) -> Sequence[Any]:
        value = self.graph.attr(key)
        if value is None:
            raise NotFound(
                f"cannot find {key} in the graph's attributes", why="it has: " + (", ".join(self._keys()) or "none")
            )
        if not isinstance(value, (list, tuple)):
            raise InvalidType(f"graph attribute {key} is not a list with a value for each line")
        if len(value) != count:
            raise InvalidValue(f"graph attribute {key} has {len(value)} values", why=f"there are {count} {of}")
        return value

    def _keys(self) -> list[str]:
        facts = [key for key in ("shape", "dtype", "layout") if self.graph.attr(key) is not None]
        return [*self.graph.attrs, *(key for key in facts if key not in self.graph.attrs)]

    def _variable(self, number: int, node: Node) -> str:
        joined = self._joined(number)
        return self._node(node) + joined if joined else ""

    def _line(self, number: int, node: Node) -> str:
        return self._call(number, node) + self._control_deps(node) + self._joined(number)

    def _joined(self, number: int) -> str:
        entries = self.index.entry_range(number)
        text = ""
        for key, values in self.entry_columns:
            shown = [_show(values[entry]) for entry in entries]
            text += f", {key}=" + (shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]")
        for key, values in self.node_columns:
            text += f", {key}={_show(values[number])}"
        return text


def _show(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(str, value))}]"
    return str(value)


class _FullPrinter(_Printer):
    """The full form. Variables that share a name are told apart by number."""

    def __init__(
        self, outputs: Sequence[NodeEntry], index: IndexedGraph, facts: dict[Node, tuple[Fact, ...]], depth: int
    ) -> None:
        super().__init__(outputs, index)
        self.facts, self.depth = facts, depth
        self.indent = "  " * (2 * depth + 1)
        counts = Counter(index.nodes[number].name for number in index.variables)
        self.shared = {name for name, count in counts.items() if count > 1}

    def _declared(self, node: Node) -> str:
        shown = self._node(node)
        return f"{shown}={quoted(node.name)}" if node.name in self.shared else shown

    def _node(self, node: Node) -> str:
        if node.op is None and node.name in self.shared:
            return f"%{self.index.node_id[node]}"
        return super()._node(node)

    def _entry(self, entry: NodeEntry) -> str:
        return super()._entry(entry) + (f":{entry.version}" if entry.version else "")

    def _variable(self, number: int, node: Node) -> str:
        head = self._call(number, node) if node.attrs else self._node(node)
        facts = self._facts(node)
        return head + facts if node.attrs or facts else ""

    def _line(self, number: int, node: Node) -> str:
        name = f", name={quoted(node.name)}"
        inner = self._subgraphs(node) if node.subgraphs else ""
        return self._call(number, node) + name + self._control_deps(node) + inner + self._facts(node)

    def _subgraphs(self, node: Node) -> str:
        if self.depth >= MAX_SUBGRAPH_DEPTH:
            raise GraphError(f"subgraphs are nested deeper than {MAX_SUBGRAPH_DEPTH}", where=f"node {node.name!r}")
        pad = self.indent + "  "
        inner = [
            _FullPrinter(symbol.outputs, IndexedGraph(symbol.outputs), {}, self.depth + 1).body()
            for symbol in node.subgraphs
        ]
        return f", subgraphs=[\n{pad}" + f",\n{pad}".join(inner) + f"\n{self.indent}]"

    def _facts(self, node: Node) -> str:
        facts = self.facts.get(node)
        return "".join(_column(key, show, facts) for key, show in _SHOWN.items()) if facts else ""


def _column(key: str, show: Callable[[Any], str], facts: tuple[Fact, ...]) -> str:
    """One kind of fact about all outputs of a node; nothing where nothing is known."""
    shown = [show(getattr(fact, key)) for fact in facts]
    if all(text == "?" for text in shown):
        return ""
    return f", {key}=" + (shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]")


def _show_shape(shape: Shape) -> str:
    return "?" if shape is None else f"({','.join(map(_show_dim, shape))})"


def _show_dim(dim: Dim) -> str:
    if dim is None:
        return "?"
    return word(dim) if isinstance(dim, str) else str(dim)


def _show_dtype(dtype: DType | None) -> str:
    return "?" if dtype is None else dtype_name(dtype)


def _show_layout(layout: Layout) -> str:
    return quoted(layout.name) if layout.defined else "?"


_SHOWN: dict[str, Callable[[Any], str]] = {"shape": _show_shape, "dtype": _show_dtype, "layout": _show_layout}
