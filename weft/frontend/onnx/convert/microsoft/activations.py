"""Activations of transformers, with what is added before them."""

from __future__ import annotations

import math

from .....base.errors import FormatError
from ....building import in_float32
from ....emitter import Value
from ...call import OnnxCall
from .domain import microsoft


@microsoft("Gelu")
def gelu(call: OnnxCall) -> Value:
    return call.op("gelu", call[0])


@microsoft("BiasGelu")
@in_float32
def bias_gelu(call: OnnxCall) -> Value:
    return call.op("gelu", call.op("broadcast_add", call[0], call[1]))


@microsoft("FastGelu")
@in_float32
def fast_gelu(call: OnnxCall) -> Value:
    bias = call.get(1)
    data = call[0] if bias is None else call.op("broadcast_add", call[0], bias)
    return call.op("gelu", data, approximate="tanh")


@microsoft("QuickGelu", alpha=1.702)
@in_float32
def quick_gelu(call: OnnxCall) -> Value:
    """x sigmoid(alpha x)"""
    return call.op("elemwise_mul", call[0], call.op("sigmoid", call.scaled(call[0], call.attr("alpha"))))


@microsoft("BiasSplitGelu")
@in_float32
def bias_split_gelu(call: OnnxCall) -> Value:
    """The first half of the last axis times gelu of the second."""
    biased = call.op("broadcast_add", call[0], call[1])
    size = call.shape(biased)[-1]
    axis = call.rank(biased) - 1
    left, right = (call.sliced(biased, {axis: (i * size // 2, (i + 1) * size // 2, 1)}) for i in range(2))
    return call.op("elemwise_mul", left, call.op("gelu", right))


@microsoft("BiasAdd")
@in_float32
def bias_add(call: OnnxCall) -> Value:
    return call.op("broadcast_add", call.op("broadcast_add", call[0], call[1]), call[2])


@microsoft("BiasSoftmax", axis=1)
@in_float32
def bias_softmax(call: OnnxCall) -> Value:
    """softmax(data + bias) over all axes from `axis` on; of the axes before, the bias has the first ones, or, where the
    inner ones are broadcast, has none of the last."""
    data, bias, shape = call[0], call[1], call.shape(call[0])
    axis = call.axis(call.attr("axis"), data)
    if call.attr("is_inner_broadcast"):
        own = call.shape(bias)
        same = next((i for i, (dim, whole) in enumerate(zip(own, shape)) if dim != whole), axis)
        bias = call.reshape(bias, (*shape[:same], *(1,) * (axis - same), *shape[axis:]))
    total = call.op("broadcast_add", data, bias)
    flat = call.reshape(total, (math.prod(shape[:axis]), math.prod(shape[axis:])))
    return call.reshape(call.op("softmax", flat, axis=-1), shape)


# What is fused behind a product or a convolution.

_PLAIN = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus", "Softsign": "softsign"}


def activated(call: OnnxCall, value: Value, name: str | None, numbers: list[float]) -> Value:
    """The activation that a fused operator names, with its numbers in the order of ONNX's attributes."""
    if not name:
        return value
    if name in _PLAIN:
        return call.op(_PLAIN[name], value)
    alpha, beta = (*numbers, None, None)[:2]
    if name == "LeakyRelu":
        return call.op("leaky_relu", value, alpha=0.01 if alpha is None else alpha)
    if name == "Elu":
        return call.op("elu", value, alpha=1.0 if alpha is None else alpha)
    if name == "HardSigmoid":
        return call.op("hard_sigmoid", value, alpha=0.2 if alpha is None else alpha, beta=0.5 if beta is None else beta)
    if name == "Clip":
        return call.op(
            "clip", value, a_min=-math.inf if alpha is None else alpha, a_max=math.inf if beta is None else beta
        )
    if name == "HardSwish":
        return call.op("hard_swish", value)
    raise FormatError(f"unknown activation {name!r} in {call.op_type}")
