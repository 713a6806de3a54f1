"""Graphs for any size: in come the graphs that a function gave when it was traced at several sizes of its inputs, out
goes one graph in which expressions over the names of those sizes stand for the numbers that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...base.dtype import as_dtype
from ...base.errors import Unsupported
from ...base.extents import evaluate
from ...base.shape import Dim
from ...core.graph import Graph
from ...core.infer import infer_node
from ...core.ir import Fact, Node, NodeEntry, topo_order
from ...core.schema import fields_of
from ...core.symbol import Symbol
from .open_constants import made, open_constant
from .open_numbers import Point, number_of

Array = np.ndarray[Any, Any]
Lines = Mapping[str, str]  # where in the user's code nodes were made, by their names


class Trace(NamedTuple):
    """What a function does at a point."""

    symbol: Symbol
    params: dict[str, Array]
    lines: Lines


def open_graph(
    traces: Sequence[Trace], points: Sequence[Point], shapes: Mapping[str, tuple[Dim, ...]], dtypes: Mapping[str, Any]
) -> tuple[Symbol, dict[str, Array]]:
    """The graph at any point, and its parameters. `shapes` are those of the inputs, with names."""
    return _Opening(traces, points, shapes, dtypes).run()


class _Opening:
    def __init__(self, traces: Sequence[Trace], points: Sequence[Point], shapes: Any, dtypes: Any) -> None:
        self.traces, self.points, self.shapes, self.dtypes = traces, points, shapes, dtypes
        self.params: dict[str, Array] = {}
        self.moved: dict[NodeEntry, NodeEntry] = {}  # from the first trace
        self.facts: dict[NodeEntry, Fact] = {}

    def run(self) -> tuple[Symbol, dict[str, Array]]:
        orders = [topo_order(trace.symbol.outputs) for trace in self.traces]
        places = [{node: at for at, node in enumerate(order)} for order in orders]
        for nodes in zip(*orders):
            self._same(nodes, places)
        if len({len(order) for order in orders}) != 1:
            raise self._otherwise([max(orders, key=len)[-1]])
        for nodes in zip(*orders):
            if nodes[0].op is None:
                self._variable(nodes)
            else:
                self._node(nodes)
        return Symbol([self.moved[entry] for entry in self.traces[0].symbol.outputs]), self.params

    def _same(self, nodes: Sequence[Node], places: Sequence[Mapping[Node, int]]) -> None:
        """Raises unless traces did the same here."""
        kinds = {
            (node.op, len(node.inputs), *[Graph(part.outputs).json() for part in node.subgraphs]) for node in nodes
        }
        read = {tuple((at[entry.node], entry.index) for entry in node.inputs) for node, at in zip(nodes, places)}
        if len(kinds) != 1 or len(read) != 1:
            raise self._otherwise(nodes)

    def _otherwise(self, nodes: Sequence[Node]) -> Unsupported:
        lines = [trace.lines[node.name] for trace in self.traces for node in nodes if node.name in trace.lines]
        return Unsupported(
            f"the function does other things at other sizes of {' and '.join(self.points[0])}",
            where=lines[0] if lines else None,
            why="a size decides in Python, or is compared with another",
            hint="leave the dimension that decides out of those that are open",
        )

    def _variable(self, nodes: Sequence[Node]) -> None:
        entry = NodeEntry(nodes[0])
        name = nodes[0].name
        if name not in self.traces[0].params:
            if any(node.name != name for node in nodes):
                raise self._otherwise(())
            self.moved[entry] = entry
            self.facts[entry] = Fact(self.shapes[name], as_dtype(self.dtypes[name]))
            return
        arrays = [trace.params[node.name] for trace, node in zip(self.traces, nodes)]
        if all(_is_same(array, arrays[0]) for array in arrays):
            self.moved[entry] = entry
            self.facts[entry] = Fact(arrays[0].shape, as_dtype(arrays[0].dtype))
            self.params[name] = arrays[0]
            return
        opened = open_constant(arrays, self.points)
        if opened is None:
            raise Unsupported(
                f"a tensor that the function makes has other values at other sizes of {' and '.join(self.points[0])}",
                why=f"at {self.points[0]} it is {arrays[0].dtype}{list(arrays[0].shape)}, and is neither of one "
                "value, nor a range, nor a triangle",
                hint="give it to the function as an input, or leave the dimension out of those that are open",
            )
        self._add(opened)
        self.moved[entry] = opened

    def _add(self, entry: NodeEntry) -> None:
        """Facts of new nodes."""
        for node in topo_order([entry]):
            if NodeEntry(node) not in self.facts:
                assert node.op is not None
                self._infer(node)

    def _infer(self, node: Node) -> None:
        assert node.op is not None
        facts = infer_node(node.op, node.params, [self.facts[e] for e in node.inputs], node.name, node.subgraphs)
        for index, fact in enumerate(facts):
            self.facts[NodeEntry(node, index)] = fact

    def _node(self, nodes: Sequence[Node]) -> None:
        first = nodes[0]
        inputs = [self.moved[entry] for entry in first.inputs]
        assert first.op is not None
        if first.op.name == "part" and any(node.params != first.params for node in nodes):
            result = self._part(nodes, inputs[0])
        else:
            params = self._params(nodes, inputs)
            attrs = first.op.attributes(params)
            node = Node(first.op, first.name, attrs, inputs, subgraphs=first.subgraphs, params=params)
            self._infer(node)
            result = NodeEntry(node)
        for index in range(first.num_outputs):
            self.moved[NodeEntry(first, index)] = result._replace(index=index)

    def _params(self, nodes: Sequence[Node], inputs: Sequence[NodeEntry]) -> Any:
        """The attributes; a reshape infers one number that nothing else says."""
        all_params = [node.params for node in nodes]
        if all(params == all_params[0] for params in all_params):
            return all_params[0]
        changed: dict[str, Any] = {}
        for field in fields_of(type(all_params[0])):
            values = [getattr(params, field.name) for params in all_params]
            if all(value == values[0] for value in values):
                continue
            found = self._value(values, inputs) if field.kind.symbolic else None
            if isinstance(found, tuple) and found.count(None) == 1 and nodes[0].op_name == "reshape":
                found = tuple(-1 if item is None else item for item in found)
            if found is None or (isinstance(found, tuple) and None in found):
                raise self._unsaid(nodes[0], field.name, values)
            changed[field.name] = found
        return replace(all_params[0], **changed)

    def _value(self, values: Sequence[Any], inputs: Sequence[NodeEntry]) -> Any:
        """A number, or a tuple of them, at any point; None for what is not known."""
        if all(isinstance(value, tuple) and len(value) == len(values[0]) for value in values):
            return tuple(self._value(items, inputs) for items in zip(*values))
        if any(not isinstance(value, (int, float)) or value != int(value) for value in values):
            return None
        candidates = [dim for entry in inputs for dim in self.facts[entry].shape or ()]
        return number_of([int(value) for value in values], self.points, candidates)

    def _bound(self, values: Sequence[int], dim: Dim) -> int | str | None:
        """An end of a slice along an axis; counted from the axis' own end where that is what stays the same."""
        extents = [dim if isinstance(dim, int) else evaluate(dim or 0, point) for point in self.points]
        behind = {value - extent for value, extent in zip(values, extents)}
        if len(set(values)) > 1 and len(behind) == 1 and max(behind) < 0:
            return behind.pop()
        return number_of(values, self.points, [dim])

    def _unsaid(self, node: Node, field: str, values: Sequence[Any]) -> Unsupported:
        told = " and ".join(f"{value} at {point}" for value, point in list(zip(values, self.points))[:2])
        return Unsupported(
            f"{field} of the operator {node.op_name} cannot be said at all sizes",
            where=self.traces[0].lines.get(node.name),
            why=f"it is {told}",
            hint="leave the dimension out of those that are open, or compute it in another way",
        )

    def _part(self, nodes: Sequence[Node], source: NodeEntry) -> NodeEntry:
        """A part whose bounds follow the sizes: a slice, and another shape."""
        params = [node.params for node in nodes]
        rows = {name: [getattr(each, name) for each in params] for name in ("start", "length", "step", "shape")}
        found: dict[str, list[Any]] = {"begin": [], "end": [], "stride": []}
        for axis, dim in enumerate(self.facts[source].shape or ()):
            starts, lengths, steps = (tuple(row[axis] for row in rows[name]) for name in ("start", "length", "step"))
            ends = [start + (length - 1) * step + 1 for start, length, step in zip(starts, lengths, steps)]
            found["begin"].append(self._bound(starts, dim))
            found["end"].append(self._bound(ends, dim))
            found["stride"].append(self._value(steps, ()))
        for name, value in found.items():
            if None in value:
                raise self._unsaid(nodes[0], name, rows["length" if name == "end" else "start"])
        cut = made("strided_slice", source, **{name: tuple(value) for name, value in found.items()})
        self._add(cut)
        shape = self._value(rows["shape"], [cut])
        if shape.count(None) == 1:
            shape = tuple(-1 if dim is None else dim for dim in shape)
        if None in shape:
            raise self._unsaid(nodes[0], "shape", rows["shape"])
        seen = made("reshape", cut, shape=shape)
        self._add(seen)
        return seen


def _is_same(one: Array, other: Array) -> bool:
    if one is other:
        return True
    same = one.shape == other.shape and one.dtype == other.dtype
    return same and one.tobytes() == other.tobytes()
