"""Tensors in the memory of a device. `memory.py` is that memory, `copies.py` moves elements, `programs.py` runs
operators, `calls.py` is what goes on around calls of functions on such tensors, `moving.py` brings tensors there and
back.

What others call loads with all of it when it is first used: without a device, nothing here needs a compiler."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .calls import applied as applied
    from .moving import forget as forget
    from .moving import fused as fused
    from .moving import memory_at as memory_at
    from .moving import moved as moved
    from .moving import placed as placed
    from .moving import shared as shared

_NAMES = frozenset({"applied", "forget", "fused", "memory_at", "moved", "placed", "shared"})


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(".moving", __name__), name)
    return value
