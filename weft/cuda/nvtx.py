"""Marks for NVIDIA's profiler, which need a CUDA device."""

from ..eager.torch_core.absent import names_of as _names_of

globals().update(_names_of("cuda.nvtx"))
__all__ = sorted(_names_of("cuda.nvtx"))
