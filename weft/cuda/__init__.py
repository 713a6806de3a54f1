"""What there is of CUDA devices, asked from the driver when it is first needed; what weft has not of PyTorch's names
says so."""

from ..eager.torch_core.absent import names_of as _names_of
from ..eager.torch_core.cuda_devices import PRESENT as _PRESENT
from . import amp as amp
from . import nvtx as nvtx

_NAMES = {**_names_of("cuda"), **_PRESENT}
globals().update(_NAMES)
__all__ = sorted(["amp", "nvtx", *_NAMES])
