"""Which way a group is lowered: by the template of its master, or by the generic schedules."""

from __future__ import annotations

from collections.abc import Callable

from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import Op
from .group import LoweredKernel, lower_group
from .winograd import winograd_kernels

TEMPLATES = {"_winograd_conv2d": winograd_kernels}  # masters that no generic schedule serves


def lower(
    group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: Target
) -> list[LoweredKernel]:
    """The kernels that compute the outputs of a group, in order."""
    master = "" if group.master is None else group.master.op_name
    return TEMPLATES.get(master, lower_group)(group, fact, target)


def has_body(node: Node) -> bool:
    """Whether kernels can be made for a node: it has a compute, or a template."""
    return Op.compute.contains(node.op) or node.op_name in TEMPLATES
