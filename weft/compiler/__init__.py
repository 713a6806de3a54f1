"""From a graph to something that runs: `build` as NNVM had it, and the helpers beside it.

`weft.compile` is the shorter way. Names load when they are first used.
"""

from importlib import import_module
from typing import Any

_MODULES = tuple("build_module graph_attr graph_functions graph_util lr_scheduler optimizer".split())
_NAMES = {
    "build": "build_module",
    "optimize": "build_module",
    "build_config": "build_settings",
    "BuildConfig": "build_settings",
    "save_param_dict": "param_dict",
    "load_param_dict": "param_dict",
    "compile": "model",
    "CompiledModel": "model",
    **dict.fromkeys(("is_compiling", "is_dynamo_compiling", "is_exporting", "disable"), "stages"),
}
__all__ = [*_MODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        module = "..base.param_dict" if _NAMES[name] == "param_dict" else f".{_NAMES[name]}"
        value = getattr(import_module(module, __name__), name)
    elif name in _MODULES:
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module 'weft.compiler' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
