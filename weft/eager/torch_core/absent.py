"""Devices that weft does not have, asked about truthfully: each kind has names that answer that nothing is there, that
do nothing because there is nothing to do it to, and that refuse, in the words of one error."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NoReturn

from ...base.errors import InvalidType, NoDevice, OutOfMemory
from ..tensor.device import device as Device
from ..tensor.tensor import Tensor
from .cuda_devices import is_available

_TITLES = {kind: kind.upper() for kind in ("cuda", "xpu", "mps", "mtia")}
_TITLES |= {"cuda.nvtx": "CUDA", "accelerator": "accelerator"}

# What a question is answered with: the kinds of answers are those that PyTorch gives without a device.
_ANSWERS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys("is_available is_initialized is_bf16_supported is_tf32_supported has_magma".split(), bool),
    **dict.fromkeys("device_count memory_allocated memory_reserved memory_cached".split(), int),
    **dict.fromkeys("max_memory_allocated max_memory_reserved max_memory_cached".split(), int),
    **dict.fromkeys("current_allocated_memory driver_allocated_memory recommended_max_memory".split(), int),
    **dict.fromkeys("memory_stats memory_stats_as_nested_dict".split(), OrderedDict),
    **dict.fromkeys("get_arch_list get_rng_state_all memory_snapshot".split(), list),
    "get_gencode_flags": str,
    "default_generators": tuple,
    "current_accelerator": lambda: None,
}
_VALUES = ("has_magma", "default_generators")  # which are no functions
_NOTHING = (
    "seed seed_all empty_cache empty_host_cache ipc_collect set_rng_state_all reset_peak_memory_stats "
    "reset_accumulated_memory_stats reset_max_memory_allocated reset_max_memory_cached"
).split()
_SEEDS = ("manual_seed", "manual_seed_all")

_SHARED = (
    "is_available device_count manual_seed manual_seed_all seed seed_all empty_cache synchronize memory_allocated "
    "memory_reserved max_memory_allocated max_memory_reserved memory_stats reset_peak_memory_stats "
    "reset_accumulated_memory_stats current_device set_device get_device_name get_device_capability "
    "get_device_properties current_stream set_stream get_rng_state set_rng_state get_rng_state_all set_rng_state_all "
    "is_initialized init is_bf16_supported is_tf32_supported initial_seed mem_get_info memory_stats_as_nested_dict "
    "memory_snapshot get_arch_list get_gencode_flags can_device_access_peer default_generators utilization temperature "
    "power_draw clock_rate memory_usage device_memory_used set_per_process_memory_fraction is_current_stream_capturing"
)
KINDS: dict[str, tuple[str, str]] = {  # functions and values; classes
    "cuda": (
        f"{_SHARED} default_stream ipc_collect memory_summary memory_cached max_memory_cached "
        "reset_max_memory_allocated reset_max_memory_cached has_magma cudart current_blas_handle get_sync_debug_mode "
        "set_sync_debug_mode list_gpu_processes caching_allocator_alloc caching_allocator_delete graph_pool_handle "
        "make_graphed_callables get_allocator_backend",
        "Stream ExternalStream Event CUDAGraph graph MemPool CUDAPluggableAllocator",
    ),
    "cuda.nvtx": ("mark range range_push range_pop range_start range_end", ""),
    "xpu": (_SHARED, "Stream Event MemPool"),
    "mtia": (_SHARED, "Stream Event"),
    "mps": (
        "is_available device_count manual_seed seed empty_cache synchronize get_rng_state set_rng_state "
        "set_per_process_memory_fraction current_allocated_memory driver_allocated_memory recommended_max_memory",
        "Event",
    ),
    "accelerator": (
        "is_available device_count current_accelerator current_device_index current_device_idx set_device_index "
        "set_device_idx current_stream set_stream synchronize empty_cache empty_host_cache memory_stats "
        "memory_allocated max_memory_allocated memory_reserved max_memory_reserved reset_peak_memory_stats "
        "reset_accumulated_memory_stats get_memory_info get_device_capability",
        "",
    ),
}


def names_of(kind: str) -> dict[str, Any]:
    """The names that a module for one kind of device has."""
    functions, classes = KINDS[kind]
    found: dict[str, Any] = {name: _named(kind, name) for name in functions.split()}
    found |= {name: _refusing_class(kind, name) for name in classes.split()}
    if kind == "xpu":
        found |= {"device": _selecting(kind), "device_of": _device_of(kind), "stream": _stream}
        found |= {"StreamContext": StreamContext}
    if kind in ("cuda", "xpu"):
        found["OutOfMemoryError"] = OutOfMemory
    if kind == "cuda":
        types = "Double Float Half BFloat16 Long Int Short Char Byte Bool".split()
        found |= {f"{each}Tensor": _typed(f"{each}Tensor") for each in types}
    return found


def absent(kind: str, name: str) -> NoDevice:
    """The error of a name that needs a device of a kind; or of one that weft has not, where there is such a device."""
    title = _TITLES[kind]
    if title == "CUDA" and is_available():
        return NoDevice(
            f"weft.{kind}.{name} is none of weft's",
            why="weft has devices, streams, events and memory of CUDA; graphs and generators are its own affair",
            hint="dir(weft.cuda) lists the names; those that refuse say so in their docs",
        )
    return NoDevice(
        f"weft.{kind}.{name} needs {'an' if title[0] in 'aX' else 'a'} {title} device, and there is none",
        why="weft computes on the processor alone",
        hint=f"ask weft.{kind.partition('.')[0]}.is_available() first, or use device='cpu'",
    )


def _named(kind: str, name: str) -> Any:
    """A function that answers, does nothing or refuses, whichever the tables say; or a value."""
    if name in _VALUES:
        return _ANSWERS[name]()
    if name in _SEEDS:
        return _entitled(_seed, kind, name, f"Accepts a seed: there is no {_TITLES[kind]} generator to start.")
    if name in _NOTHING:
        return _entitled(lambda *args, **kwargs: None, kind, name, f"Does nothing: there is no {_TITLES[kind]} device.")
    if name in _ANSWERS:
        answer = _ANSWERS[name]
        return _entitled(
            lambda *args, **kwargs: answer(), kind, name, f"{answer()!r}: there is no {_TITLES[kind]} device."
        )

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise absent(kind, name)

    return _entitled(refuse, kind, name, f"Refuses: there is no {_TITLES[kind]} device.")


def _seed(seed: int) -> None:
    int(seed)


def _entitled(function: Callable[..., Any], kind: str, name: str, doc: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__module__, call.__doc__ = f"weft.{kind}", doc
    return call


def _refusing_class(kind: str, name: str) -> type:
    """A class to ask `isinstance` about, which has no instances."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise absent(kind, name)

    doc = f"Of {_TITLES[kind]} devices: none can be made without one."
    return type(name, (), {"__new__": refuse, "__module__": f"weft.{kind}", "__doc__": doc})


def _typed(name: str) -> type:
    """The class of tensors on a CUDA device, of which there are none."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise InvalidType(f"type weft.cuda.{name} not available", why="there is no CUDA device", hint=f"weft.{name}")

    return type(name, (), {"__new__": refuse, "__module__": "weft.cuda", "__doc__": "Tensors on a CUDA device."})


class _Selected:
    """A device that is the current one within a block: that of a number below zero is none, and any other refuses."""

    kind: str

    def __init__(self, device: Any) -> None:
        if isinstance(device, str):
            device = Device(device)
        self.idx = (device.index or 0) if isinstance(device, Device) else -1 if device is None else int(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            raise absent(self.kind, "device")

    def __exit__(self, *raised: object) -> None:
        pass


def _selecting(kind: str) -> type[_Selected]:
    return type("device", (_Selected,), {"kind": kind, "__module__": f"weft.{kind}", "__doc__": _Selected.__doc__})


def _device_of(kind: str) -> type[_Selected]:
    def start(self: _Selected, obj: Tensor) -> None:
        _Selected.__init__(self, obj.get_device())

    doc = "The device of a tensor for a block: nothing for tensors of the processor."
    return type(
        "device_of", (_Selected,), {"kind": kind, "__init__": start, "__module__": f"weft.{kind}", "__doc__": doc}
    )


class StreamContext:
    """A stream that is the current one within a block: None is no stream, and there is no other."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            raise absent("xpu", "stream")

    def __exit__(self, *raised: object) -> None:
        pass


def _stream(stream: Any) -> StreamContext:
    """A block in which a stream is the current one; None is no stream."""
    return StreamContext(stream)
