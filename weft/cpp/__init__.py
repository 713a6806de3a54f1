"""Ordered dictionaries of tensors and modules, and the module they belong to, as PyTorch's C++ side
shows them."""

from ..eager.tensor.ordered_dicts import OrderedModuleDict, OrderedTensorDict
from . import nn

__all__ = ["OrderedModuleDict", "OrderedTensorDict", "nn"]
