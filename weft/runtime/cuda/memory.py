"""Memory of a device, freed when nobody has it any more: from the pool in the order of a stream, or an arena at a fixed
address; and memory of the host that the device reaches by itself."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_uint64, c_void_p
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from ...base.errors import Error, OutOfMemory
from ...base.shown import bytes_text
from .context import Context
from .stream import Event, Stream

ALIGNMENT = 256  # of what the driver allocates, and of parts of an arena
_PORTABLE = 1  # for all contexts
LEGACY_HANDLES = (0, 1, 2)  # of streams that always are
MOST_PINNED = 64 << 20  # bytes that a call stages; what is larger is copied by the driver, from pages as they are

T = TypeVar("T", bound="Arena | Home")


class DeviceMemory(Protocol):
    """Bytes on a device, whoever owns them. What `stream` was given for them is done in its order."""

    context: Context
    stream: Stream
    uses: dict[int, Event]

    def is_alone_on(self, stream: Stream) -> bool:
        """Whether no other stream has to do with the memory, and no other library."""

    def ready_on(self, stream: Stream) -> None:
        """Has a stream wait for all that others do with the memory."""

    def used_on(self, stream: Stream) -> None:
        """Takes notice that a stream was given something that uses the memory."""


class _Ordered:
    """What streams do with memory, so that each waits for the others."""

    def __init__(self, context: Context, stream: Stream) -> None:
        self.context, self.stream = context, stream
        self.uses: dict[int, Event] = {}  # the last ones by other streams

    def is_alone_on(self, stream: Stream) -> bool:
        """Whether the memory is ours, and no stream but this one has had it: then there is nothing to wait for."""
        return self.stream is stream and not self.uses

    def ready_on(self, stream: Stream) -> None:
        for handle, event in self.uses.items():
            if handle != stream.handle:
                event.wait(stream)
        if stream.handle != self.stream.handle:
            stream.wait_stream(self.stream)

    def used_on(self, stream: Stream) -> None:
        if stream.handle != self.stream.handle:
            event = self.uses.setdefault(stream.handle, Event())
            event.record(stream)


class Borrowed(_Ordered):
    """Memory of another library, which lives as long as the owner. What it holds is there for `stream`."""

    def __init__(self, context: Context, stream: Stream, owner: object) -> None:
        super().__init__(context, stream)
        self.owner = owner

    def is_alone_on(self, stream: Stream) -> bool:
        return False


class Pooled(_Ordered):
    """Memory of a stream, allocated and freed in its order: of what it keeps, or from the pool of the device."""

    address = 0
    _foreign: frozenset[int] = frozenset()  # streams of other libraries that may use it

    def __init__(self, stream: Stream, nbytes: int) -> None:
        self.context, self.stream, self.nbytes = stream.context, stream, nbytes
        self.uses = {}
        blocks = stream.blocks
        self.address = (blocks.take(nbytes) if blocks is not None else 0) or self._allocated()
        self.context.count(nbytes, direct=self.context.pool is None)

    def _allocated(self) -> int:
        """The address of new memory. If there is not so much, streams give back what they keep."""
        made, nbytes = c_uint64(), max(self.nbytes, 1)
        with self.context as context:
            if context.pool is None:
                allocate(context, "cuMemAlloc_v2", made, nbytes)
                return made.value
            try:
                allocate(context, "cuMemAllocAsync", made, nbytes, self.stream.handle)
            except OutOfMemory:
                if not context.kept:
                    raise
                context.trim()
                allocate(context, "cuMemAllocAsync", made, nbytes, self.stream.handle)
        return made.value

    def lent_to(self, handle: int) -> None:
        """Takes notice that another library has the memory, and works in a stream."""
        self._foreign |= {handle}

    def __del__(self) -> None:
        if not self.address:
            return
        context, blocks = self.context, self.stream.blocks
        context.count(-self.nbytes, direct=context.pool is None)
        if (self.uses or self._foreign) and context.pool is not None:
            self._await_others()
        surplus = self.address if blocks is None else blocks.give(self.address, self.nbytes)
        if not surplus:
            return
        if context.pool is None or (blocks is not None and blocks.is_closed):  # the stream has gone
            context.dispose("cuMemFree_v2", surplus)  # which waits for all that uses it
        else:
            context.dispose("cuMemFreeAsync", surplus, self.stream.handle)

    def _await_others(self) -> None:
        """Has the stream wait for all that others do with it."""
        events = list(self.uses.values())
        if not all([event.handle for event in events]):  # garbage that goes in any order
            self.context.dispose("cuCtxSynchronize")
        for event in [event for event in events if event.handle]:
            self.context.dispose("cuStreamWaitEvent", self.stream.handle, event.handle, 0)
        if self._foreign:
            with suppress(Error):
                self._await_borrowers()

    def _await_borrowers(self) -> None:
        """The stream 0 is always there to be waited for; others may be gone, so all is."""
        if all(handle in LEGACY_HANDLES for handle in self._foreign):
            event = Event()
            event.record(Stream.at(self.context, 0))
            event.wait(self.stream)
        else:
            self.context.dispose("cuCtxSynchronize")


class Arena:
    """Memory at a fixed address, for what lies between inputs and outputs of a call."""

    def __init__(self, context: Context, nbytes: int) -> None:
        self.context, self.nbytes, self.address = context, nbytes, 0
        self.last: tuple[Stream, Event] | None = None  # the use of it that may not have ended
        made = c_uint64()
        with context:
            allocate(context, "cuMemAlloc_v2", made, max(nbytes, 1))
        self.address = made.value
        context.count(nbytes, direct=True)

    def __del__(self) -> None:
        if getattr(self, "address", 0) and self.context.is_usable:
            self.context.count(-self.nbytes, direct=True)
            self.context.dispose("cuMemFree_v2", self.address)  # which waits for all that uses it

    def ready_on(self, stream: Stream) -> None:
        """Has a stream wait for the last use."""
        if self.last is not None and self.last[0].handle != stream.handle:
            self.last[1].wait(stream)


class Pinned:
    """Memory of the host that stays where it is, from and to which a device copies by itself."""

    def __init__(self, context: Context, nbytes: int) -> None:
        self.context, self.nbytes, self.address = context, nbytes, 0
        made = c_void_p()
        with context:
            allocate(context, "cuMemHostAlloc", made, max(nbytes, 1), _PORTABLE)
        self.address = made.value or 0

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self.context.dispose("cuMemFreeHost", self.address)

    def view(self, offset: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Some of the bytes as an array, which is valid as long as the memory is."""
        if not nbytes:
            return np.empty(0, np.uint8)
        raw: Any = (ctypes.c_uint8 * nbytes).from_address(self.address + offset)
        found: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(raw, np.uint8)
        return found


class Home:
    """Memory for inputs and outputs of the host: on the device and, if it is not too large, as much on the host, where
    arrays are staged."""

    def __init__(self, context: Context, nbytes: int) -> None:
        self.device = Arena(context, nbytes)  # is freed first, and that waits for all that uses either
        self.nbytes = nbytes
        self.pinned = Pinned(context, nbytes) if nbytes <= MOST_PINNED else None


class Arenas(Generic[T]):
    """What calls of the programs of a model, at whatever sizes, take and give back: never more of it than calls at
    once."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make
        self._idle: deque[T] = deque()

    @property
    def idle_bytes(self) -> int:
        """Memory that no call uses at the moment."""
        return sum(arena.nbytes for arena in tuple(self._idle))

    def take(self, nbytes: int) -> T:
        """One of so many bytes at least. If all idle ones are smaller, one is let go before another is made."""
        for fitting in [arena for arena in tuple(self._idle) if arena.nbytes >= nbytes]:
            with suppress(ValueError):  # another call has it by now
                self._idle.remove(fitting)
                return fitting
        self._let_go()
        return self._make(nbytes)

    def _let_go(self) -> None:
        with suppress(IndexError):  # none is idle
            self._idle.pop()

    def give(self, arena: T) -> None:
        """Takes back what a call no longer uses, or will not when its event has happened."""
        self._idle.append(arena)


def allocate(context: Context, name: str, into: Any, nbytes: int, *more: int) -> None:
    """Calls what allocates; if there is not so much, the error tells how much there is."""
    try:
        context.driver.call(name, byref(into), nbytes, *more)
    except OutOfMemory as error:
        where = "the host" if name == "cuMemHostAlloc" else f"cuda:{context.index}, {context.facts.name}"
        free, total = context.memory()
        raise OutOfMemory(
            f"cannot allocate {nbytes} bytes ({bytes_text(nbytes)}) on {where}",
            why=f"{bytes_text(free)} of {bytes_text(total)} on the device are free, and weft has "
            f"{bytes_text(context.allocated)}; {error.why}",
            hint="free device arrays, call weft.cuda.empty_cache(), or take smaller extents",
        ) from None


def aligned(nbytes: int) -> int:
    """The bytes from a part of an arena to the next.

    >>> aligned(1), aligned(256)
    (256, 256)
    """
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
