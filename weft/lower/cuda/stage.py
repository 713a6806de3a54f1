"""The schedule of any stage on a GPU."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import prod
from typing import Any

from ...base.cuda_target import CudaTarget
from ...te.loops import Kernel, Seq
from ...te.schedule import loop_nest
from ...te.tensor import Tensor
from ..axes import extents_of, peeled, reductions, simplified
from ..group import LoweredKernel, Strides, stage_buffers
from .aligned import with_alignment
from .columns import column_reduction, is_worth_columns
from .grid import over_elements
from .pointwise import in_vectors, pointwise_kernel, vector_lanes
from .reduction import found_row, is_worth_rows, row_reduction


def stage_kernel(
    name: str, output: Tensor, places: Mapping[Tensor, Hashable], target: CudaTarget, strides: Strides | None = None
) -> LoweredKernel:
    """The kernel that computes one tensor into memory, by the schedule that suits it."""
    buffers = stage_buffers(output, places, strides)
    arguments = tuple(places[tensor] for tensor in buffers)
    if 0 in output.shape:
        return LoweredKernel(Kernel(name, tuple(buffers.values()), Seq(())), arguments, 1)
    axes, body = peeled(loop_nest([output], buffers), output.shape)
    summed = reductions(output, buffers)
    work: Any = prod(output.shape) * prod(extents_of(summed))
    if not summed:
        return LoweredKernel(pointwise_kernel(name, list(buffers.values()), axes, body, target), arguments, work)
    held, body = with_alignment(list(buffers.values()), simplified(body, axes))
    row = found_row(body)
    if row is not None and is_worth_rows(row, axes, target):
        return LoweredKernel(row_reduction(name, held, axes, row, target), arguments, work)
    if row is not None and is_worth_columns(row, axes):
        return LoweredKernel(column_reduction(name, held, axes, row, target), arguments, work)
    lanes = vector_lanes(axes, body, target)
    if lanes > 1:
        axes, body = in_vectors(axes, body, lanes)
    return LoweredKernel(over_elements(name, held, axes, body, target), arguments, work)
