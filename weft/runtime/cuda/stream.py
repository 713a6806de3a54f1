"""Streams, in which a device works in order, and events, which tell how far it is."""

from __future__ import annotations

from ctypes import byref, c_float, c_void_p
from typing import Any

from ...base.errors import InvalidType, InvalidValue
from .blocks import Blocks
from .context import Context, platform
from .driver import NOT_READY

NON_BLOCKING = 1
BLOCKING_SYNC, NO_TIMING, INTERPROCESS = 1, 2, 4


def device_number(device: Any) -> int | None:
    """The number that a device, a text such as "cuda:1" or a number means; None for the current one."""
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        return device
    if isinstance(device, str):
        kind, _, number = device.partition(":")
        if kind == "cuda" and (not number or number.isdecimal()):
            return int(number) if number else None
    elif getattr(device, "type", None) == "cuda":
        return device.index  # type: ignore[no-any-return]
    raise InvalidValue(f"{device!r} is no CUDA device", hint='"cuda", "cuda:0" or a number')


class Stream:
    """What a device does in order. One is made on a device; those of a lower priority number go first."""

    blocks: Blocks | None  # memory that it freed, if it keeps some

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.context = platform().context(device_number(device))
        self.priority = int(priority)
        self._is_own, self.blocks = False, None
        made = c_void_p()
        with self.context:
            self.context.driver.call("cuStreamCreateWithPriority", byref(made), NON_BLOCKING, self.priority)
        self.handle: int = made.value or 0
        self._is_own = True
        self.keep_blocks()

    @classmethod
    def at(cls, context: Context, handle: int) -> Stream:
        """A stream that somebody else made, by the driver's handle; 0 is the default stream."""
        made = cls.__new__(cls)
        made.context, made.handle, made.priority, made._is_own, made.blocks = context, handle, 0, False, None
        return made

    def keep_blocks(self) -> None:
        """Has what it frees be there for what it is given next: only where nobody else ends the stream."""
        self.blocks = Blocks(self.context, self.handle) if self.context.pool is not None else None

    def __del__(self) -> None:
        if getattr(self, "_is_own", False):
            if self.blocks is not None:
                self.blocks.close()
            self.context.dispose("cuStreamDestroy_v2", self.handle)

    @property
    def cuda_stream(self) -> int:
        """The driver's handle."""
        return self.handle

    @property
    def device_index(self) -> int:
        return self.context.index

    def synchronize(self) -> None:
        """Waits until all is done that the stream was given."""
        with self.context:
            self.context.driver.call("cuStreamSynchronize", self.handle)

    def query(self) -> bool:
        """Whether all is done."""
        with self.context:
            return _is_done(self.context, "cuStreamQuery", self.handle)

    def wait_event(self, event: Event) -> None:
        """Has what is given from now on wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Has what is given from now on wait for all that another stream was given."""
        if stream.handle != self.handle:
            self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """An event that happens when all is done that the stream was given so far."""
        made = Event() if event is None else event
        made.record(self)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self.context, self.handle) == (other.context, other.handle)

    def __hash__(self) -> int:
        return hash((self.context.index, self.handle))

    def __repr__(self) -> str:
        return f"<weft.cuda.Stream device=cuda:{self.context.index} cuda_stream={self.handle:#x}>"

    def __enter__(self) -> None:
        _entered(self)

    def __exit__(self, *raised: object) -> None:
        _left(self)


class Event:
    """A point in what a stream does. It is made on the device of the stream that first records it."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise InvalidValue("events are not shared by processes", hint="interprocess=False")
        platform()
        self._flags = (BLOCKING_SYNC if blocking else 0) | (0 if enable_timing else NO_TIMING)
        self.context: Context | None = None
        self.handle = 0

    def __del__(self) -> None:
        context = getattr(self, "context", None)
        if context is not None:
            context.dispose("cuEventDestroy_v2", self.handle)
            self.context, self.handle = None, 0  # as those see it whose finalisers run after this one

    @property
    def cuda_event(self) -> int:
        """The driver's handle; 0 before the first record."""
        return self.handle

    def record(self, stream: Stream | None = None) -> None:
        """Happens when all is done that a stream was given so far."""
        at = current_stream() if stream is None else stream
        with at.context as context:
            if self.context is None:
                made = c_void_p()
                context.driver.call("cuEventCreate", byref(made), self._flags)
                self.context, self.handle = context, made.value or 0
            elif self.context is not context:
                raise InvalidValue(f"an event of cuda:{self.context.index} is recorded on cuda:{context.index}")
            context.driver.call("cuEventRecord", self.handle, at.handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Has what a stream is given from now on wait."""
        at = current_stream() if stream is None else stream
        if self.context is not None:
            with at.context as context:
                context.driver.call("cuStreamWaitEvent", at.handle, self.handle, 0)

    def query(self) -> bool:
        """Whether it has happened; one that was never recorded has."""
        if self.context is None:
            return True
        with self.context as context:
            return _is_done(context, "cuEventQuery", self.handle)

    def synchronize(self) -> None:
        """Waits until it has happened."""
        if self.context is not None:
            with self.context as context:
                context.driver.call("cuEventSynchronize", self.handle)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another, both with timing."""
        if self._flags & NO_TIMING or end_event._flags & NO_TIMING:
            raise InvalidValue("events without timing tell no time", hint="Event(enable_timing=True)")
        if self.context is None or end_event.context is None:
            raise InvalidValue("both events must be recorded before the time between them is asked for")
        found = c_float()
        with self.context as context:
            context.driver.call("cuEventElapsedTime", byref(found), self.handle, end_event.handle)
        return found.value

    def __repr__(self) -> str:
        return f"<weft.cuda.Event {self.handle:#x}>" if self.handle else "<weft.cuda.Event uninitialized>"


def _is_done(context: Context, name: str, handle: int) -> bool:
    code = context.driver.code(name, handle)
    if code not in (0, NOT_READY):
        raise context.driver.failure(name, code)
    return code == 0


def default_stream(device: Any = None) -> Stream:
    """The stream 0 of a device, which waits for others and they for it."""
    return _default_of(platform().context(device_number(device)))


def _default_of(context: Context) -> Stream:
    if context.default is None:
        default = Stream.at(context, 0)
        default.keep_blocks()
        context.default = default
    found: Stream = context.default
    return found


def current_stream(device: Any = None) -> Stream:
    """The stream that a thread works in on a device."""
    return stream_in(platform().context(device_number(device)))


def stream_in(context: Context) -> Stream:
    """The same, by the context of the device."""
    found: Stream | None = context.platform.local.streams.get(context.index)
    return found or context.default or _default_of(context)


def set_stream(stream: Stream | None) -> None:
    """Has a thread work in a stream from now on, and on its device; None changes nothing."""
    if stream is None:
        return
    if not isinstance(stream, Stream):
        raise InvalidType(f"a stream is a weft.cuda.Stream, not a {type(stream).__name__}")
    local = stream.context.platform.local
    local.streams[stream.context.index] = stream
    local.device = stream.context.index


def _entered(stream: Stream) -> None:
    local = stream.context.platform.local
    local.entered.append((local.device, local.streams.get(stream.context.index)))
    set_stream(stream)


def _left(stream: Stream) -> None:
    local = stream.context.platform.local
    local.device, before = local.entered.pop()
    if before is None:
        local.streams.pop(stream.context.index, None)
    else:
        local.streams[stream.context.index] = before
