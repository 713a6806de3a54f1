"""Templates of conv2d_transpose and of the gradients of convolutions, for floating dtypes; what
they do not serve goes through the generic schedules."""

from __future__ import annotations

from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32, DType, is_float
from ...core.fused import FusedGroup
from ...core.ir import Node, NodeEntry
from ...ops.nn._convolution import NCHW, OIHW, convolution_of
from ...te.extents import is_open
from ..group import LoweredKernel, Strides
from .conv_filters import FilterSum, filter_sum_kernels
from .conv_taps import TapSum, tap_sum_kernels
from .operands import Facts, Operand
from .stage import lower_group
from .windows.kernels import window_kernels


def _wide(dtype: DType) -> DType:
    return FLOAT32 if dtype.itemsize < 4 else dtype


DATA_GRADIENTS = ("_conv2d_grad_data", "_conv2d_grad")


def _sum_of(node: Node, fact: Facts) -> TapSum | None:
    """What the node's first output sums; None for integers, and for nothing at all."""
    conv = convolution_of(node.params)
    forward = node.op_name in ("conv2d", "_conv2d_transpose_grad_data")
    gradient = node.op_name in DATA_GRADIENTS
    weight, *bias = node.inputs[2:] if gradient else node.inputs[1:]
    given = conv.data if node.op_name in ("conv2d", "conv2d_transpose") else conv.out
    result = Operand.of(NodeEntry(node), conv.data if gradient else conv.out, fact)
    source = Operand.of(node.inputs[0], given, fact)
    filters = Operand.of(weight, conv.kernel, fact)
    if not _serves(result, source, filters):
        return None
    wide = _wide(result.dtype)
    return TapSum(conv, source, filters, result, bias[0] if bias else None, not forward, wide)


def _filters_of(node: Node, output: NodeEntry, fact: Facts) -> FilterSum | None:
    """What a weight gradient sums."""
    conv = convolution_of(node.params)
    windows, data = node.inputs[:2]
    if node.op_name == "_conv2d_transpose_grad_weight":
        windows, data = data, windows
    result = Operand.of(output, conv.kernel, fact)
    read = (Operand.of(windows, conv.out, fact), Operand.of(data, conv.data, fact))
    return FilterSum(conv, *read, result, _wide(result.dtype)) if _serves(result, *read) else None


def _serves(result: Operand, *read: Operand) -> bool:
    return all(is_float(operand.dtype) for operand in (result, *read)) and 0 not in result.shape


def tap_kernels(
    group: FusedGroup, fact: Facts, target: CpuTarget, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernels of conv2d_transpose, or of a data gradient, and what follows it."""
    assert group.master is not None
    job, made = _sum_of(group.master, fact), None
    if job is not None:
        open_gradient = group.master.op_name in DATA_GRADIENTS and is_open(job.result.extents()["W"])
        made = None if open_gradient else tap_sum_kernels(job, group, fact, target, strides)
        if made is None and not strides:
            made = window_kernels(job, group, target)
    return lower_group(group, fact, target, strides) if made is None else made


def filter_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernels of a weight gradient and what follows it."""
    assert group.master is not None
    output = group.outputs[0] if len(group.nodes) == 1 else NodeEntry(group.master)
    job = _filters_of(group.master, output, fact)
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
    assert group.master is not None
    conv = convolution_of(group.master.params)
    plain = conv.data == conv.out == NCHW and conv.kernel == OIHW
    many = any(window.size > 1 for window in conv.windows)
    job = _sum_of(group.master, fact) if plain and many else None
    served = job is not None and 2 * job.channels >= target.lanes(job.wide)
    return (tap_kernels if served else lower_group)(group, fact, target, strides)
