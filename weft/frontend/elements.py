"""Arithmetic element by element that both importers know, and weft has in another form."""

from __future__ import annotations

from ..base.dtype import is_float
from ..base.shape import mul_dims
from .building import Building
from .emitter import Value

# What is compared, by the words that both systems build their names of.
COMPARISONS = {
    "equal": "broadcast_equal",
    "not_equal": "broadcast_not_equal",
    "greater": "broadcast_greater",
    "greater_equal": "broadcast_greater_equal",
    "less": "broadcast_less",
    "less_equal": "broadcast_less_equal",
}
# Of 0 and 1, `and` is the smaller one, `or` the larger one, `xor` the unequal.
LOGIC = {"and": "broadcast_min", "or": "broadcast_max", "xor": "broadcast_not_equal"}


def quotient(call: Building, a: Value, b: Value) -> Value:
    """a / b. Of integers, towards zero, where broadcast_div rounds down: (a - fmod(a, b)) / b is whole, so that both
    are one. 0 where b is 0, and the lowest integer divided by -1 is itself."""
    if is_float(call.dtype(a)) or call.dtype(a).kind == "u":
        return call.op("broadcast_div", a, b)
    return call.op("broadcast_div", call.op("broadcast_sub", a, call.op("fmod", a, b)), b)


def softmax_from(call: Building, op: str, value: Value, axis: int) -> Value:
    """One distribution over all axes from one on."""
    if axis == call.rank(value) - 1:
        return call.op(op, value, axis=-1)
    shape = call.dims(value)
    flat = call.reshape(value, (mul_dims(*shape[:axis]), mul_dims(*shape[axis:])))
    return call.reshape(call.op(op, flat, axis=-1), shape)


def two_slopes(call: Building, x: Value, slope: float | Value) -> Value:
    """x where it is not negative, else slope x."""
    if isinstance(slope, Value):
        below = call.op("broadcast_mul", x, slope)
    elif slope >= 0:
        return call.op("leaky_relu", x, alpha=slope)
    else:
        below = call.scaled(x, slope)
    negative = call.op("broadcast_less", x, call.make(0, call.dtype(x)))
    return call.op("broadcast_where", negative, below, x)
