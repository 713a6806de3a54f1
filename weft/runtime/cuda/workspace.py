"""The memory and the graphs of one call of a program at a time: where each slot is, and what is launched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...base.dtype import as_dtype
from ...base.plan import HostStep, KernelStep, known
from ..addresses import address_of
from ..functions import get_global_func
from ..program import Array, Program
from .array import DeviceArray
from .context import Context
from .graph import Graph, PreparedKernel, runs
from .memory import Arena, Arenas, Borrowed, Pinned, aligned
from .module import Function, functions_of
from .stream import Event, Stream

MOST_PINNED = 64 << 20  # bytes that a call stages; what is larger is copied by the driver, from pages as they are
KERNEL_ALIGNMENT = 16  # of what kernels read by vectors

Given = Array | DeviceArray


class Loaded(NamedTuple):
    """What executors of a program share, whatever sizes they are bound to."""

    context: Context
    functions: dict[str, Function]
    constants: Arena
    places: tuple[int, ...]  # the addresses of constants
    arenas: Arenas

    @classmethod
    def of(cls, program: Program, context: Context) -> Loaded:
        """Code assembled, constants copied."""
        kernels = dict.fromkeys(step.kernel for step in program.plan.steps if isinstance(step, KernelStep))
        functions = functions_of(context, program.objects, kernels)
        offsets, total = _side_by_side([array.nbytes for array in program.constants])
        memory = Arena(context, total)
        with context:
            for array, offset in zip(program.constants, offsets):
                dense = np.ascontiguousarray(array)
                if dense.nbytes:
                    into = memory.address + offset
                    context.driver.call("cuMemcpyHtoDAsync_v2", into, address_of(dense), dense.nbytes, 0)
            context.driver.call("cuStreamSynchronize", 0)  # a copy that was staged may still go on
        places = tuple(memory.address + offset for offset in offsets)
        return cls(context, functions, memory, places, Arenas(context))


def _side_by_side(sizes: Sequence[int]) -> tuple[list[int], int]:
    offsets, at = [], 0
    for size in sizes:
        offsets.append(at)
        at += aligned(size)
    return offsets, at


class Workspace:
    """What one call at a time uses. Inputs and outputs of the host have a home on the device, and are staged in memory
    that the device reaches."""

    def __init__(self, program: Program, loaded: Loaded) -> None:
        self.loaded, self.plan = loaded, program.plan
        slots = self.plan.slots
        self._slots = {role: [i for i, s in enumerate(slots) if s.role == role] for role in ("input", "output")}
        self._arena_slots = [(i, known(s.offset)) for i, s in enumerate(slots) if s.role == "arena"]
        self._addresses = [0] * len(slots)
        for number, place in zip([i for i, s in enumerate(slots) if s.role == "constant"], loaded.places):
            self._addresses[number] = place
        self._own = [*self._slots["input"], *self._slots["output"]]
        offsets, self._home_bytes = _side_by_side([known(slots[i].size) for i in self._own])
        self._offsets = dict(zip(self._own, offsets))
        self._home: Arena | None = None
        self._pinned: Pinned | None = None
        self._segments: list[Graph | HostStep] | None = None
        self.last: tuple[Stream, Event] | None = None  # a run that may not have ended
        self._event = Event()
        self.held: list[DeviceArray] = []  # what such runs have of other libraries, which may use it anew once let go

    def __del__(self) -> None:
        if getattr(self, "last", None) is not None and self.loaded.context.is_usable:
            self.loaded.context.dispose("cuEventSynchronize", self._event.handle)

    def run(
        self, inputs: Sequence[Given], outputs: Sequence[Given], kept: Sequence[int], arena: Arena, stream: Stream
    ) -> None:
        """Runs on arrays that fit. The inputs of the numbers `kept` get back what the run writes to them. If all
        outputs are on the device, the run may still go on afterwards."""
        self.begin(inputs, outputs, arena, stream)
        for number, array in zip(self._slots["input"], inputs):
            self._bring(number, array, stream)
        for segment in self._segments or ():
            if isinstance(segment, HostStep):
                self.host_step(segment, stream)
            else:
                segment.launch(stream)
        back = [(self._slots["input"][i], inputs[i]) for i in kept] + [*zip(self._slots["output"], outputs)]
        to_host = [(number, array) for number, array in back if isinstance(array, np.ndarray)]
        staged = [self._fetch(number, array, stream) for number, array in to_host]
        self._end(inputs, outputs, arena, stream, wait=bool(to_host))
        for found, (_, array) in zip(staged, to_host):
            if found is not None:
                np.copyto(_bytes_of(array), found)

    def begin(self, inputs: Sequence[Given], outputs: Sequence[Given], arena: Arena, stream: Stream) -> None:
        """Orders the stream behind all that still uses the memory, and has slots where they are in this run."""
        if self.last is not None and self.last[0].handle != stream.handle:
            self.last[1].wait(stream)
        if self.last is not None and any(map(_is_host, inputs)):
            self.last[1].synchronize()  # what was staged is copied by then
        arena.ready_on(stream)
        for array in (*inputs, *outputs):
            if isinstance(array, DeviceArray):
                array.memory.ready_on(stream)
        before = list(self._addresses)
        for number, offset in self._arena_slots:
            self._addresses[number] = arena.address + offset
        for number, array in zip(self._own, (*inputs, *outputs)):
            self._addresses[number] = self._place(number, array)
        if self._segments is None:
            self._segments = self._made()
            return
        moved = {number for number, (old, new) in enumerate(zip(before, self._addresses)) if old != new}
        for segment in self._segments if moved else ():
            if isinstance(segment, Graph):
                segment.place(moved, self._addresses.__getitem__)

    def _place(self, number: int, array: Given) -> int:
        """Where a slot is: where an array of the device is, if kernels can read it there, else at home."""
        if isinstance(array, DeviceArray) and array.address % KERNEL_ALIGNMENT == 0:
            return array.address
        if self._home is None:
            self._home = Arena(self.loaded.context, self._home_bytes)
            if self._home_bytes <= MOST_PINNED:
                self._pinned = Pinned(self.loaded.context, self._home_bytes)
        return self._home.address + self._offsets[number]

    def _made(self) -> list[Graph | HostStep]:
        """Graphs of the kernels between host steps, and those steps, in order."""
        context, made = self.loaded.context, list[Graph | HostStep]()
        kernels: list[PreparedKernel] = []
        for step in (*self.plan.steps, None):
            if isinstance(step, KernelStep):
                if runs(step):
                    kernels.append(self.prepared(step))
                continue
            if kernels:
                made.append(Graph(context, kernels))
                kernels = []
            if step is not None:
                made.append(step)
        return made

    def prepared(self, step: KernelStep) -> PreparedKernel:
        """A step with the addresses that slots have now."""
        function = self.loaded.functions[step.kernel]
        return PreparedKernel(self.loaded.context, function, step, self._addresses.__getitem__)

    def _bring(self, number: int, array: Given, stream: Stream) -> None:
        """Has what an input holds where its slot is."""
        at, driver = self._addresses[number], self.loaded.context.driver
        if not array.nbytes or (isinstance(array, DeviceArray) and array.address == at):
            return
        with self.loaded.context:
            if isinstance(array, DeviceArray):
                driver.call("cuMemcpyDtoDAsync_v2", at, array.address, array.nbytes, stream.handle)
                return
            source = address_of(array)
            if self._pinned is not None:
                np.copyto(self._pinned.view(self._offsets[number], array.nbytes), _bytes_of(array))
                source = self._pinned.address + self._offsets[number]
            driver.call("cuMemcpyHtoDAsync_v2", at, source, array.nbytes, stream.handle)

    def _fetch(self, number: int, array: Array, stream: Stream) -> Array | None:
        """Begins to copy what a slot holds to an array of the host: to what is given back, or, if that is None,
        straight there."""
        if not array.nbytes:
            return None
        staged = None if self._pinned is None else self._pinned.view(self._offsets[number], array.nbytes)
        into = address_of(array if staged is None else staged)
        with self.loaded.context as context:
            context.driver.call("cuMemcpyDtoHAsync_v2", into, self._addresses[number], array.nbytes, stream.handle)
        return staged

    def _end(self, inputs: Sequence[Given], outputs: Sequence[Given], arena: Arena, stream: Stream, wait: bool) -> None:
        for number, array in zip(self._slots["output"], outputs):
            if isinstance(array, DeviceArray) and self._addresses[number] != array.address and array.nbytes:
                with self.loaded.context as context:
                    home = self._addresses[number]
                    context.driver.call("cuMemcpyDtoDAsync_v2", array.address, home, array.nbytes, stream.handle)
        if wait:
            stream.synchronize()
            self.last = arena.last = None
            self.held = []
            return
        if self.held and self._event.query():
            self.held = []
        self._event.record(stream)
        self.last = arena.last = (stream, self._event)
        for array in (*inputs, *outputs):
            if isinstance(array, DeviceArray):
                array.memory.used_on(stream)
                if isinstance(array.memory, Borrowed):
                    self.held.append(array)

    def host_step(self, step: HostStep, stream: Stream) -> None:
        """Runs a function of the host on copies of its tensors, and copies back what it wrote."""
        function = get_global_func(step.function)
        assert function is not None
        driver, tensors = self.loaded.context.driver, list[Array]()
        places = [self._addresses[ref.slot] + known(ref.offset) for ref in step.buffers]
        with self.loaded.context:
            for place, (shape, dtype) in zip(places, step.attrs["tensors"]):
                tensors.append(np.empty(tuple(shape), as_dtype(dtype)))
                if tensors[-1].nbytes:
                    driver.call(
                        "cuMemcpyDtoHAsync_v2", address_of(tensors[-1]), place, tensors[-1].nbytes, stream.handle
                    )
            driver.call("cuStreamSynchronize", stream.handle)
        function(tensors, step.attrs)
        written = len(tensors) - len(step.attrs["outputs"]) if "outputs" in step.attrs else 0
        with self.loaded.context:
            for place, tensor in list(zip(places, tensors))[written:]:
                if tensor.nbytes:
                    driver.call("cuMemcpyHtoDAsync_v2", place, address_of(tensor), tensor.nbytes, stream.handle)
            driver.call("cuStreamSynchronize", stream.handle)


def _is_host(array: Given) -> bool:
    return not isinstance(array, DeviceArray)


def _bytes_of(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)
