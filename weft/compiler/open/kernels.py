"""Open kernels: each is lowered and compiled once in a process, and through the disk cache once on
a machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from ...base import config
from ...base.cpu_target import CpuTarget, host
from ...base.file_cache import file_cache
from ...base.forks import held_lock
from ...base.plan import KernelCode
from ...core.bulk import collector_paused
from ...runtime.cpu.open_kernel import OpenKernel
from ...te.loops import Kernel
from ..backends import backend_of
from ..disk_cache import CompiledKernel, decoded, encoded, key_text
from ..kept.fingerprint import PACKAGE, fingerprint
from ..kernels import kernel_cache

making = held_lock("making")  # held while kernels are looked for and made
_kernels: dict[Hashable, OpenKernel] = {}
_writers: list[str] = []  # folders of modules that write open kernels and their keys


def depends_on(folder: str) -> None:
    """Has the keys of open kernels on disk depend on the modules of a folder, which comes before the first key."""
    _writers.append(os.path.join(os.path.relpath(folder, PACKAGE), "*.py"))


def open_kernel(key: Hashable, make: Callable[[CpuTarget], Kernel]) -> OpenKernel:
    """The kernel of a key, which `make` writes for this machine when it is asked for first.

    A key of texts, numbers and dtypes holds for other processes, too: it says all that decides what
    `make` writes, weft's own sources aside.
    """
    found = _kernels.get(key)
    if found is not None:
        return found
    with making:
        if key not in _kernels:
            _kernels[key] = OpenKernel(_code(key, make, host()))
        return _kernels[key]


@collector_paused
def _code(key: Hashable, make: Callable[[CpuTarget], Kernel], target: CpuTarget) -> KernelCode:
    disk = file_cache()
    name = None if disk is None else file_key(key, target)
    data = None if disk is None or name is None else disk.get(name)
    known = None if data is None else decoded(data)
    if known:
        return known[0].code
    with compiling(key):
        code = kernel_cache.compiled(make(target), target)
    if disk is not None and name is not None:
        disk.put(name, encoded([CompiledKernel(code.name, code, (), 0)]))
    return code


def file_key(key: Hashable, target: CpuTarget) -> bytes | None:
    """What a key's kernel is kept under; None for a key that holds in this process only."""
    try:
        machine = (backend_of(target).codegen.key(target), target.vector_bits, target.unit_bits, target.caches)
        return f"{fingerprint(tuple(_writers))} open {key_text(machine)} {key_text(key)}".encode()
    except (OSError, TypeError):
        return None


@contextmanager
def compiling(what: object) -> Iterator[None]:
    """One compilation at a time; WEFT_DEBUG=dispatch tells how long it took."""
    with making:
        start = time.perf_counter()
        yield
        if "dispatch" in config.get("debug"):
            spent = (time.perf_counter() - start) * 1e3
            print(f"weft: compiled {what} for eager calls in {spent:.0f} ms", file=sys.stderr)
