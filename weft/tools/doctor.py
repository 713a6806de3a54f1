"""`weft doctor`: what weft found on this machine and why, whether that is as it should be, and what is missing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from ..base import config
from ..base.cpu_target import host
from ..base.errors import Error
from ..base.file_cache import cache_folder, file_cache
from ..base.machine import cgroup_quota
from ..base.shown import Shown, bytes_text, table
from ..runtime.cpu.pool import thread_count
from ..runtime.cuda.context import platform as devices
from ..version import __version__
from .peak import measured_rates

OK, NOTE, BAD = "ok", "note", "bad"
SECONDS = 0.25  # for each rate
FAR_OFF = 2.0  # by this factor a measured rate differs from the table's
_OPTIONAL = {
    "onnxruntime": "weft compare --ref ort, weft bench --against ort, the check of weft convert",
    "openvino": "weft bench --against openvino",
    "torch": "weft bench --against torch, which runs TorchScript archives",
}


class Finding(NamedTuple):
    """One thing that was looked at. `state` is ok, note or bad; a hint says what to do."""

    what: str
    value: str
    state: str = OK
    hint: str = ""


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """All findings; `ok` unless one is bad."""

    findings: list[Finding]

    @property
    def ok(self) -> bool:
        return all(finding.state != BAD for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **super().to_dict()}

    def text(self, width: int | None = None) -> str:
        cells = [(f.state, f.what, f.value + (f" ({f.hint})" if f.hint else "")) for f in self.findings]
        return table(("", "what", "found"), cells, width)


def diagnose(measure: bool = True, look: Callable[[int, int], None] | None = None) -> Diagnosis:
    """Looks at versions, the processor, threads, the cache and optional packages; measures rates unless told not to.

    >>> diagnose(measure=False).ok
    True
    """
    return Diagnosis([*_versions(), *_processor(), _gpus(), _threads(), _cache(), *_optional(), *_rates(measure, look)])


def _versions() -> list[Finding]:
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    old = sys.version_info < (3, 11)
    names = ("numpy", "llvmlite", "onnx", "ml_dtypes")
    return [
        Finding("weft", __version__),
        Finding("python", python, BAD if old else OK, "weft needs 3.11 or newer" if old else ""),
        Finding("llvm", ".".join(map(str, llvm.llvm_version_info))),
        *[Finding(name, _version(name) or "missing", OK if _version(name) else BAD) for name in names],
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _processor() -> list[Finding]:
    target = host()
    forced = config.get("isa")
    hint = f"WEFT_ISA={forced} says so" if forced else ""
    sizes = ", ".join(f"{bytes_text(size)}" for size in target.caches)
    return [
        Finding("processor", f"{target.cpu}, {target.cores} cores, caches {sizes}"),
        Finding("instructions", f"{target.isa}, vectors of {target.vector_bits} bits", NOTE if forced else OK, hint),
    ]


def _gpus() -> Finding:
    """What the driver of NVIDIA's devices lists."""
    try:
        found = devices()
    except Error as error:
        return Finding("GPU", f"none: {error.why or error.what}")
    names = [found.context(number).facts for number in range(found.count)]
    listed = ", ".join(f"{f.name}, sm_{f.capability[0]}{f.capability[1]}, {bytes_text(f.memory_bytes)}" for f in names)
    return Finding("GPU", f"{listed}; driver of CUDA {found.version[0]}.{found.version[1]}")


def _threads() -> Finding:
    """How many there are, and what decides it."""
    count = thread_count()
    limits = {
        "WEFT_NUM_THREADS": config.get("threads"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or None,
        "the quota of the control group": round(cgroup_quota(), 2) if cgroup_quota() < float("inf") else None,
    }
    said = [f"{name} is {value}" for name, value in limits.items() if value is not None]
    why = "; ".join(said) or "the cores that this process may use"
    if not sys.platform.startswith("linux"):
        return Finding("threads", "1: kernels run on the calling thread", NOTE, "threads are there on Linux")
    return Finding("threads", f"{count}: {why}")


def _cache() -> Finding:
    folder, cache = cache_folder(), file_cache()
    if cache is None:
        why = "WEFT_CACHE=0 says so" if folder is not None else "there is no home directory"
        hint = "" if folder is not None else "WEFT_CACHE_DIR names a folder"
        return Finding("kernel cache", f"off: {why}", NOTE, hint)
    problem = cache.problem()
    if problem:
        return Finding("kernel cache", f"{folder}: {problem}", NOTE, "kernels are compiled again in each process")
    entries = cache.entries()
    size = bytes_text(sum(entry.bytes for entry in entries))
    return Finding("kernel cache", f"{folder}: {len(entries)} files, {size} of {bytes_text(cache.max_bytes)}")


def _optional() -> list[Finding]:
    found = []
    for name, use in _OPTIONAL.items():
        there = find_spec(name) is not None
        found.append(Finding(name, _version(name) if there else f"not installed: {use}", OK if there else NOTE))
    return found


def _rates(measure: bool, look: Callable[[int, int], None] | None) -> list[Finding]:
    found = []
    for what, measured, told in measured_rates(SECONDS, look) if measure else []:
        off = max(measured / told, told / measured)
        value = f"{measured:.0f} measured, {told:.0f} in the table of machines like this"
        hint = "another process may be busy; or costs are estimated by a machine that differs" if off > FAR_OFF else ""
        found.append(Finding(what, value, NOTE if off > FAR_OFF else OK, hint))
    return found
