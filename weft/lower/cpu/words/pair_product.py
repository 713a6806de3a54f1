"""The template of _pair_matmul: that of products of floats, in which an element is a pair of bfloat16."""

from __future__ import annotations

from math import prod

from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT32
from ....core.fused import FusedGroup
from ....te.intrinsics import dot_pairs
from ...epilogue import static_spec
from ...group import Facts, LoweredKernel
from ..product import panel_kernel, plan_product
from ..stage import lower_group


def pair_product_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernel of a group whose master is a product of pairs; the generic ones for other vectors than panels are made
    for, and for nothing at all."""
    node = group.anchor
    specs = [static_spec(fact(entry)) for entry in (*node.inputs, group.outputs[0])]
    (data, _), (weight, _), (_, dtype) = specs
    _, depth, lanes, *_ = weight
    if lanes != target.lanes(FLOAT32) or len(group.outputs) > 1 or not prod(data):
        return lower_group(group, fact, target)
    plan = plan_product(prod(data[:-1]), depth, node.params.units, lanes, target, in_parts=dtype == FLOAT32)
    return [panel_kernel(plan, FLOAT32, group, fact, target, dot_pairs)]  # in which a pair takes as long as a float
