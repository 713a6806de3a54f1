"""Converters of arithmetic, comparisons, logic and activations: element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np

from ....base.dtype import BOOL, is_float
from ....base.errors import FormatError
from ....base.shape import numel
from ...building import in_float32
from ...elements import COMPARISONS, LOGIC, quotient, two_slopes
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter


@converter("Identity")
def identity(call: OnnxCall) -> Value:
    return call[0]


# Before opset 7 the second operand had its place beside the first one said.


def _placed(convert: Callable[[OnnxCall], Value]) -> Callable[[OnnxCall], Value]:
    """The converter for operands of which the second stands along axes of the first, from `axis` on."""

    def placed(call: OnnxCall) -> Value:
        axis = call.attr("axis")
        if call.attr("broadcast") and axis is not None:
            shape = call.shape(call[1])
            behind = call.rank(call[0]) - call.axis(axis, call[0]) - len(shape)
            call.inputs[1] = call.reshape(call[1], (*shape, *(1,) * max(behind, 0)))
        return convert(call)

    return placed


def _of_two(name: str, convert: Callable[[OnnxCall], Value]) -> None:
    """Registers a converter of two operands that broadcast."""
    converter(name, since=7)(convert)
    converter(name)(_placed(convert))


# Arithmetic. A number beside a tensor becomes an attribute.


def _number_beside(number: Value, other: Value) -> float | None:
    """The one element of a constant that does not change the other operand's rank."""
    data = number.constant
    if data is None or data.size != 1 or other.constant is not None:
        return None
    if other.rank is None or data.ndim > other.rank or data.dtype.kind not in "fiu":
        return None
    value: float = data.reshape(()).item()
    return value if is_float(data.dtype) or abs(value) < 2**53 else None


def _arithmetic(op: str, left: str, right: str) -> Callable[[OnnxCall], Value]:
    """An operator of two tensors; `left` is its scalar form with the number on the left."""

    def convert(call: OnnxCall) -> Value:
        a, b = call[0], call[1]
        number = _number_beside(b, a)
        if number is not None:
            return call.op(right, a, scalar=number)
        number = _number_beside(a, b)
        if number is not None:
            return call.op(left, b, scalar=number)
        return call.op(op, a, b)

    return convert


for _name, _op, _left, _right in (
    ("Add", "broadcast_add", "__add_scalar__", "__add_scalar__"),
    ("Sub", "broadcast_sub", "__rsub_scalar__", "__sub_scalar__"),
    ("Mul", "broadcast_mul", "__mul_scalar__", "__mul_scalar__"),
):
    _of_two(_name, _arithmetic(_op, _left, _right))


def divide(call: OnnxCall) -> Value:
    if is_float(call.dtype(call[0])):
        return _arithmetic("broadcast_div", "__rdiv_scalar__", "__div_scalar__")(call)
    return quotient(call, call[0], call[1])


def power(call: OnnxCall) -> Value:
    """The result has the base's dtype, whatever the exponent's is."""
    base, exponent = call[0], call[1]
    if exponent.constant is not None and exponent.constant.size == 1 and is_float(call.dtype(base)):
        number = _number_beside(exponent, base)
        if number is not None:
            return _power_of(call, base, number)
    if call.dtype(base) == call.dtype(exponent):
        return call.op("broadcast_pow", base, exponent)
    wide = np.result_type(call.dtype(base), call.dtype(exponent))
    return call.cast(call.op("broadcast_pow", call.cast(base, wide), call.cast(exponent, wide)), call.dtype(base))


_of_two("Div", divide)
_of_two("Pow", power)


def _power_of(call: OnnxCall, base: Value, exponent: float) -> Value:
    if exponent == 2:
        return call.square(base)
    if exponent == 0.5:
        return call.op("sqrt", base)
    return call.op("__pow_scalar__", base, scalar=exponent)


@converter("Mod", since=10)
def modulo(call: OnnxCall) -> Value:
    """fmod=0 takes the sign of the divisor, fmod=1 that of the dividend."""
    return call.op("fmod" if call.attr("fmod") else "broadcast_mod", call[0], call[1])


@converter("Max", "Min")
def extreme_of_all(call: OnnxCall) -> Value:
    return _all_together(call, {"Max": "broadcast_max", "Min": "broadcast_min"}[call.op_type])


@converter("Sum", "Mean")
@in_float32
def sum_of_all(call: OnnxCall) -> Value:
    total = _all_together(call, "broadcast_add")
    return total if call.op_type == "Sum" else call.op("__div_scalar__", total, scalar=float(len(call.inputs)))


def _all_together(call: OnnxCall, op: str) -> Value:
    """Any number of tensors that broadcast together."""
    return reduce(lambda a, b: call.op(op, a, b), call.all())


@converter("BitShift", since=11)
def bit_shift(call: OnnxCall) -> Value:
    side = {"LEFT": "broadcast_left_shift", "RIGHT": "broadcast_right_shift"}
    return call.op(side[call.attr("direction")], call[0], call[1])


# Comparisons and logic: bool tensors.


def _masked(op: str) -> Callable[[OnnxCall], Value]:
    return lambda call: call.cast(call.op(op, *call.all()), BOOL)


for _name, _op in {
    "Equal": COMPARISONS["equal"],
    "Greater": COMPARISONS["greater"],
    "Less": COMPARISONS["less"],
    "And": LOGIC["and"],
    "Or": LOGIC["or"],
    "Xor": LOGIC["xor"],
}.items():
    _of_two(_name, _masked(_op))

for _name, _op in {
    "GreaterOrEqual": COMPARISONS["greater_equal"],
    "LessOrEqual": COMPARISONS["less_equal"],
    "Not": "logical_not",
    "IsNaN": "isnan",
}.items():
    converter(_name)(_masked(_op))


@converter("IsInf", since=10)
def is_inf(call: OnnxCall) -> Value:
    """|x| = inf, or one of its signs."""
    value = call[0]
    if call.attr("detect_negative") and call.attr("detect_positive"):
        value = call.op("abs", value)
    elif not call.attr("detect_positive"):
        value = call.op("negative", value)
    neither = not (call.attr("detect_negative") or call.attr("detect_positive"))
    sought = call.make(np.nan if neither else np.inf, call.dtype(call[0]))  # NaN equals nothing
    return call.cast(call.op("broadcast_equal", value, sought), BOOL)


@converter("Where", since=9)
def where(call: OnnxCall) -> Value:
    return call.where(call[0], call[1], call[2])


# Activations.


@converter("Clip")
def clip_by_attributes(call: OnnxCall) -> Value:
    return call.op("clip", call[0], a_min=call.attr("min", -math.inf), a_max=call.attr("max", math.inf))


@converter("Clip", since=11)
def clip(call: OnnxCall) -> Value:
    """min(max(x, low), high); numbers that are known and fit an attribute exactly become one."""
    value, low, high = call[0], call.get(1), call.get(2)
    bounds = [bound for bound in (low, high) if bound is not None]
    if not bounds:
        return value
    if is_float(call.dtype(value)) and all(bound.constant is not None for bound in bounds):
        a_min, a_max = (infinity if b is None else _one(b) for b, infinity in ((low, -math.inf), (high, math.inf)))
        return call.op("clip", value, a_min=a_min, a_max=a_max)
    value = value if low is None else call.op("broadcast_max", value, low)
    return value if high is None else call.op("broadcast_min", value, high)


def _one(bound: Value) -> float:
    assert bound.constant is not None
    if bound.constant.size != 1:
        raise FormatError(f"a bound of {bound.constant.size} numbers")
    return float(bound.constant.reshape(()))


@converter("LeakyRelu")
def leaky_relu(call: OnnxCall) -> Value:
    return two_slopes(call, call[0], call.attr("alpha"))


@converter("PRelu")
def prelu_of_channels(call: OnnxCall) -> Value:
    """Before opset 7: one slope, or one a channel."""
    slopes, behind = call.shape(call[1]), max(call.rank(call[0]) - 2, 0)
    if numel(slopes) > 1:
        call.inputs[1] = call.reshape(call[1], (numel(slopes), *(1,) * behind))
    return prelu(call)


@converter("PRelu", since=7)
def prelu(call: OnnxCall) -> Value:
    """One slope a channel is prelu; other slopes broadcast."""
    data, slope = call[0], call[1]
    dims = call.dims(data)
    is_channels = len(dims) > 1 and slope.shape == (dims[1],) + (1,) * (len(dims) - 2)
    if is_channels and is_float(call.dtype(data)):
        return call.op("prelu", data, call.reshape(slope, call.shape(slope)[:1]))
    return two_slopes(call, data, slope)


@converter("ThresholdedRelu", since=10)
def thresholded_relu(call: OnnxCall) -> Value:
    """x where x > alpha, else 0."""
    limit = call.make(call.attr("alpha"), call.dtype(call[0]))
    above = call.op("broadcast_greater", call[0], limit)
    return call.op("where", above, call[0], call.op("zeros_like", call[0]))


@converter("Selu")
@in_float32
def selu(call: OnnxCall) -> Value:
    """gamma elu(x, alpha)"""
    inner = call.op("elu", call[0], alpha=call.attr("alpha"))
    return call.scaled(inner, call.attr("gamma"))


@converter("Celu", since=12)
@in_float32
def celu(call: OnnxCall) -> Value:
    """alpha elu(x / alpha, 1)"""
    alpha = call.attr("alpha")
    inner = call.op("elu", call.op("__div_scalar__", call[0], scalar=alpha), alpha=1.0)
    return call.scaled(inner, alpha)


@converter("Swish", since=24)
@in_float32
def swish(call: OnnxCall) -> Value:
    """x sigmoid(alpha x)"""
    alpha = call.attr("alpha")
    if alpha == 1:
        return call.op("silu", call[0])
    inner = call.op("sigmoid", call.scaled(call[0], alpha))
    return call.op("elemwise_mul", call[0], inner)


@converter("Shrink", since=9)
@in_float32
def shrink(call: OnnxCall) -> Value:
    """x + bias below -lambd, x - bias above lambd, 0 between."""
    x, dtype = call[0], call.dtype(call[0])
    limit, bias = call.attr("lambd"), call.attr("bias")
    high = call.op("broadcast_greater", x, call.make(limit, dtype))
    low = call.op("broadcast_less", x, call.make(-limit, dtype))
    above, below = (call.op(f"__{way}_scalar__", x, scalar=bias) for way in ("sub", "add"))
    outside = call.op("broadcast_where", low, below, call.make(0, dtype))
    return call.op("broadcast_where", high, above, outside)
