"""Neural networks on tensors: `weft.nn.functional` and Parameter."""

from ..eager.tensor.parameter import Parameter
from . import functional

__all__ = ["Parameter", "functional"]
