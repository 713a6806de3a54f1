"""Programs of a GPU as steps of a plan: inputs and outputs are memory of the device, and a run is one graph for each
piece between steps of the host. What is written to memory that others see is written there by the same graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...eager.devices.calls import write
from ...eager.devices.copies import copy_kernel_of
from ...eager.devices.memory import OnDevice, empty_on
from ...optim.prepared_there import StepThere
from ...runtime.cuda.executor import CudaExecutor
from ...runtime.cuda.graph import PreparedKernel
from ...runtime.cuda.repeated import Place, Repeated
from ...runtime.cuda.stream import current_stream
from .plan import Buffer, Buffers, Segment, Table


class DeviceSegment(Segment):
    """A program of a GPU. Rows of some numbers are wanted on the host."""

    executor: CudaExecutor

    def __init__(
        self,
        executor: CudaExecutor,
        inputs: Sequence[int],
        outputs: Sequence[int],
        fixed: dict[int, Any],
        on_host: Sequence[int] = (),
    ) -> None:
        super().__init__(executor, inputs, outputs)
        self.context = executor.loaded.context
        specs = executor.program.outputs
        self.on_host = frozenset(on_host)
        self.fixed: dict[int, OnDevice] = {}  # by the number of an input
        for place, number in enumerate(self.inputs):
            memory = fixed.get(number)
            if isinstance(memory, OnDevice) and memory.is_dense:
                self.fixed[place] = memory
        self.moving = [(place, n, fixed.get(n)) for place, n in enumerate(self.inputs) if place not in self.fixed]
        seen = {place: fixed[number] for place, number in enumerate(self.outputs) if number in fixed}
        self.written = {place: memory for place, memory in seen.items() if isinstance(memory, OnDevice)}
        self.results = [
            (place + len(self.inputs), number, seen.get(place), self._buffers(specs[place]))
            for place, number in enumerate(self.outputs)
            if place not in self.written
        ]
        self.follower: DeviceFollower | None = None
        self._spaces: deque[_Space] = deque()  # that no call has

        self._rows = [number for _, number, *_ in self.results]

    def _buffers(self, spec: Any) -> Buffers:
        return Buffers(partial(empty_on, self.context.index, spec.extents, spec.dtype))

    @property
    def is_native(self) -> bool:
        return not self.executor.has_host_steps

    def run(self, table: Table) -> None:
        made = [buffers.take() for *_, buffers in self.results]
        follower = self.follower
        then = None if follower is None else follower.begin(table, dict(zip(self._rows, made)))
        spaces = self._spaces if follower is None or then is None else follower.spaces
        try:
            space = spaces.pop()
        except IndexError:
            space = _Space(self, None if follower is None or then is None else follower.prepared)
        places, held = {}, []
        for place, number, known in self.moving:
            memory = space.there(place, table[number] if known is None else known)
            held.append(memory)
            places[place] = _place(memory)
        for (place, *_), buffer in zip(self.results, made):
            places[place] = Place(buffer.address, buffer.owner)
        space.repeated.run(places, current_stream(self.context.index), then)
        spaces.append(space)
        self._put(table, made)
        if follower is not None and then is not None:
            self._spaces.clear()  # what runs without an update will hardly be wanted again
            follower.end(table)

    def _put(self, table: Table, made: Sequence[Buffer]) -> None:
        """Has results where they belong."""
        for (_, number, known, buffers), buffer in zip(self.results, made):
            memory = buffer.array
            seen = table[number] if known is None else known
            if seen is not None:  # memory that others see, too
                write(seen, memory)
            else:
                table[number] = memory.read() if number in self.on_host else memory
            buffers.kept.append(buffer)


class DeviceFollower:
    """The step of an optimiser at the end of a program: it is in the same graph."""

    def __init__(self, prepared: StepThere, rows: Sequence[int], row: int) -> None:
        self.prepared, self.rows, self.row = prepared, list(rows), row
        self.spaces: deque[_Space] = deque()

    def begin(self, table: Table, made: Mapping[int, Buffer]) -> dict[int, Place] | None:
        """The places of gradients; None where the optimiser is to step itself."""
        grads = [made[number].array if number in made else table[number] for number in self.rows]
        if not all([grad.is_dense for grad in grads]) or not self.prepared.is_ready():
            return None
        return self.prepared.begin(grads)

    def end(self, table: Table) -> None:
        self.prepared.end()
        table[self.row] = True


class _Space:
    """What one call at a time uses."""

    def __init__(self, segment: DeviceSegment, then: StepThere | None) -> None:
        self._index = segment.context.index
        self._homes: dict[int, OnDevice] = {}  # of inputs that come from the host
        fixed = {place: _place(memory) for place, memory in segment.fixed.items()}
        copies: list[PreparedKernel] = []
        self._held: list[OnDevice] = []
        for place, memory in segment.written.items():
            apart = empty_on(self._index, memory.shape, memory.dtype)
            fixed[len(segment.inputs) + place] = _place(apart)
            if memory.size:
                copies.append(copy_kernel_of(segment.context, memory, apart))
            self._held += [apart, memory]
        behind = None if then is None or then.update is None else then.update.repeated()
        self.repeated = Repeated(segment.executor, fixed, copies, behind)

    def there(self, place: int, memory: Any) -> OnDevice:
        """An input as kernels read it."""
        if isinstance(memory, OnDevice):
            return memory.dense()
        home = self._homes.get(place)
        if home is None:
            home = self._homes[place] = empty_on(self._index, memory.shape, memory.dtype)
        home.write(np.asarray(memory))
        return home


def _place(memory: OnDevice) -> Place:
    return Place(memory.address, memory.owner)
