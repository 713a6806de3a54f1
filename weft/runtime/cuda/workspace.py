"""The memory and the graphs of one call of a program at a time: where each slot is, and what is launched."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ...base.dtype import as_dtype
from ...base.plan import HostStep, KernelStep, known
from ..addresses import address_of
from ..functions import get_global_func
from ..program import Array, Program
from .array import DeviceArray
from .context import Context
from .graph import Addresses, Graph, PreparedKernel, runs, users_of
from .memory import Arena, Arenas, Borrowed, DeviceMemory, Home, aligned
from .module import Function, functions_of
from .stream import Event, Stream

KERNEL_ALIGNMENT = 16  # of what kernels read by vectors

Given = Array | DeviceArray


class Constant:
    """Values of a program on a device, at an address in memory that it may share with others. As long as it lives,
    other programs that have the same values read them there."""

    def __init__(self, array: Array, memory: Arena, address: int) -> None:
        self.array, self.memory, self.address = array, memory, address

    @staticmethod
    def key_of(array: Array) -> Hashable:
        """Which memory of the host it is a copy of. It stays what it is while the constant has it."""
        interface = array.__array_interface__
        return interface["data"][0], array.shape, array.strides, array.dtype


class Kin:
    """What programs of one model share on a device, beside constants: the memory of calls."""

    def __init__(self, context: Context) -> None:
        self.arenas = Arenas(partial(Arena, context))
        self.homes = Arenas(partial(Home, context))


class Loaded(NamedTuple):
    """What executors of a program share, whatever sizes they are bound to."""

    context: Context
    functions: dict[str, Function]
    constants: tuple[Constant, ...]
    kin: Kin

    @classmethod
    def of(cls, program: Program, context: Context, kin: Kin | None = None) -> Loaded:
        """Code assembled, constants copied that no other program has there."""
        kernels = dict.fromkeys(step.kernel for step in program.plan.steps if isinstance(step, KernelStep))
        functions = functions_of(context, program.objects, kernels)
        return cls(context, functions, constants_on(context, program.constants), kin or Kin(context))

    @property
    def places(self) -> tuple[int, ...]:
        """The addresses of constants."""
        return tuple([constant.address for constant in self.constants])


def constants_on(context: Context, arrays: Sequence[Array]) -> tuple[Constant, ...]:
    """The constants of these values; those that are not there yet lie side by side."""
    keys = [Constant.key_of(array) for array in arrays]
    found: dict[Hashable, Constant | None] = {key: context.constants.get(key) for key in keys}
    missing = {key: array for key, array in zip(keys, arrays) if found[key] is None}
    if missing:
        offsets, total = _side_by_side([array.nbytes for array in missing.values()])
        memory = Arena(context, total)
        with context:
            for (key, array), offset in zip(missing.items(), offsets):
                dense, into = np.ascontiguousarray(array), memory.address + offset
                if dense.nbytes:
                    context.driver.call("cuMemcpyHtoDAsync_v2", into, address_of(dense), dense.nbytes, 0)
                found[key] = Constant(array, memory, into)
            context.driver.call("cuStreamSynchronize", 0)  # a copy that was staged may still go on
        context.constants.update({key: made for key in missing if (made := found[key]) is not None})
    return tuple([made for key in keys if (made := found[key]) is not None])


def _side_by_side(sizes: Sequence[int]) -> tuple[list[int], int]:
    offsets, at = [], 0
    for size in sizes:
        offsets.append(at)
        at += aligned(size)
    return offsets, at


class Run(NamedTuple):
    """A graph, and which of its kernels use each slot."""

    graph: Graph
    users: dict[int, list[int]]

    def place(self, moved: Sequence[int], addresses: Addresses) -> None:
        """Has kernels use slots that moved where they are now."""
        numbers = dict.fromkeys([number for slot in moved for number in self.users.get(slot, ())])
        self.graph.place(numbers, addresses)


class Workspace:
    """What one call at a time uses. Inputs and outputs of the host have a home on the device as long as the call takes,
    and are staged in memory that the device reaches."""

    def __init__(
        self, program: Program, loaded: Loaded, more: Sequence[PreparedKernel] = (), then: Workspace | None = None
    ) -> None:
        """Behind the last kernels of the program, and in the same graph, there may be `more`, and `then` those of
        another workspace, which runs with this one only. Its slots are placed before this one's."""
        self.loaded, self.plan, self._more, self._then = loaded, program.plan, list(more), then
        slots = self.plan.slots
        self._slots = {role: [i for i, s in enumerate(slots) if s.role == role] for role in ("input", "output")}
        self._arena_slots = [(i, known(s.offset)) for i, s in enumerate(slots) if s.role == "arena"]
        self._addresses = [0] * len(slots)
        for number, place in zip([i for i, s in enumerate(slots) if s.role == "constant"], loaded.places):
            self._addresses[number] = place
        self._own = [*self._slots["input"], *self._slots["output"]]
        offsets, self._home_bytes = _side_by_side([known(slots[i].size) for i in self._own])
        self._offsets = dict(zip(self._own, offsets))
        self._home: Home | None = None
        self._segments: list[Run | HostStep] | None = None
        if then is not None:
            then._segments = []
        self.last: tuple[Stream, Event] | None = None  # a run that may not have ended
        self._event = Event()
        self.held: list[Borrowed] = []  # what such runs have of other libraries, which may use it anew once let go

    def __del__(self) -> None:
        if getattr(self, "last", None) is None or not self.loaded.context.is_usable:
            return
        if self._event.handle:
            self.loaded.context.dispose("cuEventSynchronize", self._event.handle)
        else:  # garbage that refers to itself goes in any order
            self.loaded.context.dispose("cuCtxSynchronize")

    def run(
        self, inputs: Sequence[Given], outputs: Sequence[Given], kept: Sequence[int], arena: Arena, stream: Stream
    ) -> None:
        """Runs on arrays that fit. The inputs of the numbers `kept` get back what the run writes to them. If all
        outputs are on the device, the run may still go on afterwards."""
        self.begin(inputs, outputs, arena, stream)
        for number, array in zip(self._slots["input"], inputs):
            self._bring(number, array, stream)
        self.launch(stream)
        back = [(self._slots["input"][i], inputs[i]) for i in kept] + [*zip(self._slots["output"], outputs)]
        to_host = [(number, array) for number, array in back if isinstance(array, np.ndarray)]
        staged = [self._fetch(number, array, stream) for number, array in to_host]
        self._end(inputs, outputs, arena, stream, wait=bool(to_host))
        for found, (_, array) in zip(staged, to_host):
            if found is not None:
                np.copyto(_bytes_of(array), found)
        if self._home is not None:
            self.loaded.kin.homes.give(self._home)
            self._home = None

    def begin(self, inputs: Sequence[Given], outputs: Sequence[Given], arena: Arena, stream: Stream) -> None:
        """Orders the stream behind all that still uses the memory, and has slots where they are in this run."""
        if any(map(_needs_home, (*inputs, *outputs))):
            self._settle(any(map(_is_host, inputs)), stream)
        self.order(arena, stream)
        for array in (*inputs, *outputs):
            if isinstance(array, DeviceArray):
                array.memory.ready_on(stream)
        own = zip(self._own, (*inputs, *outputs))
        self.place([*self.in_arena(arena), *[(number, self._place(number, array)) for number, array in own]])

    def _settle(self, stages: bool, stream: Stream) -> None:
        """Takes a home, whose last use ends before this one begins."""
        self._home = self.loaded.kin.homes.take(self._home_bytes)
        if stages and self._home.device.last is not None:
            self._home.device.last[1].synchronize()  # what was staged is copied by then
        self._home.device.ready_on(stream)

    def order(self, arena: Arena, stream: Stream) -> None:
        """Orders the stream behind the last run, and the last use of an arena."""
        if self.last is not None and self.last[0].handle != stream.handle:
            self.last[1].wait(stream)
        arena.ready_on(stream)

    def in_arena(self, arena: Arena) -> list[tuple[int, int]]:
        """Slots of the arena with the addresses that they have in this one."""
        return [(number, arena.address + offset) for number, offset in self._arena_slots]

    def slot(self, place: int) -> int:
        """The slot of an input or, counted on from those, of an output."""
        return self._own[place]

    def place(self, places: Iterable[tuple[int, int]]) -> None:
        """Has slots at other addresses from now on."""
        moved = [(number, address) for number, address in places if self._addresses[number] != address]
        for number, address in moved:
            self._addresses[number] = address
        if self._segments is None:
            self._segments = self._made()
            return
        for segment in self._segments if moved else ():
            if isinstance(segment, Run):
                segment.place([number for number, _ in moved], self._addresses)

    def launch(self, stream: Stream) -> None:
        """Runs all kernels and steps of the host."""
        for segment in self._segments or ():
            if isinstance(segment, HostStep):
                self.host_step(segment, stream)
            else:
                segment.graph.launch(stream)

    def _place(self, number: int, array: Given) -> int:
        """Where a slot is: where an array of the device is, if kernels can read it there, else at home."""
        if isinstance(array, DeviceArray) and not _needs_home(array):
            return array.address
        assert self._home is not None
        return self._home.device.address + self._offsets[number]

    def _made(self) -> list[Run | HostStep]:
        """Graphs of the kernels between host steps, and those steps, in order."""
        made = list[Run | HostStep]()
        kernels: list[PreparedKernel] = []
        for step in (*self.plan.steps, None):
            if isinstance(step, KernelStep):
                if runs(step):
                    kernels.append(self.prepared(step))
                continue
            if step is None:
                made += self._last(kernels)
                continue
            if kernels:
                made.append(Run(Graph(self.loaded.context, kernels), users_of(kernels)))
                kernels = []
            made.append(step)
        return made

    def _last(self, kernels: Sequence[PreparedKernel]) -> list[Run]:
        """The last graph, with what is behind the program."""
        then, first = self._then, len(kernels) + len(self._more)
        steps = [] if then is None else [step for step in then.plan.steps if isinstance(step, KernelStep)]
        behind = [then.prepared(step) for step in steps if runs(step)] if then is not None else []
        together = [*kernels, *self._more, *behind]
        if not together:
            return []
        graph = Graph(self.loaded.context, together)
        if then is not None:
            then._segments = [Run(graph, users_of(behind, first))]
        return [Run(graph, users_of(kernels))]

    def prepared(self, step: KernelStep) -> PreparedKernel:
        """A step with the addresses that slots have now."""
        function = self.loaded.functions[step.kernel]
        return PreparedKernel(self.loaded.context, function, step, self._addresses)

    def _bring(self, number: int, array: Given, stream: Stream) -> None:
        """Has what an input holds where its slot is."""
        at, driver = self._addresses[number], self.loaded.context.driver
        if not array.nbytes or (isinstance(array, DeviceArray) and array.address == at):
            return
        with self.loaded.context:
            if isinstance(array, DeviceArray):
                driver.call("cuMemcpyDtoDAsync_v2", at, array.address, array.nbytes, stream.handle)
                return
            source, pinned = address_of(array), None if self._home is None else self._home.pinned
            if pinned is not None:
                np.copyto(pinned.view(self._offsets[number], array.nbytes), _bytes_of(array))
                source = pinned.address + self._offsets[number]
            driver.call("cuMemcpyHtoDAsync_v2", at, source, array.nbytes, stream.handle)

    def _fetch(self, number: int, array: Array, stream: Stream) -> Array | None:
        """Begins to copy what a slot holds to an array of the host: to what is given back, or, if that is None,
        straight there."""
        if not array.nbytes:
            return None
        pinned = None if self._home is None else self._home.pinned
        staged = None if pinned is None else pinned.view(self._offsets[number], array.nbytes)
        into = address_of(array if staged is None else staged)
        with self.loaded.context as context:
            context.driver.call("cuMemcpyDtoHAsync_v2", into, self._addresses[number], array.nbytes, stream.handle)
        return staged

    def ended(self, arena: Arena, memories: Iterable[DeviceMemory], stream: Stream) -> None:
        """Takes notice that the stream was given a run, which may go on and use memory."""
        if self.held and self._event.query():
            self.held = []
        self._event.record(stream)
        self.last = arena.last = (stream, self._event)
        for memory in memories:
            memory.used_on(stream)
            if isinstance(memory, Borrowed):
                self.held.append(memory)

    def _end(self, inputs: Sequence[Given], outputs: Sequence[Given], arena: Arena, stream: Stream, wait: bool) -> None:
        for number, array in zip(self._slots["output"], outputs):
            if isinstance(array, DeviceArray) and self._addresses[number] != array.address and array.nbytes:
                with self.loaded.context as context:
                    home = self._addresses[number]
                    context.driver.call("cuMemcpyDtoDAsync_v2", array.address, home, array.nbytes, stream.handle)
        if wait:
            stream.synchronize()
            self.last = arena.last = None
            if self._home is not None:
                self._home.device.last = None
            self.held = []
            return
        if self._home is not None:
            self._home.device.last = (stream, self._event)
        there = [array.memory for array in (*inputs, *outputs) if isinstance(array, DeviceArray)]
        self.ended(arena, there, stream)

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


def _needs_home(array: Given) -> bool:
    """Whether kernels cannot read an array where it is."""
    return not isinstance(array, DeviceArray) or array.address % KERNEL_ALIGNMENT != 0


def _bytes_of(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)
