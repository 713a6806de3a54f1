"""Which way a group is lowered: by the template of its master, by the kernels that its operator was
written with, or by the generic schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...base.target import Target
from ...core.fused import FusedGroup
from ...core.ir import Fact, Node, NodeEntry
from ...core.op import Op
from ..group import LoweredKernel, Strides, lower_group
from .attention import attention_kernels
from .conv_grad import filter_kernels, gradient_kernels, plain_conv_kernels, tap_kernels
from .loop_bodies import loop_body_kernels
from .product import product_kernels
from .row_kernel import row_kernels
from .winograd import winograd_kernels

ROW_WISE = "softmax log_softmax layer_norm rms_norm instance_norm group_norm l2_normalize"
# Masters that no generic schedule serves, or not as well.
TEMPLATES: dict[str, Callable[..., list[LoweredKernel]]] = {
    **dict.fromkeys(ROW_WISE.split(), row_kernels),
    "_winograd_conv2d": winograd_kernels,
    "_packed_matmul": product_kernels,
    "_strided_attention": attention_kernels,
    "conv2d": plain_conv_kernels,
    "conv2d_transpose": tap_kernels,
    "_conv2d_grad": gradient_kernels,
    "_conv2d_grad_data": tap_kernels,
    "_conv2d_transpose_grad_data": tap_kernels,
    "_conv2d_grad_weight": filter_kernels,
    "_conv2d_transpose_grad_weight": filter_kernels,
}
# Those that take strides, as a last argument.
STRIDED_TEMPLATES = frozenset(
    "_winograd_conv2d conv2d conv2d_transpose _conv2d_grad_data _conv2d_transpose_grad_data".split()
)
for _name in TEMPLATES.keys() - STRIDED_TEMPLATES:
    Op.get(_name).set_attr("TDense", True)


def lower(
    group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: Target, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernels that compute the outputs of a group, in order. Only a group that takes strides
    may have inputs or outputs that are not dense."""
    if Op.kernels.contains(group.nodes[0].op):
        return loop_body_kernels(group, fact)
    master = "" if group.master is None else group.master.op_name
    make: Callable[..., list[LoweredKernel]] = TEMPLATES.get(master, lower_group)
    return make(group, fact, target, strides) if strides else make(group, fact, target)


def takes_strides(group: FusedGroup) -> bool:
    """Whether kernels can read and write tensors that are parts of larger ones, with strides."""
    master = "" if group.master is None else group.master.op_name
    if master in TEMPLATES:
        return master in STRIDED_TEMPLATES
    return all(Op.compute.contains(n.op) and not Op.kernels.contains(n.op) for n in group.nodes)


def has_body(node: Node) -> bool:
    """Whether kernels can be made for a node: it has them, a compute, or a template."""
    written = Op.compute.contains(node.op) or Op.kernels.contains(node.op)
    return written or node.op_name in TEMPLATES


def bodies_of(node: Node) -> list[Callable[..., Any]]:
    """The functions that write the code of a node; none for a template."""
    rules = (Op.compute.get(node.op), Op.kernels.get(node.op))
    return [rule for rule in rules if rule is not None]
