"""Converters of quantised models: levels with a scale and a zero point in place of numbers, and integer products."""

from __future__ import annotations

from math import inf, prod

import numpy as np

from ....base.dtype import DTYPES, FLOAT32, INT32, STORED_DTYPES, DType, is_float, is_stored
from ....base.errors import FormatError, Unsupported
from ....base.shape import normalize_axis
from ...building import NARROW
from ...emitter import Value
from ...products import matrix_product
from ..call import OnnxCall
from ..registry import converter
from ..tensors import dtype_of
from .casts import narrowed
from .windows import windows_of

UINT8, INT8 = DTYPES["uint8"], DTYPES["int8"]
_LEVELS = {
    STORED_DTYPES[name]: limits
    for name, limits in {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}.items()
}
_BYTE_OF = {dtype: INT8 if low else UINT8 for dtype, (low, _) in _LEVELS.items()}


# Numbers to levels and back.


@converter("DequantizeLinear", since=10)
def dequantize(call: OnnxCall) -> Value:
    """(x - zero point) scale, computed in float32."""
    dtype = _given_dtype(call, "output_dtype") or call.dtype(call[1])
    if is_stored(call.dtype(call[0])) and call.dtype(call[0]) not in _BYTE_OF:
        return call.cast(_from_floats(call), dtype)
    zero = call.get(2)
    data, zero = _signed(call, _in_bytes(call, call[0]), zero and _in_bytes(call, zero))
    zeros = [] if zero is None else [one_number(call, zero)]
    scale = one_number(call, call[1] if dtype == call.dtype(call[1]) else call.cast(call[1], FLOAT32))
    number = call.op("dequantize", data, scale, *zeros, use_zero=bool(zeros), **_granularity(call))
    return call.cast(number, dtype)


@converter("QuantizeLinear", since=10)
def quantize(call: OnnxCall) -> Value:
    """round(x / scale) + zero point, limited to what the dtype holds."""
    saturate = bool(call.attr("saturate", 1))
    precision = _given_dtype(call, "precision") or call.dtype(call[1])
    precision = precision if is_float(precision) else FLOAT32
    data, scale = (call.cast(call[i], precision) for i in (0, 1))
    zero, dtype = call.get(2), _given_dtype(call, "output_dtype")
    if zero is None:
        zero = call.make(0, dtype or UINT8)
    elif dtype is not None and dtype != call.dtype(zero):
        raise FormatError(f"a zero point of {call.dtype(zero)}, and output_dtype is {dtype}")
    if is_stored(call.dtype(zero)):
        return _to_narrow(call, data, scale, zero, saturate)
    return call.op("quantize", data, one_number(call, scale), one_number(call, zero), **_granularity(call))


@converter("DynamicQuantizeLinear", since=11)
def dynamic_quantize(call: OnnxCall) -> list[Value]:
    return dynamic_levels(call, call[0])


def dynamic_levels(call: OnnxCall, data: Value) -> list[Value]:
    """The levels 0 to 255 over the range of the data, which is made to hold 0; where all of it is 0, the scale is 1.
    The scale and the zero point follow."""
    every = range(call.rank(data))
    low = call.op("clip", call.reduced("min", data, every, False), a_min=-inf, a_max=0)
    high = call.op("clip", call.reduced("max", data, every, False), a_min=0, a_max=inf)
    spread = call.op("broadcast_sub", high, low)
    scale = call.op("__div_scalar__", spread, scalar=255.0)
    scale = call.where(call.op("broadcast_equal", spread, call.make(0, FLOAT32)), call.make(1, FLOAT32), scale)
    start = call.op("broadcast_div", call.op("negative", low), scale)
    zero = call.cast(call.op("round", call.op("clip", start, a_min=0, a_max=255)), UINT8)
    return [call.op("quantize", data, scale, zero), scale, zero]


# Levels of less than a byte, and floats in one: kernels see those as bytes, and these as float32.


def _in_bytes(call: OnnxCall, value: Value) -> Value:
    """Levels of 2 and 4 bits as levels of 8, which have all of theirs."""
    byte = _BYTE_OF.get(call.dtype(value))
    if byte is None:
        return value
    return call.cast(value, byte) if value.constant is None else call.make(value.constant.astype(byte))


def _from_floats(call: OnnxCall) -> Value:
    data, zero = call.cast(call[0], FLOAT32), call.get(2)
    if zero is not None:
        data = call.op("broadcast_sub", data, _beside(call, call.cast(zero, FLOAT32)))
    return call.op("broadcast_mul", data, _beside(call, call.cast(call[1], FLOAT32)))


def _to_narrow(call: OnnxCall, data: Value, scale: Value, zero: Value, saturate: bool) -> Value:
    dtype = call.dtype(zero)
    number = call.op("broadcast_div", data, _beside(call, scale))
    beside = _beside(call, call.cast(zero, call.dtype(data)))
    if dtype not in _BYTE_OF:
        return narrowed(call, call.op("broadcast_add", number, beside), dtype, saturate)
    level = call.op("broadcast_add", call.op("round", number), beside)
    low, high = _LEVELS[dtype]
    return call.cast(call.cast(call.op("clip", level, a_min=low, a_max=high), _BYTE_OF[dtype]), dtype)


def _beside(call: OnnxCall, value: Value) -> Value:
    """One number for all of the data, one for each place along its axis, or one for each block of places."""
    shape = call.shape(call[0])
    granularity = _granularity(call)
    axis, block = normalize_axis(granularity["axis"], max(len(shape), 1)), granularity["block_size"]
    if prod(call.shape(value)) == 1:
        return call.reshape(value, ())
    if not block:
        return call.reshape(value, [extent if place == axis else 1 for place, extent in enumerate(shape)])
    spread = call.op("repeat", value, repeats=block, axis=axis)
    return call.sliced(spread, {axis: (0, shape[axis], 1)})


def _given_dtype(call: OnnxCall, name: str) -> DType | None:
    code = call.attr(name, 0)
    return dtype_of(code, f"attribute {name!r}") if code else None


def _granularity(call: OnnxCall) -> dict[str, int]:
    """How scales lie along the data. Data of one axis has but that one."""
    axis = call.attr("axis", 1)
    return {"axis": 0 if call.rank(call[0]) == 1 else axis, "block_size": call.attr("block_size", 0)}


def one_number(call: OnnxCall, value: Value) -> Value:
    """A tensor of one element, whatever its rank, as a number."""
    return call.reshape(value, ()) if prod(call.shape(value)) == 1 else value


def _signed(call: OnnxCall, data: Value, zero: Value | None) -> tuple[Value, Value | None]:
    """Levels and their zero point; of constants None, where it is 0. Constant uint8 levels around 128 are int8 levels
    around 0: weights of that kind need no correction of sums."""
    known = None if zero is None else zero.constant
    if data.constant is None:
        return data, zero
    if known is not None and data.dtype == UINT8 and (known == 128).all():
        data, zero = call.make((data.constant ^ 128).view(np.int8)), None
    elif known is not None and not known.any():
        zero = None
    return _parameter(call, data), zero


def _parameter(call: OnnxCall, value: Value) -> Value:
    """A constant with axes as a parameter: were it computed with at once, nobody could see that it is quantised."""
    if call.rank(value) == 0:
        return value
    return Value(value.name, value.fact, call.emitter.symbol(value))


# Sums of products of levels.


@converter("ConvInteger", since=10)
def conv_integer(call: OnnxCall) -> Value:
    return _convolution(call, call[0], call[1], call.get(2), call.get(3))


@converter("QLinearConv", since=10)
def qlinear_conv(call: OnnxCall) -> Value:
    sums = _convolution(call, call[0], call[3], call[2], call[5])
    rank, bias = call.rank(call[0]), call.get(8)
    if bias is not None:
        sums = call.op("broadcast_add", sums, _along_channels(call, bias, rank))
    scales = [_along_channels(call, call[i], rank) for i in (1, 4, 6)]
    return _requantized(call, sums, scales, _along_channels(call, call[7], rank))


def _convolution(call: OnnxCall, data: Value, weight: Value, data_zero: Value | None, zero: Value | None) -> Value:
    kernel = call.shape(weight)[2:]
    if tuple(call.attr("kernel_shape") or kernel) != kernel:
        raise FormatError(f"kernel_shape {call.attr('kernel_shape')} for a weight of shape {call.shape(weight)}")
    windows = windows_of(call, kernel)
    weight, weight_zero = _signed(call, weight, zero)
    zeros = [one_number(call, value) for value in (data_zero, weight_zero) if value is not None]
    return call.op(
        "integer_conv",
        data,
        weight,
        *zeros,
        use_data_zero=data_zero is not None,
        use_weight_zero=weight_zero is not None,
        channels=call.shape(weight)[0],
        kernel_size=windows.kernel,
        strides=windows.strides,
        padding=windows.pads,
        dilation=windows.dilation,
        groups=call.attr("group"),
    )


def _along_channels(call: OnnxCall, value: Value, rank: int) -> Value:
    """One number, or one for each channel of data of some rank."""
    value = one_number(call, value)
    return call.reshape(value, (*call.shape(value), *(1,) * (rank - 2))) if call.rank(value) else value


@converter("MatMulInteger", since=10)
def matmul_integer(call: OnnxCall) -> Value:
    return integer_product(call, call[0], call[1], call.get(2), call.get(3))


@converter("QLinearMatMul", since=10)
def qlinear_matmul(call: OnnxCall) -> Value:
    if any(is_stored(call.dtype(call[i])) for i in (0, 3, 7)):
        return _product_of_floats(call)
    sums = integer_product(call, call[0], call[3], call[2], call[5])
    if not call.rank(sums):
        return _requantized(call, sums, [one_number(call, call[i]) for i in (1, 4, 6)], one_number(call, call[7]))
    columns = call.rank(call[3]) > 1
    scales = [_along_rows(call, call[1], columns), one_number(call, call[4]), _along_rows(call, call[6], columns)]
    return _requantized(call, sums, scales, _along_rows(call, call[7], columns))


def _product_of_floats(call: OnnxCall) -> Value:
    """Floats of 8 bits in float32, and the result as one of them."""
    columns, dtype = call.rank(call[3]) > 1, call.dtype(call[7])
    if not is_stored(dtype):
        raise Unsupported(f"QLinearMatMul of floats of 8 bits to {dtype}")
    a = _number(call, call[0], *(_along_rows(call, call[i], True) for i in (1, 2)))
    b = _number(call, call[3], *(one_number(call, call[i]) for i in (4, 5)))
    scale, zero = (call.cast(_along_rows(call, call[i], columns), FLOAT32) for i in (6, 7))
    quotient = call.op("broadcast_div", matrix_product(call, a, b), scale)
    return narrowed(call, call.op("broadcast_add", quotient, zero), dtype)


def _number(call: OnnxCall, data: Value, scale: Value, zero: Value) -> Value:
    """What a float of 8 bits stands for."""
    number = call.op("broadcast_sub", *(call.cast(value, FLOAT32) for value in (data, zero)))
    return call.op("broadcast_mul", number, call.cast(scale, FLOAT32))


def integer_product(call: OnnxCall, a: Value, b: Value, a_zero: Value | None, zero: Value | None) -> Value:
    """numpy's product of matrices: a vector is a row on the left, a column on the right, and its axis is gone
    afterwards."""
    row, column = call.rank(a) == 1, call.rank(b) == 1
    b, b_zero = _signed(call, b, zero)
    zeros = [] if a_zero is None else [_along_rows(call, a_zero, True)]
    zeros += [] if b_zero is None else [one_number(call, b_zero)]
    a = call.op("expand_dims", a, axis=0) if row else a
    b = call.op("expand_dims", b, axis=1) if column else b
    sums = call.op("integer_matmul", a, b, *zeros, use_data_zero=a_zero is not None, use_weight_zero=b_zero is not None)
    if not row and not column:
        return sums
    *batch, rows, columns = call.dims(sums)
    return call.reshape(sums, [*batch, *([] if row else [rows]), *([] if column else [columns])])


def _along_rows(call: OnnxCall, value: Value, columns: bool) -> Value:
    """One number, or one for each row of a product, which may have no axis of columns."""
    value = one_number(call, value)
    return call.reshape(value, (*call.shape(value), 1)) if call.rank(value) == 1 and columns else value


def _requantized(call: OnnxCall, sums: Value, scales: list[Value], zero: Value) -> Value:
    """Levels of a third scale, from sums of products of levels of two others."""
    a, b, y = (call.cast(scale, FLOAT32) if scale.dtype in NARROW else scale for scale in scales)
    multiplier = call.op("broadcast_div", call.op("broadcast_mul", a, b), y)
    return call.op("requantize", call.cast(sums, INT32), multiplier, zero)
