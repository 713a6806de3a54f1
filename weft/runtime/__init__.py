"""Running compiled code: global functions, programs from files, graph modules, the thread pool."""

from importlib import import_module
from typing import Any

from .functions import get_global_func, list_global_func_names, register_func

_NAMES = {
    "load": "artifact",
    "LoadedModel": "artifact",
    "BoundStep": "bound",
    "create": "graph_module",
    "load_library": "graph_module",
    "CompiledLibrary": "graph_module",
    "GraphModule": "graph_module",
}
__all__ = ["get_global_func", "list_global_func_names", "register_func", *_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'weft.runtime' has no attribute {name!r}")
    value = getattr(import_module(f".{_NAMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
