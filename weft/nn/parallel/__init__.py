"""Modules on many devices. Tensors live on the processor alone, so a module runs there as it is."""

from .data_parallel import DataParallel, data_parallel

__all__ = ["DataParallel", "data_parallel"]
