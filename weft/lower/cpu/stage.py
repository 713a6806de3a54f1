"""The generic schedules of CPUs: a stage with a reduction inside, or without one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from math import prod

from ...base.cpu_target import CpuTarget
from ...core.fused import FusedGroup
from ...core.ir import Fact, NodeEntry
from ...te.loops import For, Kernel, Seq, Stmt
from ...te.schedule import loop_nest
from ...te.simplify_loops import statements
from ...te.tensor import Tensor
from ..group import LoweredKernel, Strides, lower_stages, stage_buffers
from .nest import Axis
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
    nest = loop_nest([output], buffers)
    axes, body = _peel(nest, len(output.shape))
    inner = [node for node in statements(body) if isinstance(node, For)]
    make = reduction_kernel if inner else pointwise_kernel
    kernel = make(name, list(buffers.values()), axes, body, target)
    work = prod(axis.extent for axis in axes) * (1 if inner else target.facts.move_operations)
    for loop in inner:
        work *= max(int(loop.extent.value), 1)  # type: ignore[attr-defined]
    return LoweredKernel(kernel, tuple(places[t] for t in buffers), work)


def _peel(nest: Stmt, rank: int) -> tuple[list[Axis], Stmt]:
    """The loops over the output's axes, and what stands in them."""
    axes = []
    for _ in range(rank):
        assert isinstance(nest, For)
        axes.append(Axis(nest.var, int(nest.extent.value)))  # type: ignore[attr-defined]
        nest = nest.body
    return axes, nest
