"""Batching rules of norms and of losses by classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....core.op import Op
from ....ops.reduce.reductions import ReduceAttrs
from ...dispatch import apply
from ...functions.shape.shape import reshape
from ...tensor.tensor import Tensor
from ...tensor.viewing import place_of, stretched
from ..batched import merged, unmerged
from ..level import Call
from .shapes import changed, register

_MUL, _ADD, _SUM, _ONES, _ZEROS = (
    Op.get(name) for name in ("broadcast_mul", "broadcast_add", "sum", "ones_like", "zeros_like")
)


def _scaled(value: Tensor, vectors: Sequence[Tensor], lead: int) -> Tensor:
    """value gamma + beta, where the vectors have axes of size 1 after the first, and `lead` axes of value come before
    theirs."""
    for op, vector in zip((_MUL, _ADD), vectors):
        shape = vector._shape
        after = value.ndim - 1 - lead - (len(shape) - 1)
        value = apply(op, None, [value, reshape(vector, (shape[0], *(1,) * lead, *shape[1:], *(1,) * after))])[0]
    return value


def _plain(call: Call, place: int, count: int) -> list[Tensor]:
    """Vectors that change nothing, of the shape of an input."""
    like = place_of(call.inputs[place], 0, 0) if call.batched[place] else call.inputs[place]
    return [apply(op, None, [like])[0] for op in (_ONES, _ZEROS)[:count]]


def _trailing(call: Call) -> Sequence[Tensor]:
    """Norms over the last axes."""
    rank = call.ranks()[0]
    params = changed(call.params, axis=call.params.axis % rank - rank)
    if True not in call.batched[1:]:
        return apply(call.op, params, call.inputs)
    plain = _plain(call, 1, len(call.inputs) - 1)
    normal = apply(call.op, params, [call.whole(0), *plain])[0]
    vectors = [call.whole(number) for number in range(1, len(call.inputs))]
    return [_scaled(normal, vectors, rank - (vectors[0].ndim - 1))]


def _grouped(call: Call) -> Sequence[Tensor]:
    """Norms of each image: a batch has more images."""
    if True not in call.batched[1:]:
        made = apply(call.op, call.params, [merged(call.whole(0), 0), *call.inputs[1:]])[0]
        return [unmerged(made, 0, call.size)]
    plain = _plain(call, 1, len(call.inputs) - 1)
    made = apply(call.op, call.params, [merged(call.whole(0), 0), *plain])[0]
    return [_scaled(unmerged(made, 0, call.size), [call.whole(1), call.whole(2)], 1)]


register("layer_norm rms_norm", _trailing)
register("instance_norm group_norm", _grouped)


# Gradients of data and of the vectors: those of the vectors are sums for each element of the batch.


def _sums(call: Call, gradient: Tensor, normal: Tensor, kept: Sequence[int], count: int) -> list[Tensor]:
    """What comes to gamma and beta: sums of g x, x of mean 0 and variance 1, and of g, over all axes but some."""
    others = tuple([axis for axis in range(1, gradient.ndim) if axis not in kept])
    terms = [apply(_MUL, None, [gradient, normal])[0], gradient][:count]
    if not others:
        return terms
    return [apply(_SUM, ReduceAttrs(axis=others, scalar=True), [term])[0] for term in terms]


def _trailing_grad(forward: str, call: Call) -> Sequence[Tensor]:
    rank, axes = call.ranks()[1], call.ranks()[2]
    params = changed(call.params, axis=call.params.axis % rank - rank)
    gradient, data = call.whole(0), call.whole(1)
    count = 2 if forward == "layer_norm" else 1
    plain = _plain(call, 2, count)
    inner, gamma = gradient, call.inputs[2]
    if call.batched[2]:
        inner, gamma = _scaled(gradient, [call.inputs[2]], rank - axes), plain[0]
    to_data = apply(call.op, params, [inner, data, gamma])[0]
    normal = apply(Op.get(forward), params, [data, *plain])[0]
    return [to_data, *_sums(call, gradient, normal, range(1 + rank - axes, 1 + rank), count)]


def _grouped_grad(forward: str, call: Call) -> Sequence[Tensor]:
    gradient, data = call.whole(0), call.whole(1)
    plain = _plain(call, 2, 2)
    inner, gamma = gradient, call.inputs[2]
    if call.batched[2]:
        inner, gamma = _scaled(gradient, [call.inputs[2]], 1), plain[0]
    to_data = apply(call.op, call.params, [merged(inner, 0), merged(data, 0), gamma])[0]
    normal = apply(Op.get(forward), call.params, [merged(data, 0), *plain])[0]
    sums = _sums(call, gradient, unmerged(normal, 0, call.size), (2,), 2)
    return [unmerged(to_data, 0, call.size), *sums]


register("_layer_norm_grad", partial(_trailing_grad, "layer_norm"))
register("_rms_norm_grad", partial(_trailing_grad, "rms_norm"))
register("_group_norm_grad", partial(_grouped_grad, "group_norm"))
register("_instance_norm_grad", partial(_grouped_grad, "instance_norm"))


# Losses by classes.


def _class_loss(call: Call) -> Sequence[Tensor]:
    """Losses of all rows; the sum or the mean is of those of each element of the batch."""
    rank, params = call.ranks()[0], call.params
    one_by_one = changed(params, axis=params.axis % rank + 1, reduction="none")
    losses = apply(call.op, one_by_one, call.wholes())[0]
    if params.reduction == "none":
        return [losses]
    total = _row_sums(losses)
    if params.reduction == "mean":
        total = total / _row_sums(_counted(call.whole(len(call.inputs) - 1), losses))
    return [total]


def _counted(classes: Tensor, like: Tensor) -> Tensor:
    return (classes >= 0)._cast(like._dtype)


def _row_sums(value: Tensor) -> Tensor:
    if value.ndim == 1:
        return value
    return apply(_SUM, ReduceAttrs(axis=tuple(range(1, value.ndim)), scalar=True), [value])[0]


def _class_loss_grad(call: Call) -> Sequence[Tensor]:
    rank, params = call.ranks()[1], call.params
    gradient, data, classes = call.wholes()
    if params.reduction == "mean":
        gradient = gradient / _row_sums(_counted(classes, gradient))
    if params.reduction != "none":
        gradient = with_ones(gradient, classes)
    one_by_one = changed(params, axis=params.axis % rank + 1, reduction="none")
    return apply(call.op, one_by_one, [gradient, data, classes])


def with_ones(value: Tensor, like: Tensor) -> Tensor:
    """A number for each element of the batch, for each of its rows."""
    wide = reshape(value, (value._shape[0], *(1,) * (like.ndim - 1)))
    return stretched(wide, like._shape)


register("softmax_cross_entropy nll_loss", _class_loss)
register("_softmax_cross_entropy_grad _nll_loss_grad", _class_loss_grad)
