"""Converters of losses: of scores of classes against the right ones."""

from __future__ import annotations

from ...building import in_float32
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter


@converter("NegativeLogLikelihoodLoss", since=12)
@in_float32
def negative_log_likelihood(call: OnnxCall) -> Value:
    return _loss(call, "nll_loss", call[0])


@converter("SoftmaxCrossEntropyLoss", since=12)
@in_float32
def softmax_cross_entropy(call: OnnxCall) -> list[Value]:
    """The loss, and log(softmax(x)) where it is wanted."""
    if 1 not in call.wanted:
        return [_loss(call, "softmax_cross_entropy", call[0])]
    logarithms = call.op("log_softmax", call[0], axis=1)
    return [_loss(call, "nll_loss", logarithms), logarithms]


def _loss(call: OnnxCall, op: str, scores: Value) -> Value:
    """What `op` gives of scores; each row counts as much as its right class weighs, and an ignored one nothing."""
    reduction, weights = call.attr("reduction"), call.get(2)
    classes = _counted_classes(call)
    if weights is None:
        return call.op(op, scores, classes, axis=1, reduction=reduction)
    zero = call.make(0, call.dtype(classes))
    counts = call.cast(call.op("broadcast_greater_equal", classes, zero), call.dtype(weights))
    shares = call.op("take", weights, call.op("broadcast_max", classes, zero), axis=0)
    shares = call.op("elemwise_mul", shares, counts)
    losses = call.op("elemwise_mul", call.op(op, scores, classes, axis=1), shares)
    if reduction == "none":
        return losses
    every = range(call.rank(losses))
    total = call.reduced("sum", losses, every, keep=False)
    if reduction == "sum":
        return total
    return call.op("elemwise_div", total, call.reduced("sum", shares, every, keep=False))


def _counted_classes(call: OnnxCall) -> Value:
    """The right classes, -1 for rows that are ignored."""
    classes, ignored = call[1], call.attr("ignore_index")
    if ignored is None:
        return classes
    dtype = call.dtype(classes)
    skipped = call.op("broadcast_equal", classes, call.make(ignored, dtype))
    return call.op("broadcast_where", skipped, call.make(-1, dtype), classes)
