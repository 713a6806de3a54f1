"""Programs as objects: the ordered form of a program, its types and schemas; and programs from Python source.

Public names load when they are first used."""

from importlib import import_module
from typing import Any

from .public_names import JIT_NAMES


def __getattr__(name: str) -> Any:
    if name not in JIT_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{JIT_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(JIT_NAMES)
