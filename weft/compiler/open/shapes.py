"""Whether shapes that follow from names are what inference says of numbers: it checks what operators ask of them, and
an extent of 1 may mean something else. Equal nodes are asked once, and again only when a name that they follow from has
another number."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ...base.extents import computed, names_of
from ...base.shape import Dim
from ...core.graph import Graph
from ...core.ir import Node
from ...core.op import Op
from ...core.symbolic import bound_params, symbolic_names

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {"//": operator.floordiv, "min": min, "max": max}

Dims = tuple[tuple[Dim, ...], ...]
Numbers = Mapping[Dim, int]


class ShapeChecks:
    """What is asked of a graph that has names in its shapes."""

    def __init__(self, graph: Graph) -> None:
        self._checks: list[_Check] = []
        self.is_complete = True  # whether the rules of single nodes tell all
        found: dict[object, _Check] = {}
        for node in graph.indexed.nodes:
            if node.op is None:
                continue
            ins, outs = (
                tuple(fact.shape for fact in facts)
                for facts in ([graph.fact(entry) for entry in node.inputs], graph.node_facts(node))
            )
            if node.subgraphs or None in ins or None in outs or any(None in (shape or ()) for shape in (*ins, *outs)):
                self.is_complete = False
                return
            attrs = tuple(sorted((key, value) for key, value in node.attrs.items() if not key.startswith("__")))
            key = (node.op_name, attrs, ins, outs)
            if key not in found:
                found[key] = _Check(node, ins, outs)  # type: ignore[arg-type]
        self._checks += [check for check in found.values() if check.names]

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether every node gives the shapes that follow from names, where those have these values."""
        numbers = _Numbers(values)
        return all(check.holds(values, numbers) for check in self._checks)


class _Numbers(dict[Dim, int]):
    """What dimensions are, each computed once."""

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__()
        self._values = values

    def __missing__(self, dim: Any) -> int:
        number = self[dim] = dim if isinstance(dim, int) else int(computed(dim, self._values, _OPERATIONS))
        return number


class _Check:
    """The shape rule of a node, and of all that are equal to it."""

    def __init__(self, node: Node, ins: Dims, outs: Dims) -> None:
        assert node.op is not None
        self._rule, self._params, self._ins, self._outs = Op.shape.get(node.op), node.params, ins, outs
        dims = [dim for shape in (*ins, *outs) for dim in shape]
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
            params = bound_params(self._params, numbers.__getitem__) if self._has_names else self._params
            said = self._rule(params, list(ins), [None] * len(outs)) if self._rule is not None else None
        except Exception:  # the node refuses these numbers, whatever it is that it does not like about them
            return False
        if not said or list(said[1]) != outs or any(extent < 0 for shape in outs for extent in shape):
            return False
        if any(new is not None and new != old for new, old in zip(said[0], ins)):
            return False
        self._known = now
        return True
