"""The generic schedules of CPUs: a stage with a reduction inside, or without one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from ...base.cpu_target import CpuTarget
from ...core.fused import FusedGroup
from ...core.ir import Fact, NodeEntry
from ...te.extents import NumberNeeded, is_open
from ...te.loops import For, Kernel, Seq, Stmt
from ...te.schedule import loop_nest
from ...te.tensor import Tensor
from ...te.visit import loads
from ..group import LoweredKernel, Strides, lower_stages, stage_buffers
from .nest import Axis
from .open_stages import extents_of, nests_kernel, reductions
from .pointwise import pointwise_kernel
from .reduction import reduction_kernel


def lower_group(
    group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CpuTarget, strides: Strides | None = None
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
    inside = _open_inside([*buffers, output], reduced)
    if inside and sum(len(loads(node)) for node in summed) > 1:
        raise NumberNeeded(inside[0])  # a product, which needs tiles in registers
    if inside:
        return nests_kernel(name, [output], 0, places, target, inside[0].trace, strides)
    axes, body = _peel(loop_nest([output], buffers), output.shape)
    make = reduction_kernel if reduced else pointwise_kernel
    kernel = make(name, list(buffers.values()), axes, body, target)
    work = prod(output.shape) * (prod(reduced) if reduced else target.facts.move_operations)
    return LoweredKernel(kernel, tuple(places[t] for t in buffers), work)


def _open_inside(tensors: Iterable[Tensor], reduced: Sequence[Any]) -> list[Any]:
    """The sizes that are arguments beside the number of rows: strides depend on them."""
    inner = [extent for tensor in tensors for extent in tensor.shape[1:]]
    return [extent for extent in (*inner, *reduced) if is_open(extent)]


def _peel(nest: Stmt, shape: Sequence[Any]) -> tuple[list[Axis], Stmt]:
    """The loops over the output's axes, and what stands in them."""
    axes = []
    for extent in shape:
        assert isinstance(nest, For)
        axes.append(Axis(nest.var, extent))
        nest = nest.body
    return axes, nest
