"""Converters of optimizers: one step of each tensor that is trained."""

from __future__ import annotations

from ....base.errors import FormatError
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter

_TRAINING = "ai.onnx.preview.training"


def _groups(call: OnnxCall, kinds: int) -> list[list[Value]]:
    """What follows the learning rate and the count of steps: all tensors, then their gradients, then each kind of
    state; gathered by tensor."""
    values = call.all()[2:]
    if not values or len(values) % kinds:
        raise FormatError(f"{len(values)} tensors are no groups of {kinds}")
    count = len(values) // kinds
    return [values[start::count] for start in range(count)]


def _regularised(call: OnnxCall, x: Value, gradient: Value) -> Value:
    """g + c x"""
    coefficient = call.attr("norm_coefficient")
    return call.op("elemwise_add", gradient, call.scaled(x, coefficient)) if coefficient else gradient


def _mixed(call: OnnxCall, old: Value, share: float, new: Value, rest: float) -> Value:
    return call.op("elemwise_add", call.scaled(old, share), call.scaled(new, rest))


def _step(call: OnnxCall, x: Value, rate: Value, direction: Value) -> Value:
    """x - r d"""
    return call.op("broadcast_sub", x, call.op("broadcast_mul", direction, rate))


def _by_kind(rows: list[tuple[Value, ...]]) -> list[Value]:
    """All new tensors, then all states of the first kind, and so on."""
    return [value for kind in zip(*rows) for value in kind]


def _is_first(call: OnnxCall) -> Value:
    return call.op("broadcast_less_equal", call[1], call.make(0, call.dtype(call[1])))


@converter("Adagrad", domain=_TRAINING)
def adagrad(call: OnnxCall) -> list[Value]:
    """h + g^2, and x - r / (1 + t decay) g / (sqrt(h) + epsilon)"""
    count = call.cast(call[1], call.dtype(call[0]))
    slower = call.shifted(call.scaled(count, call.attr("decay_factor")), 1.0)
    rate = call.op("broadcast_div", call[0], slower)
    rows: list[tuple[Value, ...]] = []
    for x, gradient, squares in _groups(call, 3):
        gradient = _regularised(call, x, gradient)
        squares = call.op("elemwise_add", squares, call.square(gradient))
        scale = call.shifted(call.op("sqrt", squares), call.attr("epsilon"))
        rows.append((_step(call, x, rate, call.op("elemwise_div", gradient, scale)), squares))
    return _by_kind(rows)


@converter("Adam", domain=_TRAINING)
def adam(call: OnnxCall) -> list[Value]:
    """v = a v + (1 - a) g, h = b h + (1 - b) g^2, and x - r v / (sqrt(h) + epsilon), with
    r sqrt(1 - b^t) / (1 - a^t) from the second step on"""
    a, b = call.attr("alpha"), call.attr("beta")
    count = call.cast(call[1], call.dtype(call[0]))
    rest_a, rest_b = (
        call.op("__rsub_scalar__", call.op("__rpow_scalar__", count, scalar=base), scalar=1.0) for base in (a, b)
    )
    later = call.op("broadcast_mul", call[0], call.op("elemwise_div", call.op("sqrt", rest_b), rest_a))
    rate = call.op("broadcast_where", _is_first(call), call[0], later)
    rows: list[tuple[Value, ...]] = []
    for x, gradient, mean, squares in _groups(call, 4):
        gradient = _regularised(call, x, gradient)
        mean = _mixed(call, mean, a, gradient, 1 - a)
        squares = _mixed(call, squares, b, call.square(gradient), 1 - b)
        scale = call.shifted(call.op("sqrt", squares), call.attr("epsilon"))
        moved = _step(call, x, rate, call.op("elemwise_div", mean, scale))
        rows.append((call.scaled(moved, 1 - call.attr("norm_coefficient_post")), mean, squares))
    return _by_kind(rows)


@converter("Momentum", domain=_TRAINING)
def momentum(call: OnnxCall) -> list[Value]:
    """v = a v + b g, where b is 1 at first, and x - r v, or by Nesterov x - r (g + a v)"""
    a, mode, dtype = call.attr("alpha"), call.attr("mode"), call.dtype(call[0])
    if mode not in ("standard", "nesterov"):
        raise FormatError(f"mode {mode!r}", why="it is standard or nesterov")
    share = call.op("broadcast_where", _is_first(call), call.make(1, dtype), call.make(call.attr("beta"), dtype))
    rows: list[tuple[Value, ...]] = []
    for x, gradient, speed in _groups(call, 3):
        gradient = _regularised(call, x, gradient)
        speed = call.op("elemwise_add", call.scaled(speed, a), call.op("broadcast_mul", gradient, share))
        ahead = speed if mode == "standard" else call.op("elemwise_add", gradient, call.scaled(speed, a))
        rows.append((_step(call, x, call[0], ahead), speed))
    return _by_kind(rows)
