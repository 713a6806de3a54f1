"""Windows by which parts of a signal are weighed, as PyTorch users know them."""

from ..eager.functions.all import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["weft.signal.windows"])
__all__ = sorted(_FUNCTIONS["weft.signal.windows"])
