"""Operators on quantised tensors: each dequantises what comes in, computes, and quantises what goes out."""

from __future__ import annotations

from collections.abc import Callable

from .....base.dtype import FLOAT32, DType, as_dtype
from .....base.errors import FormatError
from .....base.shape import numel
from ....emitter import Value
from ....products import matrix_product
from ...call import OnnxCall
from ..windows import average_pool, global_average_pool
from .domain import microsoft
from .fused import channels_first, channels_last


def dequantised(call: OnnxCall, value: Value, scale: Value, zero: Value | None) -> Value:
    """(x - zero point) scale; one of each for all, or one a column."""
    return call.op("broadcast_mul", _centred(call, value, zero), _single(call, scale))


def _centred(call: OnnxCall, value: Value, zero: Value | None) -> Value:
    number = call.cast(value, FLOAT32)
    return number if zero is None else call.op("broadcast_sub", number, call.cast(_single(call, zero), FLOAT32))


def _single(call: OnnxCall, value: Value) -> Value:
    """One number for all without an axis, so that it fits any shape."""
    return call.reshape(value, ()) if call.shape(value) == (1,) else value


def quantised(call: OnnxCall, value: Value, scale: Value, zero: Value | None, like: Value) -> Value:
    """round(x / scale) + zero point, limited to what the dtype holds: that of the zero point, else that of `like`."""
    dtype = call.dtype(like if zero is None else zero)
    level = call.op("round", call.op("broadcast_div", value, _single(call, scale)))
    if zero is not None:
        level = call.op("broadcast_add", level, call.cast(_single(call, zero), FLOAT32))
    low, high = (0, 255) if dtype == as_dtype("uint8") else (-128, 127)
    return call.cast(call.op("clip", level, a_min=low, a_max=high), dtype)


def _read(call: OnnxCall, index: int) -> Value:
    """Three inputs in a row: numbers, their scale and their zero point."""
    return dequantised(call, call[index], call[index + 1], call.get(index + 2))


def _written(call: OnnxCall, value: Value, index: int) -> Value:
    """By the scale and zero point that are inputs from a place on."""
    return quantised(call, value, call[index], call.get(index + 1), call[0])


@microsoft("QLinearAdd")
def add(call: OnnxCall) -> Value:
    return _written(call, call.op("broadcast_add", _read(call, 0), _read(call, 3)), 6)


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


# Products.


@microsoft("MatMulIntegerToFloat")
def matmul_to_float(call: OnnxCall) -> Value:
    """(A - zero point) (B - zero point), times both scales; those of B may be one a column."""
    product = matrix_product(call, _centred(call, call[0], call.get(4)), _centred(call, call[1], call.get(5)))
    scale = call.op("broadcast_mul", _single(call, call[2]), _single(call, call[3]))
    return _biased(call, call.op("broadcast_mul", product, call.cast(scale, FLOAT32)), call.get(6), call.dtype(call[2]))


@microsoft("DynamicQuantizeMatMul")
def matmul_of_levels(call: OnnxCall) -> Value:
    """The same of an A that is quantised by its own range first."""
    level, scale = _levels(call, call.cast(call[0], FLOAT32))
    product = matrix_product(call, level, _centred(call, call[1], call.get(3)))
    scale = call.op("broadcast_mul", scale, call.cast(_single(call, call[2]), FLOAT32))
    return _biased(call, call.op("broadcast_mul", product, scale), call.get(4), call.dtype(call[0]))


def _biased(call: OnnxCall, value: Value, bias: Value | None, dtype: DType) -> Value:
    value = call.cast(value, dtype)
    return value if bias is None else call.op("broadcast_add", value, bias)


def _levels(call: OnnxCall, value: Value) -> tuple[Value, Value]:
    """A tensor as 256 levels between its ends, one of which is 0: the levels less that one, and the scale."""
    zero, one = call.make(0, FLOAT32), call.make(1, FLOAT32)
    axes = tuple(range(call.rank(value)))
    low = call.op("broadcast_min", call.reduced("min", value, axes, keep=False), zero)
    high = call.op("broadcast_max", call.reduced("max", value, axes, keep=False), zero)
    scale = call.op("__div_scalar__", call.op("elemwise_sub", high, low), scalar=255.0)
    flat = call.op("broadcast_equal", scale, zero)
    scale = call.op("broadcast_where", flat, one, scale)
    point = call.op("round", call.op("elemwise_div", call.op("negative", low), scale))
    point = call.op("clip", point, a_min=0, a_max=255)
    level = call.op("broadcast_add", call.op("round", call.op("broadcast_div", value, scale)), point)
    return call.op("broadcast_sub", call.op("clip", level, a_min=0, a_max=255), point), scale


@microsoft("QGemm", alpha=1.0, transA=0, transB=0)
def quantised_gemm(call: OnnxCall) -> Value:
    """alpha A B + C, of which C counts in steps of alpha times both scales; quantised if the result has a scale."""
    a, b = _centred(call, call[0], call.get(2)), _columns(call)
    a = call.transposed(a, (1, 0)) if call.attr("transA") else a
    product, extra = matrix_product(call, a, b), call.get(6)
    product = product if extra is None else call.op("broadcast_add", product, call.cast(extra, FLOAT32))
    scale = call.scaled(call.op("broadcast_mul", _single(call, call[1]), _single(call, call[4])), call.attr("alpha"))
    product, wanted = call.op("broadcast_mul", product, scale), call.get(7)
    return product if wanted is None else quantised(call, product, wanted, call.get(8), call[0])


def _columns(call: OnnxCall) -> Value:
    """B less its zero points, of which there may be one a column."""
    value, zero = call[3], call.get(5)
    value = call.transposed(value, (1, 0)) if call.attr("transB") else value
    return _centred(call, value, zero)
