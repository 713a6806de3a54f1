"""Which kernels make a sum over windows, or its transpose in filters: planes where every channel is a group of its own,
or nearly so, else patches and blocks. Programs for any numbers are written here."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT32, FLOAT64, DType
from ....core.fused import FusedGroup
from ....ops.nn._convolution import NCHW, OIHW
from ...group import LoweredKernel, Written, kernel_name
from ..conv_filters import Form, chosen, open_sizes, window_filters
from ..operands import ConvSum
from .patch_convolution import patch_kernel
from .planes import copies_of, plane_filters_kernel, planes_kernel
from .window_sum import WindowSum

PLANE_WORK = 4  # times as long as in register tiles a product takes, whose factors are read each time
USEFUL = 0.6  # share of products with elements, below which zeros are not worth multiplying
SUMMED_WINDOWS = 8192  # of the images in a part, whose products are added one after the other
PART_BYTES = 1 << 21  # of what is packed for a part, unless the filters are larger


def sum_kernel(
    name: str, job: WindowSum, target: CpuTarget, dtype: DType, arguments: Sequence[Hashable]
) -> LoweredKernel:
    """The kernel whose arguments are source, weight, result and, if there are four, the bias."""
    copies, has_bias = copies_of(job, target, dtype), len(arguments) > 3
    if copies is None:
        work = job.work + prod(job.out) * target.facts.move_operations
        return LoweredKernel(patch_kernel(name, job, target, dtype, has_bias), tuple(arguments), work)
    kernel = planes_kernel(name, job, copies, target, dtype, has_bias)
    return LoweredKernel(kernel, tuple(arguments), job.work * PLANE_WORK)


def window_kernels(job: ConvSum, group: FusedGroup, target: CpuTarget) -> list[LoweredKernel] | None:
    """The kernel of a group that is nothing but such a sum, dense, in NCHW and of one dtype; else None."""
    operands = (job.source, job.filters, job.result)
    plain = [operand.layout for operand in operands] == [NCHW, OIHW, NCHW]
    if not plain or len(group.nodes) > 1 or {operand.dtype for operand in operands} not in ({FLOAT32}, {FLOAT64}):
        return None
    lines = (job.line("H"), job.line("W"))
    windows = WindowSum.of(job.result.extents()["N"], job.conv.groups, job.deep, job.channels, *lines)
    arguments = [job.source.entry, job.filters.entry, group.outputs[0], *([] if job.bias is None else [job.bias])]
    return [sum_kernel(kernel_name(group), windows, target, job.wide, arguments)]


# For any numbers


def is_useful(job: WindowSum, target: CpuTarget, dtype: DType) -> bool:
    """Whether not so few taps of a result stand on an element that a template that walks over those alone is better."""
    few = prod(job.source[2:]) <= USEFUL * prod(job.out[2:]) and job.down.sign < 0 and job.parts == 1
    return not few or copies_of(job, target, dtype) is not None


def write_sum(dtype: DType, target: CpuTarget, numbers: list[Any]) -> Written:
    """Source, weight and bias go in."""
    job = WindowSum.of_numbers(numbers)
    kernel = sum_kernel("windows", job, target, dtype, (0, 1, 3, 2))
    return Written.by_one(kernel, dtype, job.source, job.filters, job.out[1:2], job.out)


def filter_parts(job: WindowSum, target: CpuTarget, dtype: DType) -> tuple[Form | None, list[int]]:
    """How filters are made: in which form, unless by planes, and the images at which parts begin and end, whose sums
    are added up."""
    if copies_of(job, target, dtype) is not None:
        return None, [0, job.images]
    lanes = target.lanes(dtype)
    form = chosen(job.rows, job.deep, (lanes, lanes), open_sizes(target))
    wide, pixels = (job.rows, job.out) if form.by_output else (job.deep, job.source)
    packed = job.groups * -(-wide // lanes) * lanes * prod(pixels[2:])  # elements of an image
    fitting = max(PART_BYTES // dtype.itemsize, prod(job.filters)) // packed
    parts = -(-job.images // max(min(SUMMED_WINDOWS // prod(job.out[2:]), fitting), 1))
    return form, [job.images * number // parts for number in range(parts + 1)]


def write_filters(form: Form | None, dtype: DType, target: CpuTarget, numbers: list[Any]) -> Written:
    """What `window_filters` takes goes in; where there is no form, source and windows."""
    job = WindowSum.of_numbers(numbers)
    if form is not None:
        return window_filters(job, form, dtype, target)
    copies = copies_of(job, target, dtype)
    assert copies is not None
    kernel = plane_filters_kernel("plane_filters", job, copies, target, dtype)
    return Written.by_one(
        LoweredKernel(kernel, (0, 1, 2), job.work * PLANE_WORK), dtype, job.source, job.out, job.filters
    )
