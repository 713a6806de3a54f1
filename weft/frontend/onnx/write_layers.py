"""Writers of layers: convolutions, pools, products of matrices, normalisations, resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...base.dtype import FLOAT32
from .writing import Writing, writes


def _four(padding: Sequence[int]) -> list[int]:
    """(top, left, bottom, right) of 1, 2 or 4 numbers."""
    if len(padding) == 4:
        return list(padding)
    return list(padding) * (4 // len(padding))


def _pair(values: Sequence[int]) -> list[int]:
    return list(values) * (2 // len(values))


def _window(w: Writing) -> dict[str, list[int]]:
    params = w.params
    return {"strides": _pair(params.strides), "pads": _four(params.padding)}


@writes("conv2d")
def conv2d(w: Writing) -> None:
    params = w.params
    plain = params.layout == "NCHW" and params.kernel_layout == "OIHW"
    w.require(plain and params.out_layout in ("NCHW", "__undef__"), f"layout {params.layout}")
    w.require(params.out_dtype == "same", f"out_dtype {params.out_dtype}")
    w.give(
        "Conv",
        *w.inputs,
        kernel_shape=_pair(params.kernel_size),
        dilations=_pair(params.dilation),
        group=params.groups,
        **_window(w),
    )


@writes("conv2d_transpose")
def conv2d_transpose(w: Writing) -> None:
    params = w.params
    w.require(params.layout == "NCHW", f"layout {params.layout}")
    w.require(params.out_dtype == "same", f"out_dtype {params.out_dtype}")
    w.give(
        "ConvTranspose",
        *w.inputs,
        kernel_shape=_pair(params.kernel_size),
        dilations=_pair(params.dilation),
        output_padding=_pair(params.output_padding),
        group=params.groups,
        **_window(w),
    )


@writes("max_pool2d", "avg_pool2d")
def pool2d(w: Writing) -> None:
    params = w.params
    w.require(params.layout == "NCHW", f"layout {params.layout}")
    attrs = {"kernel_shape": _pair(params.pool_size), "ceil_mode": params.ceil_mode, **_window(w)}
    dilation = _pair(params.dilation)
    if w.op_name == "max_pool2d":
        w.give("MaxPool", w.inputs[0], dilations=dilation, **attrs)
        return
    w.require(dilation == [1, 1] or w.opset >= 19, f"dilation {dilation} before opset 19")
    attrs |= {} if dilation == [1, 1] else {"dilations": dilation}
    w.give("AveragePool", w.inputs[0], count_include_pad=params.count_include_pad, **attrs)


@writes("global_avg_pool2d", "global_max_pool2d")
def global_pool2d(w: Writing) -> None:
    w.require(w.params.layout == "NCHW", f"layout {w.params.layout}")
    average = w.op_name == "global_avg_pool2d"
    w.give("GlobalAveragePool" if average else "GlobalMaxPool", w.inputs[0])


@writes("dense")
def dense(w: Writing) -> None:
    """Gemm takes matrices; data of more axes is multiplied and shifted."""
    if len(w.ins[0].shape) == 2:
        w.give("Gemm", *w.inputs, transB=1)
        return
    weight = w.node("Transpose", w.inputs[1], perm=[1, 0])
    if not w.params.use_bias:
        w.give("MatMul", w.inputs[0], weight)
        return
    w.give("Add", w.node("MatMul", w.inputs[0], weight), w.inputs[2])


@writes("matmul")
def matmul(w: Writing) -> None:
    """The last axis of one with the first of the other; ONNX has it where the other is a matrix."""
    left, right = w.inputs
    if w.params.transpose_a:
        left = w.node("Transpose", left)
    if w.params.transpose_b:
        right = w.node("Transpose", right)
    w.require(len(w.ins[1].shape) == 2, f"a right operand of shape {w.ins[1].shape}")
    w.give("MatMul", left, right)


@writes("batch_matmul")
def batch_matmul(w: Writing) -> None:
    flags = (w.params.transpose_a, w.params.transpose_b)
    sides = [
        _swapped(w, name, len(fact.shape)) if flag else name
        for name, fact, flag in zip(w.inputs, w.ins, flags)
    ]
    w.give("MatMul", *sides)


def _swapped(w: Writing, name: str, rank: int) -> str:
    return w.node("Transpose", name, perm=(*range(rank - 2), rank - 1, rank - 2))


@writes("batch_norm")
def batch_norm(w: Writing) -> None:
    """Channels go to axis 1 and back where they are elsewhere."""
    params, rank = w.params, len(w.ins[0].shape)
    w.require(not params.training, "training")
    data, gamma, beta, mean, var = w.inputs
    size = w.ins[1].shape
    gamma = gamma if params.scale else w.constant(np.ones(size))
    beta = beta if params.center else w.constant(np.zeros(size))
    order = list(range(rank))
    order.insert(1, order.pop(params.axis % rank))
    moved = order != list(range(rank))
    data = w.node("Transpose", data, perm=order) if moved else data
    inputs = (data, gamma, beta, mean, var)
    if not moved:
        w.give("BatchNormalization", *inputs, epsilon=params.epsilon)
        return
    made = w.node("BatchNormalization", *inputs, epsilon=params.epsilon)
    w.give("Transpose", made, perm=[int(axis) for axis in np.argsort(order)])


@writes("layer_norm")
def layer_norm(w: Writing) -> None:
    w.give("LayerNormalization", *w.inputs, axis=w.params.axis, epsilon=w.params.epsilon)


@writes("instance_norm")
def instance_norm(w: Writing) -> None:
    w.give("InstanceNormalization", *w.inputs, epsilon=w.params.epsilon)


@writes("group_norm")
def group_norm(w: Writing) -> None:
    """Groups as the instances of a longer tensor, then a scale and shift for each channel."""
    data, gamma, beta = w.inputs
    shape, groups, count = w.ins[0].shape, w.params.num_groups, len(w.ins[0].shape) - 2
    flat = w.node("Reshape", data, w.ints((shape[0], groups, -1)))
    ones, zeros = w.constant(np.ones(groups)), w.constant(np.zeros(groups))
    made = w.node("InstanceNormalization", flat, ones, zeros, epsilon=w.params.epsilon)
    made = w.node("Reshape", made, w.ints(shape))
    scale, shift = (w.node("Reshape", v, w.ints((-1,) + (1,) * count)) for v in (gamma, beta))
    w.give("Add", w.node("Mul", made, scale), shift)


@writes("lrn")
def local_response_norm(w: Writing) -> None:
    params = w.params
    w.require(params.axis % len(w.ins[0].shape) == 1, f"axis {params.axis}")
    w.give("LRN", w.inputs[0], size=params.size, alpha=params.alpha, beta=params.beta,
           bias=params.bias)  # fmt: skip


@writes("l2_normalize")
def l2_normalize(w: Writing) -> None:
    """x / sqrt(max(sum x^2, eps))"""
    x = w.inputs[0]
    square = w.node("ReduceSum", w.node("Mul", x, x), w.ints(w.params.axis), keepdims=1)
    w.give("Div", x, w.node("Sqrt", w.node("Max", square, w.constant(w.params.eps))))


@writes("scaled_dot_product_attention")
def attention(w: Writing) -> None:
    """softmax(Q K^T scale + mask) V"""
    query, key, value, *mask = w.inputs
    params, size = w.params, w.ins[0].shape[-1]
    w.require(not getattr(params, "is_causal", False), "is_causal")
    scale = getattr(params, "scale", None) or 1 / math.sqrt(size)
    scores = w.node("MatMul", query, _swapped(w, key, len(w.ins[1].shape)))
    scores = w.node("Mul", scores, w.constant(scale))
    scores = w.node("Add", scores, mask[0]) if mask else scores
    w.give("MatMul", w.node("Softmax", scores, axis=-1), value)


_METHODS = {"NEAREST_NEIGHBOR": "nearest", "BILINEAR": "linear"}


@writes("upsampling")
def upsampling(w: Writing) -> None:
    w.require(w.params.layout == "NCHW", f"layout {w.params.layout}")
    scales = w.constant([1, 1, w.params.scale, w.params.scale], FLOAT32)
    w.give("Resize", w.inputs[0], "", scales, mode=_METHODS[w.params.method],
           nearest_mode="floor", coordinate_transformation_mode="asymmetric")  # fmt: skip


@writes("resize")
def resize(w: Writing) -> None:
    params = w.params
    w.require(params.layout == "NCHW", f"layout {params.layout}")
    w.require(not params.scales, "scales of its own")
    coordinates = params.coordinate_mode
    if coordinates == "auto":
        coordinates = "align_corners" if params.align_corners else "asymmetric"
    sizes, mode = w.ints(w.outs[0].shape), _METHODS[params.method]
    w.give("Resize", w.inputs[0], "", "", sizes, mode=mode, nearest_mode=params.nearest_mode,
           coordinate_transformation_mode=coordinates)  # fmt: skip
