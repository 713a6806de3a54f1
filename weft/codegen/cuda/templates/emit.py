"""Which writer a template's statement has."""

from __future__ import annotations

from ....base.cuda_target import CudaTarget
from ....te.loops import Kernel, WholeKernel
from ....te.tensor_cores.product import Product
from .product import emit_product


def is_template(kernel: Kernel) -> bool:
    """Whether a kernel is what a template writes, and no loops."""
    return isinstance(kernel.body, WholeKernel)


def emit_template(kernel: Kernel, target: CudaTarget) -> str:
    """The LLVM IR of a kernel that is a template's statement."""
    assert isinstance(kernel.body, Product)
    return emit_product(kernel, kernel.body, target)
