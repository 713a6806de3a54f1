"""Converters of BatchNormalization, with known statistics and, in training, with those of the batch."""

from __future__ import annotations

from ....base.errors import Unsupported
from ....base.shape import numel
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter


@converter("BatchNormalization")
def batch_norm(call: OnnxCall) -> list[Value]:
    call.ignore("momentum", "is_test")
    if call.wanted - {0}:
        raise Unsupported(
            f"BatchNormalization of opset {call.opset} with statistics among its outputs",
            why="that opset does not say how they are computed",
            hint="export the model with opset 14 or newer, or for inference",
        )
    parts = _parts(call)
    if call.attr("spatial", 1):
        return [call.cast(_normalised(call, *parts), call.dtype(call[0]))]
    x, *others = parts
    shape = call.shape(x)
    flat = call.reshape(x, (shape[0], numel(shape[1:])))
    outcome = _normalised(call, flat, *(call.flat(part) for part in others))
    return [call.cast(call.reshape(outcome, shape), call.dtype(call[0]))]


@converter("BatchNormalization", since=14)
def batch_norm_in_either_mode(call: OnnxCall) -> list[Value]:
    """In training, also the statistics that were given, with a share of the batch's."""
    x, scale, bias, mean, variance = _parts(call)
    dtype, old = call.dtype(call[0]), call.attr("momentum")
    if not call.attr("training_mode"):
        call.only_first_output()
        return [call.cast(_normalised(call, x, scale, bias, mean, variance), dtype)]
    others = [axis for axis in range(call.rank(x)) if axis != 1]
    average, centred = call.centred(x, others)
    spread = call.op("mean", call.square(centred), axis=tuple(others))
    average = call.flat(average)
    outcome = _normalised(call, x, scale, bias, average, spread)
    running = [
        call.op("elemwise_add", call.scaled(known, old), call.scaled(new, 1 - old))
        for known, new in ((mean, average), (variance, spread))
    ]
    return [call.cast(outcome, dtype), *(call.cast(value, call.dtype(call[3])) for value in running)]


def _parts(call: OnnxCall) -> list[Value]:
    """The data, scale, bias, mean and variance in the dtype to compute in."""
    x = call.widened(call[0])
    return [x, *(call.cast(call[i], call.dtype(x)) for i in range(1, 5))]


def _normalised(call: OnnxCall, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Value:
    """(x - mean) scale / sqrt(variance + epsilon) + bias; an operator of its own where statistics are constants."""
    epsilon = call.attr("epsilon")
    if mean.constant is not None and variance.constant is not None:
        return call.op("batch_norm", x, scale, bias, mean, variance, epsilon=epsilon, axis=1)
    scale = call.op("elemwise_div", scale, call.op("sqrt", call.shifted(variance, epsilon)))
    behind = (1,) * (call.rank(x) - 2)
    mean, scale, bias = (call.reshape(part, (*call.shape(part), *behind)) for part in (mean, scale, bias))
    centred = call.op("broadcast_sub", x, mean)
    return call.op("broadcast_add", call.op("broadcast_mul", centred, scale), bias)
