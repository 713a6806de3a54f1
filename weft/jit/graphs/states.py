"""What goes from turn to turn of a loop that values end: tensors and numbers, and what stands for them in a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.errors import Unsupported
from ...core.ir import Node, NodeEntry
from ...eager.recording import StandIn, Storage
from ...eager.tensor.tensor import Tensor
from ..compile.tracing import OneGraph
from .leaves import (
    UNSET,
    entry_of,
    is_same,
    is_same_memory,
    is_state,
    leaf_for,
    misfit,
    paired,
    shown,
    spread,
    together,
    zeros,
)
from .numbers import OpenNumber


class States:
    """The variables of a loop. `inside` are those of a turn, whose tensors and numbers the graph does not know yet;
    what is neither stays what it is."""

    def __init__(self, recorder: OneGraph, variables: Sequence[Any]) -> None:
        self.recorder, self.variables = recorder, list(variables)
        self._structures, self._leaves = [], list[Any]()
        for value in variables:
            mine: list[Any] = []
            self._structures.append((spread(value, mine), len(mine)))
            self._leaves += mine
        for leaf in self._leaves:
            if isinstance(leaf, Tensor):
                recorder.memory_of(leaf)  # of which it is known then what else reads and writes it
        self._states = [place for place, leaf in enumerate(self._leaves) if is_state(leaf)]
        self.first = [entry_of(recorder, self._leaves[place]) for place in self._states]
        self.places: dict[NodeEntry, int] = {}  # what stands for a state, with its number
        self._turn = list(self._leaves)
        for number, place in enumerate(self._states):
            recorder.nodes += 1
            entry = NodeEntry(Node(None, f"state{recorder.nodes}"))
            self.places[entry] = number
            self._turn[place] = leaf_for(recorder, self._leaves[place], entry)
        self.inside = together(self._structures, self._turn)

    @property
    def storages(self) -> list[Storage]:
        return [_storage(self._turn[place]) for place in self._states]

    def filled(self, results: Sequence[Any]) -> list[Any] | None:
        """The variables with zeros where there was no value, and a turn gives one; None if there are no such."""
        made, changed = [], False
        for before, after in zip(self.variables, results):
            structure, ours, theirs = paired(before, after)
            leaves = []
            for one, two in zip(ours, theirs):
                fills = one is UNSET and is_state(two)
                leaves.append(zeros(two) if fills else one)
                changed = changed or fills
            made += together([(structure, len(leaves))], leaves)
        return made if changed else None

    def ends(self, results: Sequence[Any]) -> list[Any]:
        """The states after a turn."""
        found: list[Any] = []
        for before, after in zip(self.variables, results):
            _, ours, theirs = paired(before, after)
            for one, two in zip(ours, theirs):
                if is_state(one):
                    why = misfit(one, one if two is UNSET else two)
                    found.append(one if two is UNSET else two)
                else:
                    why = None if is_same(one, two) else "what turns carry are tensors and numbers"
                if why is not None:
                    raise Unsupported(f"{shown(one)} before a turn, {shown(two)} after it", why=why)
        return found

    def check_writes(self, ends: Sequence[Any], written: set[Storage], read: set[Storage]) -> None:
        """Refuses a turn that writes to a state, unless the state stays that memory, and nothing else is."""
        given = [_storage(self._leaves[place]) for place in self._states]
        for number, place in enumerate(self._states):
            inner = self._turn[place]
            if _storage(inner) not in written:
                continue
            outer = given[number]
            stays = isinstance(ends[number], Tensor) and is_same_memory(ends[number]._array, inner._array)
            if not stays or (outer is not None and (outer in read or given.count(outer) > 1)):
                raise Unsupported(
                    "a loop writes to a tensor that has another name too",
                    why="what goes from turn to turn are variables, each with memory of its own",
                    hint="clone() it before the loop, or write x = x + y in place of x += y",
                )

    def after(self, node: Node, written: set[Storage]) -> list[Any]:
        """The variables after the loop, which is a node. Tensors that turns write to are written to."""
        leaves = list(self._leaves)
        for number, place in enumerate(self._states):
            before = self._leaves[place]
            made = leaf_for(self.recorder, before, NodeEntry(node, number))
            if _storage(self._turn[place]) in written:
                self.recorder.put(before, made)
            else:
                self.recorder.share(before, made)
                leaves[place] = made
        return together(self._structures, leaves)


def _storage(leaf: Any) -> Any:
    memory = leaf.tensor._array if isinstance(leaf, OpenNumber) else getattr(leaf, "_array", None)
    return memory.storage if isinstance(memory, StandIn) else None
