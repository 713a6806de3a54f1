"""GPUs of CUDA as targets. Text or nothing comes in; the architecture, the PTX that is asked for and the facts that
schedules and cost models read come out: of the device that the driver has, of an H200 where there is none."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from .dtype import as_dtype
from .errors import InvalidValue
from .target import Target, register_target

# Architectures whose code may use what only they have (wgmma, setmaxnreg): their names end in "a".
_OWN_CODE = frozenset({90, 100, 103, 120})
# The oldest PTX that knows an architecture, as LLVM names it: 81 is 8.1. From 8.1 on there is st.async.
_PTX_OF_ARCH = {**dict.fromkeys((80, 86, 87, 89), 78), 90: 81, 100: 86, 103: 88, 120: 87, 121: 88}

_OLDEST_OF_90, _CUDA_OF_81 = 80, 12010  # a driver of CUDA 12.0 reads 8.0, which knows sm_90a too
# Bytes of shared memory that a block may have, where it is less than sm_90's.
_SHARED_OF_ARCH = {80: 166912, 86: 101376, 87: 166912, 89: 101376, 120: 101376, 121: 101376}

# Operations of dense products that one SM does in a cycle, by architecture and bytes of an element: the maker's tables.
_TENSOR_RATES = {80: {2: 2048, 4: 1024, 1: 4096}, 90: {2: 4096, 4: 2048, 1: 8192}, 100: {2: 8192, 4: 4096, 1: 16384}}
_TENSOR_RATES |= {sm: {2: 1024, 4: 512, 1: 2048} for sm in (86, 120)}  # those of workstations
_SCALAR_RATE = 256  # of float32 without tensor cores: 128 sums of products
_MEASURED_SHARE = 0.9  # of the memory's nominal rate that kernels reach

PRECISIONS = ("fp32", "tf32")
MAX_STATIC_SHARED = 48 << 10  # bytes that a block has without asking the driver for more


@dataclass(frozen=True, slots=True)
class CudaTarget(Target):
    """A GPU. `arch` is what LLVM and ptxas call it; `ptx` the version of PTX that is asked for, as LLVM writes it.

    >>> t = CudaTarget.create("cuda -arch=sm_90a -sms=132")
    >>> t.sm, t.ptx, t.lanes("float16"), t.shared_bytes
    (90, 81, 8, 232448)
    >>> CudaTarget.create(str(t)) == t
    True
    """

    kind: ClassVar[str] = "cuda"
    warp: ClassVar[int] = 32  # threads that run together
    vector_bytes: ClassVar[int] = 16  # the most that one thread loads at once
    max_threads: ClassVar[int] = 1024  # of a block
    registers: ClassVar[int] = 65536  # of an SM, of 32 bits

    arch: str = "sm_90a"
    ptx: int = 81
    sms: int = 132  # multiprocessors
    shared_bytes: int = 232448  # a block may have at most
    l2_bytes: int = 60 << 20
    clock_mhz: int = 1980
    memory_rate: int = 4300  # GB a second, read and written by kernels
    precision: str = "fp32"  # what products of float32 are computed in: "fp32", or "tf32", which reads 19 bits of each

    def __post_init__(self) -> None:
        if not re.fullmatch(r"sm_\d{2,3}[af]?", str(self.arch)):
            raise InvalidValue(f"architecture {self.arch!r} of a GPU", why="it looks like sm_80 or sm_90a")
        if self.sm not in _PTX_OF_ARCH:
            known = ", ".join(f"sm_{sm}" for sm in _PTX_OF_ARCH)
            raise InvalidValue(f"no code is made for {self.arch}", why=f"weft makes it for {known}")
        if self.precision not in PRECISIONS:
            raise InvalidValue(f"precision {self.precision!r} of products", why="there are " + ", ".join(PRECISIONS))
        for field in dataclasses.fields(self)[1:-1]:
            number = getattr(self, field.name)
            if type(number) is not int or number <= 0:
                raise InvalidValue(f"{field.name} of a GPU is {number!r}", why="a positive whole number is expected")

    @staticmethod
    def create(target: str | Target = "cuda", **options: Any) -> CudaTarget:
        """The same as `Target.create`, of a GPU. What is not told is asked from the driver if it has such a device, and
        is that of an H200 else. Options: arch, ptx, sms, shared_bytes, l2_bytes, clock_mhz, memory_rate."""
        made = Target.create(target, **options)
        if not isinstance(made, CudaTarget):
            raise InvalidValue(f"{made} is no GPU of CUDA", hint='Target.create("cuda")')
        return made

    def changed(self, **options: Any) -> CudaTarget:
        unknown = options.keys() - _FIELDS.values()
        if unknown:
            raise InvalidValue(
                "unknown options of a target: " + ", ".join(sorted(unknown)),
                why="options: " + ", ".join(_FIELDS.values()),
            )
        given = {name: value for name, value in options.items() if value is not None}
        if "arch" in given and "ptx" not in given:
            given["ptx"] = _PTX_OF_ARCH.get(_number(given["arch"]), self.ptx)
        if "arch" in given and "shared_bytes" not in given and _number(given["arch"]) != self.sm:
            given["shared_bytes"] = _SHARED_OF_ARCH.get(_number(given["arch"]), CudaTarget().shared_bytes)
        return dataclasses.replace(self, **given)

    @property
    def sm(self) -> int:
        """The architecture as a number: 90 of sm_90a."""
        return _number(self.arch)

    @property
    def isa(self) -> str:
        return self.arch

    @property
    def features(self) -> str:
        """LLVM's feature string."""
        return f"+ptx{self.ptx}"

    @property
    def has_fma(self) -> bool:
        return True

    @property
    def has_half_floats(self) -> bool:
        return True

    def has(self, feature: str) -> bool:
        """Whether an LLVM feature of CPUs is on: none is."""
        return False

    @property
    def has_own_code(self) -> bool:
        """Whether instructions of this architecture alone may be used: wgmma of sm_90a, and the like."""
        return self.arch.endswith("a")

    @property
    def has_dependent_launch(self) -> bool:
        """Whether a kernel may start while the one before it ends, and wait inside (griddepcontrol)."""
        return self.sm >= 90

    @property
    def nanoseconds_per_operation(self) -> float:
        """Of one SM with an element of four bytes, at its share of the memory's rate."""
        return 4 * self.sms / self.memory_rate

    def tensor_rate(self, dtype: object) -> float:
        """Operations a second of dense products on tensor cores, float32 as tf32; a product and a sum are two."""
        rates = _TENSOR_RATES[max(sm for sm in _TENSOR_RATES if sm <= self.sm)]
        return rates.get(as_dtype(dtype).itemsize, _SCALAR_RATE // 2) * self.sms * self.clock_mhz * 1e6

    @property
    def scalar_rate(self) -> float:
        """Operations a second in float32 without tensor cores."""
        return float(_SCALAR_RATE * self.sms * self.clock_mhz * 1e6)

    def lanes(self, dtype: object) -> int:
        """How many elements of a dtype one load of 16 bytes holds."""
        return max(1, self.vector_bytes // as_dtype(dtype).itemsize)

    def __str__(self) -> str:
        return "cuda " + " ".join(f"{option}={getattr(self, name)}" for option, name in _FIELDS.items())


_FIELDS = {
    "-arch": "arch",
    "-ptx": "ptx",
    "-sms": "sms",
    "-shared-bytes": "shared_bytes",
    "-l2-bytes": "l2_bytes",
    "-clock-mhz": "clock_mhz",
    "-memory-rate": "memory_rate",
    "-precision": "precision",
}


# CUdevice_attribute
_MAJOR, _MINOR, _SMS, _SHARED_OPT_IN, _L2, _CLOCK, _MEMORY_CLOCK, _BUS = 75, 76, 16, 97, 38, 13, 36, 37


class DeviceFacts(NamedTuple):
    """Attributes of a device, in the driver's units."""

    major: int
    minor: int
    sms: int
    shared_bytes: int
    l2_bytes: int
    clock_khz: int
    memory_clock_khz: int
    bus_bits: int
    driver: int  # the CUDA that the driver is of: 13000 is 13.0


def library_name() -> str:
    """What the driver's library is called here."""
    return "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"


def first_device() -> DeviceFacts | None:
    """The first device of the driver, or None where there is no driver or no device."""
    try:
        driver = ctypes.CDLL(library_name())
    except OSError:
        return None
    count, device, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    if driver.cuDeviceGet(ctypes.byref(device), 0) or driver.cuDriverGetVersion(ctypes.byref(version)):
        return None
    wanted = (_MAJOR, _MINOR, _SMS, _SHARED_OPT_IN, _L2, _CLOCK, _MEMORY_CLOCK, _BUS)
    return DeviceFacts(*[*(_attribute(driver, device, number) for number in wanted), version.value])


def _attribute(driver: ctypes.CDLL, device: ctypes.c_int, number: int) -> int:
    value = ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value


def target_of(device: DeviceFacts) -> CudaTarget:
    """The target of a device as the driver describes it."""
    sm = device.major * 10 + device.minor
    least = _OLDEST_OF_90 if sm == 90 and device.driver < _CUDA_OF_81 else _PTX_OF_ARCH.get(sm, 0)
    arch = f"sm_{sm}a" if sm in _OWN_CODE else f"sm_{sm}"
    made = CudaTarget(
        arch, max(least, 1), device.sms, device.shared_bytes, max(device.l2_bytes, 1), max(device.clock_khz // 1000, 1)
    )
    nominal = 2 * device.memory_clock_khz * device.bus_bits // 8 // 10**6  # GB/s: two transfers a cycle
    measured = made.memory_rate if sm == 90 else max(int(nominal * _MEASURED_SHARE), 1)
    return dataclasses.replace(made, memory_rate=measured)


@functools.cache
def host_gpu() -> CudaTarget:
    """The first device that the driver has, or an H200 where it has none."""
    device = first_device()
    return CudaTarget() if device is None else target_of(device)


def _number(arch: str) -> int:
    return int(re.sub(r"\D", "", str(arch)) or 0)


def _parsed(words: Sequence[str], **options: Any) -> CudaTarget:
    given = dict(_parse_option(word) for word in words) | options
    other = "arch" in given
    base = CudaTarget() if given.keys() == set(_FIELDS.values()) else host_gpu()
    return (CudaTarget() if other and _number(given["arch"]) != base.sm else base).changed(**given)


def _parse_option(word: str) -> tuple[str, Any]:
    option, equals, text = word.partition("=")
    if option not in _FIELDS or not equals or not text:
        raise InvalidValue(
            f"option {word!r} of a target is not understood",
            why="options: " + ", ".join(f"{known}=..." for known in _FIELDS),
        )
    name = _FIELDS[option]
    read: Callable[[str], Any] = str if name in ("arch", "precision") else _whole
    return name, read(text)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidValue(f"{text!r} in a target", why="a whole number is expected")
    return int(text)


register_target("cuda", _parsed)
