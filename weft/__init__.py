"""weft: a deep-learning compiler and tensor library in pure Python.

    import weft
    m = weft.compile("model.onnx")
    outputs = m(x)

Public names load when they are first used, so that `import weft` is quick.
"""

import sys
from functools import partial
from importlib import import_module
from typing import Any

from .base.errors import Error
from .core.bulk import collector_paused
from .jit.public_names import PUBLIC_NAMES
from .runtime.functions import provide_func
from .tensor_names import TENSOR_NAMES
from .version import __version__ as __version__

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
    "generation": "generation",
    "runtime": "runtime",
    "testing": "testing",
    "tools": "tools",
    "top": "top",
    "te": "te",
    "ops": "ops",
    "autograd": "autograd",
    "nn": "nn",
    "func": "func",
    "jit": "jit",
    "onnx": "onnx",
    "optim": "optim",
    "utils": "utils",
    "distributions": "distributions",
    "amp": "amp",
    "cuda": "cuda",
    "backends": "backends",
    "accelerator": "accelerator",
    "mps": "mps",
    "mtia": "mtia",
    "xpu": "xpu",
    "version": "version",
    "profiler": "profiler",
    "hub": "hub",
    "special": "special",
    "linalg": "linalg",
    "fft": "fft",
    "signal": "signal",
    "serialization": "serialization",
    "random": "random",
    "futures": "futures",
    "loggers": "loggers",
    "cpp": "cpp",
    "_C": "_C",
    "_utils": "_utils",
    "config": "base.config",
}
# Global functions that rooms above the runtime register when they load: a program may name them before that.
for _name, _module in {
    "nnvm.graph._move_graph": ".compiler.graph_functions",
    "weft.control_flow": ".compiler.control_flow",
    "weft.reference": ".compiler.host",
}.items():
    provide_func(_name, partial(import_module, _module, __name__))
_UNSTARRED = {"random", "signal"}  # Python has modules of these names, which scripts import beside weft's
_NAMES = {
    "cpu": "base.device",
    "context": "base.device",
    "nd": "base.ndarray",
    "NDArray": "base.ndarray",
    "Target": "base.target",
    "Op": "core.op",
    "list_ops": "core.op",
    "compile": "jit.compile.entry",
    "CompiledModel": "compiler.model",
    "quantize": "compiler.quantise.entry",
    "quantize_weights": "compiler.quantise.weight_levels",
    "save_param_dict": "base.param_dict",
    "load_param_dict": "base.param_dict",
    **PUBLIC_NAMES,
}

# The names of PyTorch's vocabulary that a star gives; those of the core come to them.
_STARRED = (
    "typename is_tensor is_storage set_default_tensor_type set_rng_state get_rng_state "
    "manual_seed initial_seed save load set_printoptions chunk split stack matmul no_grad "
    "enable_grad rand randn DoubleStorage FloatStorage LongStorage IntStorage ShortStorage "
    "CharStorage ByteStorage DoubleTensor FloatTensor LongTensor IntTensor ShortTensor CharTensor "
    "ByteTensor Tensor"
).split()


@collector_paused  # what modules make while they load is no garbage
def __getattr__(name: str) -> Any:
    if name == "__all__":
        value: Any = _all()
    elif name in _MODULES:
        value = import_module(f".{_MODULES[name]}", __name__)
    elif name in _NAMES:
        if _NAMES[name] == "core.op":
            import_module(".ops", __name__)  # which registers the operators
        module = import_module(f".{_NAMES[name]}", __name__)
        value = module if name == "nd" else getattr(module, name)
    else:
        value = _of_tensors(name)
    globals()[name] = value
    return value


def _of_tensors(name: str) -> Any:
    """A name of PyTorch's vocabulary: a function of the table, a class, a dtype; or an operator
    of the user's own, which is a function of tensors and symbols."""
    if name in TENSOR_NAMES:
        found = import_module(".eager.torch_core.public_names", __name__).NAMES
        return found[name] if name in found else import_module(".eager.torch_core.extra_names", __name__).LEAVES[name]
    if name in _users_operators():
        return import_module(".core.op", __name__).Op.get(name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def _users_operators() -> list[str]:
    """Names of the operators that are not weft's; there are none before the registry is loaded."""
    registry = sys.modules.get(f"{__name__}.core.op")
    if registry is None:
        return []
    own = import_module(".ops", __name__).OWN
    return [name for name in registry.list_op_names() if name[0] != "_" and name not in own]


def _all() -> list[str]:
    """What `from weft import *` gives: the written names and every public name of the core."""
    core = import_module(".eager.torch_core.namespace", __name__)
    rooms = [name for name in _MODULES if name[0] != "_" and name not in _UNSTARRED]
    written = ["Error", "NNVMError", "__version__", *rooms, *_NAMES, *_STARRED]
    found = core.public_names(vars(import_module("._C", __name__)))
    return list(dict.fromkeys([*written, *found]))


def __dir__() -> list[str]:
    hidden = [name for name in globals() if name[:2] == "__"]
    names = ["Error", "NNVMError", *_MODULES, *_NAMES, *TENSOR_NAMES]
    return [*hidden, *names, *_users_operators()]
