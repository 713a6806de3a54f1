"""What there is of CUDA devices, asked from the driver when it is first asked for. Without a driver, questions are
answered by "none", and what needs a device says so in one error."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ...base.errors import Error, InvalidValue
from ...runtime.cuda import context as contexts
from ...runtime.cuda.array import DeviceArray, device_empty, to_device
from ...runtime.cuda.context import Context, platform
from ...runtime.cuda.stream import Event, Stream, current_stream, default_stream, device_number, set_stream
from ..tensor.device import device as Device

BF16_FROM = (8, 0)  # the capability from which on a device computes in bfloat16 and tfloat32


def is_available() -> bool:
    """Whether there is a CUDA device that this process can use.

    >>> is_available() == (device_count() > 0)
    True
    """
    return device_count() > 0


def device_count() -> int:
    """How many CUDA devices this process can use."""
    try:
        return platform().count
    except Error:
        return 0


def is_initialized() -> bool:
    """Whether something has used the driver, and found a device."""
    return contexts.is_begun()


def init() -> None:
    """Finds the driver now."""
    platform()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device computes in bfloat16."""
    return is_available() and _context(None).facts.capability >= BF16_FROM


def is_tf32_supported() -> bool:
    """Whether the device's tensor cores take tfloat32."""
    return is_bf16_supported()


def current_device() -> int:
    """The number of the device that this thread works on."""
    return platform().local.device


def set_device(device: Any) -> None:
    """Has this thread work on a device; a number below zero changes nothing."""
    number = _number(device)
    if number is not None and number >= 0:
        found = platform()
        found.local.device = found.checked(number)


def get_device_name(device: Any = None) -> str:
    """What the driver calls a device."""
    return _context(device).facts.name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The major and minor number of what a device can do: (9, 0) of an H200."""
    return _context(device).facts.capability


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is, by PyTorch's names."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What a device is."""
    facts = _context(device).facts
    return DeviceProperties(
        facts.name,
        *facts.capability,
        facts.memory_bytes,
        facts.sms,
        facts.warp,
        facts.sm_threads,
        facts.registers,
        facts.shared_bytes,
        facts.sm_shared_bytes,
        facts.l2_bytes,
        facts.clock_khz,
        facts.memory_khz,
        facts.bus_bits,
    )


def get_arch_list() -> list[str]:
    """The architectures of the devices, for which the driver assembles code."""
    found = {_context(index).facts.capability for index in range(device_count())}
    return [f"sm_{major}{minor}" for major, minor in sorted(found)]


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether weft copies from one device to another without the host: never."""
    _context(device), _context(peer_device)
    return False


def is_current_stream_capturing() -> bool:
    """Whether what the stream is given is captured: weft makes its graphs without."""
    return False


def synchronize(device: Any = None) -> None:
    """Waits for all that a device was given to do."""
    _context(device).synchronize()


# Memory


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that are free on a device, and all that it has."""
    return _context(device).memory()


def memory_allocated(device: Any = None) -> int:
    """Bytes on a device that arrays and programs of weft have."""
    found = _used(device)
    return 0 if found is None else found.allocated


def max_memory_allocated(device: Any = None) -> int:
    """The most that `memory_allocated` was since the process began, or `reset_peak_memory_stats`."""
    found = _used(device)
    return 0 if found is None else found.most_allocated


def memory_reserved(device: Any = None) -> int:
    """Bytes on a device that weft keeps from others, whether used or not."""
    found = _used(device)
    return 0 if found is None else found.reserved()


def max_memory_reserved(device: Any = None) -> int:
    """The most that `memory_reserved` was."""
    found = _used(device)
    return 0 if found is None else found.reserved(most=True)


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """The same numbers by PyTorch's names; none if no device was used."""
    if _used(device) is None:
        return OrderedDict()
    told = {
        "allocated_bytes.all.current": memory_allocated(device),
        "allocated_bytes.all.peak": max_memory_allocated(device),
        "reserved_bytes.all.current": memory_reserved(device),
        "reserved_bytes.all.peak": max_memory_reserved(device),
    }
    return OrderedDict(told)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Has `max_memory_allocated` begin anew."""
    found = _used(device)
    if found is not None:
        found.most_allocated = found.allocated


def empty_cache() -> None:
    """Gives memory back that weft keeps and nobody uses."""
    if contexts.is_begun():
        for found in platform().contexts:
            found.trim()


# Devices and streams of a block


class device:
    """A device that this thread works on within a block; none for None, and for a number below zero."""

    __module__ = "weft.cuda"

    def __init__(self, device: Any) -> None:
        number = _number(device)
        self.idx, self.prev_idx = -1 if number is None else number, -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            found = platform()
            self.prev_idx, found.local.device = found.local.device, found.checked(self.idx)

    def __exit__(self, *raised: object) -> None:
        if self.prev_idx >= 0:
            platform().local.device, self.prev_idx = self.prev_idx, -1


class device_of(device):
    """The device of a tensor for a block: nothing for tensors of the processor."""

    __module__ = "weft.cuda"

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device())


class StreamContext:
    """A stream that this thread works in within a block; None changes nothing."""

    __module__ = "weft.cuda"

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is None:
            return
        if not isinstance(self.stream, Stream):
            platform()
            raise InvalidValue(f"{self.stream!r} is no stream", hint="weft.cuda.Stream()")
        self.stream.__enter__()

    def __exit__(self, *raised: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*raised)


def stream(stream: Any) -> StreamContext:
    """A block in which a thread works in a stream."""
    return StreamContext(stream)


class ExternalStream(Stream):
    """A stream of another library, by the driver's handle."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        made = Stream.at(platform().context(device_number(device)), int(stream_ptr))
        self.__dict__.update(made.__dict__)


def _number(device: Any) -> int | None:
    if isinstance(device, Device) and device.type == "cuda" and device.index is None:
        return platform().local.device
    return device_number(device)


def _context(device: Any) -> Context:
    return platform().context(_number(device))


def _used(device: Any) -> Context | None:
    """The context of a device, if the driver was used; what was not has no memory."""
    return _context(device) if contexts.is_begun() else None


PRESENT: dict[str, Any] = {
    each.__name__: each
    for each in (
        *(is_available, device_count, is_initialized, init, is_bf16_supported, is_tf32_supported, current_device),
        *(set_device, get_device_name, get_device_capability, get_device_properties, get_arch_list, synchronize),
        *(can_device_access_peer, is_current_stream_capturing, mem_get_info, memory_allocated, max_memory_allocated),
        *(memory_reserved, max_memory_reserved, memory_stats, reset_peak_memory_stats, empty_cache, device, device_of),
        *(stream, StreamContext, Stream, ExternalStream, Event, current_stream, default_stream, set_stream),
        *(DeviceArray, device_empty, to_device),
    )
}
