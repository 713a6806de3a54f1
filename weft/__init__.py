"""weft: a deep-learning compiler and tensor library in pure Python.

    import weft
    m = weft.compile("model.onnx")
    outputs = m(x)

Public names load when they are first used, so that `import weft` is quick.
"""

from importlib import import_module
from typing import Any

from .base.errors import Error
from .version import __version__

NNVMError = Error  # scripts written for NNVM catch this name

_MODULES = {
    "symbol": "symbol",
    "sym": "symbol",
    "graph": "graph",
    "name": "name",
    "attribute": "attribute",
    "contrib": "contrib",
    "_symbol_internal": "_symbol_internal",
    "compiler": "compiler",
    "frontend": "frontend",
    "runtime": "runtime",
    "testing": "testing",
    "top": "top",
    "te": "te",
    "config": "base.config",
}
_NAMES = {
    "cpu": "base.device",
    "context": "base.device",
    "nd": "base.ndarray",
    "NDArray": "base.ndarray",
    "Target": "base.target",
    "Op": "core.op",
    "list_ops": "core.op",
    "compile": "compiler.model",
    "CompiledModel": "compiler.model",
    "save_param_dict": "base.param_dict",
    "load_param_dict": "base.param_dict",
}

__all__ = ["Error", "NNVMError", "__version__", *_MODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(f".{_MODULES[name]}", __name__)
    elif name in _NAMES:
        if _NAMES[name] == "core.op":
            import_module(".ops", __name__)  # which registers the operators
        module = import_module(f".{_NAMES[name]}", __name__)
        value = module if name == "nd" else getattr(module, name)
    else:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
