"""The names of `weft` that are no functions of the table: what the core namespace has, storages and
typed tensors, random numbers, archives, printing."""

from __future__ import annotations

from typing import Any

from ..base.counters import LoggerBase
from . import generator, printing, typed_tensor
from .archive.load import load
from .archive.save import save
from .core_namespace import filled, public_names
from .future import get_num_interop_threads, set_num_interop_threads
from .settings import SETTINGS
from .typed_storage import STORAGE_NAMES, is_storage

_CORE = filled()

LEAVES: dict[str, Any] = {
    **{name: _CORE[name] for name in public_names(_CORE) if name != "set_grad_enabled"},
    **STORAGE_NAMES,
    **typed_tensor.TENSOR_CLASSES,
    **SETTINGS,
    "LoggerBase": LoggerBase,
    "get_num_interop_threads": get_num_interop_threads,
    "get_printoptions": printing.get_printoptions,
    "get_rng_state": generator.get_rng_state,
    "initial_seed": generator.initial_seed,
    "is_storage": is_storage,
    "load": load,
    "manual_seed": generator.manual_seed,
    "printoptions": printing.printoptions,
    "save": save,
    "seed": generator.seed,
    "set_default_tensor_type": typed_tensor.set_default_tensor_type,
    "set_num_interop_threads": set_num_interop_threads,
    "set_printoptions": printing.set_printoptions,
    "set_rng_state": generator.set_rng_state,
    "typename": typed_tensor.typename,
}
