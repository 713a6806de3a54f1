"""How groups are lowered on GPUs: which masters have templates, and what serves the rest."""

from __future__ import annotations

from ...base.cuda_target import CudaTarget
from ..chunks import Chunks
from ..lowering import Lowering, Template
from .aligned import ALIGNMENT
from .attending import attention_kernels, strided_attention_kernels
from .cached_attention import cached_attention_kernels
from .grid import bound_to_grid
from .masters import READERS, master_kernels
from .row_kernel import row_kernels
from .split import split_kernels
from .stage import stage_kernel

FEW, FEW_ROWS = 1 << 14, 256  # elements that do not fill a GPU: a thread each, and a block each
THREADS_IN_ALL, BLOCKS_IN_ALL = 1 << 18, 1 << 10  # which do
ROW_WISE = "softmax log_softmax layer_norm rms_norm instance_norm group_norm l2_normalize"


def _chunks(elements: int, turns: int, in_line: bool) -> int:
    """So many that a GPU has enough to do; a divisor of the turns where there is one not much smaller."""
    wanted = max(min((BLOCKS_IN_ALL if in_line else THREADS_IN_ALL) // max(elements, 1), turns // 32, 1024), 2)
    divisors = [count for count in range(wanted, max(wanted // 4, 1), -1) if turns % count == 0]
    return divisors[0] if divisors else wanted


LOWERING = Lowering[CudaTarget](
    stage_kernel,
    {
        **dict.fromkeys(ROW_WISE.split(), Template(row_kernels, takes_open_sizes=True)),
        **dict.fromkeys(READERS, Template(master_kernels, takes_open_sizes=True)),
        "scaled_dot_product_attention": Template(attention_kernels, takes_open_sizes=True),
        "_strided_attention": Template(strided_attention_kernels, takes_open_sizes=True),
        "cached_attention": Template(cached_attention_kernels),
        "split": Template(split_kernels, takes_strides=True, takes_open_sizes=True),
    },
    bound_to_grid,
    ALIGNMENT,
    Chunks(FEW, FEW_ROWS, _chunks),
)
