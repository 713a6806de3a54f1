"""What the commands do, as functions that return objects: `weft.tools.check_model("model.onnx").gaps`. They load when
first used. Results print themselves as the commands do, and `to_dict()` is what `--json` prints."""

from importlib import import_module
from typing import Any

_NAMES = {
    "run_model": "run",
    "model_info": "info",
    "machine_info": "info",
    "check_model": "check",
    "profile_model": "profile",
    "bench_model": "bench",
    "compare_model": "compare",
    "bisect_model": "bisect",
    "view": "viewer.view",
    "convert_model": "convert",
    "quantize_model": "convert",
    "list_operators": "operators",
    "operator_help": "operators",
    "diagnose": "doctor",
    "list_cache": "kernel_cache",
    "clear_cache": "kernel_cache",
}
__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'weft.tools' has no attribute {name!r}")
    return getattr(import_module(f".{_NAMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
