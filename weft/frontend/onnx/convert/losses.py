"""Converters of losses of scores against classes, with weights and a class that is ignored."""

from __future__ import annotations

from ....base.dtype import INT64
from ....base.errors import FormatError
from ...building import in_float32
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter


@converter("NegativeLogLikelihoodLoss", since=12)
@in_float32
def negative_log_likelihood(call: OnnxCall) -> Value:
    return _loss(call, call[0])


@converter("SoftmaxCrossEntropyLoss", since=12)
@in_float32
def softmax_cross_entropy(call: OnnxCall) -> list[Value]:
    """The loss, and the logarithms of probabilities that it is of."""
    logarithms = call.op("log_softmax", call[0], axis=1)
    return [_loss(call, logarithms), logarithms]


def _loss(call: OnnxCall, logarithms: Value) -> Value:
    """-weight[class] * logarithm[class]: of every place, their sum, or the sum over that of the weights.
    The class may be any number where it is ignored."""
    n, count, *places = call.shape(logarithms)
    classes = call.cast(call[1], INT64)
    if call.shape(classes) != (n, *places):
        raise FormatError(f"classes of shape {classes.shape} for scores of shape {logarithms.shape}")
    weights = _weights(call, classes, count, logarithms)
    index = call.reshape(call.op("clip", classes, a_min=0.0, a_max=float(max(count - 1, 0))), (n, 1, *places))
    chosen = call.reshape(call.op("gather_elements", logarithms, index, axis=1), (n, *places))
    losses = call.op("negative", chosen)
    if weights is not None:
        losses = call.op("elemwise_mul", losses, weights)
    if call.attr("ignore_index") is not None:  # what is ignored may be infinite
        losses = call.where(_counted(call, classes), losses, call.make(0, call.dtype(losses)))
    reduction, axes = call.attr("reduction"), tuple(range(1 + len(places)))
    if reduction == "none":
        return losses
    if reduction not in ("sum", "mean"):
        raise FormatError(f"unknown reduction {reduction!r}")
    if reduction == "mean" and weights is None:
        return call.reduced("mean", losses, axes, False)
    total = call.reduced("sum", losses, axes, False)
    if reduction == "sum" or weights is None:
        return total
    return call.op("elemwise_div", total, call.reduced("sum", weights, axes, False))


def _counted(call: OnnxCall, classes: Value) -> Value:
    return call.op("broadcast_not_equal", classes, call.make(call.attr("ignore_index"), INT64))


def _weights(call: OnnxCall, classes: Value, count: int, like: Value) -> Value | None:
    """How much every place counts, if that is not the same for all: the weight of its class, 0 where that
    is ignored."""
    given, ignores = call.get(2), call.attr("ignore_index") is not None
    if given is not None and call.shape(given) != (count,):
        raise FormatError(f"weights of shape {given.shape} for {count} classes")
    counted = call.cast(_counted(call, classes), call.dtype(like)) if ignores else None
    if given is None:
        return counted
    weights = call.op("take", given, classes, axis=0)
    return weights if counted is None else call.op("elemwise_mul", weights, counted)
