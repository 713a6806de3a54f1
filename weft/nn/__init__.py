"""Neural networks on tensors: modules, their parameters, and the functions under them."""

from ..eager.tensor.parameter import Parameter
from . import functional, init, modules, utils
from .modules import *  # noqa: F403

__all__ = ["Parameter", "functional", "init", "modules", "utils"]
