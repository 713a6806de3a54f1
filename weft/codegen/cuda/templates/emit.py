"""Which writer a template's statement has."""

from __future__ import annotations

from ....base.cuda_target import CudaTarget
from ....base.errors import Unsupported
from ....te.loops import Kernel, WholeKernel
from ....te.tensor_cores.attention import Attention
from ....te.tensor_cores.product import Product
from ....te.tensor_cores.warp_attention import WarpAttention
from ....te.tensor_cores.warp_product import WarpProduct
from .attention import emit_attention
from .product import emit_product
from .warp_attention import emit_warp_attention
from .warp_product import emit_warp_product


def is_template(kernel: Kernel) -> bool:
    """Whether a kernel is what a template writes, and no loops."""
    return isinstance(kernel.body, WholeKernel)


def emit_template(kernel: Kernel, target: CudaTarget) -> str:
    """The LLVM IR of a kernel that is a template's statement."""
    match kernel.body:
        case Product():
            return emit_product(kernel, kernel.body, target)
        case WarpProduct():
            return emit_warp_product(kernel, kernel.body, target)
        case WarpAttention():
            return emit_warp_attention(kernel, kernel.body, target)
        case Attention():
            return emit_attention(kernel, kernel.body, target)
    raise Unsupported(f"kernel {kernel.name} has no writer for GPUs", why=f"its statement is {kernel.body}")
