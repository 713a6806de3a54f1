"""A small graph as steps to walk: what runs the same nodes again and again looks at no graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..base.errors import GraphError
from .ir import NodeEntry, topo_order
from .op import Op
from .schema import Params


class Step(NamedTuple):
    """An operator applied to values at places of a list, which its visible outputs are added to."""

    op: Op
    params: Params
    arguments: tuple[int, ...]
    outputs: int


class Plan(NamedTuple):
    """Steps in the order they run in, on a list that holds the values of leaves first, and where the
    results are then; None is a result that nobody asked for."""

    steps: tuple[Step, ...]
    results: tuple[int | None, ...]

    def compute(self, *tensors: Any) -> Any:
        """The results that were asked for as tensor expressions, by the operators' computes: a list, or
        the one that there is."""
        values = list(tensors)
        for op, params, arguments, count in self.steps:
            computed = op.call_with(Op.compute[op], params, *[values[place] for place in arguments])
            values += computed[:count] if isinstance(computed, (tuple, list)) else (computed,)
        results = [values[place] for place in self.results if place is not None]
        return results[0] if len(results) == 1 else results

    def keyed(self, key_of: Callable[[Op, Params], Any]) -> tuple[Any, ...]:
        """All that decides what is computed; the function names an operator with its attributes."""
        return (*[(key_of(op, params), *rest) for op, params, *rest in self.steps], self.results)


def planned(leaves: Sequence[NodeEntry], results: Sequence[NodeEntry | None]) -> Plan:
    """The steps from leaves to results."""
    places = {leaf: place for place, leaf in enumerate(leaves)}
    steps = []
    for node in topo_order([entry for entry in results if entry is not None]):
        if node.op is None:
            if NodeEntry(node) not in places:
                raise GraphError(f"variable {node.name!r} is read, and nobody gives it a value")
            continue
        arguments = tuple([places[entry] for entry in node.inputs])
        visible = node.num_visible_outputs
        steps.append(Step(node.op, node.params or None, arguments, visible))
        for index in range(visible):
            places[NodeEntry(node, index)] = len(places)
    return Plan(tuple(steps), tuple([None if entry is None else places[entry] for entry in results]))
