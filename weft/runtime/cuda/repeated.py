"""A program that is run over and over, in memory most of which is the same each time: what moves is all that a run
looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...base.plan import known
from .executor import CudaExecutor
from .graph import PreparedKernel
from .memory import Arena, Borrowed, DeviceMemory
from .stream import Stream
from .workspace import Workspace


class Place(NamedTuple):
    """Elements of a device in order: where they begin, and the memory that they are a part of."""

    address: int
    memory: DeviceMemory


Places = Mapping[int, Place]  # by the number of an input or, counted on from those, of an output


class Repeated:
    """A program with a workspace of its own, for one thread at a time. `fixed` are the places that are the same in all
    runs. Behind its kernels, in the same graph, may be `more`, and `then` all of another program, which is not run
    alone from then on. Addresses are such as kernels take."""

    def __init__(
        self, executor: CudaExecutor, fixed: Places, more: Sequence[PreparedKernel] = (), then: Repeated | None = None
    ) -> None:
        self._loaded, self._then = executor.loaded, then
        behind = None if then is None else then._space
        self._space: Workspace = Workspace(executor.program, self._loaded, more, behind)
        self._arena_bytes = known(executor.program.plan.arena_bytes)
        self._first = [(self._space.slot(number), place.address) for number, place in fixed.items()]
        self._fixed = list({id(place.memory): place.memory for place in fixed.values()}.values())
        self._arena_at = 0
        self._borrowed = [memory for memory in self._fixed if isinstance(memory, Borrowed)]
        self._uses = [memory.uses for memory in self._fixed]
        self._streams = {memory.stream.handle for memory in self._fixed}

    def run(self, moving: Places, stream: Stream, then: Places | None = None) -> None:
        """Gives a stream a run, with what moves in its place; `then` are the places of the program behind this."""
        with self._loaded.context:
            behind = None if self._then is None else self._then._begin(then or {}, stream)
            arena = self._begin(moving, stream)
            self._space.launch(stream)
            self._end(arena, moving, stream)
            if self._then is not None and behind is not None:
                self._then._end(behind, then or {}, stream)

    def _begin(self, moving: Places, stream: Stream) -> Arena:
        """Has slots where they are in this run, and the stream wait for others that use them."""
        space, arena = self._space, self._loaded.kin.arenas.take(self._arena_bytes)
        space.order(arena, stream)
        for memory in self._fixed if self._is_shared(stream) else ():
            memory.ready_on(stream)
        for place in moving.values():
            place.memory.ready_on(stream)
        places = [(space.slot(number), place.address) for number, place in moving.items()]
        between = [] if arena.address == self._arena_at else space.in_arena(arena)
        space.place([*self._first, *between, *places])
        self._first, self._arena_at = [], arena.address
        return arena

    def _end(self, arena: Arena, moving: Places, stream: Stream) -> None:
        """Takes notice that the stream was given a run."""
        fixed = self._fixed if self._is_shared(stream) else self._borrowed
        self._space.ended(arena, [*fixed, *[place.memory for place in moving.values()]], stream)
        self._loaded.kin.arenas.give(arena)

    def _is_shared(self, stream: Stream) -> bool:
        """Whether other streams have something to do with the memory that is always the same."""
        return any(self._uses) or bool(self._streams - {stream.handle})
