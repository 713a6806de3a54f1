"""Parts of a small tensor by one kernel: where there is so little to copy, starting a kernel for each part is what
costs. Larger ones are a stage for each part."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import prod
from typing import Any

from ...base.cuda_target import CudaTarget
from ...base.shape import normalize_axis
from ...core.fused import FusedGroup
from ...core.ir import Fact, NodeEntry
from ...ops.shape.join import part_ends
from ...te.expr import Var, as_expr
from ...te.extents import is_open
from ...te.loops import If, Seq, Store, buffer
from ..axes import Axis
from ..group import LoweredKernel, Strides, kernel_name, known_spec, lower_stages
from .aligned import with_alignment
from .grid import over_elements
from .stage import stage_kernel

FEW = 1 << 16  # elements, which a GPU copies faster than it starts a kernel


def split_kernels(
    group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CudaTarget, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernels of a group whose master is a split: one where all parts are dense and small."""
    node, steps = group.nodes[0], strides or {}
    shape, dtype = known_spec(fact(node.inputs[0]), node.inputs[0])
    parts = [entry for entry in group.outputs if entry.node is node]
    if len(group.nodes) > 1 or len(parts) < 2 or any(map(is_open, shape)) or not 0 < prod(shape) <= FEW:
        return lower_stages(group, fact, target, stage_kernel, strides)
    axis = normalize_axis(node.params.axis, len(shape))
    ends = part_ends(node.params, shape[axis])
    whole = buffer("whole", dtype, shape, strides=steps.get(node.inputs[0]))
    index = [Axis(Var(f"i{number}"), extent) for number, extent in enumerate(shape)]
    at = tuple(each.var for each in index)
    buffers, stores = [whole], list[Any]()
    for entry in parts:
        start, end = ends[entry.index], ends[entry.index + 1]
        into = buffer(f"part{entry.index}", dtype, fact(entry).shape, strides=steps.get(entry))  # type: ignore[arg-type]
        place = (*at[:axis], at[axis] - start, *at[axis + 1 :])
        inside = (at[axis] >= as_expr(start)) & (at[axis] < as_expr(end))
        stores.append(If(inside, Store(into, place, whole[at])))
        buffers.append(into)
    aligned, body = with_alignment(buffers, Seq(tuple(stores)))
    places: tuple[Hashable, ...] = (node.inputs[0], *parts)
    return [LoweredKernel(over_elements(kernel_name(group), aligned, index, body, target), places, prod(shape))]
