"""Steps of element-wise optimisers on a device that others run: in comes an optimiser that has stepped, out goes one
program that its next steps are, which changes parameters and states where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..base.dtype import FLOAT32, FLOAT64, DType
from ..eager.devices.memory import OnDevice, empty_on
from ..eager.devices.scalars import constant_on
from ..eager.devices.updates import InPlace, places_of
from ..eager.functions.fusion import plan_of
from ..eager.tensor.memory import array_of
from ..eager.tensor.tensor import Tensor, wrap
from .element_wise import ElementWise
from .optimizer import F, Optimizer
from .prepared_group import Prepared, PreparedGroup, has_rule, is_native

Memories = Sequence[OnDevice]
_ROW = 16  # bytes from one number to the next, as kernels want addresses to be multiples of


class StepThere(Prepared):
    """A step of parameters on one device: `update` is its program, for which `begin` gives the places of gradients.
    The numbers of all groups lie side by side, and go there in one copy."""

    def __init__(self, groups: Sequence[PreparedGroup], optimizer: ElementWise, places: dict[int, int]) -> None:
        super().__init__(groups, optimizer)
        self._members: list[tuple[PreparedGroup, int, list[OnDevice]]] = []  # with the gradient's place, and memory
        for group in groups:
            for p, state in zip(group.moving, group.states or [{}] * len(group.moving)):
                own: list[Any] = [p._array, *[state[name]._array for name in group.slots]]
                self._members.append((group, places[id(p)], own))
        self.update: InPlace | None = None

    @classmethod
    def of(cls, optimizer: Optimizer, params: Sequence[Tensor]) -> StepThere | None:
        """What an optimiser that has just stepped these parameters, and no others, does next; None where that is not
        one program."""
        places = {id(p): place for place, p in enumerate(params)}
        if not has_rule(optimizer):
            return None
        groups = []
        for group in optimizer.param_groups:
            moving = [p for p in group["params"] if p._grad is not None]
            if not is_native(group) or any(id(p) not in places for p in moving):
                return None
            groups.append(PreparedGroup(optimizer, group, moving))
            if moving and not (_has_counts_here(groups[-1]) and groups[-1].is_one_count()):
                return None
        made = cls(groups, optimizer, places)
        if not made._is_plain() or not made._make():
            return None
        return made

    def _is_plain(self) -> bool:
        """Whether all memory is dense, of one device, and nobody else's."""
        memories = [memory for *_, own in self._members for memory in own]
        if not memories or not all([isinstance(memory, OnDevice) and memory.is_dense for memory in memories]):
            return False
        alike = all([(m.shape, m.dtype) == (own[0].shape, own[0].dtype) for *_, own in self._members for m in own])
        dtypes = {memory.dtype for memory in memories}
        apart = len({memory.address for memory in memories}) == len(memories) and all([m.size for m in memories])
        return alike and apart and dtypes <= {FLOAT32, FLOAT64} and len({memory.index for memory in memories}) == 1

    def _make(self) -> bool:
        """Makes the program; leaves are gradient, parameter and states of each member, then the numbers."""
        leaves: list[OnDevice | None] = []
        into: list[int] = []
        for _, _, own in self._members:
            into += range(len(leaves) + 1, len(leaves) + 1 + len(own))
            leaves += [None, *own]
        index = self._members[0][2][0].index
        rows = self._number_rows()
        self._host = np.zeros((len(rows), _ROW), np.uint8)
        self._there = empty_on(index, self._host.shape, self._host.dtype)
        self._rows = {key: self._host[place, : key[2].itemsize].view(key[2]) for place, key in enumerate(rows)}
        leaves += [self._there.part((), key[2], _ROW * place, None) for place, key in enumerate(rows)]
        facts: list[Any] = [(own[0].shape, own[0].dtype) for *_, own in self._members for _ in range(len(own) + 1)]
        facts += [((), kind) for *_, kind in rows]
        given = [wrap(np.broadcast_to(np.zeros((), kind), shape)) for shape, kind in facts]
        found = plan_of(self._step_of(rows), given)
        if found is None:
            return False
        plan, constants = found
        leaves += [constant_on(index, array_of(constant)) for constant in constants]
        facts += [(constant._shape, constant._dtype) for constant in constants]
        self.update = InPlace(plan, leaves, facts, into)
        return self.update.is_possible

    def _number_rows(self) -> list[tuple[int, str, DType]]:
        """The numbers of groups, by the number of the group and their name, in each dtype that parameters have."""
        kinds = dict.fromkeys([(self.groups.index(group), own[0].dtype) for group, _, own in self._members])
        return [(at, name, kind) for at, kind in kinds for name in self.groups[at].numbers()[0]]

    def _step_of(self, rows: Sequence[tuple[int, str, DType]]) -> Any:
        """The step as a function of its leaves."""
        sizes = [(self.groups.index(group), len(own)) for group, _, own in self._members]
        rule = type(self.optimizer).rule

        def step(*tensors: Tensor) -> list[Tensor]:
            values = dict(zip(rows, tensors[len(tensors) - len(rows) :]))
            results: list[Tensor] = []
            first = 0
            for at, count in sizes:
                g, p, *states = tensors[first : first + 1 + count]
                first += 1 + count
                numbers = {name: value for (of, name, kind), value in values.items() if (of, kind) == (at, p._dtype)}
                results += rule(F, self.groups[at].on, SimpleNamespace(**numbers), p, g, *states)
            return results

        return step

    def begin(self, grads: Memories) -> dict[int, Any]:
        """Fills in the numbers of this step; gives the places of gradients."""
        for at, group in enumerate(self.groups):
            numbers = group.go_on() if group.moving else {}
            for (of, name, _), row in self._rows.items():
                if of == at:
                    row[0] = numbers[name]
        self._there.write(self._host)
        places, leaf = {}, 0
        for _, place, own in self._members:
            places[leaf] = grads[place]
            leaf += 1 + len(own)
        return places_of(places)


def _has_counts_here(group: PreparedGroup) -> bool:
    """Whether states that are numbers are on the processor."""
    return all([isinstance(array, np.ndarray) for arrays in group.counts for array in arrays])
