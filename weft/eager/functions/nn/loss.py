"""Rows: losses of predictions against numbers, in nn.functional and as the core has them."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ....base.errors import InvalidValue, RunError
from ....core.op import Op
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..fusion import fused
from ..math.arithmetic import add, div, minimum, mul, rsub, sub
from ..math.compare import choose, eq, gt, lt, ne
from ..math.pairs import clamp, xlogy
from ..math.unary import abs as magnitude
from ..math.unary import exp, log, neg, sqrt, square
from ..operands import by_number, must_be_real, promoted
from ..reduce.reduce import mean, vector_norm
from ..reduce.reduce import sum as total
from ..shape.shape import broadcast_tensors, unsqueeze
from ..table import NN, row

_SOFTPLUS = Op.get("softplus")
_REDUCTIONS = ("none", "mean", "sum")
CORE_DEFAULT = 0  # PyTorch declares the mean here, and gives the losses themselves


def reduction_of(reduction: str, size_average: Any = None, reduce: Any = None) -> str:
    """How a loss is reduced, by its old arguments where they are given."""
    if size_average is not None or reduce is not None:
        told = "none" if reduce is False else "sum" if size_average is False else "mean"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{told}' instead.", stacklevel=4
        )
        return told
    if reduction not in _REDUCTIONS:
        raise InvalidValue(f"{reduction} is not a valid value for reduction")
    return reduction


def numbered(reduction: int) -> str:
    """How the core says that a loss is reduced."""
    return by_number("reduction", _REDUCTIONS, reduction)


def reduced(values: Tensor, reduction: str, size_average: Any = None, reduce: Any = None) -> Tensor:
    """The losses themselves, their mean or their sum."""
    how = reduction_of(reduction, size_average, reduce)
    if how == "none":
        return values
    return mean(values) if how == "mean" else total(values)


def _warn_of_sizes(input: Tensor, target: Tensor) -> None:
    warnings.warn(
        f"Using a target size ({target.shape}) that is different to the input size "
        f"({input.shape}). This will likely lead to incorrect results due to broadcasting.",
        stacklevel=4,
    )


def _weighted(values: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    if weight is None:
        return reduced(values, reduction)
    if weight._shape != values._shape:
        raise InvalidValue("Weights and input must have the same size.")
    scaled = mul(values, weight)
    if reduction == "mean":
        return div(total(scaled), total(weight))
    return reduced(scaled, reduction)


def _pair(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    if input._shape != target._shape:
        _warn_of_sizes(input, target)
        input, target = broadcast_tensors(input, target)
    left, right = promoted(input, target)
    return left, right


@row(space=NN, method=False)
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(x - y) squared

    >>> import weft
    >>> weft.nn.functional.mse_loss(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 4.0]))
    tensor(2.)
    """
    must_be_real("mse_loss", input, target)
    return _weighted(_squared_gap(*_pair(input, target)), weight, reduction_of(reduction, size_average, reduce))


@fused
def _squared_gap(left: Tensor, right: Tensor) -> Tensor:
    return square(sub(left, right))


@fused
def _gap(left: Tensor, right: Tensor) -> Tensor:
    return magnitude(sub(left, right))


@row(space=NN, method=False)
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|x - y|

    >>> import weft
    >>> weft.nn.functional.l1_loss(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 4.0]))
    tensor(1.)
    """
    return _weighted(_gap(*_pair(input, target)), weight, reduction_of(reduction, size_average, reduce))


@fused
def _bent(left: Tensor, right: Tensor, bend: float, scale: float = 1.0) -> Tensor:
    """d squared / 2 where d = |x - y| is below the bend, else bend (d - bend / 2), scaled."""
    gap = magnitude(sub(left, right))
    square_part = mul(square(clamp(gap, max=bend)), 0.5 * scale)  # whose slope is finite
    return choose(lt(gap, bend), square_part, mul(sub(gap, 0.5 * bend), bend * scale))


@row(space=NN, method=False)
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d squared / (2 beta) where d = |x - y| is below beta, else d - beta / 2

    >>> import weft
    >>> weft.nn.functional.smooth_l1_loss(weft.tensor([0.0, 0.0]), weft.tensor([1.0, 4.0]), reduction="none")
    tensor([0.5000, 3.5000])
    """
    must_be_real("smooth_l1_loss", input, target)
    if beta < 0:
        raise RunError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return l1_loss(input, target, size_average, reduce, reduction)
    return reduced(_bent(*_pair(input, target), beta, 1 / beta), reduction, size_average, reduce)


@row(space=NN, method=False)
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """d squared / 2 where d = |x - y| is below delta, else delta (d - delta / 2)

    >>> import weft
    >>> weft.nn.functional.huber_loss(weft.tensor([0.0, 0.0]), weft.tensor([1.0, 4.0]), reduction="none")
    tensor([0.5000, 3.5000])
    """
    must_be_real("huber_loss", input, target)
    if delta <= 0:
        raise RunError("huber_loss does not support non-positive values for delta.")
    return _weighted(_bent(*_pair(input, target), delta), weight, reduction_of(reduction))


@row(space=NN, method=False)
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """y (log y - x), where x is a logarithm

    >>> import weft
    >>> logs, target = weft.tensor([[0.5, 0.5]]).log(), weft.tensor([[0.25, 0.75]])
    >>> weft.nn.functional.kl_div(logs, target, reduction="batchmean")
    tensor(0.1308)
    """
    must_be_real("kl_div", input, target)
    values = _divergence(input, target, log_target)
    if reduction == "batchmean":
        result = total(values)
        return div(result, input._shape[0]) if input.ndim else result
    return reduced(values, reduction, size_average, reduce)


@fused
def _divergence(input: Tensor, target: Tensor, log_target: bool) -> Tensor:
    if log_target:
        return mul(exp(target), sub(target, input))
    return sub(xlogy(target, target), mul(target, input))


@row(space=NN, method=False)
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: Any = None,
    eps: float = 1e-8,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) - y x, or x - y log(x) if the input is no logarithm"""
    return reduced(_poisson_loss(input, target, log_input, full, eps), reduction, size_average, reduce)


@fused
def _poisson_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float) -> Tensor:
    if log_input:
        values = sub(exp(input), mul(target, input))
    else:
        values = sub(input, mul(target, log(add(input, eps))))
    if full:
        wide = promoted(target, input)[0]
        stirling = add(sub(mul(wide, log(wide)), wide), mul(log(mul(wide, 2 * math.pi)), 0.5))
        values = add(values, choose(gt(target, 1), stirling, 0.0))
    return values


@row(space=NN, method=False)
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log(v) + (x - y) squared / v) / 2"""
    must_be_real("gaussian_nll_loss", input)
    shape = input._shape
    if isinstance(var, Tensor):
        have = var._shape
        if have != shape and have == shape[:-1]:
            var = unsqueeze(var, -1)
        elif have != shape and have != (*shape[:-1], 1):
            raise InvalidValue("var is of incorrect size")
        if (array_of(var) < 0).any():
            raise InvalidValue("var has negative entry/entries")
        spread = add(var, wrap(np.maximum(eps - array_of(var), 0).astype(var._dtype)))
    else:
        if var < 0:
            raise InvalidValue("var has negative entry/entries")
        spread = wrap(np.full(shape, max(var, eps), input._dtype))
    return reduced(_gaussian_loss(input, target, spread, full), reduction)


@fused
def _gaussian_loss(input: Tensor, target: Tensor, spread: Tensor, full: bool) -> Tensor:
    values = mul(add(log(spread), div(square(sub(input, target)), spread)), 0.5)
    return add(values, 0.5 * math.log(2 * math.pi)) if full else values


@row(space=NN, method=False)
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """x where y is 1, max(0, margin - x) where it is -1"""
    wide, mark = broadcast_tensors(input, target)
    return reduced(_hinge(wide, mark, margin), reduction, size_average, reduce)


@fused
def _hinge(wide: Tensor, mark: Tensor, margin: float) -> Tensor:
    apart = choose(ne(mark, 1), clamp(rsub(wide, margin), min=0), 0)
    return add(apart, choose(ne(mark, -1), wide, 0))


@row(space=NN, method=False)
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -y (x1 - x2) + margin)"""
    ranks = [tensor.ndim for tensor in (input1, input2, target)]
    if len(set(ranks)) != 1:
        raise RunError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return reduced(_ranking(input1, input2, target, margin), reduction, size_average, reduce)


@fused
def _ranking(input1: Tensor, input2: Tensor, target: Tensor, margin: float) -> Tensor:
    return clamp(add(mul(neg(target), sub(input1, input2)), margin), min=0)


@row(space=NN, method=False)
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Tensor:
    """log(1 + exp(-y x))"""
    return reduced(_soft_margin(input, target), reduction, size_average, reduce)


@fused
def _soft_margin(input: Tensor, target: Tensor) -> Tensor:
    return apply(_SOFTPLUS, None, [mul(neg(target), input)])[0]


# Distances.


@row(method=False)
@row(space=NN, method=False)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 x2 / (|x1| |x2|) along an axis

    >>> import weft
    >>> weft.nn.functional.cosine_similarity(weft.tensor([[3.0, 4.0]]), weft.tensor([[4.0, 3.0]]))
    tensor([0.9600])
    """
    must_be_real("cosine_similarity", x1, x2)
    left, right = promoted(*broadcast_tensors(x1, x2))
    lengths = [clamp(vector_norm(x, 2, dim, True), min=eps) for x in (left, right)]
    return total(mul(div(left, lengths[0]), div(right, lengths[1])), dim)


@row(method=False)
@row(space=NN, method=False)
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis"""
    return vector_norm(add(sub(x1, x2), eps), p, -1, keepdim)


@row(space=NN, method=False)
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where y is 1, max(0, cos - margin) where it is -1"""
    axis = target.ndim
    if axis > 1:
        raise RunError("0D or 1D target tensor expected, multi-target not supported")
    if input1.ndim != axis + 1 or input2.ndim != axis + 1:
        raise RunError(
            f"{axis}D target tensor expects {axis + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    tiny = 1e-12
    squares = [add(total(square(x), axis), tiny) for x in (input1, input2)]
    cos = div(total(mul(input1, input2), axis), sqrt(mul(*squares)))
    near = choose(eq(target, 1), rsub(cos, 1), 0.0)
    apart = choose(eq(target, -1), clamp(sub(cos, margin), min=0), 0.0)
    return reduced(add(near, apart), reduction, size_average, reduce)


@row(space=NN, method=False)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, |a - p| - |a - n| + margin)"""
    distance = lambda a, b: pairwise_distance(a, b, p, eps)
    ranks = {tensor.ndim for tensor in (anchor, positive, negative)}
    if len(ranks) != 1:
        raise RunError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs"
        )
    values = _triplet(anchor, positive, negative, distance, margin, swap)
    return reduced(values, reduction, size_average, reduce)


def _triplet(anchor: Tensor, positive: Tensor, negative: Tensor, distance: Any, margin: float, swap: bool) -> Tensor:
    if margin <= 0:
        raise InvalidValue(f"margin must be greater than 0, got {margin}")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return clamp(add(sub(near, far), margin), min=0)


@row(space=NN, method=False)
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with any distance"""
    distance = distance_function or pairwise_distance
    return reduced(_triplet(anchor, positive, negative, distance, margin, swap), reduction)


# As the core has them, with reductions that are numbers.


@row(name="cosine_embedding_loss", method=False)
def _cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = CORE_DEFAULT
) -> Tensor:
    """1 - cosine of what belongs together, else max(0, cosine - margin)"""
    return cosine_embedding_loss(input1, input2, target, margin, reduction=numbered(reduction))


@row(name="hinge_embedding_loss", method=False)
def _hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = CORE_DEFAULT) -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1"""
    return hinge_embedding_loss(input, target, margin, reduction=numbered(reduction))


@row(name="kl_div", method=False)
def _kl_div(input: Tensor, target: Tensor, reduction: int = CORE_DEFAULT, *, log_target: bool = False) -> Tensor:
    """y (log y - x), of a target that may be a logarithm itself"""
    return kl_div(input, target, reduction=numbered(reduction), log_target=log_target)


@row(name="margin_ranking_loss", method=False)
def _margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = CORE_DEFAULT
) -> Tensor:
    """max(0, -y (x1 - x2) + margin)"""
    return margin_ranking_loss(input1, input2, target, margin, reduction=numbered(reduction))


@row(name="poisson_nll_loss", method=False)
def _poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """exp(x) - y x, or x - y log(x + eps)"""
    return poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=numbered(reduction))


@row(name="triplet_margin_loss", method=False)
def _triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = CORE_DEFAULT,
) -> Tensor:
    """max(0, distance to the positive - distance to the negative + margin)"""
    return triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=numbered(reduction))
