"""Whether shapes that follow from names are what inference says of numbers: it checks what operators ask of them, and
an extent of 1 may mean something else. Equal nodes are asked once, and again only when a name that they follow from has
another number."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ...base.errors import Error
from ...base.extents import computed, names_of, substitute
from ...base.shape import Dim, is_known
from ...core.graph import Graph
from ...core.ir import Fact, Node
from ...core.op import Op
from ...core.symbolic import bound_params, symbolic_names

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {"//": operator.floordiv, "min": min, "max": max}

Numbers = Mapping[Dim, int]


class ShapeChecks:
    """What is asked of a graph that has names in its shapes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._checks: list[_Check] = []
        self._is_complete = True  # whether the rules of single nodes tell all
        found = dict[object, _Check]()
        for node in graph.indexed.nodes:
            if node.op is None:
                continue
            ins, outs = tuple(map(graph.fact, node.inputs)), graph.node_facts(node)
            if node.subgraphs or not all(is_known(fact.shape) for fact in (*ins, *outs)):
                self._is_complete = False
                return
            attrs = tuple(sorted((key, value) for key, value in node.attrs.items() if not key.startswith("__")))
            key = (node.op_name, attrs, ins, outs)
            if key not in found:
                found[key] = _Check(node, ins, outs)
        self._checks += [check for check in found.values() if check.names]

    def holds(self, values: Mapping[str, int], typed: Callable[[Mapping[str, int]], Graph]) -> bool:
        """Whether every node gives the shapes that follow from names, where those have these values: node by node, or
        where that does not tell, by inference of the whole graph, which `typed` makes with numbers for some names."""
        numbers = _Numbers(values)
        if self._is_complete and all(check.holds(values, numbers) for check in self._checks):
            return True
        try:
            plain = typed(values)
        except Error:
            return False
        pairs = zip(self._graph.indexed.nodes, plain.indexed.nodes, strict=True)
        number = cache(lambda dim: substitute(dim, values))
        return all(
            named.shape is not None and tuple(map(number, named.shape)) == fact.shape
            for node, other in pairs
            for named, fact in zip(self._graph.node_facts(node), plain.node_facts(other))
        )


class _Numbers(dict[Dim, int]):
    """What dimensions are, each computed once."""

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__()
        self._values = values

    def __missing__(self, dim: Any) -> int:
        number = self[dim] = dim if isinstance(dim, int) else int(computed(dim, self._values, _OPERATIONS))
        return number


class _Check:
    """The shape rule of a node, and of all that are equal to it; where attributes hold names, what else is asked of
    them, too."""

    def __init__(self, node: Node, ins: Sequence[Fact], outs: Sequence[Fact]) -> None:
        assert node.op is not None
        self._rule, self._dtype_rule, self._params = Op.shape.get(node.op), Op.dtype.get(node.op), node.params
        self._ins, self._outs = ([fact.shape or () for fact in facts] for facts in (ins, outs))
        self._dtypes = [fact.dtype for fact in ins]
        dims = [dim for shape in (*self._ins, *self._outs) for dim in shape]
        own = symbolic_names(node.params)
        self.names = tuple(sorted(own.union(*map(names_of, dims))))
        self._has_names = bool(own)
        self._known: tuple[int, ...] | None = None  # the numbers that it held for last

    def holds(self, values: Mapping[str, int], numbers: Numbers) -> bool:
        now = tuple([values[name] for name in self.names])
        if now == self._known:
            return True
        try:
            ins = [tuple([numbers[dim] for dim in shape]) for shape in self._ins]
            outs = [tuple([numbers[dim] for dim in shape]) for shape in self._outs]
            params = self._params
            if self._has_names:
                params = bound_params(params, numbers.__getitem__)
                if self._dtype_rule is not None:
                    self._dtype_rule(params, list(self._dtypes), [None] * len(outs))
            said = self._rule(params, list(ins), [None] * len(outs)) if self._rule is not None else None
        except Exception:  # the node refuses these numbers, whatever it is that it does not like about them
            return False
        if not said or list(said[1]) != outs or any(extent < 0 for shape in outs for extent in shape):
            return False
        if any(new is not None and new != old for new, old in zip(said[0], ins)):
            return False
        self._known = now
        return True
