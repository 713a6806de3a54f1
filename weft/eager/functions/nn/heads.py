"""Rows of nn.functional: attention of many heads, random choices that have gradients, and the
cross entropy of linear scores."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import is_complex, is_float
from ....base.errors import InvalidValue, RunError
from ...tensor.tensor import Tensor, axis_of, wrap
from ..create.create import laid_out_as
from ..linalg.matmul import matmul
from ..math.arithmetic import add, div, mul, sub
from ..math.special import softmax
from ..random.fill import exponential_
from ..reduce.extreme import argmax
from ..reduce.reduce import mean
from ..shape.join import cat
from ..shape.parts import chunk
from ..shape.shape import expand, reshape, squeeze, transpose, unsqueeze
from ..table import row
from .activation import NN
from .attention import dropout, scaled_dot_product_attention
from .classes import cross_entropy
from .conv import linear
from .image import constant_pad_nd


@row(space=NN, method=False)
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """softmax((logits + noise of Gumbel's distribution) / tau); with `hard`, a 1 at the greatest
    whose gradient is that of the softmax"""
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    drawn = exponential_(wrap(laid_out_as(logits, logits._array.dtype)))
    with np.errstate(divide="ignore"):
        noise = wrap(-np.log(drawn._array))
    soft = softmax(div(add(logits, noise), tau), dim)
    if not hard:
        return soft
    axis = axis_of(dim, soft._array.ndim)
    chosen = np.zeros_like(soft._array)
    np.put_along_axis(chosen, argmax(soft, axis, True)._array, 1, axis)
    return add(sub(wrap(chosen), soft.detach()), soft)


@row(space=NN, method=False)
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """The cross entropy of linear(input, linear_weight); options of memory change nothing"""
    in_parts = options is not None and not label_smoothing and target._array.dtype == np.int64
    if in_parts and linear_weight._array.ndim == 2 and is_complex(input._array.dtype):
        raise InvalidValue(f"acc_dtype must be a floating dtype, got {input.dtype}")
    lead, outs = _score_sizes(input, linear_weight, linear_bias)
    if ignore_index is not None and target._array.shape == (*lead, *outs):
        raise RunError("ignore_index cannot be specified when target contains probabilities")
    width = input._array.shape[-1]
    scores = linear(input, reshape(linear_weight, (-1, width)))
    if len(outs) > 1:
        scores = reshape(scores, (*lead, *outs))
    if linear_bias is not None:
        scores = add(scores, linear_bias)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        scores, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )


def _score_sizes(input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of items, and of classes and what they are asked for at."""
    shape, wide = input._array.shape, weight._array.shape
    if len(shape) not in (1, 2):
        raise RunError(f"expected input with dimensionality 1 or 2, got {len(shape)}")
    if len(wide) < 2:
        raise RunError(f"expected linear_weight with dimensionality at least 2, got {len(wide)}")
    if shape[-1] != wide[-1]:
        raise RunError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{shape[-1]} and {wide[-1]}, respectively"
        )
    if bias is not None and bias._array.shape != wide[:-1]:
        raise RunError(f"expected linear_bias shape {wide[:-1]}, got {bias.shape}")
    if len(wide) > 2 and len(shape) == 1:
        raise RunError(
            f"K-dimensional loss defined by linear_weight shape {wide} requires batched input, got "
            f"unbatched input with shape {shape}"
        )
    return shape[:-1], wide[:-1]


# Attention of many heads.


class Unfit(RunError, AssertionError):
    """Arguments of attention that do not fit each other."""


class _Sizes(NamedTuple):
    targets: int
    items: int
    sources: int
    heads: int
    width: int  # of a head


@row(space=NN, method=False)
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Projections of query, key and value, attention in each of several parts of them, and a
    projection of the results; with the weights of attention if they are asked for"""
    batched = _is_batched(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = (unsqueeze(x, 1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else unsqueeze(key_padding_mask, 0)
    sizes = _sizes_of(query, key, num_heads, embed_dim_to_check)
    if is_causal and attn_mask is None:
        raise RunError(
            "Need attn_mask if specifying the is_causal hint.", hint="is_causal only says that attn_mask is a triangle"
        )
    padding = _additive(key_padding_mask, query, "key_padding_mask")
    is_causal = is_causal and padding is None
    by_hint = is_causal and not need_weights
    mask = None if by_hint else _additive(attn_mask, query, "attn_mask")
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights = separate if use_separate_proj_weight else _packed(in_proj_weight, key, value)
    q, k, v = _projected((query, key, value), weights, in_proj_bias)
    mask = _of_heads(mask, sizes)
    added = 0
    if bias_k is not None or bias_v is not None:
        k, v = _with_biases(k, v, bias_k, bias_v, static_k, static_v, sizes)
        added += 1
    q = _heads_of(q, sizes)
    k = _heads_of(k, sizes) if static_k is None else _static(static_k, "static_k", sizes)
    v = _heads_of(v, sizes) if static_v is None else _static(static_v, "static_v", sizes)
    if add_zero_attn:
        nothing = wrap(np.zeros((k._array.shape[0], 1, sizes.width), k._array.dtype))
        k, v = cat([k, nothing], 1), cat([v, nothing], 1)
        added += 1
    mask = _merged(_widened(mask, added), _widened(padding, added), sizes, k._array.shape[1])
    p = dropout_p if training else 0.0
    if need_weights:
        made, shares = _weighed(q, k, v, mask, p)
    else:
        made, shares = _unweighed(q, k, v, mask, p, by_hint, sizes), None
    made = reshape(transpose(made, 0, 1), (sizes.targets, sizes.items, -1))
    made = linear(made, out_proj_weight, out_proj_bias)
    if shares is not None:
        shares = reshape(shares, (sizes.items, sizes.heads, sizes.targets, -1))
        shares = mean(shares, 1) if average_attn_weights else shares
    if not batched:
        made, shares = squeeze(made, 1), None if shares is None else squeeze(shares, 0)
    return made, shares


def _is_batched(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int
) -> bool:
    rank = query._array.ndim
    if rank not in (2, 3):
        raise Unfit(f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor")
    if key._array.ndim != rank or value._array.ndim != rank:
        raise Unfit(
            f"For a {rank}-D `query`, expected `key` and `value` to be {rank}-D but found "
            f"{key._array.ndim}-D and {value._array.ndim}-D tensors respectively"
        )
    if padding is not None and padding._array.ndim != rank - 1:
        raise Unfit(
            f"For a {rank}-D `query`, expected `key_padding_mask` to be `None` or {rank - 1}-D but "
            f"found {padding._array.ndim}-D tensor instead"
        )
    if mask is not None and mask._array.ndim not in (2, 3):
        raise Unfit(f"expected `attn_mask` to be `None`, 2-D or 3-D but found {mask._array.ndim}-D tensor")
    return rank == 3


def _sizes_of(query: Tensor, key: Tensor, heads: int, wanted: int) -> _Sizes:
    targets, items, width = query._array.shape
    if width != wanted:
        raise Unfit(f"was expecting embedding dimension of {wanted}, but got {width}")
    if heads < 1 or width % heads:
        raise Unfit(f"embed_dim {width} not divisible by num_heads {heads}")
    return _Sizes(targets, items, key._array.shape[0], heads, width // heads)


def _additive(mask: Tensor | None, query: Tensor, name: str) -> Tensor | None:
    """A mask that is added to scores: true becomes minus infinity."""
    if mask is None or is_float(mask._array.dtype):
        return mask
    if mask._array.dtype != bool:
        raise Unfit(f"only bool and floating types of {name} are supported")
    kind = query._array.dtype.type
    return wrap(np.where(mask._array, kind(-math.inf), kind(0)))


def _packed(weight: Tensor | None, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    if weight is None:
        raise Unfit("use_separate_proj_weight is False but in_proj_weight is None")
    if key._array.shape != value._array.shape:
        raise Unfit(f"key shape {key.shape} does not match value shape {value.shape}")
    return chunk(weight, 3)


def _projected(inputs: Any, weights: Any, bias: Tensor | None) -> list[Tensor]:
    if any(weight is None for weight in weights):
        raise Unfit("use_separate_proj_weight is True but one of the projections is None")
    key, value = inputs[1:]
    if key._array.shape[:2] != value._array.shape[:2]:
        raise Unfit(f"key's sequence and batch dims {list(key.shape[:2])} do not match value's {list(value.shape[:2])}")
    biases = (None,) * 3 if bias is None else chunk(bias, 3)
    return [linear(x, weight, b) for x, weight, b in zip(inputs, weights, biases)]


def _of_heads(mask: Tensor | None, sizes: _Sizes) -> Tensor | None:
    """A mask with an axis for items and heads."""
    if mask is None:
        return None
    wanted = (sizes.items * sizes.heads, sizes.targets, sizes.sources)[3 - mask._array.ndim :]
    if mask._array.shape != wanted:
        raise RunError(f"The shape of the {mask._array.ndim}D attn_mask is {mask.shape}, but should be {wanted}.")
    return unsqueeze(mask, 0) if mask._array.ndim == 2 else mask


def _with_biases(
    k: Tensor, v: Tensor, bias_k: Tensor | None, bias_v: Tensor | None, static_k: Any, static_v: Any, sizes: _Sizes
) -> list[Tensor]:
    """Keys and values with one more, the same for every item."""
    if bias_k is None or bias_v is None:
        raise Unfit("bias_k and bias_v must be set both, or neither")
    if static_k is not None or static_v is not None:
        raise Unfit("bias cannot be added to static key or value.")
    pairs = ((k, bias_k), (v, bias_v))
    return [cat([x, expand(b, (1, sizes.items, b._array.shape[-1]))]) for x, b in pairs]


def _heads_of(x: Tensor, sizes: _Sizes) -> Tensor:
    """(length, items, features) as (items times heads, length, features of a head)."""
    return transpose(reshape(x, (x._array.shape[0], sizes.items * sizes.heads, sizes.width)), 0, 1)


def _static(given: Tensor, name: str, sizes: _Sizes) -> Tensor:
    first, _, last = given._array.shape
    if (first, last) != (sizes.items * sizes.heads, sizes.width):
        raise Unfit(
            f"expecting {name} of size ({sizes.items * sizes.heads}, *, {sizes.width}), but got {list(given.shape)}"
        )
    return given


def _widened(mask: Tensor | None, added: int) -> Tensor | None:
    return mask if mask is None or not added else constant_pad_nd(mask, (0, added))


def _merged(mask: Tensor | None, padding: Tensor | None, sizes: _Sizes, sources: int) -> Tensor | None:
    """One mask of both."""
    if padding is None:
        return mask
    if padding._array.shape != (sizes.items, sources):
        raise Unfit(f"expecting key_padding_mask shape of {(sizes.items, sources)}, but got {padding.shape}")
    per_head = expand(reshape(padding, (sizes.items, 1, 1, sources)), (sizes.items, sizes.heads, 1, sources))
    own = reshape(per_head, (sizes.items * sizes.heads, 1, sources))
    return own if mask is None else add(mask, own)


def _weighed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
    scores = matmul(mul(q, 1 / math.sqrt(q._array.shape[-1])), transpose(k, -2, -1))
    shares = softmax(scores if mask is None else add(scores, mask), -1)
    shares = dropout(shares, p) if p > 0 else shares
    return matmul(shares, v), shares


def _unweighed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, causal: bool, sizes: _Sizes) -> Tensor:
    heads = [reshape(x, (sizes.items, sizes.heads, x._array.shape[1], sizes.width)) for x in (q, k, v)]
    if mask is not None:
        lead = (sizes.items, sizes.heads) if mask._array.shape[0] > 1 else (1, 1)
        mask = reshape(mask, (*lead, *mask._array.shape[1:]))
        full = (sizes.items, sizes.heads, sizes.targets, k._array.shape[1])
        mask = expand(mask, full)
    made = scaled_dot_product_attention(*heads, mask, p, causal)
    return reshape(made, (sizes.items * sizes.heads, sizes.targets, sizes.width))
