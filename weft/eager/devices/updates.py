"""Plans that change memory of a device where it lies: all parameters of an optimiser with their states, over and over.
In comes a plan with the memory of its leaves, out goes a program that other programs may have behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.plan import HostStep
from ...core.plan import Plan
from ...runtime.cuda.context import platform
from ...runtime.cuda.repeated import Place, Repeated
from ...runtime.program import Program
from .memory import OnDevice
from .programs import executor_alone


class InPlace:
    """A plan, element by element, whose results are written to leaves. Leaves without memory move from run to run: they
    are told by their numbers."""

    def __init__(
        self, plan: Plan, leaves: Sequence[OnDevice | None], facts: Sequence[Any], into: Sequence[int]
    ) -> None:
        """`facts` are the shapes and dtypes of leaves; `into` are the leaves that the results are written to."""
        self.leaves = list(leaves)  # which stay where they are
        self.index = next(leaf.index for leaf in leaves if leaf is not None)
        self.executor = executor_alone(plan, facts, platform().context(self.index))
        self.is_possible = _is_in_order(self.executor.program, into)
        self.fixed = {number: Place(leaf.address, leaf.owner) for number, leaf in enumerate(leaves) if leaf is not None}
        self.fixed |= {len(leaves) + result: self.fixed[leaf] for result, leaf in enumerate(into)}

    def repeated(self) -> Repeated:
        """The program, for one thread at a time."""
        return Repeated(self.executor, self.fixed)


def places_of(memories: Mapping[int, Any]) -> dict[int, Place]:
    """Where memory of a device begins, which must be dense."""
    return {number: Place(memory.address, memory.owner) for number, memory in memories.items()}


def _is_in_order(program: Program, into: Sequence[int]) -> bool:
    """Whether nothing reads a leaf any more when the result is there that is written to it, and nothing is left to the
    host."""
    slots, steps = program.plan.slots, program.plan.steps
    inputs, outputs = ([n for n, slot in enumerate(slots) if slot.role == role] for role in ("input", "output"))
    used: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        for ref in step.buffers:
            used.setdefault(ref.slot, []).append(number)
    if any(isinstance(step, HostStep) for step in steps) or len(set(into)) < len(into):
        return False
    pairs = [(used.get(inputs[leaf], [-1]), used.get(outputs[result], [])) for result, leaf in enumerate(into)]
    return all([bool(writes) and reads[-1] <= writes[0] for reads, writes in pairs])
