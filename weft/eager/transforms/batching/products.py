"""Batching rules of products and convolutions: a batch of products is one batched product, a batch of convolutions has
more images, or more groups."""

from __future__ import annotations

from collections.abc import Sequence

from ....core.op import Op
from ....ops.linalg.matmul import BatchMatmulAttrs
from ....ops.nn.dense_softmax import DenseAttrs
from ...dispatch import apply
from ...functions.shape.shape import reshape
from ...tensor.tensor import Tensor
from ...tensor.viewing import permuted
from ..batched import merged, unmerged, with_rank
from ..level import Call
from .shapes import broadcasting, changed, register

_PRODUCT, _ADD = Op.get("batch_matmul"), Op.get("broadcast_add")


def product(a: Tensor, b: Tensor, turn_a: bool = False, turn_b: bool = False) -> Tensor:
    """Products of the matrices in the last two axes."""
    return apply(_PRODUCT, BatchMatmulAttrs(transpose_a=turn_a, transpose_b=turn_b), [a, b])[0]


register("batch_matmul", broadcasting)


def _turned(value: Tensor, turn: bool) -> Tensor:
    """A batch with the axes after the first reversed."""
    return permuted(value, (0, *range(1, value.ndim)[::-1])) if turn else value


def _count(extents: Sequence[int]) -> int:
    count = 1
    for extent in extents:
        count *= extent
    return count


def _matmul(call: Call) -> Sequence[Tensor]:
    """out[i..., j...] = sum over k of lhs[i..., k] rhs[k, j...], as a product of matrices (i, k) and (k, j)"""
    params = call.params
    if call.batched == [True, False] and not params.transpose_a:
        return apply(call.op, params, call.inputs)
    left, right = (_turned(call.whole(at), turn) for at, turn in enumerate((params.transpose_a, params.transpose_b)))
    rows, columns = left._shape[1:-1], right._shape[2:]
    a = reshape(left, (call.size, _count(rows), left._shape[-1]))
    b = reshape(right, (call.size, right._shape[1], _count(columns)))
    return [reshape(product(a, b), (call.size, *rows, *columns))]


def _matmul_lhs(call: Call) -> Sequence[Tensor]:
    """What comes to lhs: (i, j) times the transpose of (k, j)"""
    gradient, factor, _ = call.wholes()
    right = _turned(factor, call.params.transpose_b)
    columns = _count(right._shape[2:])
    rows = gradient._shape[1 : gradient.ndim - (right.ndim - 2)]
    a = reshape(gradient, (call.size, _count(rows), columns))
    made = product(a, reshape(right, (call.size, right._shape[1], columns)), turn_b=True)
    return [_turned(reshape(made, (call.size, *rows, right._shape[1])), call.params.transpose_a)]


def _matmul_rhs(call: Call) -> Sequence[Tensor]:
    """What comes to rhs: the transpose of (i, k) times (i, j)"""
    gradient, factor, _ = call.wholes()
    left = _turned(factor, call.params.transpose_a)
    rows, summed = left._shape[1:-1], left._shape[-1]
    columns = gradient._shape[1 + len(rows) :]
    a = reshape(left, (call.size, _count(rows), summed))
    made = product(a, reshape(gradient, (call.size, _count(rows), _count(columns))), turn_a=True)
    return [_turned(reshape(made, (call.size, summed, *columns)), call.params.transpose_b)]


register("matmul", _matmul)
register("_matmul_grad_lhs", _matmul_lhs)
register("_matmul_grad_rhs", _matmul_rhs)


def _dense(call: Call) -> Sequence[Tensor]:
    """data weight' + bias; with a weight for each element of the batch a batched product."""
    data, weight, *bias = call.inputs
    if call.batched[0] and True not in call.batched[1:]:
        return apply(call.op, call.params, call.inputs)
    data, weight = call.whole(0), call.whole(1)
    lead, units = data._shape[1:-1], weight._shape[1]
    if call.batched[1]:
        rows = reshape(data, (call.size, _count(lead), data._shape[-1]))
        made = reshape(product(rows, weight, turn_b=True), (call.size, *lead, units))
    else:
        made = apply(call.op, DenseAttrs(units=units, use_bias=False), [data, call.inputs[1]])[0]
    if bias:
        made = apply(_ADD, None, [made, with_rank(call.whole(2), made.ndim - 1)])[0]
    return [made]


register("dense", _dense)


def _attention(call: Call) -> Sequence[Tensor]:
    """Axes before the last two are batches of attention already; a mask meets the scores from the last axis on."""
    values = call.wholes()
    rank = max(call.ranks())
    return apply(call.op, call.params, [with_rank(value, rank) for value in values])


register("scaled_dot_product_attention _scaled_dot_product_attention_grad", _attention)


# Convolutions, of images (N, C, H, W) and filters (O, I, H, W).


def _convolution(call: Call) -> Sequence[Tensor]:
    """Batched images only: more images. Else each element of the batch is a group of channels."""
    params, size = call.params, call.size
    if True not in call.batched[1:]:
        made = apply(call.op, params, [merged(call.inputs[0], 0), *call.inputs[1:]])
        return [unmerged(made[0], 0, size)]
    data = merged(call.whole(0), 1)
    rest = [merged(call.whole(number), 0) for number in range(1, len(call.inputs))]
    more = changed(params, groups=params.groups * size, channels=params.channels * size)
    return [unmerged(apply(call.op, more, [data, *rest])[0], 1, size)]


def _grad_data(call: Call) -> Sequence[Tensor]:
    """The same for what comes to the images: of (gradient, images, filters), or (gradient, filters)."""
    params, size = call.params, call.size
    if not call.batched[-1]:
        folded = [merged(call.whole(number), 0) for number in range(len(call.inputs) - 1)]
        return [unmerged(apply(call.op, params, [*folded, call.inputs[-1]])[0], 0, size)]
    *images, filters = call.wholes()
    more = changed(params, groups=params.groups * size, channels=params.channels * size)
    made = apply(call.op, more, [*[merged(image, 1) for image in images], merged(filters, 0)])
    return [unmerged(made[0], 1, size)]


def _grad_weight(call: Call) -> Sequence[Tensor]:
    """What comes to the filters of each element of the batch: each is a group."""
    params, size = call.params, call.size
    more = changed(params, groups=params.groups * size, channels=params.channels * size)
    made = apply(call.op, more, [merged(whole, 1) for whole in call.wholes()])
    return [unmerged(made[0], 0, size)]


register("conv2d conv2d_transpose", _convolution)
register("_conv2d_grad_data _conv2d_transpose_grad_data", _grad_data)
register("_conv2d_grad_weight _conv2d_transpose_grad_weight", _grad_weight)


# Images in a first axis, which a batch of them makes longer.


def more_images(call: Call) -> Sequence[Tensor]:
    folded = [merged(whole, 0) for whole in call.wholes()]
    return [unmerged(out, 0, call.size) for out in apply(call.op, call.params, folded)]


register("max_pool2d _max_pool2d_grad _max_pool2d_pick avg_pool2d _avg_pool2d_grad", more_images)
register("global_max_pool2d _global_max_pool2d_grad _global_max_pool2d_pick", more_images)
register("global_avg_pool2d _global_avg_pool2d_grad adaptive_avg_pool2d _adaptive_avg_pool2d_grad", more_images)
register(
    "upsampling _upsampling_grad resize _resize_grad grid_sample _grid_sample_grad _grid_sample_grad_grid", more_images
)
