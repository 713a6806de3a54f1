"""Graphs as text people read: one line a node, results named by number, variables by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.errors import InvalidType, InvalidValue, NotFound
from .graph_attrs import JsonAttr
from .ir import Node, NodeEntry

MANY_INPUTS = 4  # from so many on, each input of the graph gets a line


def print_ir(graph: Any, entry_keys: Sequence[str], node_keys: Sequence[str]) -> str:
    """What `Graph.ir` gives; `graph` is a Graph."""
    printer = _Printer(graph, entry_keys, node_keys)
    return printer.text()


class _Printer:
    def __init__(self, graph: Any, entry_keys: Sequence[str], node_keys: Sequence[str]) -> None:
        self.graph = graph
        self.index = graph.indexed
        entries, nodes = self.index.num_node_entries, self.index.num_nodes
        self.entry_columns = [(key, self._column(key, entries, "entries")) for key in entry_keys]
        self.node_columns = [(key, self._column(key, nodes, "nodes")) for key in node_keys]

    def _column(self, key: str, count: int, of: str) -> Sequence[Any]:
        value = self.graph.attr(key)
        if value is None:
            raise NotFound(
                f"cannot find {key} in the graph's attributes",
                why="it has: " + (", ".join(self._keys()) or "none"),
            )
        if not isinstance(value, (list, tuple)):
            raise InvalidType(f"graph attribute {key} is not a list with a value for each line")
        if len(value) != count:
            raise InvalidValue(
                f"graph attribute {key} has {len(value)} values", why=f"there are {count} {of}"
            )
        return value

    def _keys(self) -> list[str]:
        facts = [key for key in ("shape", "dtype", "layout") if self.graph.attr(key) is not None]
        return [*self.graph.attrs, *(key for key in facts if key not in self.graph.attrs)]

    def text(self) -> str:
        names = [f"%{self.index.nodes[number].name}" for number in self.index.variables]
        separator = ",\n      " if len(names) >= MANY_INPUTS else ", "
        lines = [f"Graph({separator.join(names)}) {{"]
        for number, node in enumerate(self.index.nodes):
            joined = self._joined(number)
            if node.op is None:
                lines += [f"  %{node.name}{joined}"] if joined else []
            else:
                lines.append(f"  {self._line(number, node)}{joined}")
        results = [entry for entry in self.graph.outputs if entry.node in self.index.node_id]
        lines.append(f"  ret {', '.join(map(self._entry, results))}")
        keys = self._keys()
        tail = f"graph_attr_keys = [{', '.join(keys)}]\n" if keys else ""
        return "\n".join(lines) + "\n}\n" + tail

    def _line(self, number: int, node: Node) -> str:
        args = [self._entry(entry) for entry in node.inputs if entry.node in self.index.node_id]
        args += [f"{key}='{value}'" for key, value in node.attrs.items()]
        deps = ", ".join(self._node(dep) for dep in node.control_deps if dep in self.index.node_id)
        suffix = f", control_deps=[{deps}]" if deps else ""
        return f"%{number} = {node.op_name}({', '.join(args)}){suffix}"

    def _node(self, node: Node) -> str:
        return f"%{node.name}" if node.op is None else f"%{self.index.node_id[node]}"

    def _entry(self, entry: NodeEntry) -> str:
        name = self._node(entry.node)
        return name if entry.node.num_outputs == 1 else f"{name}.{entry.index}"

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
    if isinstance(value, JsonAttr):
        value = value.value
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(str, value))}]"
    return str(value)
