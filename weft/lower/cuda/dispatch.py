"""How groups are lowered on GPUs: which masters have templates, and what serves the rest."""

from __future__ import annotations

from ...base.cuda_target import CudaTarget
from ..lowering import Lowering, Template
from .aligned import ALIGNMENT
from .grid import bound_to_grid
from .masters import READERS, master_kernels
from .stage import stage_kernel

TEMPLATES = {name: Template(master_kernels) for name in READERS}

LOWERING = Lowering[CudaTarget](stage_kernel, TEMPLATES, bound_to_grid, ALIGNMENT)
