"""What there is of CUDA devices, asked truthfully: there are none, and what needs one says so."""

from ..eager.torch_core.absent import names_of as _names_of
from . import amp as amp
from . import nvtx as nvtx

globals().update(_names_of("cuda"))
__all__ = sorted(["amp", "nvtx", *_names_of("cuda")])
