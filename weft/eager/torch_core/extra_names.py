"""The names of `weft` that are no functions of the table: what the core namespace has, storages and
typed tensors, random numbers, archives, printing."""

from __future__ import annotations

import math
from typing import Any

from ...base.counters import LoggerBase
from ...base.errors import NoDevice, OutOfMemory
from ..archive.load import load
from ..archive.save import save
from ..random import generator
from ..tensor import printing, typed_tensor
from ..tensor.typed_storage import STORAGE_NAMES, is_storage
from ..transforms.vmap import vmap
from .backend_flags import never
from .future import get_num_interop_threads, set_num_interop_threads
from .namespace import filled, public_names
from .settings import SETTINGS

_CORE = filled()

LEAVES: dict[str, Any] = {
    **{name: _CORE[name] for name in public_names(_CORE) if name != "set_grad_enabled"},
    **STORAGE_NAMES,
    **typed_tensor.TENSOR_CLASSES,
    **SETTINGS,
    "AcceleratorError": NoDevice,
    "LoggerBase": LoggerBase,
    "OutOfMemoryError": OutOfMemory,
    "e": math.e,
    "get_num_interop_threads": get_num_interop_threads,
    "get_printoptions": printing.get_printoptions,
    "get_rng_state": generator.get_rng_state,
    "inf": math.inf,
    "initial_seed": generator.initial_seed,
    "is_vulkan_available": never,
    "is_storage": is_storage,
    "load": load,
    "manual_seed": generator.manual_seed,
    "nan": math.nan,
    "newaxis": None,
    "pi": math.pi,
    "printoptions": printing.printoptions,
    "save": save,
    "seed": generator.seed,
    "set_default_tensor_type": typed_tensor.set_default_tensor_type,
    "set_num_interop_threads": set_num_interop_threads,
    "set_printoptions": printing.set_printoptions,
    "set_rng_state": generator.set_rng_state,
    "typename": typed_tensor.typename,
    "vmap": vmap,
}
