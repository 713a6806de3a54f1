"""How groups are lowered on GPUs: which masters have templates, and what serves the rest."""

from __future__ import annotations

from ...base.cuda_target import CudaTarget
from ..lowering import Lowering
from .aligned import ALIGNMENT
from .grid import bound_to_grid
from .stage import stage_kernel

LOWERING = Lowering[CudaTarget](stage_kernel, {}, bound_to_grid, ALIGNMENT)
