"""What steps of element-wise optimisers that others run have in common: a group is as it was, as long as its
parameters, states and options are the same objects. What changes from step to step, as rates and counts, is asked for
before each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import attrgetter, is_, itemgetter
from typing import TypeGuard

from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise, option_values, rounding
from .optimizer import Group, Optimizer, has_step_hooks

_memory, _gradient = attrgetter("_array"), attrgetter("_grad")


class PreparedGroup:
    """One group of parameters of an optimiser that has stepped; those without gradients are idle."""

    def __init__(self, optimizer: ElementWise, group: Group, moving: Sequence[Tensor]) -> None:
        self.optimizer, self.group, self.moving = optimizer, group, moving
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

    def is_ready(self, group: Group) -> bool:
        params = group["params"]
        if group is not self.group or len(params) != len(self.params) or not is_native(group):
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
            and self.is_one_count()
        )

    def is_one_count(self) -> bool:
        """Whether the states that are numbers are the same for all parameters; `now` is what they are."""
        found = [[array.item() for array in arrays] for arrays in self.counts]
        self.now = [values[0] for values in found]
        return all([values.count(values[0]) == len(values) for values in found])

    def numbers(self) -> tuple[dict[str, float], Sequence[float]]:
        counts = [self.states[0][name] for name in self.optimizer.scalars]
        made: tuple[dict[str, float], Sequence[float]] = self.optimizer._advance(
            option_values(self.group), False, rounding(counts), *self.now
        )
        return made

    def go_on(self) -> dict[str, float]:
        """The numbers of this step; states that are numbers are what they are after it."""
        numbers, after = self.numbers()
        for arrays, value in zip(self.counts, after):
            for array in arrays:
                array.fill(value)
        return numbers


class Prepared:
    """A step whose gradients lie where the caller says."""

    def __init__(self, groups: Sequence[PreparedGroup], optimizer: ElementWise) -> None:
        self.groups, self.optimizer = groups, optimizer

    def is_ready(self) -> bool:
        """Whether the optimiser is as it was."""
        groups = self.optimizer.param_groups
        if len(groups) != len(self.groups) or has_step_hooks(self.optimizer):
            return False
        return all([own.is_ready(group) for own, group in zip(self.groups, groups)])

    def end(self) -> None:
        """Counts that memory was written to."""
        self.optimizer._opt_called = True
        for group in self.groups:
            for counter in group.counters:
                counter[0] += 1


def has_rule(optimizer: Optimizer) -> TypeGuard[ElementWise]:
    """Whether the step of an optimiser is its rule for elements and nothing else."""
    return isinstance(optimizer, ElementWise) and type(optimizer).step is ElementWise.step


def is_native(group: Group) -> bool:
    """Whether the options of a group have it stepped by native calls."""
    by_tensors = group.get("differentiable") or (group.get("foreach") is False and not group.get("fused"))
    return not by_tensors and not group.get("capturable")
