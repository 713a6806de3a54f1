"""The generic schedules of CPUs: a stage with a reduction inside, or without one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32, is_float
from ...core.fused import FusedGroup
from ...te.extents import NumberNeeded, Trace, is_open
from ...te.loops import Kernel, Seq
from ...te.schedule import loop_nest
from ...te.tensor import Tensor
from ..axes import extents_of, peeled, reductions
from ..chunks import is_product, reads_once
from ..group import Facts, LoweredKernel, Strides, lower_stages, stage_buffers
from .nests.open_stages import nest_kernel
from .pointwise import pointwise_kernel
from .reduction import has_vectors, reduction_kernel

SHORT = 32  # terms of a sum of half floats that is not worth tiles in registers, which take each apart once


def lower_group(
    group: FusedGroup, fact: Facts, target: CpuTarget, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernels of a group by the generic schedules."""
    return lower_stages(group, fact, target, stage_kernel, strides)


def stage_kernel(
    name: str, output: Tensor, places: Mapping[Tensor, Hashable], target: CpuTarget, strides: Strides | None = None
) -> LoweredKernel:
    """The kernel that computes one tensor into memory, by the schedule that suits it."""
    buffers = stage_buffers(output, places, strides)
    if 0 in output.shape:
        nothing = Kernel(name, tuple(buffers.values()), Seq(()))
        return LoweredKernel(nothing, tuple(places[t] for t in buffers), 1)
    summed = reductions(output, buffers)
    reduced = extents_of(summed)
    axes, body = peeled(loop_nest([output], buffers), output.shape)
    inside = _open_inside([*buffers, output], reduced)
    if summed and not strides and all(map(reads_once, summed)):
        return nest_kernel(name, output, places, target, _trace_of([*buffers, output]), strides)
    product = bool(inside) and any(map(is_product, summed))
    in_tiles = product and has_vectors(axes, body, target)
    has_gaps = strides is not None and any(places[tensor] in strides for tensor in buffers)
    long = any(map(is_open, reduced)) or prod(reduced) > SHORT
    narrow = any(is_float(tensor.dtype) and tensor.dtype.itemsize < FLOAT32.itemsize for tensor in buffers)
    if (product and not in_tiles and long and narrow) or (inside and has_gaps and not axes):
        raise NumberNeeded(inside[0])
    if inside and not in_tiles:
        return nest_kernel(name, output, places, target, inside[0].trace, strides)
    make = reduction_kernel if reduced else pointwise_kernel
    kernel = make(name, list(buffers.values()), axes, body, target)
    work = prod(output.shape) * (prod(reduced) if reduced else target.facts.move_operations)
    return LoweredKernel(kernel, tuple(places[t] for t in buffers), work)


def _trace_of(tensors: Iterable[Tensor]) -> Trace:
    """What the sizes that are arguments belong to."""
    sizes: list[Any] = [extent for tensor in tensors for extent in tensor.shape]
    return next((size.trace for size in sizes if is_open(size)), Trace())


def _open_inside(tensors: Iterable[Tensor], reduced: Sequence[Any]) -> list[Any]:
    """The sizes that are arguments beside the number of rows: strides depend on them."""
    inner = [extent for tensor in tensors for extent in tensor.shape[1:]]
    return [extent for extent in (*inner, *reduced) if is_open(extent)]
