"""Which kernel makes a sum over windows: by planes where every channel is a group of its own, or nearly so, else by
patches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT32, FLOAT64, DType
from ....core.fused import FusedGroup
from ....ops.nn._convolution import NCHW, OIHW
from ...group import LoweredKernel, kernel_name
from ..conv_taps import TapSum
from .patch_convolution import patch_kernel
from .planes import copies_of, plane_filters_kernel, planes_kernel
from .window_sum import WindowSum

PLANE_WORK = 4  # times as long as in register tiles a product takes, whose factors are read each time


def sum_kernel(
    name: str, job: WindowSum, target: CpuTarget, dtype: DType, arguments: Sequence[Hashable]
) -> LoweredKernel:
    """The kernel whose arguments are source, weight, result and, if there are four, the bias."""
    copies, has_bias = copies_of(job, target, dtype), len(arguments) > 3
    if copies is None:
        return LoweredKernel(patch_kernel(name, job, target, dtype, has_bias), tuple(arguments), job.work)
    kernel = planes_kernel(name, job, copies, target, dtype, has_bias)
    return LoweredKernel(kernel, tuple(arguments), job.work * PLANE_WORK)


def window_kernels(job: TapSum, group: FusedGroup, target: CpuTarget) -> list[LoweredKernel] | None:
    """The kernel of a group that is nothing but such a sum, dense, in NCHW and of one dtype; else None."""
    operands = (job.source, job.weight, job.result)
    plain = [operand.layout for operand in operands] == [NCHW, OIHW, NCHW]
    if not plain or len(group.nodes) > 1 or {operand.dtype for operand in operands} not in ({FLOAT32}, {FLOAT64}):
        return None
    lines = (job.line("H"), job.line("W"))
    windows = WindowSum.of(job.result.extents()["N"], job.conv.groups, job.deep, job.channels, *lines)
    arguments = [job.source.entry, job.weight.entry, group.outputs[0], *([] if job.bias is None else [job.bias])]
    return [sum_kernel(kernel_name(group), windows, target, job.wide, arguments)]


def plane_filters(
    name: str, job: WindowSum, target: CpuTarget, dtype: DType, arguments: Sequence[Hashable]
) -> LoweredKernel | None:
    """The kernel of the transpose in weights, whose arguments are source, windows and result; None where patches would
    make the sum."""
    copies = copies_of(job, target, dtype)
    if copies is None:
        return None
    kernel = plane_filters_kernel(name, job, copies, target, dtype)
    return LoweredKernel(kernel, tuple(arguments), job.work * PLANE_WORK)
