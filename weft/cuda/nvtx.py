"""Marks for NVIDIA's profiler, which need a CUDA device."""

from ..eager.torch_core.absent import names_of as _names_of

_NAMES = _names_of("cuda.nvtx")
globals().update(_NAMES)
__all__ = sorted(_NAMES)
