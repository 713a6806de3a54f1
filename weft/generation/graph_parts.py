"""Parts of a decoder's graph: which nodes depend on tokens and which on their places alone, and what a part gives for
so many tokens behind so many others, by the operators' references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ..base.extents import evaluate, names_of
from ..core.graph import Graph
from ..core.interpret import run_reference
from ..core.ir import Node, NodeEntry, topo_order
from ..core.op import Op
from ..core.symbolic import bound_params, symbolic_names
from .steps import ROWS, Arrays

BEFORE = "before"  # the name of how many tokens there are before the new ones
MOST_BYTES = 1 << 29  # of a value that is looked at
Array = np.ndarray


class Copied(Exception):
    """Why the caches of a model cannot stay where they are."""


class Sizes(NamedTuple):
    """New tokens, and how many there are before them."""

    before: int
    rows: int

    @property
    def names(self) -> dict[str, int]:
        return {BEFORE: self.before, ROWS: self.rows}


class Inputs(NamedTuple):
    """What the inputs of a decoder are: tokens, caches in their order, and by their names "mask" or "position"."""

    ids: str
    caches: tuple[str, ...]
    ranges: Mapping[str, str]

    def range(self, name: str, sizes: Sizes) -> Array:
        """A mask of ones, or positions."""
        total = sizes.before + sizes.rows
        return np.ones((1, total), np.int64) if self.ranges[name] == "mask" else np.arange(sizes.before, total)[None]


class Parts:
    """A graph with open rows and tokens before them, of which parts are computed."""

    def __init__(self, graph: Graph, inputs: Inputs, params: Arrays) -> None:
        self.graph, self.inputs, self.params = graph, inputs, params
        self.order = topo_order(graph.outputs)
        self.places = {node: number for number, node in enumerate(self.order)}
        self.readers: dict[NodeEntry, list[Node]] = {}
        self.tokens: set[Node] = set()  # nodes that depend on tokens, directly or by what the caches hold
        for node in self.order:
            for entry in node.inputs:
                self.readers.setdefault(entry, []).append(node)
            if node.op is None:
                depends = node.name == inputs.ids or node.name in inputs.caches
            else:
                self._check_pure(node, node.op)
                depends = any(entry.node in self.tokens for entry in node.inputs)
            if depends:
                self.tokens.add(node)

    def _check_pure(self, node: Node, op: Op) -> None:
        if op.effect_of(node.params) != "pure" or node.subgraphs or op not in Op.reference:
            raise Copied(f"operator {op.name} at {node.name!r} is computed as the file has it only")

    def shape(self, entry: NodeEntry) -> tuple[int | str, ...]:
        """What is known of the extents of an entry, which has to be all."""
        shape = self.graph.fact(entry).shape
        if shape is None or None in shape:
            raise Copied(f"the shape of {entry.node.name!r} is not known before a run")
        return shape  # type: ignore[return-value]

    def names(self, entry: NodeEntry) -> frozenset[str]:
        """The names in the shape of an entry."""
        return frozenset[str]().union(*map(names_of, self.shape(entry)))

    def needed(self, wanted: Iterable[NodeEntry], given: Iterable[NodeEntry] = ()) -> list[Node]:
        """The nodes that some entries take to compute, if others are given, in their order."""
        known, found = set(given), set[Node]()
        pending = [entry for entry in wanted if entry not in known]
        while pending:
            node = pending.pop().node
            if node not in found:
                found.add(node)
                pending += [entry for entry in node.inputs if entry not in known]
        return sorted(found, key=self.places.__getitem__)

    def depends_on_place(self, wanted: NodeEntry) -> bool:
        """Whether masks, positions or how many tokens there are decide about an entry."""
        return any(
            node.name in self.inputs.ranges if node.op is None else bool(symbolic_names(node.params))
            for node in self.needed([wanted])
        )

    def values(self, wanted: Sequence[NodeEntry], sizes: Sizes, given: Mapping[NodeEntry, Array]) -> list[Array]:
        """Entries for some sizes, where others are given."""
        known = dict(given)
        for node in self.needed(wanted, given):
            if node.op is None:
                known[NodeEntry(node)] = self._variable(node, sizes)
                continue
            self._check_room(node, sizes)
            params = bound_params(node.params, lambda text: evaluate(text, sizes.names))
            results = run_reference(node.op, params, [known[entry] for entry in node.inputs])
            known.update((NodeEntry(node, index), value) for index, value in enumerate(results))
        return [known[entry] for entry in wanted]

    def _variable(self, node: Node, sizes: Sizes) -> Array:
        if node.name in self.inputs.ranges:
            dtype = self.graph.fact(NodeEntry(node)).dtype
            return self.inputs.range(node.name, sizes).astype(dtype)
        if node.name not in self.params:
            raise Copied(f"input {node.name!r} is neither tokens nor a cache, a mask or positions")
        return self.params[node.name]

    def _check_room(self, node: Node, sizes: Sizes) -> None:
        for index in range(node.num_outputs):
            fact = self.graph.fact(NodeEntry(node, index))
            shape = self.shape(NodeEntry(node, index))
            size = prod(evaluate(extent, sizes.names) for extent in shape) * (fact.dtype.itemsize if fact.dtype else 8)
            if size > MOST_BYTES:
                raise Copied(f"{node.name!r} is too large to be looked at: {size} bytes for {sizes}")


def row_axis(shape: Sequence[int | str]) -> int | None:
    """The axis along which new tokens lie, if that is one and all other extents are numbers."""
    axes = [axis for axis, extent in enumerate(shape) if extent == ROWS]
    rest = [extent for extent in shape if extent != ROWS]
    return axes[0] if len(axes) == 1 and all(isinstance(extent, int) for extent in rest) else None
