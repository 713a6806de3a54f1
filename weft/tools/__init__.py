"""What the commands do, as functions that return objects: `weft.tools.check("model.onnx").gaps`. They load when first
used. Results print themselves as the commands do, and `to_dict()` is what `--json` prints."""

from importlib import import_module
from typing import Any

_NAMES = {
    "run": ("run", "run_model"),
    "info": ("info", "model_info"),
    "machine": ("info", "machine_info"),
    "check": ("check", "check_model"),
    "profile": ("profile", "profile_model"),
    "bench": ("bench", "bench_model"),
    "compare": ("compare", "compare_model"),
    "bisect": ("bisect", "bisect_model"),
    "convert": ("convert", "convert_model"),
    "ops": ("operators", "list_operators"),
    "op": ("operators", "operator_help"),
    "doctor": ("doctor", "diagnose"),
    "cache": ("kernel_cache", "list_cache"),
    "clear_cache": ("kernel_cache", "clear_cache"),
}
__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'weft.tools' has no attribute {name!r}")
    module, function = _NAMES[name]
    return getattr(import_module(f".{module}", __name__), function)


def __dir__() -> list[str]:
    return list(__all__)
