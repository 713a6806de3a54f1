"""Operators on quantised tensors: each dequantises what comes in, computes, and quantises what goes out; products sum
integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .....base.dtype import FLOAT32, INT32
from .....base.errors import FormatError
from .....base.shape import numel
from ....emitter import Value
from ...call import OnnxCall
from ..quantized import dynamic_levels, integer_product, one_number, qlinear_conv
from ..windows import average_pool, global_average_pool
from .domain import microsoft
from .fused import channels_first, channels_last


def dequantised(call: OnnxCall, value: Value, scale: Value, zero: Value | None) -> Value:
    """(x - zero point) scale"""
    zeros = [] if zero is None else [one_number(call, zero)]
    return call.op("dequantize", value, one_number(call, scale), *zeros, use_zero=bool(zeros))


def quantised(call: OnnxCall, value: Value, scale: Value, zero: Value | None, like: Value) -> Value:
    """round(x / scale) + zero point, in the dtype of the zero point, else in that of `like`."""
    point = call.make(0, call.dtype(like)) if zero is None else one_number(call, zero)
    return call.op("quantize", value, one_number(call, scale), point)


def _read(call: OnnxCall, index: int) -> Value:
    """Three inputs in a row: numbers, their scale and their zero point."""
    return dequantised(call, call[index], call[index + 1], call.get(index + 2))


def _written(call: OnnxCall, value: Value, index: int) -> Value:
    """By the scale and zero point that are inputs from a place on."""
    return quantised(call, value, call[index], call.get(index + 1), call[0])


@microsoft("QLinearAdd")
def add(call: OnnxCall) -> Value:
    """a A + b B + rest, rounded to a level at the end, with the zero point in it: a and b are the ratios of scales."""
    dtype, target = call.dtype(call[0]), one_number(call, call[6])
    rest = _number(call, call.get(7))
    terms = []
    for index in (0, 3):
        ratio = call.op("broadcast_div", one_number(call, call[index + 1]), target)
        zero = _number(call, call.get(index + 2))
        rest = call.op("broadcast_sub", rest, call.op("broadcast_mul", ratio, zero))
        terms.append(call.op("broadcast_mul", call.cast(call[index], FLOAT32), ratio))
    level = call.op("broadcast_add", terms[0], call.op("broadcast_add", terms[1], rest))
    limits = np.iinfo(dtype)
    return call.cast(call.op("clip", call.op("round", level), a_min=limits.min, a_max=limits.max), dtype)


def _number(call: OnnxCall, level: Value | None) -> Value:
    """A zero point as a number, which is 0 where it is left out."""
    return call.make(0, FLOAT32) if level is None else call.cast(one_number(call, level), FLOAT32)


@microsoft("QLinearMul")
def multiply(call: OnnxCall) -> Value:
    return _written(call, call.op("broadcast_mul", _read(call, 0), _read(call, 3)), 6)


@microsoft("QLinearSigmoid")
def sigmoid(call: OnnxCall) -> Value:
    return _written(call, call.op("sigmoid", _read(call, 0)), 3)


@microsoft("QLinearLeakyRelu", alpha=0.01)
def leaky_relu(call: OnnxCall) -> Value:
    return _written(call, call.op("leaky_relu", _read(call, 0), alpha=call.attr("alpha")), 3)


@microsoft("QLinearSoftmax", axis=-1)
def softmax(call: OnnxCall) -> Value:
    """Along one axis, or, of a Softmax before opset 13, over all from the axis on."""
    number, axis = _read(call, 0), call.axis(call.attr("axis"), call[0])
    if call.attr("opset") >= 13:
        return _written(call, call.op("softmax", number, axis=axis), 3)
    shape = call.shape(number)
    flat = call.reshape(number, (numel(shape[:axis]), numel(shape[axis:])))
    return _written(call, call.reshape(call.op("softmax", flat, axis=1), shape), 3)


@microsoft("QLinearConcat")
def concatenate(call: OnnxCall) -> Value:
    """The scale and zero point of the result come first."""
    if (len(call.inputs) - 2) % 3:
        raise FormatError(f"{len(call.inputs)} inputs, which are not two and then three for each part")
    parts = [_read(call, index) for index in range(2, len(call.inputs), 3)]
    return quantised(call, call.joined(parts, call.axis(call.attr("axis"), parts[0])), call[0], call[1], call[2])


@microsoft("QLinearWhere")
def where(call: OnnxCall) -> Value:
    chosen = call.op("broadcast_where", call[0], _read(call, 1), _read(call, 4))
    return quantised(call, chosen, call[7], call[8], call[1])


@microsoft("QLinearReduceMean", keepdims=1)
def reduce_mean(call: OnnxCall) -> Value:
    axes = call.axes(call.attr("axes"), call[0])
    return _written(call, call.reduced("mean", _read(call, 0), axes, bool(call.attr("keepdims"))), 3)


@microsoft("QLinearAveragePool", auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, channels_last=0)
def quantised_average_pool(call: OnnxCall) -> Value:
    return _written(call, _pooled(call, average_pool), 3)


@microsoft("QLinearGlobalAveragePool", channels_last=0)
def quantised_global_average_pool(call: OnnxCall) -> Value:
    return _written(call, _pooled(call, global_average_pool), 3)


def _pooled(call: OnnxCall, pool: Callable[[OnnxCall], Value]) -> Value:
    """A pool of the numbers that the first three inputs stand for, in either layout."""
    first, last = call[0], call.attr("channels_last")
    number = _read(call, 0)
    call.inputs[0] = channels_first(call, number) if last else number
    outcome = pool(call)
    call.inputs[0] = first
    return channels_last(call, outcome) if last else outcome


# Integers.


@microsoft("MulInteger")
def multiply_integers(call: OnnxCall) -> Value:
    """(A - zero point) (B - zero point) in int32."""
    parts = []
    for value, zero in ((call[0], call.get(1)), (call[2], call.get(3))):
        number = call.cast(value, INT32)
        parts.append(number if zero is None else call.op("broadcast_sub", number, call.cast(zero, INT32)))
    return call.op("broadcast_mul", *parts)


@microsoft("ReduceSumInteger", keepdims=1)
def reduce_sum_integer(call: OnnxCall) -> Value:
    axes = call.axes(call.attr("axes"), call[0])
    return call.reduced("sum", call.cast(call[0], INT32), axes, bool(call.attr("keepdims")))


@microsoft("QLinearConv", group=1, auto_pad="NOTSET", channels_last=0)
def quantised_conv(call: OnnxCall) -> Value:
    """ONNX's operator in either layout."""
    if not call.attr("channels_last"):
        return qlinear_conv(call)
    call.inputs[0] = channels_first(call, call[0])
    return channels_last(call, qlinear_conv(call))


# Products.


@microsoft("MatMulIntegerToFloat")
def matmul_to_float(call: OnnxCall) -> Value:
    """(A - zero point) (B - zero point), times both scales; those of B may be one a column."""
    product = scaled_product(call, (call[0], call[2], call.get(4)), (call[1], call[3], call.get(5)))
    return _biased(call, call.cast(product, call.dtype(call[2])), call.get(6))


@microsoft("DynamicQuantizeMatMul")
def matmul_of_levels(call: OnnxCall) -> Value:
    """The same of an A that is quantised by its own range first."""
    level, scale, zero = dynamic_levels(call, call.cast(call[0], FLOAT32))
    product = scaled_product(call, (level, scale, zero), (call[1], call[2], call.get(3)))
    return _biased(call, call.cast(product, call.dtype(call[0])), call.get(4))


Levels = tuple[Value, Value, Value | None]  # with their scale and zero point


def scaled_product(call: OnnxCall, a: Levels, b: Levels) -> Value:
    """The product of the numbers that levels stand for, of which the sums are integers."""
    sums = integer_product(call, a[0], b[0], a[2], b[2])
    scales = (call.cast(one_number(call, scale), FLOAT32) for scale in (a[1], b[1]))
    return call.op("broadcast_mul", call.cast(sums, FLOAT32), call.op("broadcast_mul", *scales))


def _biased(call: OnnxCall, value: Value, bias: Value | None) -> Value:
    return value if bias is None else call.op("broadcast_add", value, bias)


@microsoft("QGemm", alpha=1.0, transA=0, transB=0)
def quantised_gemm(call: OnnxCall) -> Value:
    """alpha A B + C, of which C counts in steps of alpha times both scales; quantised if the result has a scale."""
    a, b = (
        call.transposed(call[i], (1, 0)) if call.attr(f"trans{side}") else call[i] for i, side in ((0, "A"), (3, "B"))
    )
    sums = _biased(call, integer_product(call, a, b, call.get(2), call.get(5)), call.get(6))
    scale = call.op("broadcast_mul", one_number(call, call[1]), one_number(call, call[4]))
    product, wanted = (
        call.op("broadcast_mul", call.cast(sums, FLOAT32), call.scaled(scale, call.attr("alpha"))),
        call.get(7),
    )
    return product if wanted is None else quantised(call, product, wanted, call.get(8), call[0])
