"""Networks to test and measure with, each a module with get_symbol and get_workload; and check_op,
which tries an operator on samples."""

from importlib import import_module
from typing import Any

_MODULES = ("mlp resnet mobilenet mobilenet_v2 vgg squeezenet inception_v3 densenet dcgan dqn bert vit init").split()
_NAMES = {
    "create_workload": "workload",
    "ctx_list": "workload",
    "Initializer": "init",
    "Xavier": "init",
    "Sample": "op_check",
    "check_op": "op_check",
}
__all__ = [*_MODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = import_module(f".{name}", __name__)
    elif name in _NAMES:
        value = getattr(import_module(f".{_NAMES[name]}", __name__), name)
    else:
        raise AttributeError(f"module 'weft.testing' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
