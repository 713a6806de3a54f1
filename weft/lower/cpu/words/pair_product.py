"""The template of _pair_matmul: that of products of floats, in which an element is a pair of bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT32
from ....base.shape import is_static
from ....core.fused import FusedGroup
from ....core.ir import Fact, NodeEntry
from ....ops.nn.narrow_products import PAIR
from ....te.build import KernelBuilder
from ....te.intrinsics import dot_pairs
from ...epilogue import Epilogue
from ...group import LoweredKernel, kernel_name
from ..product import finish_of, lowered_product, plan_product, write_panel_product
from ..stage import lower_group

ROUGHLY = 2  # products in the time of one of floats


def pair_product_kernels(
    group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CpuTarget
) -> list[LoweredKernel]:
    """The kernel of a group whose master is a product of pairs; the generic ones for other vectors than panels are made
    for, and for nothing at all."""
    node = group.master
    assert node is not None
    data, weight = (fact(entry).shape for entry in node.inputs)
    made, dtype = fact(group.outputs[0]).shape, fact(group.outputs[0]).dtype
    assert is_static(data)
    assert is_static(weight)
    assert is_static(made)
    assert dtype is not None
    if weight[2] != target.lanes(FLOAT32) or len(group.outputs) > 1 or not prod(data):
        return lower_group(group, fact, target)
    depth, units, lanes = weight[1], node.params.units, weight[2]
    plan = plan_product(prod(data[:-1]), depth, units, lanes, target, in_parts=dtype == FLOAT32)
    b = KernelBuilder(kernel_name(group))
    factors = b.arg("data", FLOAT32, (plan.rows * plan.depth,)), b.arg("weight", FLOAT32, (plan.weights,))
    epilogue = Epilogue(b, group, fact, join=True)
    buffers = *factors, b.arg("out", dtype, (plan.rows * plan.columns,))
    write_panel_product(b, plan, buffers, finish_of(b, epilogue, made), multiply=dot_pairs)
    return [lowered_product(b, group, epilogue, plan.rows * plan.depth * PAIR * plan.columns // ROUGHLY)]
