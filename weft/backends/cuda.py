"""Switches of what CUDA devices compute, which can be set and change nothing."""

from ..eager.torch_core.backend_flags import ATTENTION as _ATTENTION
from ..eager.torch_core.backend_flags import Matmul as _Matmul
from ..eager.torch_core.backend_flags import never as is_built

matmul = _Matmul()
globals().update(_ATTENTION)
__all__ = ["is_built", "matmul", *sorted(_ATTENTION)]
