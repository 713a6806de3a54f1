"""Converters between numbers and their quantised form: a scale and a zero point stand for them."""

from __future__ import annotations

import numpy as np

from ....base.dtype import FLOAT32, DType, as_dtype, is_integer
from ....base.errors import Unsupported
from ....base.shape import normalize_axis
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter
from ..tensors import dtype_of


@converter("DequantizeLinear", since=10)
def dequantize(call: OnnxCall) -> Value:
    """(x - zero point) scale, computed in float32, in the dtype of the scale."""
    dtype, zero = call.dtype(call[1]), call.get(2)
    scale = call.cast(_along_axis(call, call[1]), FLOAT32)
    number = call.cast(call[0], FLOAT32)
    if zero is not None:
        number = call.op("broadcast_sub", number, call.cast(_along_axis(call, zero), FLOAT32))
    _refuse_blocks(call)
    return call.cast(call.op("broadcast_mul", number, scale), dtype)


@converter("QuantizeLinear", since=10)
def quantize(call: OnnxCall) -> Value:
    """round(x / scale) + zero point, limited to what the dtype holds."""
    scale, zero = call[1], call.get(2)
    dtype = _quantised_dtype(call, zero)
    level = call.op("broadcast_div", call[0], _along_axis(call, scale))
    level = call.op("round", level)
    if zero is not None:
        shift = call.cast(_along_axis(call, zero), call.dtype(level))
        level = call.op("broadcast_add", level, shift)
    _refuse_blocks(call)
    limits = np.iinfo(dtype)
    return call.cast(call.op("clip", level, a_min=limits.min, a_max=limits.max), dtype)


def _quantised_dtype(call: OnnxCall, zero: Value | None) -> DType:
    code = call.attr("output_dtype", 0)
    default = as_dtype("uint8") if zero is None else call.dtype(zero)
    dtype = dtype_of(code, "attribute 'output_dtype'") if code else default
    if not is_integer(dtype) or dtype.itemsize > 2:
        raise Unsupported(f"QuantizeLinear to {dtype} is not supported")
    return dtype


def _along_axis(call: OnnxCall, value: Value) -> Value:
    """One number for all, or one for each place along the axis."""
    axis = call.attr("axis", 1)
    if call.rank(value) == 0:
        return value
    if call.shape(value) == (1,):
        return call.reshape(value, ())
    if call.rank(value) > 1:
        raise Unsupported(f"{call.op_type} in blocks is not supported")
    after = call.rank(call[0]) - 1 - normalize_axis(axis, call.rank(call[0]))
    return call.reshape(value, (*call.shape(value), *(1,) * after))


def _refuse_blocks(call: OnnxCall) -> None:
    call.ignore("saturate", "precision")
    if call.attr("block_size", 0):
        raise Unsupported(f"{call.op_type} in blocks is not supported")
