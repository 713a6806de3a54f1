"""The backends there are, by the kind of target. The compiler asks its target's, and knows none by name but here."""

from __future__ import annotations

import importlib
from typing import Any

from ...base.errors import NotFound
from ...base.stages import note_registration
from ...base.target import Target
from ...runtime.registry import register_runtime
from ..backend import Backend
from .cpu import CPU

_backends: dict[str, Backend[Any]] = {CPU.runtime.kind: CPU}
# Those that are put together when one first compiles for them: the kind, and the module and the name of the value.
_LATE = {"cuda": (".cuda", "CUDA")}


def register_backend(backend: Backend[Any]) -> None:
    """Makes a kind of target one that can be compiled for and run on."""
    note_registration()
    register_runtime(backend.runtime)
    _backends[backend.runtime.kind] = backend


def backend_of(target: Target) -> Backend[Any]:
    """The backend of a target's kind."""
    if target.kind not in _backends and target.kind in _LATE:
        module, name = _LATE[target.kind]
        _backends[target.kind] = getattr(importlib.import_module(module, __package__), name)
    if target.kind not in _backends:
        known = sorted(_backends.keys() | _LATE.keys())
        raise NotFound(f"no backend makes code for {target.kind}", why="there are " + ", ".join(known))
    return _backends[target.kind]
