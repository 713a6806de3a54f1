"""Converters between element types: by value, and by bits."""

from __future__ import annotations

from onnx import TensorProto

from ....base.dtype import FLOAT32, INT32, NAMED_DTYPES, DType, is_complex, is_float
from ....base.errors import FormatError
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter
from ..tensors import dtype_of

_POWERS_OF_TWO = NAMED_DTYPES["float8_e8m0fnu"]
_UINT8 = NAMED_DTYPES["uint8"]
# The largest of floats that need not saturate; narrower ones have no infinity and no NaN to become.
_LARGEST = {
    NAMED_DTYPES[name]: largest
    for name, largest in {
        "float8_e4m3fn": 448.0,
        "float8_e4m3fnuz": 240.0,
        "float8_e5m2": 57344.0,
        "float8_e5m2fnuz": 57344.0,
    }.items()
}


@converter("Cast", since=6)
def cast(call: OnnxCall) -> Value:
    return _converted(call, dtype_of(call.attr("to"), "attribute 'to'"))


@converter("Cast")
def cast_by_name(call: OnnxCall) -> Value:
    """Before opset 6 the type was a word."""
    code = dict(TensorProto.DataType.items()).get(call.attr("to").upper())
    if code is None:
        raise FormatError(f"attribute 'to' = {call.attr('to')!r} is no element type")
    return _converted(call, dtype_of(code, "attribute 'to'"))


@converter("CastLike", since=15)
def cast_like(call: OnnxCall) -> Value:
    return _converted(call, call.dtype(call[1]))


@converter("BitCast", since=26)
def bit_cast(call: OnnxCall) -> Value:
    dtype = dtype_of(call.attr("to"), "attribute 'to'")
    return call[0] if call.dtype(call[0]) == dtype else call.op("bitcast", call[0], dtype=dtype)


def _converted(call: OnnxCall, dtype: DType) -> Value:
    saturate, mode = bool(call.attr("saturate", 1)), call.attr("round_mode", "up")
    if dtype == _POWERS_OF_TWO and call.dtype(call[0]) != dtype:
        return _power_of_two(call, call[0], mode, saturate)
    return narrowed(call, call[0], dtype, saturate)


def narrowed(call: OnnxCall, value: Value, dtype: DType, saturate: bool = True) -> Value:
    """The value in another dtype; numbers beyond the largest float of 8 bits, infinity too, become that one if it
    `saturates`, else infinity or NaN."""
    source = call.dtype(value)
    if not saturate or dtype not in _LARGEST or source == dtype or is_complex(source):
        return call.cast(value, dtype)
    wide = value if is_float(source) else call.cast(value, FLOAT32)
    return call.cast(call.op("clip", wide, a_min=-_LARGEST[dtype], a_max=_LARGEST[dtype]), dtype)


def _power_of_two(call: OnnxCall, value: Value, mode: str, saturate: bool) -> Value:
    """The exponent of a float32, one more where its fraction is rounded up; 255 is NaN, as is infinity."""
    bits = call.op("bitcast", call.cast(value, FLOAT32), dtype=INT32)
    exponent = _masked(call, call.op("broadcast_right_shift", bits, call.make(23, INT32)), 0xFF)
    fraction = _masked(call, bits, 0x7FFFFF)
    if mode == "down":
        rounded = exponent
    elif mode in ("up", "nearest"):
        limit = call.make(0 if mode == "up" else 0x3FFFFF, INT32)  # a half goes up
        more = call.cast(call.op("broadcast_greater", fraction, limit), INT32)
        rounded = call.op("broadcast_add", exponent, more)
        if mode == "nearest":  # but not from 0, which has no power of two
            half = call.cast(call.op("broadcast_equal", fraction, call.make(0x400000, INT32)), INT32)
            zero = call.cast(call.op("broadcast_equal", exponent, call.make(0, INT32)), INT32)
            rounded = call.op("broadcast_sub", rounded, call.op("broadcast_mul", half, zero))
    else:
        raise FormatError(f"round_mode {mode!r}", why="it is up, down or nearest")
    largest = call.op("broadcast_max", exponent, call.make(254, INT32)) if saturate else call.make(255, INT32)
    code = call.cast(call.op("broadcast_min", rounded, largest), _UINT8)
    return call.op("bitcast", code, dtype=_POWERS_OF_TWO)


def _masked(call: OnnxCall, value: Value, mask: int) -> Value:
    return call.op("bitwise_and", value, call.make(mask, INT32))
