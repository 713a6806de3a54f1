"""Importers and exporters: a model of another system comes in, a Symbol and its parameters go out.

They load when first used: an importer needs the other system's file format, never the system.
"""

from importlib import import_module
from typing import Any

_NAMES = {"from_mxnet": "mxnet.importer", "from_onnx": "onnx.importer", "to_onnx": "onnx.exporter"}
__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'weft.frontend' has no attribute {name!r}")
    value = getattr(import_module(f".{_NAMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
