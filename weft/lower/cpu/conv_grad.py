"""Templates of conv2d_transpose and of the gradients of convolutions, for floating dtypes; what
they do not serve goes through the generic schedules."""

from __future__ import annotations

from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32, DType, is_float
from ...core.fused import FusedGroup
from ...core.ir import Node, NodeEntry
from ...ops.nn._convolution import NCHW, OIHW, convolution_of
from ...te.extents import is_open
from ..group import Facts, LoweredKernel, Strides
from .conv_filters import filter_sum_kernels
from .conv_taps import tap_sum_kernels
from .operands import ConvSum, Operand
from .stage import lower_group
from .windows.kernels import window_kernels

DATA_GRADIENTS = ("_conv2d_grad_data", "_conv2d_grad")


def _sum_of(node: Node, fact: Facts) -> ConvSum | None:
    """What the node's first output sums; None for integers, and for nothing at all."""
    conv = convolution_of(node.params)
    forward = node.op_name in ("conv2d", "_conv2d_transpose_grad_data")
    gradient = node.op_name in DATA_GRADIENTS
    weight, *bias = node.inputs[2:] if gradient else node.inputs[1:]
    given = conv.data if node.op_name in ("conv2d", "conv2d_transpose") else conv.out
    source, filters = Operand.of(node.inputs[0], given, fact), Operand.of(weight, conv.kernel, fact)
    result = Operand.of(NodeEntry(node), conv.data if gradient else conv.out, fact)
    job = ConvSum(conv, source, filters, result, _wide(result), not forward, bias[0] if bias else None)
    return job if _serves(job, result) else None


def _filters_of(node: Node, output: NodeEntry, fact: Facts) -> ConvSum | None:
    """The sum whose transpose in filters a weight gradient is."""
    conv = convolution_of(node.params)
    windows, data = node.inputs[:2]
    if node.op_name == "_conv2d_transpose_grad_weight":
        windows, data = data, windows
    sides = ((data, conv.data), (output, conv.kernel), (windows, conv.out))
    source, filters, result = (Operand.of(entry, layout, fact) for entry, layout in sides)
    job = ConvSum(conv, source, filters, result, _wide(filters))
    return job if _serves(job, job.filters) else None


def _wide(made: Operand) -> DType:
    return FLOAT32 if made.dtype.itemsize < 4 else made.dtype


def _serves(job: ConvSum, made: Operand) -> bool:
    return all(is_float(operand.dtype) for operand in (job.source, job.filters, job.result)) and 0 not in made.shape


def tap_kernels(
    group: FusedGroup, fact: Facts, target: CpuTarget, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernels of conv2d_transpose, or of a data gradient, and what follows it."""
    job, made = _sum_of(group.anchor, fact), None
    if job is not None:
        open_gradient = group.anchor.op_name in DATA_GRADIENTS and is_open(job.result.extents()["W"])
        made = None if open_gradient else tap_sum_kernels(job, group, fact, target, strides)
        if made is None and not strides:
            made = window_kernels(job, group, target)
    return lower_group(group, fact, target, strides) if made is None else made


def filter_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernels of a weight gradient and what follows it."""
    output = group.outputs[0] if len(group.nodes) == 1 else NodeEntry(group.anchor)
    job = _filters_of(group.anchor, output, fact)
    made = None if job is None else filter_sum_kernels(job, group, fact, target)
    return lower_group(group, fact, target) if made is None else made


def gradient_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernels of all gradients of a convolution that somebody reads."""
    makers = (tap_kernels, filter_kernels, lower_group)  # of data, weight and bias
    kernels = []
    for entry in group.outputs:
        kernels += makers[entry.index](group._replace(outputs=(entry,)), fact, target)
    return kernels


def plain_conv_kernels(
    group: FusedGroup, fact: Facts, target: CpuTarget, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernels of a convolution in NCHW by more than a matrix. Layouts that have been chosen for
    a target, filters of one tap and groups of a few channels are served by the generic schedule."""
    conv = convolution_of(group.anchor.params)
    plain = conv.data == conv.out == NCHW and conv.kernel == OIHW
    many = any(window.size > 1 for window in conv.windows)
    job = _sum_of(group.anchor, fact) if plain and many else None
    served = job is not None and 2 * job.channels >= target.lanes(job.wide)
    return (tap_kernels if served else lower_group)(group, fact, target, strides)
