"""Rows: norms and dropout with what their kernels keep: moments, masks; and norms of slices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.dtype import DTYPES
from ....base.errors import RunError
from ...tensor.tensor import Array, Tensor, axis_of, wrap
from ..linalg.norms import matrix_norm
from ..math.arithmetic import add, mul
from ..math.unary import rsqrt
from ..reduce.reduce import mean, var, vector_norm
from ..shape.shape import reshape
from ..table import row
from .attention import dropout
from .norm import batch_norm, group_norm, layer_norm

_HALVES = (DTYPES["float16"], DTYPES["bfloat16"])


def _moments(rows: Array, eps: float, shape: Any) -> tuple[Tensor, Tensor]:
    """The mean of each row, and 1 / sqrt(variance + eps); apart from the graph."""
    kind = rows.dtype
    wide = rows.astype(np.float32) if kind in _HALVES else rows
    with np.errstate(all="ignore"):
        middle, spread = wide.mean(-1), 1 / np.sqrt(wide.var(-1) + eps)
    return wrap(middle.astype(kind).reshape(shape)), wrap(spread.astype(kind).reshape(shape))


Normed = tuple[Tensor, Tensor, Tensor]


@row(method=False)
def native_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Normed:
    """`layer_norm`, the means and 1 / the deviations"""
    made = layer_norm(input, normalized_shape, weight, bias, eps)
    rank = len(normalized_shape)
    lead = input._array.shape[: input._array.ndim - rank]
    rows = input._array.reshape((*lead, int(np.prod(normalized_shape))))
    return made, *_moments(rows, eps, (*lead, *[1] * rank))


@row(method=False)
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> Normed:
    """`group_norm`, the means and 1 / the deviations of all groups"""
    if input._array.size != N * C * HxW:
        raise RunError(f"Expected X.numel() == N * C * HxW to be true, but got {input.shape}")
    made = group_norm(input, group, weight, bias, eps)
    rows = reshape(input, (N, group, C * HxW // group))
    return made, mean(rows, -1), rsqrt(add(var(rows, -1, correction=0), eps))


@row(method=False)
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Normed:
    """`batch_norm`, and when training the means and 1 / the deviations of the batch"""
    made = batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        nothing = np.empty(0, input._array.dtype)
        return made, wrap(nothing), wrap(nothing.copy())
    channels = input._array.shape[1]
    rows = np.moveaxis(input._array, 1, 0).reshape(channels, -1)
    return made, *_moments(rows, eps, (channels,))


@row(method=False)
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """`dropout`, and which elements it left"""
    if train is False or not p:
        kept = np.ones(input._array.shape, bool)
        return mul(input, 1), wrap(kept)
    ones = wrap(np.ones_like(input._array))
    scaled = dropout(ones, p, True)
    return mul(input, scaled), wrap(scaled._array != 0)


# Norms.


@row(method=False)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm of each slice along the first or the last dimension; of everything for -1"""
    rank = v._array.ndim
    if dim == -1:
        return vector_norm(v, pow)
    if dim not in (0, rank - 1):
        dim = axis_of(dim, rank)
    others = tuple(axis for axis in range(rank) if axis != dim)
    return vector_norm(v, pow, others, True) if others else vector_norm(reshape(v, (-1, 1)), pow, 1)


@row(method=False, out=True)
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares along dimensions"""
    return vector_norm(input, 2, tuple(dim) if isinstance(dim, (tuple, list)) else dim, keepdim)


@row(method=False, out=True)
def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum of the singular values of a matrix, or of matrices in two dimensions"""
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else tuple(dim), keepdim)
