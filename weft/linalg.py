"""Linear algebra on tensors, as PyTorch users know them."""

from .base.errors import LinAlgError
from .eager.functions.all import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["weft.linalg"])
__all__ = ["LinAlgError", *sorted(_FUNCTIONS["weft.linalg"])]
