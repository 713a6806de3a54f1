"""Special functions on tensors, as PyTorch users know them."""

from .eager.functions.all import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["weft.special"])
__all__ = sorted(_FUNCTIONS["weft.special"])
