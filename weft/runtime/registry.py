"""Runtimes: how programs of one kind of target are loaded, and how its memory is had and filled. With these alone, and
nothing of the compiler, a program from a file runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from ..base.device import EXTENSION, Device, register_device
from ..base.dtype import DType
from ..base.errors import NotFound
from ..base.target import Target
from .executor import Executor
from .profile import Profile
from .program import Program
from .shared import register_sharing


@dataclass(frozen=True)
class Runtime:
    """What runs the programs of one kind of target.

    `check(target, threads)` raises where its code would not run here. `load(program, threads)` gives an executor.
    `allocate(shape, dtype, device)` gives memory on a device, `copy(source, destination)` fills it.
    `profile(program, inputs, rounds, threads, progress, call)` times the steps of a program in which nothing is open.
    `shared(value)` gives the memory of another library's array on such a device, with the attributes of numpy's that
    tell how it lies.
    """

    kind: str
    check: Callable[[Target, int | None], None]
    load: Callable[[Program, int | None], Executor]
    allocate: Callable[[tuple[int, ...], DType, Device], Any]
    copy: Callable[[Any, Any], None]
    dlpack_code: int = EXTENSION
    profile: Callable[..., Profile] | None = None
    shared: Callable[[Any], Any] | None = None


_runtimes: dict[str, Runtime] = {}
# Those whose modules are loaded when one is first asked for: the module, and the name of the value.
_LATE = {"cuda": (".cuda.runtime", "RUNTIME")}


def register_runtime(runtime: Runtime) -> None:
    """Makes a kind of target one that programs run on."""
    register_device(runtime.kind, runtime.dlpack_code)
    _runtimes[runtime.kind] = runtime
    if runtime.shared is not None:
        register_sharing(runtime.dlpack_code, runtime.shared)


def runtime_of(kind: str) -> Runtime:
    """The runtime of a kind of target."""
    if kind not in _runtimes and kind in _LATE:
        module, name = _LATE[kind]
        _runtimes[kind] = getattr(import_module(module, __package__), name)
    if kind not in _runtimes:
        known = sorted(_runtimes.keys() | _LATE.keys())
        raise NotFound(f"nothing here runs programs for {kind}", why="there are " + ", ".join(known))
    return _runtimes[kind]


def _shared_by(kind: str, value: Any) -> Any:
    share = runtime_of(kind).shared
    assert share is not None
    return share(value)


for _kind in _LATE:
    register_sharing(Device(_kind).device_type, partial(_shared_by, _kind))
