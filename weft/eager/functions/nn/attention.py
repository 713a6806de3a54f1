"""Rows of nn.functional: attention, and elements left out at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.draws import keep_scale, uniform64
from ....base.dtype import is_float
from ....base.errors import InvalidValue, RunError, Unsupported
from ....core.op import Op
from ....ops.nn.attention import AttentionAttrs
from ...dispatch import apply
from ...random.generator import default_generator
from ...tensor.tensor import Tensor, wrap
from ...tensor.types import as_dtype
from ..create.create import laid_out_as
from ..linalg.matmul import matmul
from ..math.arithmetic import add, mul
from ..math.compare import choose
from ..math.special import softmax
from ..operands import must_be_real
from ..random.fill import bernoulli_
from ..shape.join import repeat_interleave
from ..shape.shape import expand, transpose
from ..table import row
from .activation import NN, given_back, leaky_relu

_ATTENTION = Op.get("scaled_dot_product_attention")


@row(space=NN, method=False)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale query key' + mask) value"""
    _check(query, key, value, attn_mask, is_causal)
    if enable_gqa:
        heads = query._array.shape[-3]
        key, value = (repeat_interleave(x, heads // x._array.shape[-3], -3) for x in (key, value))
    if dropout_p > 0:
        return _with_dropout(query, key, value, attn_mask, dropout_p, is_causal, scale)
    lead = np.broadcast_shapes(*(x._array.shape[:-2] for x in (query, key, value)))
    query, key, value = (expand(x, (*lead, *x._array.shape[-2:])) for x in (query, key, value))
    mask = "none" if attn_mask is None else "boolean"
    if attn_mask is not None and attn_mask._array.dtype != bool:
        mask = "additive"
    factor = 1 / math.sqrt(max(query._array.shape[-1], 1)) if scale is None else float(scale)
    params = AttentionAttrs(scale=factor, is_causal=is_causal, mask=mask)
    inputs = [query, key, value] if attn_mask is None else [query, key, value, attn_mask]
    return apply(_ATTENTION, params, inputs)[0]


def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool) -> None:
    if min(x._array.ndim for x in (query, key, value)) < 2:
        raise RunError(
            "scaled_dot_product_attention: Expected query, key, and value to all be  at least 2 "
            f"dimensional, but got Query dim: {query.ndim}, Key dim: {key.ndim}, Value dim: "
            f"{value.ndim} instead."
        )
    if len({x._array.dtype for x in (query, key, value)}) > 1:
        raise RunError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    if attn_mask is not None and is_causal:
        raise RunError("scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    kinds = (np.dtype(bool), query._array.dtype)
    if attn_mask is not None and attn_mask._array.dtype not in kinds:
        raise RunError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {attn_mask.dtype} and  query.dtype: {query.dtype} instead."
        )


def _with_dropout(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float, causal: bool, scale: float | None
) -> Tensor:
    factor = 1 / math.sqrt(query._array.shape[-1]) if scale is None else scale
    scores = mul(matmul(query, transpose(key, -2, -1)), factor)
    if causal:
        mask = wrap(np.tri(*scores._array.shape[-2:], dtype=bool))
    if mask is not None and mask._array.dtype == bool:
        scores = choose(mask, scores, -math.inf)
    elif mask is not None:
        scores = add(scores, mask)
    return matmul(dropout(softmax(scores, -1), p), value)


# Dropout.


def _kept(input: Tensor, p: float, shape: Sequence[int] | None) -> Tensor:
    """Ones, and zeros with a probability: in a shape, or for each element as it lies in memory."""
    array = input._array
    if not is_float(array.dtype):
        named = as_dtype(array.dtype).title
        raise RunError(f"result type Float can't be cast to the desired output type {named}")
    kind = array.dtype
    empty = laid_out_as(input, kind) if shape is None else np.empty(tuple(shape), kind)
    return bernoulli_(wrap(empty), 1 - p)


def _check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")


def _dropped(input: Tensor, p: float, training: bool, inplace: bool, shape: Sequence[int] | None = None) -> Tensor:
    _check_probability(p)
    if not training or p == 0 or not input._array.size:
        return input
    if p == 1:
        return given_back(input, mul(input, 0), inplace)
    mask = _kept(input, p, shape)
    mask._array *= keep_scale(input._array.dtype, p)
    return given_back(input, mul(input, mask), inplace)


@row(space=NN, method=False)
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Elements left out with probability p, the others scaled by 1 / (1 - p)"""
    return _dropped(input, p, training, inplace)


def _of_features(rank: int, unbatched: bool) -> Any:
    def shape(input: Tensor) -> tuple[int, ...]:
        """One decision for each channel of each item."""
        dims = input._array.shape
        lead = 1 if unbatched and len(dims) == rank + 1 else 2
        return (*dims[:lead], *[1] * (len(dims) - lead))

    return shape


_shape1, _shape2, _shape3 = _of_features(1, True), _of_features(2, False), _of_features(3, False)


@row(space=NN, method=False)
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels left out with probability p"""
    if input._array.ndim not in (2, 3):
        raise RunError(f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input.")
    return _dropped(input, p, training, inplace, _shape1(input))


@row(space=NN, method=False)
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels left out with probability p"""
    return _dropped(input, p, training, inplace, _shape2(input))


@row(space=NN, method=False)
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels left out with probability p"""
    return _dropped(input, p, training, inplace, _shape3(input))


_SATURATED = -1.7580993408473766  # what selu approaches for large negative x


def _alpha_dropped(
    input: Tensor, p: float, training: bool, inplace: bool, shape: Sequence[int] | None = None
) -> Tensor:
    """What is left out becomes selu's lowest value; mean and variance stay."""
    _check_probability(p)
    if not training or p == 0 or not input._array.size:
        return input
    if p == 1:
        return given_back(input, mul(input, 0), inplace)
    scale = ((1 - p) * (1 + p * _SATURATED**2)) ** -0.5
    kept = _kept(input, p, shape)
    filled = wrap((1 - kept._array) * input._array.dtype.type(_SATURATED))
    made = add(mul(add(mul(input, kept), filled), scale), -scale * p * _SATURATED)
    return given_back(input, made, inplace)


@row(space=NN, method=False)
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance after selu"""
    return _alpha_dropped(input, p, training, inplace)


@row(space=NN, method=False)
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels"""
    if training and p and input._array.ndim < 2:
        raise RunError("Feature dropout requires at least 2 dimensions in the input")
    return _alpha_dropped(input, p, training, inplace, _shape2(input))


@row(space=NN, method=False)
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """x where x > 0, else x times a random number between two bounds, or their mean"""
    must_be_real("rrelu", input)
    if lower > upper:
        raise RunError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    if not is_float(input._array.dtype):
        raise Unsupported(f"rrelu is not implemented for {input._array.dtype.name}")
    slopes = np.ones_like(input._array)
    below = input._array <= 0
    with default_generator._lock:
        drawn = uniform64(default_generator._bits, int(below.sum()))
    least, most = (float(slopes.dtype.type(bound)) for bound in (lower, upper))
    slopes[below] = drawn * (most - least) + least
    return given_back(input, mul(input, wrap(slopes)), inplace)
