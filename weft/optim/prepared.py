"""Steps of element-wise optimisers that others run: in comes an optimiser that has stepped, out go the native calls
that its next steps are, as long as its parameters, states and options are the same objects. What changes from step to
step, as rates and counts, is filled in before each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import attrgetter, is_, itemgetter
from typing import Any

import numpy as np

from ..base.plan import Launched
from ..eager.native.lists import ListUpdate
from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise, option_values, rounding
from .fused import Batch, Plan, update_of
from .optimizer import Group, Optimizer, has_step_hooks

_memory, _gradient = attrgetter("_array"), attrgetter("_grad")


class PreparedStep:
    """A step over gradients that lie where the caller says: `launches` are its native calls, for which `begin` gives
    the addresses that are not known before, and `end` says that they have run."""

    def __init__(self, groups: Sequence[_PreparedGroup], optimizer: ElementWise) -> None:
        self.groups, self.optimizer = groups, optimizer
        self.launches = [launch for group in groups for launch in group.launches]

    @classmethod
    def of(cls, optimizer: Optimizer, params: Sequence[Tensor]) -> PreparedStep | None:
        """What an optimiser that has just stepped these parameters, and no others, does next; None where that is not
        native calls alone."""
        if not isinstance(optimizer, ElementWise) or type(optimizer).step is not ElementWise.step:
            return None
        places = {id(p): place for place, p in enumerate(params)}
        groups = []
        for number, group in enumerate(optimizer.param_groups):
            made = _PreparedGroup.of(optimizer, number, group, places)
            if made is None:
                return None
            groups.append(made)
        return cls(groups, optimizer)

    def is_ready(self) -> bool:
        """Whether the optimiser is as it was."""
        groups = self.optimizer.param_groups
        if len(groups) != len(self.groups) or has_step_hooks(self.optimizer):
            return False
        return all([own.is_ready(group) for own, group in zip(self.groups, groups)])

    def begin(self, grads: Sequence[int]) -> list[int]:
        """Fills in the numbers of this step, and where gradients are, by their addresses."""
        return [address for group in self.groups for address in group.begin(grads)]

    def end(self) -> None:
        """Counts that memory was written to."""
        self.optimizer._opt_called = True
        for group in self.groups:
            for counter in group.counters:
                counter[0] += 1


class _PreparedGroup:
    """One group of parameters; those without gradients are idle."""

    def __init__(self, optimizer: ElementWise, group: Group, plan: Plan | None, moving: Sequence[Tensor]) -> None:
        self.optimizer, self.group, self.plan, self.moving = optimizer, group, plan, moving
        self.params = list(group["params"])
        held = {id(p) for p in moving}
        self.idle = [p for p in self.params if id(p) not in held]
        self.on, self.slots = optimizer._on(group), optimizer._slots(group)
        names = (*optimizer.scalars, *self.slots)
        self.states = [optimizer.state[p] for p in moving] if names else []
        self.pick = itemgetter(*(names if len(names) > 1 else names * 2)) if names else None  # gives a tuple
        self.tensors = [*chain.from_iterable(map(self.pick, self.states))] if self.pick else []
        self.arrays = [*map(_memory, self.tensors), *map(_memory, moving)]
        self.counts = [[state[name]._array for state in self.states] for name in optimizer.scalars]
        kept = [*moving, *[state[name] for state in self.states for name in names]]
        self.counters = [tensor._counter for tensor in kept]
        self.now: list[float] = []
        self.launches: list[Launched] = []
        self.batches: list[tuple[Batch, Sequence[int], Any]] = []  # with the places of gradients, and numbers

    @classmethod
    def of(cls, optimizer: ElementWise, number: int, group: Group, places: dict[int, int]) -> _PreparedGroup | None:
        if not _is_native(group):
            return None
        moving = [p for p in group["params"] if p._grad is not None]
        if not moving:
            return cls(optimizer, group, None, ())
        plan = optimizer.__dict__.get("_plans", {}).get(number)
        if plan is None or plan.alone or any(id(p) not in places for p in moving):
            return None
        made = cls(optimizer, group, plan, moving)
        columns = [[state[name]._array for state in made.states] for name in made.slots]
        if not plan.serves(moving, [[p._array for p in moving], *columns]) or not made._is_one_count():
            return None
        names = tuple(made._numbers()[0])
        for batch in plan.batches:
            made._add(batch, [places[id(moving[member])] for member in batch.members], names)
        return made

    def _add(self, batch: Batch, grads: Sequence[int], names: tuple[str, ...]) -> None:
        lists = len(batch.lists) + 1
        update: ListUpdate = update_of(type(self.optimizer).rule, self.on, batch.dtype, lists, names)
        numbers = np.zeros((1, max(len(names), 1)))
        first, *states = [column[0] for column in batch.lists]
        memory = [first, None, *states, batch.table, numbers, batch.places]
        turns = len(batch.places)
        scalars, work = (turns, len(batch.table), 1), batch.elements * update.element
        self.launches.append(Launched(update.kernel.address, update.kernel, memory, scalars, turns, work))
        self.batches.append((batch, grads, numbers))

    def is_ready(self, group: Group) -> bool:
        params = group["params"]
        if group is not self.group or len(params) != len(self.params) or not _is_native(group):
            return False
        if self.optimizer._on(group) != self.on or self.optimizer._slots(group) != self.slots:
            return False
        if not (all(map(is_, params, self.params)) and all(map(is_, map(_gradient, self.idle), repeat(None)))):
            return False
        if not self.moving:
            return True
        try:
            tensors = [*chain.from_iterable(map(self.pick, self.states))] if self.pick else []
        except KeyError:  # a state was taken away
            return False
        return (
            all(map(is_, map(self.optimizer.state.get, self.moving), self.states))
            and all(map(is_, tensors, self.tensors))
            and all(map(is_, map(_memory, chain(tensors, self.moving)), self.arrays))
            and self._is_one_count()
        )

    def _is_one_count(self) -> bool:
        """Whether the states that are numbers are the same for all parameters; `now` is what they are."""
        found = [[array.item() for array in arrays] for arrays in self.counts]
        self.now = [values[0] for values in found]
        return all([values.count(values[0]) == len(values) for values in found])

    def _numbers(self) -> tuple[dict[str, float], Sequence[float]]:
        counts = [self.states[0][name] for name in self.optimizer.scalars]
        made: tuple[dict[str, float], Sequence[float]] = self.optimizer._advance(
            option_values(self.group), False, rounding(counts), *self.now
        )
        return made

    def begin(self, grads: Sequence[int]) -> list[int]:
        if not self.moving:
            return []
        numbers, after = self._numbers()
        for arrays, value in zip(self.counts, after):
            for array in arrays:
                array.fill(value)
        firsts = []
        for batch, places, row in self.batches:
            at = np.array([grads[place] for place in places], np.int64)
            batch.table[:, 1] = (at - at[0]) // batch.dtype.itemsize
            batch.table[:, -1] = 0
            row[0, : len(numbers)] = list(numbers.values())
            firsts.append(int(at[0]))
        return firsts


def _is_native(group: Group) -> bool:
    """Whether the options of a group have it stepped by native calls."""
    by_tensors = group.get("differentiable") or (group.get("foreach") is False and not group.get("fused"))
    return not by_tensors and not group.get("capturable")
