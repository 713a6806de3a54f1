"""Functions of neural networks on tensors, as PyTorch users know them."""

from ..eager.functions.all import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["weft.nn.functional"])
__all__ = sorted(_FUNCTIONS["weft.nn.functional"])
