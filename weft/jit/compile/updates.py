"""Steps of optimisers as a part of the program before them: one native call computes gradients and changes parameters
and states by them, where they lie. All kernels of the program have read the parameters by then, since the kernels of
a native call run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...eager.tensor.tensor import Tensor
from ...optim.optimizer import Optimizer
from ...optim.prepared import PreparedStep
from ...optim.prepared_there import StepThere
from ...runtime.addresses import address_of
from .device_segment import DeviceFollower, DeviceSegment
from .plan import Act, NativeSegment, Segment, Table

MOST_PREPARATIONS = 8  # after which a step whose optimiser is always another runs as it is


class Update(Act):
    """A step of an optimiser. A call whose program has done it already says so in a row of the table."""

    def __init__(
        self,
        function: Callable[[], Any],
        optimizer: Optimizer,
        grads: Sequence[tuple[Tensor, int]],
        segment: Segment,
        row: int,
    ) -> None:
        super().__init__(function)
        self.optimizer, self.segment, self.row = optimizer, segment, row
        self.params, self.rows = [p for p, _ in grads], [number for _, number in grads]
        self.left = MOST_PREPARATIONS

    def run(self, table: Table) -> None:
        if table[self.row] is not None:
            return
        self.function()
        self.segment.follower = None
        if self.left:
            self.left -= 1
            self.segment.follower = self._follower()

    def _follower(self) -> Follower | DeviceFollower | None:
        if isinstance(self.segment, DeviceSegment):
            there = StepThere.of(self.optimizer, self.params)
            return None if there is None else DeviceFollower(there, self.rows, self.row)
        assert isinstance(self.segment, NativeSegment)
        prepared = PreparedStep.of(self.optimizer, self.params)
        return None if prepared is None else Follower(prepared, self.rows, self.segment, self.row)


class Follower:
    """What runs at the end of a program."""

    def __init__(self, prepared: PreparedStep, rows: Sequence[int], segment: NativeSegment, row: int) -> None:
        self.prepared, self.row = prepared, row
        self.call = segment.executor.repeated(segment.known, prepared.launches)
        made = {number: place for place, number in enumerate(segment.outputs)}
        self.sources = [(made.get(number), number) for number in rows]

    def begin(self, table: Table, made: Sequence[Any]) -> list[int] | None:
        """The addresses that the call takes beside those of the program; None where the optimiser is to step itself."""
        earlier = [table[number] for place, number in self.sources if place is None]
        if not all([array.flags.carray for array in earlier]) or not self.prepared.is_ready():
            return None
        grads = [
            made[place].address if place is not None else address_of(table[number]) for place, number in self.sources
        ]
        return self.prepared.begin(grads)

    def end(self, table: Table) -> None:
        self.prepared.end()
        table[self.row] = True
