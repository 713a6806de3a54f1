"""Steps of element-wise optimisers that others run: in comes an optimiser that has stepped, out go the native calls
that its next steps are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.plan import Launched
from ..eager.native.lists import ListUpdate
from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise
from .fused import Batch, Plan, update_of
from .optimizer import Group, Optimizer
from .prepared_group import Prepared, PreparedGroup, has_rule, is_native


class PreparedStep(Prepared):
    """A step over gradients that lie where the caller says: `launches` are its native calls, for which `begin` gives
    the addresses that are not known before, and `end` says that they have run."""

    def __init__(self, groups: Sequence[NativeGroup], optimizer: ElementWise) -> None:
        super().__init__(groups, optimizer)
        self.own = groups
        self.launches = [launch for group in groups for launch in group.launches]

    @classmethod
    def of(cls, optimizer: Optimizer, params: Sequence[Tensor]) -> PreparedStep | None:
        """What an optimiser that has just stepped these parameters, and no others, does next; None where that is not
        native calls alone."""
        if not has_rule(optimizer):
            return None
        places = {id(p): place for place, p in enumerate(params)}
        groups = []
        for number, group in enumerate(optimizer.param_groups):
            made = NativeGroup.of(optimizer, number, group, places)
            if made is None:
                return None
            groups.append(made)
        return cls(groups, optimizer)

    def begin(self, grads: Sequence[int]) -> list[int]:
        """Fills in the numbers of this step, and where gradients are, by their addresses."""
        return [address for group in self.own for address in group.begin(grads)]


class NativeGroup(PreparedGroup):
    """A group on the processor."""

    def __init__(self, optimizer: ElementWise, group: Group, plan: Plan | None, moving: Sequence[Tensor]) -> None:
        super().__init__(optimizer, group, moving)
        self.plan = plan
        self.launches: list[Launched] = []
        self.batches: list[tuple[Batch, Sequence[int], Any]] = []  # with the places of gradients, and numbers

    @classmethod
    def of(cls, optimizer: ElementWise, number: int, group: Group, places: dict[int, int]) -> NativeGroup | None:
        if not is_native(group):
            return None
        moving = [p for p in group["params"] if p._grad is not None]
        if not moving:
            return cls(optimizer, group, None, ())
        plan = optimizer.__dict__.get("_plans", {}).get(number)
        if plan is None or plan.alone or any(id(p) not in places for p in moving):
            return None
        made = cls(optimizer, group, plan, moving)
        columns = [[state[name]._array for state in made.states] for name in made.slots]
        if not plan.serves(moving, [[p._array for p in moving], *columns]) or not made.is_one_count():
            return None
        names = tuple(made.numbers()[0])
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

    def begin(self, grads: Sequence[int]) -> list[int]:
        if not self.moving:
            return []
        numbers = self.go_on()
        firsts = []
        for batch, places, row in self.batches:
            at = np.array([grads[place] for place in places], np.int64)
            batch.table[:, 1] = (at - at[0]) // batch.dtype.itemsize
            batch.table[:, -1] = 0
            row[0, : len(numbers)] = list(numbers.values())
            firsts.append(int(at[0]))
        return firsts
