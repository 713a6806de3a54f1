"""Devices: the driver of this process, and for each device the primary context, which every library in the process
shares. Nothing is loaded before it is asked for."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p, create_string_buffer
from typing import Any, NamedTuple

from ...base.errors import Error, InvalidType, NoDevice, NoDriver, RunError
from ...base.forks import held_lock
from .driver import Driver, found_driver

_ATTRIBUTES = {
    "max_threads": 1,
    "warp": 10,
    "registers": 12,
    "clock_khz": 13,
    "sms": 16,
    "memory_khz": 36,
    "bus_bits": 37,
    "l2_bytes": 38,
    "sm_threads": 39,
    "sm_shared_bytes": 81,
    "shared_bytes": 97,
    "has_pools": 115,
}
_MAJOR, _MINOR = 75, 76
_PUSH, _POP = "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"
_NOWHERE = byref(c_void_p())  # where a handle goes that nobody reads
_RELEASE_THRESHOLD, _RESERVED, _RESERVED_MOST = 4, 5, 6


class DeviceFacts(NamedTuple):
    """What a device is. Shared bytes are the most that a block can have; rates are by its clocks."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int
    max_threads: int
    warp: int
    registers: int
    clock_khz: int
    sms: int
    memory_khz: int
    bus_bits: int
    l2_bytes: int
    sm_threads: int
    sm_shared_bytes: int
    shared_bytes: int
    has_pools: int

    @property
    def bytes_a_second(self) -> float:
        """Of its memory: two transfers a clock, of as many bits as the bus has."""
        return 2e3 * self.memory_khz * self.bus_bits / 8

    @property
    def flops(self) -> float:
        """Of float32, without tensor cores: 128 multiply-adds a clock and multiprocessor."""
        return 2e3 * 128 * self.sms * self.clock_khz


class Platform:
    """The driver of a process with its devices. `device` is the number of the one that a thread works on."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.process = os.getpid()
        self._lock = held_lock("making")
        self._contexts: dict[int, Context] = {}
        self.local = _PerThread()
        count, version = c_int(), c_int()
        try:
            driver.call("cuInit", 0)
            driver.call("cuDeviceGetCount", byref(count))
        except NoDevice as error:
            raise NoDriver(
                "a CUDA device is needed, and there is none", why=error.why, hint="use device='cpu'"
            ) from None
        driver.call("cuDriverGetVersion", byref(version))
        self.count = count.value
        self.version = (version.value // 1000, version.value % 1000 // 10)
        if not self.count:
            raise NoDriver("a CUDA device is needed, and there is none", why="the driver lists no device")

    def context(self, index: int | None = None) -> Context:
        """That of a device by its number, or of the one that the thread works on."""
        number = self.local.device if index is None else index
        found = self._contexts.get(number)
        if found is None or type(number) is not int:
            number = self.checked(number)
            with self._lock:
                found = self._contexts.get(number)
                if found is None:
                    found = self._contexts[number] = Context(self, number)
        return found

    def checked(self, index: int) -> int:
        """The number of a device, or an error that tells how many there are."""
        if isinstance(index, bool) or not isinstance(index, int):
            raise InvalidType(f"a device has a number, not {index!r}")
        if not 0 <= index < self.count:
            raise NoDevice(
                f"there is no device cuda:{index}",
                why=f"this machine has {self.count}",
                hint=f"use cuda:{self.count - 1}, or a lower one; CUDA_VISIBLE_DEVICES hides devices",
            )
        return index

    @property
    def contexts(self) -> list[Context]:
        """Those of devices that were used."""
        return list(self._contexts.values())

    def close(self) -> None:
        """Gives all contexts back."""
        while self._contexts:
            self._contexts.popitem()[1].close()


class _PerThread(threading.local):
    """The device that a thread works on, and on each device the stream."""

    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, Any] = {}
        self.contexts: list[Context] = []  # those that are entered
        self.entered: list[tuple[int, Any]] = []  # device and stream before each stream that is entered


class Context:
    """The primary context of a device. Inside of `with context:` it is the current one of the thread."""

    def __init__(self, platform: Platform, index: int) -> None:
        self.platform, self.index, self.driver = platform, index, platform.driver
        self._local = platform.local
        self._push, self._pop = (self.driver.entry(name) for name in (_PUSH, _POP))
        self.default: Any = None  # its default stream, once that was asked for
        self.modules: weakref.WeakValueDictionary[bytes, Any] = weakref.WeakValueDictionary()
        self.constants: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()  # by what they hold
        self.blocks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # that streams keep
        self._lock = held_lock("table")
        self.allocated = self.most_allocated = self.direct = 0  # bytes: all, the most ever, those beside the pool
        handle, pointer = c_int(), c_void_p()
        self.driver.call("cuDeviceGet", byref(handle), index)
        self._device = handle.value
        self.driver.call("cuDevicePrimaryCtxRetain", byref(pointer), self._device)
        self.pointer = pointer.value
        try:
            self.facts = self._facts()
            self.pool = self._pool() if self.facts.has_pools else None
        except Error:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Context(cuda:{self.index}, {self.facts.name})"

    def close(self) -> None:
        """Gives the context back; it goes on as long as another library has it."""
        if self.blocks:
            with suppress(Error):
                self.trim()
        self.driver.call("cuDevicePrimaryCtxRelease_v2", self._device)

    @property
    def is_usable(self) -> bool:
        """Whether this process may call the driver: not if it is the child of one that began to."""
        return self.platform.process == os.getpid()

    def __enter__(self) -> Context:
        entered = self._local.contexts
        if not entered or entered[-1] is not self:  # inside of a block of its own it is the current one already
            if self.platform.process != os.getpid():
                raise forked()
            code = self._push(self.pointer)
            if code:
                raise self.driver.failure(_PUSH, code)
        entered.append(self)
        return self

    def __exit__(self, *raised: object) -> None:
        entered = self._local.contexts
        entered.pop()
        if not entered or entered[-1] is not self:
            code = self._pop(_NOWHERE)
            if code:
                raise self.driver.failure(_POP, code)

    def dispose(self, name: str, *arguments: Any) -> None:
        """Destroys something from a finaliser, in which nobody could take an error; a forked process has nothing to
        destroy."""
        if self.is_usable:
            with suppress(Error), self:
                self.driver.code(name, *arguments)

    def _facts(self) -> DeviceFacts:
        name, memory = create_string_buffer(256), c_size_t()
        self.driver.call("cuDeviceGetName", name, 256, self._device)
        self.driver.call("cuDeviceTotalMem_v2", byref(memory), self._device)
        capability = self._attribute(_MAJOR), self._attribute(_MINOR)
        numbers = {key: self._attribute(number) for key, number in _ATTRIBUTES.items()}
        return DeviceFacts(name.value.decode(), capability, memory.value, **numbers)

    def _attribute(self, number: int) -> int:
        value = c_int()
        self.driver.call("cuDeviceGetAttribute", byref(value), number, self._device)
        return value.value

    def _pool(self) -> int | None:
        """The pool of memory for tensors, which keeps what is freed for the next ones."""
        pool = c_void_p()
        self.driver.call("cuDeviceGetDefaultMemPool", byref(pool), self._device)
        keep = c_uint64(2**64 - 1)
        self.driver.call("cuMemPoolSetAttribute", pool, _RELEASE_THRESHOLD, byref(keep))
        return pool.value

    def count(self, nbytes: int, direct: bool) -> None:
        """Takes notice of bytes that are allocated, or, below zero, freed."""
        with self._lock:
            self.allocated = allocated = self.allocated + nbytes
            if direct:
                self.direct += nbytes
            if allocated > self.most_allocated:
                self.most_allocated = allocated

    def memory(self) -> tuple[int, int]:
        """Bytes that are free on the device, and all."""
        free, total = c_size_t(), c_size_t()
        with self:
            self.driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def reserved(self, most: bool = False) -> int:
        """Bytes that this process keeps from others: in the pool, whether used or not, and beside it."""
        kept = c_uint64()
        if self.pool is not None:
            name = _RESERVED_MOST if most else _RESERVED
            self.driver.call("cuMemPoolGetAttribute", self.pool, name, byref(kept))
        return kept.value + self.direct

    @property
    def kept(self) -> int:
        """Bytes that streams keep and nobody uses."""
        return sum([blocks.nbytes for reference in self.blocks.valuerefs() if (blocks := reference()) is not None])

    def trim(self) -> None:
        """Gives back what streams and the pool keep and nobody uses."""
        for reference in self.blocks.valuerefs():  # at once: another thread may make a stream meanwhile
            blocks = reference()
            if blocks is not None:
                blocks.let_go()
        if self.pool is not None:
            self.synchronize()
            self.driver.call("cuMemPoolTrimTo", self.pool, 0)

    def synchronize(self) -> None:
        """Waits for all that the device was given to do."""
        with self:
            self.driver.call("cuCtxSynchronize")


_found: Platform | None = None
_finding = held_lock("making")


def platform() -> Platform:
    """The driver of this process, which is found now if it was not; NoDriver if there is none."""
    global _found
    if _found is None:
        with _finding:
            if _found is None:
                _found = Platform(found_driver())
    if _found.process != os.getpid():
        raise forked()
    return _found


def is_begun() -> bool:
    """Whether something has used the driver."""
    return _found is not None


@contextmanager
def using(driver: Driver) -> Iterator[Platform]:
    """Another driver in place of this machine's, for a block; at its end all contexts are given back."""
    global _found
    before, _found = _found, None
    try:
        _found = made = Platform(driver)
        try:
            yield made
        finally:
            made.close()
    finally:
        _found = before


def device_facts(index: int | None = None) -> DeviceFacts:
    """What a device is, by its number."""
    return platform().context(index).facts


def forked() -> RunError:
    """The error of a process that cannot use the driver."""
    return RunError(
        "a forked process cannot use CUDA",
        why="the process that it was forked from had begun to, and the driver's state does not survive a fork",
        hint='start processes by "spawn", or use CUDA only after the fork',
    )
