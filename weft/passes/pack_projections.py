"""PackProjections: queries, keys and values that are products of one tensor with constant weights become parts of one
product, which attention reads through views.

    x Wq + bq, x Wk + bk, x Wv + bv     ->     x [Wq Wk Wv] + [bq bk bv]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..base.shape import is_static
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite
from ..ops.nn.strided_attention import View, views
from ._moves import Moves
from .fold_constants import constant_nodes
from .precision.narrow_products import CONSTANT_NAMES

SIDES = ("query", "key", "value")  # attributes of attention, in the order of its inputs


class _Projection(NamedTuple):
    """data times weights, and a bias."""

    data: NodeEntry
    weight: NodeEntry
    bias: NodeEntry | None
    units: int
    by_rows: bool  # weights have a row for each unit: dense; else they are matmul's

    @property
    def alike(self) -> tuple[Any, ...]:
        """What projections that are packed have in common."""
        return self.data, self.by_rows, self.bias is None


@register_pass("PackProjections", requires=("shape", "dtype"))
def pack_projections(graph: Graph) -> Graph:
    """Puts one product in place of those that one attention alone reads."""
    finder, moves = _Finder(graph), Moves()

    def pack(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        made = finder.packed(walker, node, inputs, moves) if node.op_name == "_strided_attention" else None
        return moves.keep(walker, node, inputs) if made is None else moves.put(node, [made])

    return rewrite(graph, pack)


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants = constant_nodes(graph, graph.attr(CONSTANT_NAMES) or ())

    def packed(self, walker: Walker, node: Node, inputs: list[NodeEntry], moves: Moves) -> NodeEntry | None:
        """The attention over packed projections; None where there are no two to pack."""
        found = [self._projection(entry, view) for entry, view in zip(node.inputs, views(node.params))]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for side, projection in enumerate(found):
            if projection is not None:
                groups.setdefault(projection.alike, []).append(side)
        together = [sides for sides in groups.values() if len(sides) > 1]
        if not together or len({*node.inputs[:3]}) < 3:
            return None
        read, attrs = list(inputs), dict[str, Any](node.attrs)
        for sides in together:
            parts = [projection for side in sides if (projection := found[side]) is not None]
            made, offset, total = _product(walker, parts, moves), 0, sum(part.units for part in parts)
            for side, part in zip(sides, parts):
                at = getattr(node.params, SIDES[side])
                wide = [place // part.units * total + place % part.units for place in at]
                read[side], attrs[SIDES[side]] = made, (wide[0] + offset, *wide[1:])
                offset += part.units
        return walker.make("_strided_attention", read, attrs, node.name)

    def _projection(self, entry: NodeEntry, view: View) -> _Projection | None:
        """What gives an entry that is read once; None where it is none, or where the view crosses its rows."""
        node, bias = entry.node, None
        if not self._is_read_once(entry) or node.op is None:
            return None
        if node.op_name == "broadcast_add":
            entry, bias = node.inputs
            node = entry.node
            if node.op_name != "matmul" or bias.node not in self.constants or not self._is_read_once(entry):
                return None
        if node.op_name == "dense":
            data, weight, *given = node.inputs
            found = _Projection(data, weight, given[0] if given else None, node.params.units, True)
        elif node.op_name == "matmul" and not node.params.transpose_a and not node.params.transpose_b:
            data, weight = node.inputs
            shape = self.graph.fact(weight).shape
            if not is_static(shape) or len(shape) != 2:
                return None
            found = _Projection(data, weight, bias, shape[1], False)
        else:
            return None
        parts = [weight, *([] if found.bias is None else [found.bias])]
        known = all(part.node in self.constants for part in parts)
        plain = found.bias is None or self.graph.fact(found.bias).shape == (found.units,)
        return found if known and plain and _stays_in_rows(view, found.units) else None

    def _is_read_once(self, entry: NodeEntry) -> bool:
        indexed = self.graph.indexed
        place = indexed.entry_range(indexed.node_id[entry.node])[entry.index]
        return len(indexed.consumers[place]) == 1 and entry not in self.graph.outputs


def _stays_in_rows(view: View, units: int) -> bool:
    """Whether steps go within a row of so many elements, or from row to row."""
    if not all(type(number) is int for number in (*view.shape, view.start, *view.steps)):
        return False
    within = [(extent - 1) * step for extent, step in zip(view.shape, view.steps) if step < units]
    return view.start % units + sum(within) < units and all(s < units or s % units == 0 for s in view.steps)


def _product(walker: Walker, parts: Sequence[_Projection], moves: Moves) -> NodeEntry:
    """One product for all parts."""
    first, axis = parts[0], 0 if parts[0].by_rows else 1
    weights = [moves.entry(part.weight) for part in parts]
    weight = walker.make("concatenate", weights, {"axis": axis})
    biases = [moves.entry(part.bias) for part in parts if part.bias is not None]
    bias = [walker.make("concatenate", biases, {"axis": 0})] if biases else []
    data = moves.entry(first.data)
    if first.by_rows:
        units = sum(part.units for part in parts)
        return walker.make("dense", [data, weight, *bias], {"units": units, "use_bias": bool(bias)})
    made = walker.make("matmul", [data, weight], {})
    return walker.make("broadcast_add", [made, *bias]) if bias else made
