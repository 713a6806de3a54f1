"""How groups are lowered on GPUs: which masters have templates, and what serves the rest."""

from __future__ import annotations

from ...base.cuda_target import CudaTarget
from ..lowering import Lowering, Template
from .aligned import ALIGNMENT
from .attending import attention_kernels, strided_attention_kernels
from .grid import bound_to_grid
from .masters import READERS, master_kernels
from .stage import stage_kernel

TEMPLATES = {
    **{name: Template(master_kernels) for name in READERS},
    "scaled_dot_product_attention": Template(attention_kernels),
    "_strided_attention": Template(strided_attention_kernels),
}

LOWERING = Lowering[CudaTarget](stage_kernel, TEMPLATES, bound_to_grid, ALIGNMENT)
