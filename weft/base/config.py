"""Settings. Each has a WEFT_* environment variable, and can be set for a block of code:

    with config.override(verify=False):
        ...

An override is a context variable, so it follows threads and async tasks the way Python's own do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

from .errors import InvalidValue, NotFound

__all__ = ["DEBUG_STAGES", "SETTINGS", "Setting", "get", "override"]


def __dir__() -> list[str]:
    return list(__all__)


# what WEFT_DEBUG may name, and what is then printed to standard error
DEBUG_STAGES = {
    "summary": "a line for each pass and each kernel",
    "passes": "the graph after each pass",
    "loops": "each kernel as loop IR",
    "llvm": "each kernel as LLVM IR",
    "asm": "each kernel as assembly",
    "dispatch": "what is compiled for eager calls, how long it takes, and which are left to numpy",
}


class Setting(NamedTuple):
    variable: str
    default: Any
    parse: Callable[[str], Any]
    doc: str


def _switch(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("expected 1 or 0")


def _stages(text: str) -> frozenset[str]:
    words = {part.strip() for part in text.split(",")} - {"", "0"}
    stages = frozenset("summary" if word == "1" else word for word in words)
    unknown = sorted(stages - DEBUG_STAGES.keys())
    if unknown:
        raise ValueError(f"there is no stage {unknown[0]!r}; there are {', '.join(DEBUG_STAGES)}")
    return stages


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("expected a positive number")
    return int(text)


def _amount(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError("expected a number that is not negative")
    return int(text)


SETTINGS: dict[str, Setting] = {
    "debug": Setting("WEFT_DEBUG", frozenset(), _stages, "stages to print, with commas; 1: summary"),
    "verify": Setting("WEFT_VERIFY", True, _switch, "check every graph after every pass"),
    "threads": Setting("WEFT_NUM_THREADS", None, _count, "worker threads; default: the cores"),
    "isa": Setting("WEFT_ISA", None, str, "instruction set: sse, avx2, avx512; default: the CPU's"),
    "kernel_seconds": Setting(
        "WEFT_KERNEL_SECONDS", 3600, _count, "estimated seconds beyond which a kernel is refused"
    ),
    "kept_memory": Setting(
        "WEFT_KEPT_MEMORY", None, _amount, "MB of freed memory that the process keeps; default: 512 or less, 0: none"
    ),
    "cache": Setting("WEFT_CACHE", True, _switch, "keep compiled kernels and models on disk"),
    "cache_dir": Setting("WEFT_CACHE_DIR", None, str, "where compiled kernels and models are kept"),
    "cache_megabytes": Setting("WEFT_CACHE_MB", 4096, _amount, "MB that they may take there"),
}

_overrides: ContextVar[Mapping[str, Any]] = ContextVar("weft_config", default=MappingProxyType({}))


def get(name: str) -> Any:
    """The value of a setting now: an override, else the environment, else the default.

    >>> with override(verify=False):
    ...     get("verify")
    False
    """
    setting = _setting(name)
    overrides = _overrides.get()
    if name in overrides:
        return overrides[name]
    text = os.environ.get(setting.variable)
    if text is None:
        return setting.default
    try:
        return setting.parse(text)
    except ValueError as error:
        raise InvalidValue(
            f"environment variable {setting.variable}={text!r} is not understood", why=str(error), hint=setting.doc
        ) from None


@contextmanager
def override(**values: Any) -> Iterator[None]:
    """Set some settings inside a `with` block."""
    for name in values:
        _setting(name)
    token = _overrides.set({**_overrides.get(), **values})
    try:
        yield
    finally:
        _overrides.reset(token)


def _setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise NotFound(f"no setting {name!r}", why="settings: " + ", ".join(SETTINGS))
    return SETTINGS[name]
