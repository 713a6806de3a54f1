"""Which way a group is lowered: by the template of its master, by the kernels that its operator was
written with, or by the generic schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.shape import is_static, numel
from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import Op
from .group import LoweredKernel, kernel_name, lower_group
from .halo import Frame, rim_kernel, without_halo
from .winograd import winograd_kernels
from .written import written_kernels

TEMPLATES = {"_winograd_conv2d": winograd_kernels}  # masters that no generic schedule serves


def lower(
    group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: Target
) -> list[LoweredKernel]:
    """The kernels that compute the outputs of a group, in order."""
    if Op.kernels.contains(group.nodes[0].op):
        return written_kernels(group, fact)
    master = "" if group.master is None else group.master.op_name
    make = TEMPLATES.get(master, lower_group)
    inner = without_halo(group)
    return make(group, fact, target) if inner is None else _haloed(group, inner, make, fact, target)


def _haloed(
    group: FusedGroup,
    inner: FusedGroup,
    make: Callable[..., list[LoweredKernel]],
    fact: Callable[[NodeEntry], Fact],
    target: Target,
) -> list[LoweredKernel]:
    """The kernels of the group up to its halo, writing inside it, and one for the rim."""
    (result,), (small,) = group.outputs, inner.outputs
    shape, extent = fact(result).shape, fact(small).shape
    assert is_static(shape)
    assert is_static(extent)
    top, left = group.nodes[-1].params.pads[:2]
    frame = Frame(shape, top, left)
    placed = [
        kernel._replace(arguments=tuple(result if a == small else a for a in kernel.arguments))
        for kernel in make(inner, fact, target, frame)
    ]
    kernel = rim_kernel(f"{kernel_name(group)}_rim", frame, extent)
    return [*placed, LoweredKernel(kernel, (result,), numel(shape) - numel(extent))]


def has_body(node: Node) -> bool:
    """Whether kernels can be made for a node: it has them, a compute, or a template."""
    written = Op.compute.contains(node.op) or Op.kernels.contains(node.op)
    return written or node.op_name in TEMPLATES


def bodies_of(node: Node) -> list[Callable[..., Any]]:
    """The functions that write the code of a node; none for a template."""
    rules = (Op.compute.get(node.op), Op.kernels.get(node.op))
    return [rule for rule in rules if rule is not None]
