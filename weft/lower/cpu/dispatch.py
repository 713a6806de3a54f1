"""How groups are lowered on CPUs: which masters have templates, and what serves the rest."""

from __future__ import annotations

from ...base.cpu_target import CpuTarget
from ..lowering import Lowering, Template
from .attention.template import attention_kernels
from .conv_grad import filter_kernels, gradient_kernels, plain_conv_kernels, tap_kernels
from .pool_grad import POOL_GRADIENTS, pool_grad_kernels
from .product import batched_kernels, product_kernels, product_unit
from .row_wise.row_kernel import row_kernels
from .scan import SCANS, scan_kernels
from .stage import stage_kernel
from .weight_only.levels import level_product_kernels
from .winograd import winograd_kernels
from .words.units import word_product_kernels, word_unit

NORMS = "layer_norm rms_norm instance_norm group_norm"
ROW_WISE = ["softmax", "log_softmax", "l2_normalize", *NORMS.split(), *[f"_{name}_grad" for name in NORMS.split()]]

LOWERING = Lowering[CpuTarget](
    stage_kernel,
    {
        **dict.fromkeys(ROW_WISE, Template(row_kernels, takes_open_sizes=True)),
        "_winograd_conv2d": Template(winograd_kernels, takes_strides=True, takes_open_sizes=True),
        "_packed_matmul": Template(product_kernels, takes_open_sizes=True, unit=product_unit),
        "_pair_matmul": Template(word_product_kernels, takes_open_sizes=True, unit=word_unit),
        "batch_matmul": Template(batched_kernels, takes_strides=True, takes_open_sizes=True),
        "matmul": Template(batched_kernels, takes_strides=True, takes_open_sizes=True),
        "_pair_conv2d": Template(word_product_kernels, unit=word_unit),
        "_byte_matmul": Template(word_product_kernels, unit=word_unit),
        "_byte_conv2d": Template(word_product_kernels, unit=word_unit),
        "_level_matmul": Template(level_product_kernels),
        "_strided_attention": Template(attention_kernels, takes_open_sizes=True),
        "conv2d": Template(plain_conv_kernels, takes_strides=True, takes_open_sizes=True),
        "conv2d_transpose": Template(tap_kernels, takes_strides=True, takes_open_sizes=True),
        **dict.fromkeys(SCANS, Template(scan_kernels, takes_open_sizes=True)),
        **dict.fromkeys(POOL_GRADIENTS, Template(pool_grad_kernels, takes_open_sizes=True)),
        "_conv2d_grad": Template(gradient_kernels, takes_open_sizes=True),
        "_conv2d_grad_data": Template(tap_kernels, takes_strides=True, takes_open_sizes=True),
        "_conv2d_transpose_grad_data": Template(tap_kernels, takes_strides=True, takes_open_sizes=True),
        "_conv2d_grad_weight": Template(filter_kernels, takes_open_sizes=True),
        "_conv2d_transpose_grad_weight": Template(filter_kernels, takes_open_sizes=True),
    },
)
