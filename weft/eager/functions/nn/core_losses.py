"""Rows: losses, embeddings, grids and convolutions as the core has them, with reductions and modes
that are numbers."""

from __future__ import annotations

from typing import Any

from ....base.errors import RunError
from ...tensor.tensor import DimensionError, Tensor
from ..shape.shape import expand, permute
from ..table import FUNCTIONS, row
from .classes import binary_cross_entropy_with_logits, embedding, shorten_rows
from .conv import conv1d, conv2d, conv3d
from .grid import affine_grid, grid_sample
from .loss import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    kl_div,
    margin_ranking_loss,
    poisson_nll_loss,
    triplet_margin_loss,
)
from .norm import instance_norm

_DEFAULT = 0  # PyTorch declares the mean here, and gives the losses themselves
_REDUCTIONS = ("none", "mean", "sum")
_READINGS, _OUTSIDES = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _named(what: str, names: tuple[str, ...], number: int) -> str:
    """A choice that the core makes by a number."""
    if number not in range(len(names)):
        raise RunError(f"{number} is not a valid value for {what}", hint=f"0 to {len(names) - 1}")
    return names[number]


def _how(reduction: int) -> str:
    return _named("reduction", _REDUCTIONS, reduction)


# Losses.


@row(name="binary_cross_entropy_with_logits", method=False)
def _bce_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = _DEFAULT,
) -> Tensor:
    """-(y log s + (1 - y) log(1 - s)) with s = sigmoid(x)"""
    if input._array.shape != target._array.shape:
        input = expand(input, target._array.shape)
    how = _how(reduction)
    return binary_cross_entropy_with_logits(input, target, weight, reduction=how, pos_weight=pos_weight)


@row(name="cosine_embedding_loss", method=False)
def _cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = _DEFAULT
) -> Tensor:
    """1 - cosine of what belongs together, else max(0, cosine - margin)"""
    return cosine_embedding_loss(input1, input2, target, margin, reduction=_how(reduction))


@row(name="hinge_embedding_loss", method=False)
def _hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = _DEFAULT) -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1"""
    return hinge_embedding_loss(input, target, margin, reduction=_how(reduction))


@row(name="kl_div", method=False)
def _kl_div(input: Tensor, target: Tensor, reduction: int = _DEFAULT, *, log_target: bool = False) -> Tensor:
    """y (log y - x), of a target that may be a logarithm itself"""
    return kl_div(input, target, reduction=_how(reduction), log_target=log_target)


@row(name="margin_ranking_loss", method=False)
def _margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = _DEFAULT
) -> Tensor:
    """max(0, -y (x1 - x2) + margin)"""
    return margin_ranking_loss(input1, input2, target, margin, reduction=_how(reduction))


@row(name="poisson_nll_loss", method=False)
def _poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """exp(x) - y x, or x - y log(x + eps)"""
    return poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_how(reduction))


@row(name="triplet_margin_loss", method=False)
def _triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = _DEFAULT,
) -> Tensor:
    """max(0, distance to the positive - distance to the negative + margin)"""
    how = _how(reduction)
    return triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=how)


# Rows of a matrix at indices.


@row(name="embedding", method=False)
def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """The rows of a matrix at indices; the padding row has no gradient"""
    known = 0 <= padding_idx < weight._array.shape[0]
    return embedding(indices, weight, padding_idx if known else None, scale_grad_by_freq=scale_grad_by_freq)


@row(method=False)
def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scales the rows at indices that are longer than a norm, in place"""
    places = indices._array
    if places.size and not (places.min() >= 0 and places.max() < input._array.shape[0]):
        raise DimensionError("index out of range in self")
    shorten_rows(input, places, max_norm, norm_type)
    return input


# Grids.


@row(method=False)
def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """The points that affine maps send those of an image, or of a volume, to"""
    return affine_grid(theta, size, align_corners)


def _sampled(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Images between their elements, at points from (-1, -1) to (1, 1)"""
    mode = _named("interpolation_mode", _READINGS, interpolation_mode)
    outside = _named("padding_mode", _OUTSIDES, padding_mode)
    return grid_sample(input, grid, mode, outside, align_corners)


row(_sampled, name="grid_sampler", method=False)
row(_sampled, name="grid_sampler_2d", method=False)
row(_sampled, name="grid_sampler_3d", method=False)


# Norms and convolutions.


@row(name="instance_norm", method=False)
def _instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """weight (x - mean) / sqrt(variance + eps) + bias for each channel of each item"""
    moving = (running_mean, running_var)
    return instance_norm(input, *moving, weight, bias, use_input_stats, momentum, eps)


@row(method=False)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """The convolution of as many dimensions as the weight has, or its transpose"""
    rank = weight._array.ndim - 2
    if not 1 <= rank <= 3:
        raise RunError(f"weight should have at least three dimensions, and at most 5, got {rank + 2}")
    made: Tensor
    if transposed:
        spread = FUNCTIONS["weft"][f"conv_transpose{rank}d"]
        made = spread(input, weight, bias, stride, padding, output_padding, groups, dilation)
    else:
        made = (conv1d, conv2d, conv3d)[rank - 1](input, weight, bias, stride, padding, dilation, groups)
    return made


@row(method=False)
@row(space="weft.nn.functional", method=False)
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """The convolution along time of (time, batch, channels) with (width, channels, outputs)"""
    for tensor, rank, what in ((input, 3, "Input"), (weight, 3, "Weight"), (bias, 1, "Bias")):
        if tensor._array.ndim != rank:
            raise RunError(f"{what} must have {rank} dims, but has {tensor._array.ndim}")
    made = conv1d(permute(input, (1, 2, 0)), permute(weight, (2, 1, 0)), bias, padding=pad)
    return permute(made, (2, 0, 1))
