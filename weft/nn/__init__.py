"""Neural networks on tensors: modules, their parameters, and the functions under them."""

from . import attention, functional, init, modules, parallel, parameter, utils
from .modules import *  # noqa: F403
from .modules import __all__ as _layers
from .parallel import DataParallel
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer",
    "DataParallel",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "attention",
    "functional",
    "init",
    "modules",
    "parallel",
    "parameter",
    "utils",
]
__all__ += _layers
