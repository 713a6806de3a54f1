"""Which kernel makes a sum over windows: by planes where every channel is a group of its own, or nearly so, else by
patches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ...group import LoweredKernel
from .patch_convolution import patch_kernel
from .planes import copies_of, plane_filters_kernel, planes_kernel
from .window_sum import WindowSum

PLANE_WORK = 4  # times as long as in register tiles a product takes, whose factors are read each time


def sum_kernel(
    name: str, job: WindowSum, target: CpuTarget, dtype: DType, arguments: Sequence[Hashable]
) -> LoweredKernel:
    """The kernel whose arguments are source, weight, bias and result."""
    copies = copies_of(job, target, dtype)
    if copies is None:
        return LoweredKernel(patch_kernel(name, job, target, dtype), tuple(arguments), job.work)
    return LoweredKernel(planes_kernel(name, job, copies, target, dtype), tuple(arguments), job.work * PLANE_WORK)


def plane_filters(
    name: str, job: WindowSum, target: CpuTarget, dtype: DType, arguments: Sequence[Hashable]
) -> LoweredKernel | None:
    """The kernel of the transpose in weights, whose arguments are source, windows and result; None where patches would
    make the sum."""
    copies = copies_of(job, target, dtype)
    if copies is None:
        return None
    source, windows, result = arguments
    kernel = plane_filters_kernel(name, job, copies, target, dtype)
    return LoweredKernel(kernel, (source, windows, windows, result), job.work * PLANE_WORK)
